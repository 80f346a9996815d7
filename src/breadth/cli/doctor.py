"""``breadth doctor``: which failure a run has, the proof, and what to set in the user's own trainer or server."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from breadth.api import diagnose_runs
from breadth.base.errors import SettingsError
from breadth.cli.import_ import Mapping, parse_columns
from breadth.cli.output import Html, Json, deliver, progress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from breadth.doctor.diagnosis import Diagnosis
    from breadth.doctor.gathering import Gathered

FOUND = 1
"""Exit status with --fail-on when something as bad was found."""
EVERY = 5.0
"""Seconds between looks of --follow: a step of most trainers takes longer."""


def doctor(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            help=(
                "Run folders, logs, rollout dumps, configurations, training data, policy.toml, a server's URL, in any"
                " mix."
            ),
            show_default=False,
        ),
    ] = None,
    columns: Mapping = None,
    fail_on: Annotated[
        str | None,
        typer.Option(
            "--fail-on", help="Exit status 1 at this severity or worse: critical, warning, note.", show_default=False
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Keep watching the run; print when the verdict changes.")
    ] = False,
    explain: Annotated[
        str | None,
        typer.Option("--explain", help="Explain a finding and its thresholds; 'all' lists them.", show_default=False),
    ] = None,
    as_json: Json = False,
    html: Html = None,
) -> None:
    """Say which failure a run has, prove it, and word the remedy for the trainer at hand; or say what is missing to tell.

    Configurations in Python are parsed, never executed. Nothing is written unless --html asks for it.
    """
    if explain is not None:
        _explain(explain, as_json=as_json)
        return
    if not paths:
        raise SettingsError(
            "Nothing was named to look at.", "Give a log, a trainer's output folder, a run folder or a configuration."
        )
    threshold = _threshold(fail_on)
    if follow:
        from breadth.cli.doctor_follow import keep_looking

        keep_looking([Path(path) for path in paths], columns, EVERY)
        return
    with TemporaryDirectory(prefix="breadth-") as folder:
        with progress("looking") as report:
            diagnoses, gathered = diagnose_runs(paths, Path(folder), columns=parse_columns(columns), on_progress=report)
        _print(diagnoses, gathered, as_json=as_json, html=html)
    if any(finding.severity.value in threshold for diagnosis in diagnoses for finding in diagnosis.findings):
        raise typer.Exit(FOUND)


def _print(diagnoses: Sequence[Diagnosis], gathered: Gathered, *, as_json: bool, html: Path | None) -> None:
    from breadth.doctor.machine import as_table

    document = json.dumps(as_table(diagnoses, gathered), indent=2, allow_nan=False) if as_json else None
    if document is not None and html is None:
        typer.echo(document)  # the page's curves take a while, and nobody would see them
        return
    from breadth.doctor.page import doctor_page

    deliver(doctor_page(diagnoses, gathered), as_json=as_json, html=html, document=document)


def _threshold(fail_on: str | None) -> Sequence[str]:
    from breadth.doctor.finding import SEVERITIES

    names = [severity.value for severity in SEVERITIES]
    if fail_on is not None and fail_on not in names:
        raise SettingsError(f"--fail-on got '{fail_on}'.", f"Choose one of {', '.join(names)}.")
    return [] if fail_on is None else names[: names.index(fail_on) + 1]


def _explain(name: str, *, as_json: bool) -> None:
    from breadth.doctor.explanation import explanation, listing

    deliver(listing() if name == "all" else explanation(name), as_json=as_json, html=None)
