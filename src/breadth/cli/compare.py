"""``breadth compare``: checkpoints or runs side by side, and which to use for a budget."""

from __future__ import annotations

from typing import Annotated

import typer

from breadth.api import compare as compare_runs
from breadth.cli.output import ColumnMap, Html, Json, deliver, parse_columns, progress


def compare(
    runs: Annotated[
        list[str],
        typer.Argument(
            help="Run folders, or RUN@STEP for one checkpoint; one alone: its checkpoints. Files of samples: by arm.",
            show_default=False,
        ),
    ],
    samples: Annotated[
        int | None, typer.Option("--samples", help="Budget: samples per question.", min=1, show_default="all there are")
    ] = None,
    tokens: Annotated[
        int | None, typer.Option("--tokens", help="Budget: tokens per question.", min=1, show_default=False)
    ] = None,
    columns: ColumnMap = None,
    as_json: Json = False,
    html: Html = None,
) -> None:
    """Compare checkpoints or runs on their common problems: pass@k, votes, breadth, and the best use of a budget.

    The first is the reference, e.g. the base.
    """
    with progress("comparing") as report:
        result = compare_runs(*runs, samples=samples, tokens=tokens, columns=parse_columns(columns), on_progress=report)
    deliver(result.page, as_json=as_json, html=html)
