"""``breadth lab smollm2``: the second rung, the same experiment on a real small language model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from breadth.base.cores import cores
from breadth.cli.lab_run import FAILED, INTERRUPTED
from breadth.cli.output import Html, Json, deliver, progress

if TYPE_CHECKING:
    from breadth.lab.rung.experiment import SecondRung
    from breadth.lab.trials.experiment import Bench
    from breadth.lab.trials.runner import Failure


def smollm2(
    model: Annotated[
        Path, typer.Argument(help="SmolLM2-135M-Instruct as a GGUF file, or a folder that transformers loads.", show_default=False)
    ],
    seeds: Annotated[int, typer.Option("--seeds", help="Policies trained in each arm.", min=1)] = 1,
    steps: Annotated[int, typer.Option("--steps", help="Optimizer steps of each.", min=1)] = 40,
    jobs: Annotated[
        int | None, typer.Option("--jobs", help="Trials at once, one core and 4.5 GB of memory each.", min=1, show_default="all cores")
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="Folder of the experiment.", file_okay=False)] = Path("lab/smollm2"),
    as_json: Json = False,
    html: Html = None,
) -> None:
    """Train a real small model on sums, plain and protected, and let it answer by one long thought and by vote at equal tokens.

    About 40 minutes for one seed on two slow cores; the same command goes on where it was interrupted. Needs the package gguf.
    """
    from breadth.lab.rung.experiment import MODEL, SecondRung
    from breadth.lab.rung.model import check_libraries, fingerprint
    from breadth.lab.rung.plan import RungPlan
    from breadth.lab.trials.experiment import Bench

    weights = fingerprint(model)
    check_libraries(model)
    rung = SecondRung(seeds=seeds, plan=RungPlan(steps=steps))
    bench = Bench(seeds, out / f"{MODEL}-{weights[:16]}", weights[:16])
    failures = _run(rung, bench, model, jobs or cores())
    from breadth.lab.rung.results import finish_rung

    page = finish_rung(rung, bench, out, failures, f"breadth lab smollm2 {model.name} --seeds {seeds} --steps {steps}")
    deliver(page, as_json=as_json, html=html)
    for failure in failures:
        typer.echo(f"breadth: {failure.trial.name} failed: {failure.reason} (more in {failure.log})", err=True)
    if failures:
        raise typer.Exit(FAILED)


def _run(rung: SecondRung, bench: Bench, model: Path, jobs: int) -> list[Failure]:
    """Unpack the model where the trials find it, and run them."""
    from breadth.lab.rung.model import unpack
    from breadth.lab.trials.progress_bar import trial_bar
    from breadth.lab.trials.runner import run_trials

    assert bench.base is not None  # noqa: S101 - given above
    trials, folder = rung.trials(bench), bench.base.parent
    try:
        with progress("unpacking the model"):
            unpack(model, bench.base)
        with trial_bar(trials, folder) as watch:
            return run_trials(trials, folder, bench.base, jobs, watch)
    except KeyboardInterrupt:
        typer.echo(f"breadth: interrupted; the same command goes on from here ({folder})", err=True)
        raise typer.Exit(INTERRUPTED) from None
