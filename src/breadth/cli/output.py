"""What verbs share: columns by ``--map``, progress, and where the page goes: terminal, JSON, or an HTML file."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from breadth.base.errors import SettingsError, redact_address
from breadth.report.plaintext import one_line, truncate

if TYPE_CHECKING:
    from breadth.report.sections import Page

Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON for machines instead of the report.")]
Html: TypeAlias = Annotated[
    Path | None, typer.Option("--html", help="Also write the report as one self-contained page.", dir_okay=False)
]
ColumnMap: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--map", help="Our name = your column, e.g. --map step=iteration --map reward=score; repeatable."),
]
MAX_STATUS_CHARACTERS = 200
"""Characters of a progress message: a line or two."""


def deliver(
    page: Page, *, as_json: bool, html: Path | None, document: str | None = None, saved: Page | None = None
) -> None:
    """Write the page where the user asked for it; ``document`` is the JSON of a verb with its own schema.

    ``saved`` is the page for the HTML file, where that shows more than the terminal.
    """
    if html is not None:
        from breadth.report.html_page import save_html

        save_html(page if saved is None else saved, html)
    if as_json:
        from breadth.report.jsonable import render_json

        typer.echo(render_json(page) if document is None else document)
    else:
        from rich.console import Console

        from breadth.report.terminal import render_terminal

        render_terminal(page, Console())
    if html is not None:
        typer.echo(f"wrote {one_line(redact_address(str(html)))}", err=True)


@contextmanager
def progress(what: str) -> Iterator[Callable[[str], None]]:
    """Show on standard error how far a long job is; silent when that is not a terminal.

    File names in it are not read as markup.
    """
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status(what) as status:
        yield lambda sentence: status.update(Text(truncate(f"{what}: {sentence}", MAX_STATUS_CHARACTERS)))


def parse_columns(columns: Sequence[str] | None) -> dict[str, str]:
    """Return our names and the user's columns, as ``--map`` gives them."""
    pairs = [column.partition("=") for column in columns or ()]
    for ours, equals, theirs in pairs:
        if not (ours and equals and theirs):
            raise SettingsError(
                f"--map got {ours + equals + theirs!r}.", "Write our name, '=', your column: --map reward=score"
            )
    return {ours: theirs for ours, _, theirs in pairs}
