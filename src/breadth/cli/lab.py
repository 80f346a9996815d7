"""``breadth lab``: serve the tiny reasoner, write its tasks, pretrain a base, run the experiments."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, ClassVar, TypeAlias

import orjson
import typer

from breadth.base.errors import SettingsError, WriteError, suggestion
from breadth.base.system import available_cores
from breadth.cli.main import LazyVerbs
from breadth.cli.output import Html, Json, deliver, progress
from breadth.lab.reasoner import PretrainingPlan, Reasoner, load_reasoner, reasoner_prime, save_reasoner
from breadth.lab.reasoner import pretrain as teach
from breadth.lab.server.server import LabServer, LabServerSettings, ReasoningFormat
from breadth.lab.smollm2.experiment import MODEL_FOLDER, SmolLM2Experiment, SmolLM2Plan
from breadth.lab.smollm2.policy import check_libraries, model_fingerprint, unpack_model
from breadth.lab.task.problems import LEVELS, draw_held_out, draw_tasks, write_tasks
from breadth.lab.task.teacher import ArithmeticFacts, Teacher
from breadth.lab.trials.experiment import EXPERIMENTS, Experiment, ExperimentSetup, ExperimentTrial, load_setup
from breadth.lab.trials.runner import TrialFailure, run_trials, show_pretraining, show_trials, write_results
from breadth.runtime.proxy.server import wait_for_signal


class LabVerbs(LazyVerbs):
    """The verbs of ``breadth lab``."""

    verbs: ClassVar[dict[str, tuple[str, str]]] = {
        "run": ("breadth.cli.lab:run", "Run an experiment on the tiny reasoner; a killed one resumes."),
        "gate": ("breadth.cli.lab:gate", "Check whether a base model is fit for the experiments."),
        "pretrain": ("breadth.cli.lab:pretrain", "Train a base model from scratch."),
        "smollm2": ("breadth.cli.lab:smollm2", "Run the experiment on a real small language model."),
        "serve": ("breadth.cli.lab:serve", "Serve the tiny reasoner over an OpenAI-compatible API."),
        "tasks": ("breadth.cli.lab:tasks", "Write questions with right answers, for tune and solve."),
    }


app = typer.Typer(
    name="lab",
    cls=LabVerbs,
    help="The tiny reasoner that ships with breadth, and the experiments on it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
SHIPPED_NAME = "routes"
"""Name under which the weights that ship are served."""


@app.callback()
def lab() -> None:
    """Run the tiny reasoner that ships with breadth, and the experiments on it."""


def serve(
    base: Base = None,
    host: Annotated[str, typer.Option("--host", help="Address to listen on; 0.0.0.0 for all.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", help="Port to listen on; 0 takes a free one.", min=0, max=65535)
    ] = 8410,
    threads: Annotated[int, typer.Option("--threads", help="Threads for sampling.", min=1)] = 1,
    reasoning_format: Annotated[
        str,
        typer.Option(
            "--reasoning-format", help="Thinking in chats: none leaves it in the content, deepseek separates it."
        ),
    ] = "none",
    as_json: Json = False,
) -> None:
    """Serve the tiny reasoner over HTTP, with log-probs, prefix continuation and thinking budgets.

    Try tune, solve, serve and probe end to end on it, without any download. SIGTERM and Ctrl-C let requests in
    flight finish.
    """
    name = SHIPPED_NAME if base is None else base.resolve().name
    settings = LabServerSettings(
        host=host, port=port, threads=threads, reasoning_format=parse_reasoning_format(reasoning_format), name=name
    )
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")  # that of loading a megabyte of weights
    with progress("loading the reasoner"):
        reasoner = load_reasoner(base)
    asyncio.run(run_server(reasoner, settings, as_json=as_json))


def tasks(
    file: Annotated[
        Path, typer.Argument(help="Where to write them; ends in .jsonl.", dir_okay=False, show_default=False)
    ],
    count: Annotated[int, typer.Option("--count", help="How many.", min=1)] = 100,
    level: Annotated[str, typer.Option("--level", help="How long: easy, medium or hard.")] = "medium",
    seed: Annotated[int, typer.Option("--seed", help="Which ones, and in which order.", min=0)] = 0,
    base: Base = None,
) -> None:
    """Write questions with right answers that the reasoner never saw in training, for --tasks of tune and solve."""
    chosen = next((known for known in LEVELS if known == level), None)
    if chosen is None:
        raise SettingsError(f"--level got {level!r}.", suggestion(level, LEVELS, "levels"))
    if file.suffix != ".jsonl":
        raise SettingsError(
            f"{file} does not end in .jsonl, which tells its format.", "Name it tasks.jsonl, for example."
        )
    prime = reasoner_prime(base)
    write_tasks(file, draw_tasks(count, prime, chosen, seed), prime)
    typer.echo(
        f"wrote {count} {chosen} questions to {file}; their answers are numbers modulo {prime}: use --answer-format"
        " whole",
        err=True,
    )


async def run_server(reasoner: Reasoner, settings: LabServerSettings, *, as_json: bool) -> None:
    """Serve until a signal asks to end."""
    async with LabServer(reasoner, settings) as server:
        announce_server(server, as_json=as_json)
        await wait_for_signal()
        typer.echo(f"breadth: shutting down; {server.in_flight} replies are being sampled", err=True)


def announce_server(server: LabServer, *, as_json: bool) -> None:
    """Print the address, the first line on standard output, and what can be done with it."""
    if as_json:
        typer.echo(orjson.dumps({"url": server.url, "model": server.settings.name}).decode())
    else:
        typer.echo(welcome_text(server))
    sys.stdout.flush()


def welcome_text(server: LabServer) -> str:
    """Return what can be done with the server, as commands to copy."""
    url, prime = server.url, server.reasoner.teacher.facts.prime
    weights = sum(tensor.numel() for tensor in server.reasoner.model.parameters())
    a, b, c, d = 3, 4, 5, 6
    question = f"({a}+{b})*({c}+{d})="
    body = f'{{"messages": [{{"role": "user", "content": "{question}"}}]}}'
    return "\n".join(
        [
            f"breadth lab serves {url}/v1: model {server.settings.name}, {weights:,} weights",
            "",
            (
                f"It calculates modulo {prime} and is not always right. The right answer to {question} is"
                f" {(a + b) * (c + d) % prime}."
            ),
            "",
            f"  ask it    curl {url}/v1/chat/completions -H 'Content-Type: application/json' -d '{body}'",
            f'  a vote    breadth solve "{question}" --url {url} --answer-format whole',
            "  measure   breadth lab tasks tasks.jsonl",
            f"            breadth tune {url} --tasks tasks.jsonl --out tuned --answer-format whole --max-tokens 512",
            f"  look      breadth probe {url}",
            "  stop      Ctrl-C",
        ]
    )


def parse_reasoning_format(text: str) -> ReasoningFormat:
    """Return the reasoning format, refusing an unknown one."""
    formats: dict[str, ReasoningFormat] = {"none": "none", "deepseek": "deepseek"}
    if text in formats:
        return formats[text]
    raise SettingsError(f"--reasoning-format got {text!r}.", "Choose none or deepseek.")


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
    list_all: Annotated[bool, typer.Option("--list", help="List the experiments.")] = False,
    as_json: Json = False,
    html: Html = None,
) -> None:
    """Run an experiment on the tiny reasoner; the same command resumes an interrupted run.

    Every trial gets a process, a core and a folder of its own, with a run folder inside that show reads; results.json
    holds all results.
    """
    if list_all or experiment is None:
        list_experiments(as_json=as_json)
        return

    chosen: Experiment = EXPERIMENTS.load(experiment)
    bench = load_setup(base, chosen.seeds if seeds is None else seeds)
    folder = Path("lab") / chosen.name if out is None else out
    with resumable(folder):
        failures = run_experiment(chosen, bench, folder, jobs or available_cores(), only)
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
    """Check that a base model has room to gain, breadth to lose, and thinking that can become too long.

    The exit status is 0 when everything is met, 1 when not.
    """
    from breadth.lab.experiments.gate import Gate, gate_page, run_gate  # loads torch, which other verbs do not need

    settings = Gate(problems=problems, samples=samples)
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")  # that of loading a megabyte of weights
    with progress("passing the gate") as report:
        passage = run_gate(load_reasoner(base), settings, trained, report)
    deliver(gate_page(passage, settings, " ".join(["breadth", *sys.argv[1:]])), as_json=as_json, html=html)
    if not passage.is_met:
        raise typer.Exit(NOT_MET)


def pretrain(
    folder: Annotated[
        Path, typer.Argument(help="Where to save the base; must not exist.", file_okay=False, show_default=False)
    ],
    prime: Annotated[
        int | None, typer.Option("--prime", help="Modulus of its arithmetic.", show_default="that of the shipped base")
    ] = None,
    steps: Annotated[
        int | None, typer.Option("--steps", help="Optimizer steps.", show_default="that of the shipped base")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Of weights, problems and traces.", min=0)] = 0,
    threads: Annotated[
        int, typer.Option("--threads", help="Threads; the weights depend a little on their number.", min=1)
    ] = 1,
) -> None:
    """Train a base model from scratch on the teacher's traces; the same settings give the same weights on one machine.

    Held-out problems are never shown. The shipped base was made with the defaults.
    """
    if folder.exists():  # before minutes of work, not behind them
        raise WriteError(folder, "is there already.", "Name a folder that does not exist, or move this one away.")

    facts = ArithmeticFacts() if prime is None else ArithmeticFacts(prime=prime)
    lessons = replace(PretrainingPlan(seed=seed), **({} if steps is None else {"steps": steps}))
    held_out_problems = frozenset(problem for level in LEVELS for problem in draw_held_out(facts.prime, level))
    set_torch_threads(threads)
    with show_pretraining(lessons.steps) as report:
        reasoner = teach(Teacher(facts), lessons, held_out=held_out_problems, on_loss=report)
    save_reasoner(reasoner, folder)
    typer.echo(f"wrote {folder}; is it fit? breadth lab gate --base {folder}", err=True)


def list_experiments(*, as_json: bool) -> None:
    """Print the experiments with what each tests."""
    found = {name: experiment.statement for name, experiment in EXPERIMENTS}
    if as_json:
        typer.echo(orjson.dumps([{"name": name, "statement": statement} for name, statement in found.items()]).decode())
        return
    width = max(map(len, found))
    for name, statement in found.items():
        typer.echo(f"{name:{width}}  {statement}")


@contextmanager
def resumable(folder: Path) -> Iterator[None]:
    """Say, when the user interrupts, that the same command resumes."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo(f"breadth: interrupted; the same command resumes ({folder})", err=True)
        raise typer.Exit(INTERRUPTED) from None


def run_experiment(
    experiment: Experiment, bench: ExperimentSetup, folder: Path, jobs: int, only: str | None = None
) -> list[TrialFailure]:
    """Run the trials that are left, all or those of one arm, under a bar."""
    trials = experiment.trials(bench) if only is None else select_arm(experiment.trials(bench), only)
    with show_trials(trials, folder) as watch:
        return run_trials(trials, folder, bench.base, jobs, watch)


def select_arm(trials: Sequence[ExperimentTrial], arm: str) -> tuple[ExperimentTrial, ...]:
    """Return the trials of one arm."""
    found = tuple(trial for trial in trials if trial.arm == arm)
    if not found:
        arms = dict.fromkeys(trial.arm for trial in trials)
        raise SettingsError(f"No arm is called {arm!r}.", f"The arms are: {', '.join(arms)}.")
    return found


def conclude(
    experiment: Experiment,
    bench: ExperimentSetup,
    folder: Path,
    failures: list[TrialFailure],
    command: str,
    *,
    as_json: bool,
    html: Path | None,
) -> None:
    """Write and show the results, then the failures; the exit status says whether there were any."""
    deliver(write_results(experiment, bench, folder, failures, command), as_json=as_json, html=html)
    for failure in failures:
        typer.echo(f"breadth: {failure.trial.name} failed: {failure.reason} (more in {failure.log})", err=True)
    if failures:
        raise typer.Exit(FAILED)


def set_torch_threads(count: int) -> None:
    """Set the number of threads of torch, where it is installed."""
    try:
        import torch
    except ImportError:
        return  # the caller reports what to install
    torch.set_num_threads(count)


def smollm2(
    model: Annotated[
        Path,
        typer.Argument(
            help="SmolLM2-135M-Instruct as a GGUF file, or a folder that transformers loads.", show_default=False
        ),
    ],
    seeds: Annotated[int, typer.Option("--seeds", help="Policies trained in each arm.", min=1)] = 1,
    steps: Annotated[int, typer.Option("--steps", help="Optimizer steps of each.", min=1)] = 40,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs", help="Trials at once, one core and 4.5 GB of memory each.", min=1, show_default="all cores"
        ),
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="Folder of the experiment.", file_okay=False)] = Path(
        "lab/smollm2"
    ),
    as_json: Json = False,
    html: Html = None,
) -> None:
    """Train a real small model on sums, plain and protected; answer by one long thought and by vote at equal tokens.

    About 40 minutes for one seed on two slow cores; the same command resumes an interrupted run. Needs the
    package gguf.
    """
    weights = model_fingerprint(model)
    check_libraries(model)
    rung = SmolLM2Experiment(seeds=seeds, plan=SmolLM2Plan(steps=steps))
    base = out / f"{MODEL_FOLDER}-{weights[:16]}"
    bench = ExperimentSetup(seeds, base, weights[:16])
    with resumable(out):
        with progress("unpacking the model"):
            unpack_model(model, base)
        failures = run_experiment(rung, bench, out, jobs or available_cores())
    command = f"breadth lab smollm2 {model.name} --seeds {seeds} --steps {steps}"
    conclude(rung, bench, out, failures, command, as_json=as_json, html=html)
