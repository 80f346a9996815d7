"""``breadth demo``: train twice, answer four ways and report, live on this machine."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from breadth.cli.output import Html, Json, deliver
from breadth.lab.demo.page import demo_page, diagnosis_table, headline_curves, short_page
from breadth.lab.demo.plan import FAST_DEMO, FULL_DEMO, DemoPlan
from breadth.lab.demo.results import DemoResults
from breadth.lab.demo.run import PAGE_FILE, PICTURE_FILE, run_demo
from breadth.lab.demo.screen import DemoScreen
from breadth.report.html_page import save_html
from breadth.report.svg_chart import save_picture

EXIT_INTERRUPTED = 130
"""Exit status when the user interrupts, as shells have it."""


def demo(
    fast: Annotated[bool, typer.Option("--fast", help="Smaller: under ninety seconds, with wider intervals.")] = False,
    seed: Annotated[int, typer.Option("--seed", help="Random seed.", min=0)] = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Folder for runs, results and page; an interrupted demo resumes from it.",
            file_okay=False,
            show_default="breadth-demo",
        ),
    ] = None,
    base: Annotated[
        Path | None,
        typer.Option(
            "--base",
            help="Folder of another base model; the shipped one if left out.",
            file_okay=False,
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
    html: Html = None,
    show: Annotated[bool, typer.Option("--open", help="Open the page in a browser at the end.")] = False,
) -> None:
    """Train a tiny reasoner with and without protection; answer by one long thought and by vote at equal tokens.

    Real GRPO through TRL on two cores, no GPU, no download: at most five minutes. Needs the extra 'train'. Ends with
    the two by two table, what it means, and a page with the pictures; every sentence is computed from the numbers of
    this run.
    """
    plan = replace(FAST_DEMO if fast else FULL_DEMO, seed=seed)
    folder = out or Path("-".join(["breadth-demo", *(["fast"] if fast else []), *([f"seed-{seed}"] if seed else [])]))
    results = run_on_screen(plan, folder, base)
    diagnoses = [diagnosis_table(folder, plan)]
    page = demo_page(results, " ".join(["breadth", *sys.argv[1:]]), diagnoses)
    save_html(page, folder / PAGE_FILE)
    save_picture(headline_curves(results), folder / PICTURE_FILE)
    deliver(page if as_json else short_page(results, diagnoses), as_json=as_json, html=None)
    if html is not None:
        save_html(page, html)
    typer.echo(f"The page with all pictures: {html or folder / PAGE_FILE}", err=as_json)
    if show:
        typer.launch((html or folder / PAGE_FILE).resolve().as_uri())


def run_on_screen(plan: DemoPlan, folder: Path, base: Path | None) -> DemoResults:
    """Run the demo with live progress on standard error; standard output is for the results."""
    try:
        with DemoScreen(Console(stderr=True), plan) as screen:
            return run_demo(plan, folder, base, screen.on_event)
    except KeyboardInterrupt:
        typer.echo(
            f"\nbreadth: interrupted; what is done is in {folder}, and the same command resumes from there.", err=True
        )
        raise typer.Exit(EXIT_INTERRUPTED) from None
