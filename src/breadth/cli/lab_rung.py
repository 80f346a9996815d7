"""``breadth lab smollm2``: the second rung, the same experiment on a real small language model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from breadth.base.cores import cores
from breadth.cli.lab_run import conclude, resumable, run_experiment
from breadth.cli.output import Html, Json, progress


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
    """Train a real small model on sums, plain and protected, and let it answer by one long thought and by vote at equal tokens.

    About 40 minutes for one seed on two slow cores; the same command goes on where it was interrupted. Needs the
    package gguf.
    """
    from breadth.lab.rung.experiment import MODEL, SecondRung
    from breadth.lab.rung.model import check_libraries, fingerprint, unpack
    from breadth.lab.rung.plan import RungPlan
    from breadth.lab.trials.experiment import Bench

    weights = fingerprint(model)
    check_libraries(model)
    rung = SecondRung(seeds=seeds, plan=RungPlan(steps=steps))
    base = out / f"{MODEL}-{weights[:16]}"
    bench = Bench(seeds, base, weights[:16])
    with resumable(out):
        with progress("unpacking the model"):
            unpack(model, base)
        failures = run_experiment(rung, bench, out, jobs or cores())
    command = f"breadth lab smollm2 {model.name} --seeds {seeds} --steps {steps}"
    conclude(rung, bench, out, failures, command, as_json=as_json, html=html)
