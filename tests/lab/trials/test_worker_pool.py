"""Worker processes: results in order, events on the way, errors raised here, deaths reported, none left behind."""

from __future__ import annotations

import importlib
import multiprocessing
import os
from pathlib import Path
from typing import Any

import pytest

from breadth.base.errors import BreadthError, SettingsError
from breadth.lab.trials.worker_pool import WorkerCall, WorkerPool

CHORES = """
import os, signal
from breadth.base.errors import SettingsError

def squared(tell, number):
    tell(f"begin {number}")
    return number * number, os.getpid(), os.environ["OMP_NUM_THREADS"]

def refuse(tell, path):
    raise SettingsError(f"{path} will not do.", "Take another.")

class Odd(Exception):
    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")

def break_oddly(tell):
    raise Odd(1, 2)  # cannot be pickled, as some libraries' errors

def die(tell):
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def chores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module that other processes can import, which a test is not."""
    (tmp_path / "chores_of_workers.py").write_text(CHORES)
    monkeypatch.syspath_prepend(tmp_path)
    return importlib.import_module("chores_of_workers")


def nothing(place: int, said: Any) -> None:
    """Hear nothing."""


def test_results_come_in_order_and_events_by_call(chores: Any) -> None:
    heard: list[tuple[int, Any]] = []
    with WorkerPool(2) as workers:
        found = workers.run(
            [WorkerCall(chores.squared, (number,)) for number in (3, 4, 5)],
            lambda place, said: heard.append((place, said)),
        )
        again = workers.run([WorkerCall(chores.squared, (6,))], nothing)
    assert [number for number, _, _ in found] == [9, 16, 25]
    assert sorted(heard) == [(0, "begin 3"), (1, "begin 4"), (2, "begin 5")]
    processes = {process for _, process, _ in found}
    assert len(processes) == 2  # the third call was done by one that was free again
    assert again[0][1] in processes
    assert os.getpid() not in processes
    assert {threads for _, _, threads in found} == {"1"}
    assert multiprocessing.active_children() == []


def test_an_error_is_raised_here_with_where_it_was(chores: Any) -> None:
    with WorkerPool(1) as workers:
        with pytest.raises(SettingsError, match="will not do") as caught:
            workers.run([WorkerCall(chores.refuse, (Path("x"),))], nothing)
        assert "in refuse" in caught.value.__notes__[0]
    with WorkerPool(1) as workers, pytest.raises(RuntimeError, match="Odd: 1 and 2"):
        workers.run([WorkerCall(chores.break_oddly, ())], nothing)


def test_a_death_is_said(chores: Any) -> None:
    with WorkerPool(1) as workers, pytest.raises(BreadthError, match="exit status -9") as caught:
        workers.run([WorkerCall(chores.die, ())], nothing)
    assert "it resumes" in caught.value.remedy
    assert multiprocessing.active_children() == []
