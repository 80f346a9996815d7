"""``breadth demo``: the whole thesis on this machine, live: train twice, answer four ways, report."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from breadth.cli.output import Html, Json, deliver

if TYPE_CHECKING:
    from breadth.lab.demo.plan import Plan
    from breadth.lab.demo.results import DemoResults

INTERRUPTED = 130
"""Exit status when the user interrupts, as shells have it."""


def demo(
    fast: Annotated[bool, typer.Option("--fast", help="Smaller: under ninety seconds, with wider intervals.")] = False,
    seed: Annotated[int, typer.Option("--seed", help="Seed of training and of every draw.", min=0)] = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Folder for runs, results and page; one that was interrupted goes on.",
            file_okay=False,
            show_default="breadth-demo",
        ),
    ] = None,
    base: Annotated[
        Path | None,
        typer.Option(
            "--base",
            help="Folder of another reasoner to begin with; the one that ships if left out.",
            file_okay=False,
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
    html: Html = None,
    show: Annotated[bool, typer.Option("--open", help="Open the page in a browser at the end.")] = False,
) -> None:
    """Train a tiny reasoner with and without protection, then answer held-out problems by one long thought and by vote, at equal tokens.

    Real GRPO through TRL on two cores, no GPU, no download: at most five minutes. Needs the extra 'train'. Ends with
    the two by two table, what it means, and a page with the pictures; every sentence is computed from the numbers of
    this run.
    """
    from dataclasses import replace

    from breadth.lab.demo.doctored import doctored
    from breadth.lab.demo.figures import before_and_after
    from breadth.lab.demo.page import demo_page, short_page
    from breadth.lab.demo.plan import FAST, FULL
    from breadth.lab.demo.run import PAGE, PICTURE
    from breadth.report.html_page import save_html
    from breadth.report.svg_chart import save_picture

    plan = replace(FAST if fast else FULL, seed=seed)
    folder = out or Path("-".join(["breadth-demo", *(["fast"] if fast else []), *([f"seed-{seed}"] if seed else [])]))
    results = _watched(plan, folder, base)
    judged = [doctored(folder, plan)]
    page = demo_page(results, " ".join(["breadth", *sys.argv[1:]]), judged)
    save_html(page, folder / PAGE)
    save_picture(before_and_after(results), folder / PICTURE)
    deliver(page if as_json else short_page(results, judged), as_json=as_json, html=None)
    if html is not None:
        save_html(page, html)
    typer.echo(f"The page with all pictures: {html or folder / PAGE}", err=as_json)
    if show:
        typer.launch((html or folder / PAGE).resolve().as_uri())


def _watched(plan: Plan, folder: Path, base: Path | None) -> DemoResults:
    """Run the demo before the user's eyes, on standard error: standard output is for what was found."""
    from rich.console import Console

    from breadth.lab.demo.run import run_demo
    from breadth.lab.demo.screen import Screen

    try:
        with Screen(Console(stderr=True), plan) as screen:
            return run_demo(plan, folder, base, screen.heard)
    except KeyboardInterrupt:
        typer.echo(
            f"\nbreadth: interrupted; what is done is in {folder}, and the same command resumes from there.", err=True
        )
        raise typer.Exit(INTERRUPTED) from None
