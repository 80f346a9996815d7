"""Trials side by side: crashes, kills, Ctrl-C, resuming, and folders that are refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from breadth.base.errors import BrokenFileError, WriteError
from breadth.lab.trials.experiment import (
    RESULT_FILE,
    ExperimentSetup,
    ExperimentTrial,
    FinishedTrial,
    prepare_trials,
    read_result,
    write_result,
)
from breadth.lab.trials.runner import (
    EXPERIMENT_RESULTS,
    TrialFailure,
    TrialObserver,
    lock_folder,
    run_trials,
    show_pretraining,
    show_trials,
    write_results,
)
from breadth.report.sections import Fact, Facts, Page

WORK = '''
import os, signal, time
from pathlib import Path
def square(settings, folder, base, told):
    with (Path(folder) / "calls").open("a") as file: file.write("x")
    told(1)
    return {"square": settings["value"] ** 2, "threads": os.environ["OMP_NUM_THREADS"]}
def crash(settings, folder, base, told):
    if not (Path(folder) / "mended").exists(): raise RuntimeError("out of luck")
    return {}
def killed(settings, folder, base, told):
    os.kill(os.getpid(), signal.SIGKILL)
def leave(settings, folder, base, told):
    os._exit(3)
def count(settings, folder, base, told):
    """Goes on from what an earlier attempt left, as a course does from its checkpoint."""
    place = Path(folder) / "progress"
    start = int(place.read_text()) if place.exists() else 0
    for step in range(start, settings["steps"]):
        fresh = place.with_suffix(".new")
        fresh.write_text(str(step + 1))
        fresh.replace(place)  # it may be killed at any moment
        told(step + 1)
        time.sleep(0.1)
    return {"steps": settings["steps"], "resumed": start > 0}
def together(settings, folder, base, told):
    here = Path(folder).parent
    mark = here / f"running-{settings['value']}"
    mark.touch(); time.sleep(0.5)
    most = len(list(here.glob("running-*")))
    mark.unlink()
    return {"most": most}
'''
MAIN = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
import sys
from pathlib import Path
from breadth.lab.trials.experiment import ExperimentTrial
from breadth.lab.trials.runner import run_trials
trials = [ExperimentTrial(f"count-{n}", "works_of_test:count", {"steps": 80}) for n in range(2)]
try:
    run_trials(trials, Path(sys.argv[1]), None, 2)
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.fixture(autouse=True)
def _works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "works_of_test.py").write_text(WORK)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


def trial(work: str, name: str = "", **settings: int) -> ExperimentTrial:
    return ExperimentTrial(name or work, f"works_of_test:{work}", settings)


def test_what_has_ended_is_not_run_again(tmp_path: Path) -> None:
    trials = [trial("square", f"square-{value}", value=value) for value in (2, 3)]
    told: list[tuple[str, int]] = []
    assert (
        run_trials(
            trials, tmp_path / "out", None, 2, TrialObserver(on_units=lambda one, units: told.append((one.name, units)))
        )
        == []
    )
    assert sorted(told) == [("square-2", 1), ("square-3", 1)]
    assert run_trials(trials, tmp_path / "out", None, 2) == []
    for one, value in zip(trials, (4, 9), strict=True):
        result = read_result(tmp_path / "out" / one.name)
        assert result is not None
        assert result.result == {"square": value, "threads": "1"}
        assert (tmp_path / "out" / one.name / "calls").read_text() == "x"


def test_one_that_fails_leaves_the_others_alone_and_is_tried_again(tmp_path: Path) -> None:
    trials = [trial("crash"), trial("killed"), trial("leave"), trial("square", value=5)]
    ended: dict[str, TrialFailure | None] = {}
    failures = run_trials(
        trials, tmp_path, None, 2, TrialObserver(on_end=lambda one, failure: ended.update({one.name: failure}))
    )
    reasons = {failure.trial.name: failure.reason for failure in failures}
    assert reasons.keys() == {"crash", "killed", "leave"}
    assert reasons["crash"] == "RuntimeError: out of luck"
    assert "SIGKILL" in reasons["killed"]
    assert "--jobs" in reasons["killed"]
    assert "status 3" in reasons["leave"]
    assert ended.keys() == {"crash", "killed", "leave", "square"}
    assert ended["square"] is None
    assert (tmp_path / "square" / RESULT_FILE).exists()
    assert all(failure.log.exists() for failure in failures)
    (tmp_path / "crash" / "mended").touch()
    assert [failure.trial.name for failure in run_trials(trials, tmp_path, None, 1)] == ["killed", "leave"]


def test_no_more_than_so_many_run_at_once(tmp_path: Path) -> None:
    trials = [trial("together", f"t{value}", value=value) for value in range(4)]
    run_trials(trials, tmp_path, None, 2)
    most = [result.result["most"] for one in trials if (result := read_result(tmp_path / one.name)) is not None]
    assert len(most) == 4
    assert max(most) <= 2


def test_a_changed_setting_is_refused_before_anything_runs(tmp_path: Path) -> None:
    run_trials([trial("square", "b", value=2)], tmp_path, None, 1)
    with pytest.raises(BrokenFileError, match="value was 2, now 3"):
        run_trials([trial("square", "a", value=2), trial("square", "b", value=3)], tmp_path, None, 1)
    assert not (tmp_path / "a" / RESULT_FILE).exists()


def test_a_second_run_is_kept_out(tmp_path: Path) -> None:
    with lock_folder(tmp_path), pytest.raises(WriteError, match="another run"):
        run_trials([trial("square", value=2)], tmp_path, None, 1)


def test_a_folder_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(WriteError, match="could not be written"):
        run_trials([], tmp_path / "file" / "folder", None, 1)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_however_it_is_ended_its_children_end_too_and_it_goes_on_from_there(
    tmp_path: Path, how: signal.Signals
) -> None:
    out = tmp_path / "out"
    process = subprocess.Popen([sys.executable, "-c", MAIN, str(out)], env=dict(os.environ))
    progress = [out / f"count-{number}" / "progress" for number in range(2)]
    wait_for(lambda: all(path.exists() and (path.read_text() or "0") >= "3" for path in progress))
    process.send_signal(how)
    assert process.wait(15) == (130 if how is signal.SIGINT else -how)
    wait_for(lambda: not still_counting(progress))
    steps = [int(path.read_text()) for path in progress]
    assert all(3 <= count < 80 for count in steps)
    for path in progress:
        path.write_text("78")  # no need to wait for the rest
    trials = [ExperimentTrial(f"count-{number}", "works_of_test:count", {"steps": 80}) for number in range(2)]
    assert run_trials(trials, out, None, 2) == []
    results = [read_result(out / one.name) for one in trials]
    assert [one.result for one in results if one] == [{"steps": 80, "resumed": True}] * 2


def wait_for(held: object, seconds: float = 20) -> None:
    assert callable(held)
    end = time.monotonic() + seconds
    while not held():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.1)


def still_counting(progress: list[Path]) -> bool:
    before = [path.read_text() for path in progress]
    time.sleep(0.5)
    return before != [path.read_text() for path in progress]


TRIALS = [ExperimentTrial(name, "m:w", units=10) for name in ("a", "b", "c")]


def test_each_trial_that_ends_is_a_line_with_an_estimate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prepare_trials(TRIALS, tmp_path)
    write_result(tmp_path / "a", {}, 1.0)
    with show_trials(TRIALS, tmp_path) as watch:
        watch.on_units(TRIALS[1], 5)
        watch.on_end(TRIALS[1], None)
        watch.on_end(TRIALS[2], TrialFailure(TRIALS[2], "no luck", tmp_path))
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("b ended; 2 of 3 trials, about ")
    assert second == "c FAILED; 3 of 3 trials, about 0 s left"


def test_lessons_are_told_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    with show_pretraining(600) as told:
        for step in range(1, 601):
            told(step, 1 / step)
    assert capsys.readouterr().err.splitlines() == ["step 500 of 600, loss 0.002", "step 600 of 600, loss 0.002"]


@dataclass(frozen=True)
class Small:
    name: str = "small"
    statement: str = "Three trials."
    seeds: int = 1

    def trials(self, bench: ExperimentSetup) -> tuple[ExperimentTrial, ...]:
        return tuple(ExperimentTrial(f"t{number}", "m:w", {"number": number}) for number in range(3))

    def page(self, done: Sequence[FinishedTrial], bench: ExperimentSetup) -> Page:
        return Page("Small", [Facts("Found", [Fact(one.trial.name, one.result["value"]) for one in done])])


def test_what_ended_failed_and_was_not_run(tmp_path: Path) -> None:
    small, bench = Small(), ExperimentSetup(1, weights="abc")
    trials = small.trials(bench)
    prepare_trials(trials, tmp_path)
    write_result(tmp_path / "t0", {"value": 5}, 3.0)
    page = write_results(
        small, bench, tmp_path, [TrialFailure(trials[1], "no luck", tmp_path / "log.txt")], "breadth lab run small"
    )
    written = json.loads((tmp_path / EXPERIMENT_RESULTS).read_text())
    assert {key: written[key] for key in ("experiment", "statement", "base", "seeds")} == {
        "experiment": "small",
        "statement": "Three trials.",
        "base": "abc",
        "seeds": 1,
    }
    states = [(row["name"], row["state"], row["seconds"], row["reason"], row["settings"]) for row in written["trials"]]
    assert states == [
        ("t0", "done", 3.0, None, {"number": 0}),
        ("t1", "failed", None, "no luck", {"number": 1}),
        ("t2", "not run", None, None, {"number": 2}),
    ]
    assert written["page"]["title"] == page.title == "Small"
    assert '"value":5' in json.dumps(written["page"], separators=(",", ":"))
