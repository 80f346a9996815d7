"""``breadth lab run``, ``gate`` and ``pretrain``: the experiments, what a base must be, and how one is made."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from breadth.base.cores import cores
from breadth.base.errors import SettingsError, WriteError
from breadth.cli.output import Html, Json, deliver, progress

if TYPE_CHECKING:
    from breadth.lab.trials.experiment import Bench, Experiment, Trial
    from breadth.lab.trials.runner import Failure

Base: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--base", help="Folder of a reasoner; the one that ships if left out.", file_okay=False, show_default=False
    ),
]
FAILED, NOT_MET, INTERRUPTED = 1, 1, 130
"""Exit statuses: a trial failed, the gate is not met, Ctrl-C."""


def run(
    experiment: Annotated[
        str | None, typer.Argument(help="Which; left out, all are listed.", show_default=False)
    ] = None,
    seeds: Annotated[
        int | None, typer.Option("--seeds", help="Repetitions of every arm.", min=1, show_default="the experiment's")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", help="Trials at once, one core each.", min=1, show_default="all cores")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Folder of the experiment.", file_okay=False, show_default="lab/EXPERIMENT"),
    ] = None,
    only: Annotated[
        str | None, typer.Option("--only", help="One arm of it, by the name of its folder.", show_default="all")
    ] = None,
    base: Base = None,
    listed: Annotated[bool, typer.Option("--list", help="List the experiments.")] = False,
    as_json: Json = False,
    html: Html = None,
) -> None:
    """Run an experiment on the tiny reasoner; the same command goes on where it was interrupted.

    Every trial gets a process, a core and a folder of its own, with a run folder inside that show reads; results.json
    holds the whole.
    """
    if listed or experiment is None:
        _list(as_json=as_json)
        return
    from breadth.lab.trials.experiment import EXPERIMENTS, bench_of

    chosen: Experiment = EXPERIMENTS.load(experiment)
    bench = bench_of(base, chosen.seeds if seeds is None else seeds)
    folder = Path("lab") / chosen.name if out is None else out
    with resumable(folder):
        failures = run_experiment(chosen, bench, folder, jobs or cores(), only)
    command = f"breadth lab run {chosen.name} --seeds {bench.seeds}{f' --only {only}' if only else ''}"
    conclude(chosen, bench, folder, failures, command, as_json=as_json, html=html)


def gate(
    base: Base = None,
    trained: Annotated[
        Path | None,
        typer.Option(
            "--trained",
            help="Folder of a plain course, to ask what training makes of it.",
            file_okay=False,
            show_default=False,
        ),
    ] = None,
    problems: Annotated[int, typer.Option("--problems", help="Problems held out to ask.", min=2)] = 200,
    samples: Annotated[int, typer.Option("--samples", help="Replies to each.", min=8)] = 64,
    as_json: Json = False,
    html: Html = None,
) -> None:
    """Ask whether a base is fit for the experiments: room to gain, breadth to lose, thinking that can be too long, formats alive.

    The exit status is 0 when everything is met, 1 when not.
    """
    from breadth.lab.experiments.gate import Gate, gate_page, pass_gate
    from breadth.lab.model.reasoner import load

    asked = Gate(problems=problems, samples=samples)
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")  # that of loading a megabyte of weights
    with progress("passing the gate") as told:
        passage = pass_gate(load(base), asked, trained, told)
    deliver(gate_page(passage, asked, " ".join(["breadth", *sys.argv[1:]])), as_json=as_json, html=html)
    if not passage.met:
        raise typer.Exit(NOT_MET)


def pretrain(
    folder: Annotated[
        Path, typer.Argument(help="Where to save the base; must not exist.", file_okay=False, show_default=False)
    ],
    prime: Annotated[
        int | None, typer.Option("--prime", help="What it reckons modulo.", show_default="the base's that ships")
    ] = None,
    steps: Annotated[
        int | None, typer.Option("--steps", help="Optimizer steps.", show_default="the base's that ships")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Of weights, problems and traces.", min=0)] = 0,
    threads: Annotated[
        int, typer.Option("--threads", help="Threads to reckon with; the weights depend on it a little.", min=1)
    ] = 1,
) -> None:
    """Make a base from nothing: a tiny Llama taught by the teacher's traces, the same for the same settings on one machine.

    Problems held out are never shown. What ships was made with the defaults.
    """
    if folder.exists():  # before minutes of work, not behind them
        raise WriteError(folder, "is there already.", "Name a folder that does not exist, or move this one away.")
    from dataclasses import replace

    from breadth.lab.model.pretraining import Lessons
    from breadth.lab.model.pretraining import pretrain as teach
    from breadth.lab.model.reasoner import save
    from breadth.lab.task.facts import Facts
    from breadth.lab.task.problems import LEVELS
    from breadth.lab.task.tasks import held_out
    from breadth.lab.task.teacher import Teacher
    from breadth.lab.trials.progress_bar import lesson_bar

    facts = Facts() if prime is None else Facts(prime=prime)
    lessons = replace(Lessons(seed=seed), **({} if steps is None else {"steps": steps}))
    never = frozenset(problem for level in LEVELS for problem in held_out(facts.prime, level))
    _threads(threads)
    with lesson_bar(lessons.steps) as told:
        reasoner = teach(Teacher(facts), lessons, held_out=never, told=told)
    save(reasoner, folder)
    typer.echo(f"wrote {folder}; is it fit? breadth lab gate --base {folder}", err=True)


def _list(*, as_json: bool) -> None:
    from breadth.lab.trials.experiment import EXPERIMENTS

    found = {name: experiment.statement for name, experiment in EXPERIMENTS}
    if as_json:
        import orjson

        typer.echo(orjson.dumps([{"name": name, "statement": statement} for name, statement in found.items()]).decode())
        return
    width = max(map(len, found))
    for name, statement in found.items():
        typer.echo(f"{name:{width}}  {statement}")


@contextmanager
def resumable(folder: Path) -> Iterator[None]:
    """Say, when the user interrupts, that the same command goes on."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo(f"breadth: interrupted; the same command goes on from here ({folder})", err=True)
        raise typer.Exit(INTERRUPTED) from None


def run_experiment(
    experiment: Experiment, bench: Bench, folder: Path, jobs: int, only: str | None = None
) -> list[Failure]:
    """Run the trials that are left, all or those of one arm, under a bar."""
    from breadth.lab.trials.progress_bar import trial_bar
    from breadth.lab.trials.runner import run_trials

    trials = experiment.trials(bench) if only is None else _of_arm(experiment.trials(bench), only)
    with trial_bar(trials, folder) as watch:
        return run_trials(trials, folder, bench.base, jobs, watch)


def _of_arm(trials: Sequence[Trial], arm: str) -> tuple[Trial, ...]:
    found = tuple(trial for trial in trials if trial.arm == arm)
    if not found:
        arms = dict.fromkeys(trial.arm for trial in trials)
        raise SettingsError(f"No arm is called {arm!r}.", f"The arms are: {', '.join(arms)}.")
    return found


def conclude(
    experiment: Experiment,
    bench: Bench,
    folder: Path,
    failures: list[Failure],
    command: str,
    *,
    as_json: bool,
    html: Path | None,
) -> None:
    """Write and show what was found, then what failed; the exit status says whether anything did."""
    from breadth.lab.trials.results import finish

    deliver(finish(experiment, bench, folder, failures, command), as_json=as_json, html=html)
    for failure in failures:
        typer.echo(f"breadth: {failure.trial.name} failed: {failure.reason} (more in {failure.log})", err=True)
    if failures:
        raise typer.Exit(FAILED)


def _threads(count: int) -> None:
    try:
        import torch
    except ImportError:
        return  # whoever needs it says what to install
    torch.set_num_threads(count)
