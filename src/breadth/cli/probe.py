"""``breadth probe``: what a model server can do, found out by trying it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from breadth.api import api_key
from breadth.cli.output import Json, progress
from breadth.cli.solve import Dialect, Model


def probe(
    url: Annotated[str, typer.Argument(help="Address of the server.", show_default=False)],
    model: Model = None,
    dialect: Dialect = "auto",
    save: Annotated[
        Path | None, typer.Option("--save", help="Also write what was found to a TOML file.", dir_okay=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Try a server out with a dozen requests of a few tokens: log-probs, seeds, prefix continuation, thinking caps, and so on."""
    import asyncio

    from breadth.base.settings import to_table
    from breadth.runtime import probe as probing
    from breadth.runtime.dialect import DIALECTS

    spoken = None if dialect == "auto" else DIALECTS.load(dialect)()
    with progress("probing"):
        found = asyncio.run(probing.probe(url, key=api_key(), model=model or "", dialect=spoken))
    if save is not None:
        found.save(save)
    if as_json:
        import orjson

        typer.echo(
            orjson.dumps({**to_table(found), "offers": sorted(found.offers)}, option=orjson.OPT_INDENT_2).decode()
        )
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from breadth.report.plaintext import plain

    table = Table.grid(padding=(0, 2))
    for name, said in found.rows():
        table.add_row(Text(name, style="dim"), Text(plain(said)))
    Console().print(table)
