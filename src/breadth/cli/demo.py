"""``breadth demo``: import the training log that ships with the package and show its instruments."""

from __future__ import annotations

from importlib.resources import as_file, files

import typer

from breadth.cli.output import Html, Json, deliver
from breadth.cli.show import opened


def demo(as_json: Json = False, html: Html = None) -> None:
    """Import a small real GRPO log that ships with breadth (TRL, a tiny arithmetic reasoner) and show its instruments."""
    from breadth.bridge.overview import overview

    with as_file(files("breadth.cli") / "example") as folder, opened([folder / "trainer_state.json", folder / "completions"]) as run:
        page = overview(run)
        deliver(page, as_json=as_json, html=html)
    if not as_json:
        typer.echo("\nYour own run: breadth show PATH-TO-LOGS     as a page: breadth show PATH --html report.html")
