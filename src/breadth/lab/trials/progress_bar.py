"""Bars on standard error that show how far the lab is and how long it will take; plain lines where that is no terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from breadth.lab.trials.experiment import Trial
from breadth.lab.trials.folder import FOUND
from breadth.lab.trials.runner import Failure, Watch

if TYPE_CHECKING:
    from rich.progress import Progress


@contextmanager
def trial_bar(trials: Sequence[Trial], folder: Path) -> Iterator[Watch]:
    """Show how much of an experiment is done; the estimate is by what this call has done itself."""
    ended = {trial.name for trial in trials if (folder / trial.name / FOUND).exists()}
    units = {trial.name: trial.units if trial.name in ended else 0 for trial in trials}
    total, began, before = sum(trial.units for trial in trials), time.monotonic(), sum(units.values())
    bar = _bar()
    row = bar.add_task(_what(len(ended), len(trials)), total=total, completed=before)

    def told(trial: Trial, count: int) -> None:
        units[trial.name] = max(units[trial.name], min(count, trial.units))
        bar.update(row, completed=sum(units.values()))

    def closed(trial: Trial, failure: Failure | None) -> None:
        ended.add(trial.name)
        units[trial.name] = trial.units
        spent, done = time.monotonic() - began, sum(units.values()) - before
        bar.update(row, completed=sum(units.values()), description=_what(len(ended), len(trials)))
        if bar.disable:
            left = _minutes(spent / done * (total - before - done)) if done else "?"
            state = "ended" if failure is None else "FAILED"
            sys.stderr.write(f"{trial.name} {state}; {_what(len(ended), len(trials))}, about {left} left\n")

    with bar:
        yield Watch(told, closed)


@contextmanager
def lesson_bar(steps: int) -> Iterator[Callable[[int, float], None]]:
    """Show how far pretraining is, with its loss."""
    bar = _bar()
    row = bar.add_task("pretraining", total=steps)

    def told(step: int, loss: float) -> None:
        bar.update(row, completed=step, description=f"pretraining, loss {loss:.3f}")
        if bar.disable and (step % 500 == 0 or step == steps):
            sys.stderr.write(f"step {step} of {steps}, loss {loss:.3f}\n")

    with bar:
        yield told


def _bar() -> Progress:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
    )
    return Progress(
        *columns,
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
        transient=True,
        speed_estimate_period=300,
    )


def _what(ended: int, trials: int) -> str:
    return f"{ended} of {trials} trials"


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
