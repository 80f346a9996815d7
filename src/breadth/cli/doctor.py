"""``breadth doctor``: which failure a run has, the proof, and what to set in the user's own trainer or server."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from breadth.base.errors import SettingsError
from breadth.cli.import_ import Mapping, importers
from breadth.cli.output import Html, Json, deliver, progress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from breadth.bridge.doctor.diagnosis import Diagnosis
    from breadth.bridge.doctor.gathering import Gathered

FOUND = 1
"""Exit status with --fail-on when something as bad was found."""
EVERY = 5.0
"""Seconds between looks of --follow: a step of most trainers takes longer."""


def doctor(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            help="Run folders, logs, rollout dumps, configurations, training data, policy.toml, a server's URL, in any mix.",
            show_default=False,
        ),
    ] = None,
    columns: Mapping = None,
    fail_on: Annotated[
        str | None,
        typer.Option("--fail-on", help="End with status 1 at a finding this bad or worse: critical, warning, note.", show_default=False),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on looking while the run goes on; say when the verdict changes.")] = False,
    explain: Annotated[
        str | None, typer.Option("--explain", help="Say what a finding means and how it is judged; 'all' lists them.", show_default=False)
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
        raise SettingsError("Nothing was named to look at.", "Give a log, a trainer's output folder, a run folder or a configuration.")
    threshold = _threshold(fail_on)
    if follow:
        from breadth.cli.doctor_follow import keep_looking

        keep_looking([Path(path) for path in paths], columns, EVERY)
        return
    with TemporaryDirectory(prefix="breadth-") as workshop:
        diagnoses, gathered = look(paths, columns, Path(workshop))
        _print(diagnoses, gathered, as_json=as_json, html=html)
    if any(one.severity.value in threshold for diagnosis in diagnoses for one in diagnosis.findings):
        raise typer.Exit(FOUND)


def look(paths: Sequence[str | Path], columns: Sequence[str] | None, workshop: Path) -> tuple[list[Diagnosis], Gathered]:
    """Gather what the paths hold, probe what is a URL, and diagnose each run."""
    from breadth.bridge.doctor.diagnosis import diagnose
    from breadth.bridge.doctor.gathering import gather

    with progress("looking") as said:
        places = [_probed(str(path), workshop) if _is_url(path) else Path(path) for path in paths]
        gathered = gather(places, workshop, importers=importers(columns), said=said)
        diagnoses = []
        for case in gathered.cases:
            said(case.name)
            diagnoses.append(diagnose(case))
    return diagnoses, gathered


def _is_url(path: str | Path) -> bool:
    return str(path).startswith(("http://", "https://"))


def _probed(url: str, workshop: Path) -> Path:
    """Try a server out and keep what was found where the doctor can read it."""
    import asyncio

    from breadth.cli.solve import key
    from breadth.runtime.probe import probe

    place = workshop / "server.toml"
    asyncio.run(probe(url, key=key())).save(place)
    return place


def _print(diagnoses: Sequence[Diagnosis], gathered: Gathered, *, as_json: bool, html: Path | None) -> None:
    from breadth.bridge.doctor.machine import as_table

    document = json.dumps(as_table(diagnoses, gathered), indent=2, allow_nan=False) if as_json else None
    if document is not None and html is None:
        typer.echo(document)  # the page's curves take a while, and nobody would see them
        return
    from breadth.bridge.doctor.page import doctor_page

    deliver(doctor_page(diagnoses, gathered), as_json=as_json, html=html, document=document)


def _threshold(fail_on: str | None) -> Sequence[str]:
    from breadth.bridge.doctor.finding import SEVERITIES

    names = [one.value for one in SEVERITIES]
    if fail_on is not None and fail_on not in names:
        raise SettingsError(f"--fail-on got '{fail_on}'.", f"Choose one of {', '.join(names)}.")
    return [] if fail_on is None else names[: names.index(fail_on) + 1]


def _explain(name: str, *, as_json: bool) -> None:
    from breadth.bridge.doctor.explanation import explanation, listing

    deliver(listing() if name == "all" else explanation(name), as_json=as_json, html=None)
