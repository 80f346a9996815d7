"""``breadth probe``: what a model server can do, found out by trying it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import orjson
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from breadth.api import api_key
from breadth.base.settings import to_table
from breadth.cli.output import Json, progress
from breadth.cli.solve import Dialect, Model
from breadth.report.plaintext import strip_escapes
from breadth.runtime import probe as probing
from breadth.runtime.dialect import SERVER_DIALECTS


def probe(
    url: Annotated[str, typer.Argument(help="Address of the server.", show_default=False)],
    model: Model = None,
    dialect: Dialect = "auto",
    save: Annotated[
        Path | None, typer.Option("--save", help="Also write what was found to a TOML file.", dir_okay=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Find out what a server can do, with a dozen small requests: log-probs, seeds, prefixes, thinking budgets."""
    forced_dialect = None if dialect == "auto" else SERVER_DIALECTS.load(dialect)()
    with progress("probing"):
        found = asyncio.run(probing.probe(url, key=api_key(), model=model or "", dialect=forced_dialect))
    if save is not None:
        found.save(save)
    if as_json:
        typer.echo(
            orjson.dumps({**to_table(found), "offers": sorted(found.offers)}, option=orjson.OPT_INDENT_2).decode()
        )
        return
    table = Table.grid(padding=(0, 2))
    for name, value in found.rows():
        table.add_row(Text(name, style="dim"), Text(strip_escapes(value)))
    Console().print(table)
