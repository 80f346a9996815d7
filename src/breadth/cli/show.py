"""``breadth show``: what runs hold, and every instrument they can feed; several runs are a list."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from breadth.api import importers_with
from breadth.base.errors import SettingsError, suggestion
from breadth.base.system import scratch_folder
from breadth.cli.output import ColumnMap, Html, Json, deliver, parse_columns, progress
from breadth.doctor.collect import collect_runs, no_runs_error
from breadth.doctor.overview import overview
from breadth.doctor.run_list import run_list_page, runs_to_json
from breadth.runs.paths import locate
from breadth.runs.reader import Run


def show(
    paths: Annotated[
        list[str],
        typer.Argument(
            help="A run folder (or its address, s3://...), or any files that can be imported.", show_default=False
        ),
    ],
    name: Annotated[
        str | None, typer.Option("--run", help="Which run to show where there are several: its name or number.")
    ] = None,
    columns: ColumnMap = None,
    as_json: Json = False,
    html: Html = None,
) -> None:
    """Show what is there, what is missing and how to switch it on, and the instruments with their intervals.

    Several runs are listed; --run shows one of them. --json gives the numbers of all of them by name.
    """
    with open_runs(paths, columns) as runs:
        chosen = runs if name is None else [choose_run(runs, name)]
        with progress("reading"):
            document = json.dumps(runs_to_json(chosen), indent=2, allow_nan=False) if as_json else None
            if document is not None and html is None:
                typer.echo(document)  # the curves of the page take a while, and nobody would see them
                return
            page = overview(chosen[0]) if len(chosen) == 1 else run_list_page(chosen, paths)
        deliver(page, as_json=as_json, html=html, document=document)


@contextmanager
def open_runs(paths: Sequence[str | Path], columns: Sequence[str] | None = None) -> Iterator[list[Run]]:
    """Open every run that the paths hold; foreign files are read into memory or a temporary folder."""
    places = [locate(path) for path in paths]
    with scratch_folder() as folder, progress("importing") as report:
        runs, sources = collect_runs(
            places,
            folder,
            importers=importers_with(parse_columns(columns)),
            on_progress=report,
            only_runs=True,
        )
        if not runs:
            raise no_runs_error(places, sources, "no run")
        yield [run for _, run in runs]


def choose_run(runs: Sequence[Run], name: str) -> Run:
    """Return the run of this name, or of this number in the list."""
    names = [run.name for run in runs]
    if name in names:
        return runs[names.index(name)]
    if name.isdigit() and 1 <= int(name) <= len(runs):
        return runs[int(name) - 1]
    raise SettingsError(f"There is no run called {name!r}.", suggestion(name, names, "runs"))
