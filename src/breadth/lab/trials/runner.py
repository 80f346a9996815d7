"""Runs the trials of an experiment in parallel, one process and one thread each, with progress bars and results.json.

Finished trials are not repeated. Without a terminal, progress is printed as plain lines.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import orjson

from breadth.base.errors import WriteError
from breadth.base.system import atomic_file, refuse_address, write_error
from breadth.lab.trials.experiment import (
    FAILURE_FILE,
    LOG_FILE,
    RESULT_FILE,
    Experiment,
    ExperimentSetup,
    ExperimentTrial,
    prepare_trials,
)
from breadth.lab.trials.experiment import list_finished as ended
from breadth.lab.trials.worker import REASON_KEY, UNITS_KEY
from breadth.report.jsonable import render_json
from breadth.report.sections import Page

if TYPE_CHECKING:
    from rich.progress import Progress


SINGLE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1"
)
"""Settings of a trial's process: the trials share the cores, so none of them may take them all."""
TERMINATE_SECONDS = 10.0
"""Seconds a terminated process gets to end before it is killed."""


@dataclass(frozen=True)
class TrialFailure:
    """A trial that did not end well."""

    trial: ExperimentTrial
    """Which."""
    reason: str
    """What went wrong, in a line or two."""
    log: Path
    """Where more is written."""


@dataclass
class TrialProcesses:
    """The running processes, so that all of them can be stopped."""

    running: dict[str, subprocess.Popen[str]] = field(default_factory=dict)
    """By the name of their trial."""
    closing: bool = False
    """Whether no more are to be started."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while the two are looked at together."""

    def start(self, trial: ExperimentTrial, folder: Path, base: Path | None) -> subprocess.Popen[str] | None:
        """Start the process of a trial, unless all is to end."""
        command = [
            sys.executable,
            "-m",
            "breadth.lab.trials.worker",
            str(folder / trial.name),
            *([] if base is None else [str(base)]),
        ]
        with self.lock:
            if self.closing:
                return None
            # In a session of its own: Ctrl-C reaches this process only, which then ends the others in order.
            process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
                env={**os.environ, **SINGLE_THREAD},
            )
            self.running[trial.name] = process
            return process

    def stop(self) -> None:
        """End every process, by force where asking does not help."""
        with self.lock:
            self.closing = True
            processes = list(self.running.values())
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(TERMINATE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


@dataclass(frozen=True)
class TrialObserver:
    """Callbacks for the progress of trials; called from several threads."""

    on_units: Callable[[ExperimentTrial, int], None] = lambda *_: None
    """A trial has done so many units in all."""
    on_end: Callable[[ExperimentTrial, TrialFailure | None], None] = lambda *_: None
    """A trial has ended, well or not."""


def run_trials(
    trials: Sequence[ExperimentTrial],
    folder: Path,
    base: Path | None,
    jobs: int,
    observer: TrialObserver = TrialObserver(),  # noqa: B008 - frozen
) -> list[TrialFailure]:
    """Run the unfinished trials, ``jobs`` at once, and return those that failed; a failure does not stop the others.

    A folder whose trials have other settings is refused before anything runs. An interrupt ends all processes; the
    same call then resumes.
    """
    with lock_folder(folder):
        prepare_trials(trials, folder)
        left = [trial for trial in trials if not (folder / trial.name / RESULT_FILE).exists()]
        processes, failures = TrialProcesses(), list[TrialFailure]()
        with ThreadPoolExecutor(max(1, jobs)) as pool:
            try:
                futures = {pool.submit(run_trial, processes, trial, folder, base, observer): trial for trial in left}
                for future in as_completed(futures):
                    failure = future.result()
                    observer.on_end(futures[future], failure)
                    failures += [failure] if failure else []
            except BaseException:
                processes.stop()
                pool.shutdown(wait=True, cancel_futures=True)
                raise
    return failures


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Keep a second run out of the folder for a while."""
    refuse_address(folder, "results are kept in a folder of this machine")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("a")
    except OSError as error:
        raise write_error(folder, error) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise WriteError(
                folder, "is in use by another run.", "Wait for it, or name another folder with --out."
            ) from error
        yield


def run_trial(
    processes: TrialProcesses, trial: ExperimentTrial, folder: Path, base: Path | None, observer: TrialObserver
) -> TrialFailure | None:
    """Run one trial in its process and return its failure, if any."""
    process = processes.start(trial, folder, base)
    if process is None:
        return None
    assert process.stdout is not None  # noqa: S101 - for the type checker
    try:
        reason = read_progress(process.stdout, lambda units: observer.on_units(trial, units))
        status = process.wait()
    finally:
        if process.stdin is not None:
            process.stdin.close()
        process.stdout.close()
        del processes.running[trial.name]
    if processes.closing or (folder / trial.name / RESULT_FILE).exists():
        return None
    return describe_failure(trial, folder / trial.name, status, reason)


def read_progress(lines: IO[str], on_units: Callable[[int], None]) -> str:
    """Pass on the progress of a process until it ends; return why it failed, if it reports that."""
    reason = ""
    for line in lines:
        row = _parse_row(line)
        if isinstance(units := row.get(UNITS_KEY), int):
            on_units(units)
        reason = str(row.get(REASON_KEY, reason))
    return reason


def _parse_row(line: str) -> Mapping[str, object]:
    try:
        row = orjson.loads(line)
    except ValueError:
        return {}  # a process that was killed inside a line
    return row if isinstance(row, dict) else {}


def describe_failure(trial: ExperimentTrial, folder: Path, status: int, reason: str) -> TrialFailure:
    """Return why a trial failed."""
    if reason:
        return TrialFailure(trial, reason, folder / FAILURE_FILE)
    if status < 0:
        name = signal.Signals(-status).name
        why = (
            "; that is what a machine does that runs out of memory: try fewer --jobs"
            if -status == signal.SIGKILL
            else ""
        )
        return TrialFailure(trial, f"Its process was killed by {name}{why}.", folder / LOG_FILE)
    return TrialFailure(trial, f"Its process ended with status {status} and without a result.", folder / LOG_FILE)


@contextmanager
def show_trials(trials: Sequence[ExperimentTrial], folder: Path) -> Iterator[TrialObserver]:
    """Show how much of an experiment is done; the estimate is by what this call has done itself."""
    ended = {trial.name for trial in trials if (folder / trial.name / RESULT_FILE).exists()}
    units = {trial.name: trial.units if trial.name in ended else 0 for trial in trials}
    total, began, before = sum(trial.units for trial in trials), time.monotonic(), sum(units.values())
    bar = new_bar()
    row = bar.add_task(count_trials(len(ended), len(trials)), total=total, completed=before)

    def report_units(trial: ExperimentTrial, count: int) -> None:
        units[trial.name] = max(units[trial.name], min(count, trial.units))
        bar.update(row, completed=sum(units.values()))

    def report_end(trial: ExperimentTrial, failure: TrialFailure | None) -> None:
        ended.add(trial.name)
        units[trial.name] = trial.units
        spent, done = time.monotonic() - began, sum(units.values()) - before
        bar.update(row, completed=sum(units.values()), description=count_trials(len(ended), len(trials)))
        if bar.disable:
            left = format_time_left(spent / done * (total - before - done)) if done else "?"
            state = "ended" if failure is None else "FAILED"
            sys.stderr.write(f"{trial.name} {state}; {count_trials(len(ended), len(trials))}, about {left} left\n")

    with bar:
        yield TrialObserver(report_units, report_end)


@contextmanager
def show_pretraining(steps: int) -> Iterator[Callable[[int, float], None]]:
    """Show how far pretraining is, with its loss."""
    bar = new_bar()
    row = bar.add_task("pretraining", total=steps)

    def report_loss(step: int, loss: float) -> None:
        bar.update(row, completed=step, description=f"pretraining, loss {loss:.3f}")
        if bar.disable and (step % 500 == 0 or step == steps):
            sys.stderr.write(f"step {step} of {steps}, loss {loss:.3f}\n")

    with bar:
        yield report_loss


def new_bar() -> Progress:
    """Return a progress bar on standard error."""
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


def count_trials(ended: int, trials: int) -> str:
    """Say how many trials have ended."""
    return f"{ended} of {trials} trials"


def format_time_left(seconds: float) -> str:
    """Write a duration in seconds or minutes."""
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


EXPERIMENT_RESULTS = "results.json"
"""In the folder of an experiment: all of it."""


def write_results(
    experiment: Experiment, setup: ExperimentSetup, folder: Path, failures: Sequence[TrialFailure], command: str
) -> Page:
    """Make the page of what has ended and write results.json; what each trial found in full is in its own folder."""
    trials = experiment.trials(setup)
    done = ended(trials, folder)
    page = experiment.page(done, setup)
    failed = {failure.trial.name: failure.reason for failure in failures}
    seconds = {trial.trial.name: trial.seconds for trial in done}
    rows: list[dict[str, Any]] = [
        {
            "name": trial.name,
            "state": "done" if trial.name in seconds else "failed" if trial.name in failed else "not run",
            "seconds": seconds.get(trial.name),
            "reason": failed.get(trial.name),
            "settings": trial.settings,
        }
        for trial in trials
    ]
    whole = {
        "experiment": experiment.name,
        "statement": experiment.statement,
        "command": command,
        "base": setup.weights,
        "seeds": setup.seeds,
    }
    with atomic_file(folder / EXPERIMENT_RESULTS) as temporary:
        content = {**whole, "trials": rows, "page": orjson.loads(render_json(page))}
        temporary.write_bytes(orjson.dumps(content, option=orjson.OPT_INDENT_2))
    return page
