"""``breadth show``: what a run folder or a trainer's files hold, and every instrument they can feed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from breadth.api import importers_with
from breadth.cli.import_ import ColumnMap, parse_columns
from breadth.cli.output import Html, Json, deliver, progress
from breadth.doctor.overview import overview
from breadth.runs.importing import import_files
from breadth.runs.paths import is_regular_file, is_remote, locate, source_name
from breadth.runs.reader import Run
from breadth.runs.schema import HEADER_FILE


def show(
    paths: Annotated[
        list[str],
        typer.Argument(
            help="A run folder (or its address, s3://...), or any files that can be imported.", show_default=False
        ),
    ],
    columns: ColumnMap = None,
    as_json: Json = False,
    html: Html = None,
) -> None:
    """Show what is there, what is missing and how to switch it on, and the instruments with their intervals."""
    with open_run(paths, columns) as run:
        with progress("reading"):
            page = overview(run)
        deliver(page, as_json=as_json, html=html)


@contextmanager
def open_run(paths: Sequence[Path | str], columns: Sequence[str] | None = None) -> Iterator[Run]:
    """Open a run folder, or import foreign files into a temporary one."""
    places = [locate(path) for path in paths]
    if len(places) == 1 and (is_remote(places[0]) or is_regular_file(places[0] / HEADER_FILE)):
        yield Run.open(paths[0])
        return
    with TemporaryDirectory(prefix="breadth-") as folder:
        target = Path(folder) / "imported"
        with progress("importing") as report:
            import_files(places, target, importers=importers_with(parse_columns(columns)), progress=report)
        run = Run.open(target)
        yield replace(run, header=replace(run.header, name=source_name(places[0])))
