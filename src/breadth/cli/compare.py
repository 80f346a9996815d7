"""``breadth compare``: checkpoints or runs side by side, and which to use with which vote for a budget."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from breadth.base.errors import SettingsError
from breadth.cli.output import Html, Json, deliver, progress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from breadth.bridge.comparison.contestants import Contestant


def compare(
    runs: Annotated[
        list[str],
        typer.Argument(help="Run folders, or RUN@STEP for one checkpoint; one folder alone: all its checkpoints.", show_default=False),
    ],
    draws: Annotated[
        int | None, typer.Option("--draws", help="Budget: samples of a question.", min=1, show_default="all there are")
    ] = None,
    tokens: Annotated[int | None, typer.Option("--tokens", help="Budget: tokens of a question.", min=1, show_default=False)] = None,
    as_json: Json = False,
    html: Html = None,
) -> None:
    """Compare policies on the problems that all of them were asked: pass@k, votes, breadth, and what a budget should be spent on.

    The first is what the others are compared with, e.g. the base.
    """
    if draws is not None and tokens is not None:
        raise SettingsError("Both --draws and --tokens were given.", "Give the budget one way.")
    from breadth.bridge.comparison.contestants import on_common_problems
    from breadth.bridge.comparison.curves import worth
    from breadth.bridge.comparison.page import comparison_page
    from breadth.bridge.comparison.recommendation import recommend

    with progress("comparing"):
        found, most = on_common_problems(_contestants(runs))
        measured = [worth(one, most) for one in found]
        page = comparison_page(measured, recommend(measured, draws=draws, tokens=tokens))
    deliver(page, as_json=as_json, html=html)


def _contestants(runs: Sequence[str]) -> list[Contestant]:
    from breadth.bridge.comparison.contestants import checkpoints, parse_address, read_contestants
    from breadth.runs.places import spoken_name
    from breadth.runs.reader import Run

    found: list[Contestant] = []
    for text in runs:
        place, steps = parse_address(text)
        run = Run.open(place)
        found += read_contestants(run, spoken_name(place), steps or (checkpoints(run) if len(runs) == 1 else ()))
    if len(found) < 2:
        raise SettingsError("There is one policy only.", "Name two runs, or a run that kept held-out replies of several checkpoints.")
    return found
