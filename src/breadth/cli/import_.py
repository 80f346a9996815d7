"""``breadth import``: any trainer's files into a run folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import orjson
import typer

from breadth.api import importers_with
from breadth.cli.output import ColumnMap, Json, parse_columns, progress
from breadth.doctor.run_list import remark_to_json
from breadth.doctor.save_runs import SavedRuns, save_runs
from breadth.report.plaintext import one_line
from breadth.runs.schema import Remark

Paths = Annotated[
    list[Path], typer.Argument(help="Log files, rollout dumps or a trainer's output folder.", show_default=False)
]


def import_(
    paths: Paths,
    to: Annotated[Path, typer.Option("--to", help="Folder to make; it must not exist yet.", show_default=False)],
    columns: ColumnMap = None,
    as_json: Json = False,
) -> None:
    """Import a trainer's files into a run folder; several runs become a run folder each inside it.

    Nothing is overwritten, and a failed import leaves nothing behind.
    """
    with progress("importing") as report:
        made = save_runs(paths, to, importers=importers_with(parse_columns(columns)), on_progress=report)
    if as_json:
        typer.echo(orjson.dumps(to_json(made, to)).decode())
        return
    if len(made.runs) > 1:
        typer.echo(f"{to}: {len(made.runs)} runs, a run folder each")
    for run in made.runs:
        typer.echo(
            f"{run.folder}: {run.metric_rows:,} metric rows, {run.rollouts:,} rollouts of {run.problems:,} problems"
        )
    remarks = list(dict.fromkeys(remark for run in made.runs for remark in run.remarks))
    remarks += [remark for remark in made.unused if remark not in remarks]
    for remark in remarks[:5]:
        typer.echo(f"note: {one_line(display_place(remark) + remark.problem)}", err=True)
    if len(remarks) > 5:
        place = made.runs[0].folder if len(made.runs) == 1 else to / "RUN"
        typer.echo(f"... and {len(remarks) - 5} more notes, kept in {place / 'run.toml'}", err=True)


def display_place(remark: Remark) -> str:
    """Return the file and row of a remark, as the start of a sentence."""
    row = f", row {remark.row}" if remark.row else ""
    return f"{Path(remark.file).name}{row}: " if remark.file else ""


def to_json(made: SavedRuns, target: Path) -> dict[str, object]:
    """Return the result of an import as JSON can hold it."""
    return {
        "folder": str(target),
        "runs": [
            {
                "run": str(run.folder),
                "metric_rows": run.metric_rows,
                "rollouts": run.rollouts,
                "problems": run.problems,
                "remarks": [remark_to_json(remark) for remark in run.remarks],
            }
            for run in made.runs
        ],
        "unused": [remark_to_json(remark) for remark in made.unused],
    }
