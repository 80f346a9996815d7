"""``breadth compare``: checkpoints or runs side by side, and which to use with which vote for a budget."""

from __future__ import annotations

from typing import Annotated

import typer

from breadth.cli.output import Html, Json, deliver, progress


def compare(
    runs: Annotated[
        list[str],
        typer.Argument(
            help="Run folders, or RUN@STEP for one checkpoint; one folder alone: all its checkpoints.",
            show_default=False,
        ),
    ],
    samples: Annotated[
        int | None, typer.Option("--samples", help="Budget: samples per question.", min=1, show_default="all there are")
    ] = None,
    tokens: Annotated[
        int | None, typer.Option("--tokens", help="Budget: tokens per question.", min=1, show_default=False)
    ] = None,
    as_json: Json = False,
    html: Html = None,
) -> None:
    """Compare policies on the problems that all of them were asked: pass@k, votes, breadth, and what a budget should be spent on.

    The first is what the others are compared with, e.g. the base.
    """
    from breadth.api import compare as compare_runs

    with progress("comparing"):
        result = compare_runs(*runs, samples=samples, tokens=tokens)
    deliver(result.page, as_json=as_json, html=html)
