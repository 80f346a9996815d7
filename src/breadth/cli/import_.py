"""``breadth import``: any trainer's files into a run folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import orjson
import typer

from breadth.api import importers_with
from breadth.base.errors import SettingsError
from breadth.cli.output import Json, progress
from breadth.report.plaintext import one_line
from breadth.runs.importing import ImportResult, import_files
from breadth.runs.schema import Remark

Paths = Annotated[
    list[Path], typer.Argument(help="Log files, rollout dumps or a trainer's output folder.", show_default=False)
]
ColumnMap = Annotated[
    list[str] | None,
    typer.Option("--map", help="Our name = your column, e.g. --map step=iteration --map reward=score; repeatable."),
]


def import_(
    paths: Paths,
    to: Annotated[Path, typer.Option("--to", help="Run folder to make; it must not exist yet.", show_default=False)],
    columns: ColumnMap = None,
    as_json: Json = False,
) -> None:
    """Import a trainer's files into a run folder.

    Nothing is overwritten, and a failed import leaves nothing behind.
    """
    with progress("importing") as report:
        made = import_files(paths, to, importers=importers_with(parse_columns(columns)), progress=report)
    if as_json:
        typer.echo(orjson.dumps(to_json(made)).decode())
        return
    typer.echo(
        f"{made.folder}: {made.metric_rows:,} metric rows, {made.rollouts:,} rollouts of {made.problems:,} problems"
    )
    for remark in made.remarks[:5]:
        typer.echo(f"note: {one_line(display_place(remark) + remark.problem)}", err=True)
    if len(made.remarks) > 5:
        typer.echo(f"... and {len(made.remarks) - 5} more notes, kept in {made.folder / 'run.toml'}", err=True)


def parse_columns(columns: Sequence[str] | None) -> dict[str, str]:
    """Return our names and the user's columns, as ``--map`` gives them."""
    pairs = [column.partition("=") for column in columns or ()]
    for ours, equals, theirs in pairs:
        if not (ours and equals and theirs):
            raise SettingsError(
                f"--map got {ours + equals + theirs!r}.", "Write our name, '=', your column: --map reward=score"
            )
    return {ours: theirs for ours, _, theirs in pairs}


def display_place(remark: Remark) -> str:
    """Return the file and row of a remark, as the start of a sentence."""
    row = f", row {remark.row}" if remark.row else ""
    return f"{Path(remark.file).name}{row}: " if remark.file else ""


def to_json(made: ImportResult) -> dict[str, object]:
    """Return the result of an import as JSON can hold it."""
    remarks = [
        {"file": remark.file, "row": remark.row, "problem": remark.problem, "remedy": remark.remedy}
        for remark in made.remarks
    ]
    counts = {"metric_rows": made.metric_rows, "rollouts": made.rollouts, "problems": made.problems}
    return {"run": str(made.folder), **counts, "remarks": remarks}
