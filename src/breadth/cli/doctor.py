"""``breadth doctor``: which failure a run has, the proof, and what to set in the user's own trainer or server."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from breadth.api import diagnose_runs
from breadth.base.errors import BreadthError, SettingsError
from breadth.base.system import refuse_address, scratch_folder
from breadth.cli.output import ColumnMap, Html, Json, deliver, parse_columns, progress
from breadth.doctor.collect import CollectedEvidence
from breadth.doctor.diagnosis import RunDiagnosis
from breadth.doctor.finding import FINDING_SEVERITIES, explain_finding, list_findings
from breadth.doctor.page import to_json
from breadth.report.plaintext import one_line

EXIT_FOUND = 1
"""Exit status with --fail-on when something as bad was found."""
FOLLOW_INTERVAL = 5.0
"""Seconds between two reads of --follow; a step of most trainers takes longer."""


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
    columns: ColumnMap = None,
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
    full: Annotated[
        bool, typer.Option("--full", help="Show every finding with its proof and patches, and what was excluded.")
    ] = False,
    as_json: Json = False,
    html: Html = None,
) -> None:
    """Find the failure of a run, prove it, and give the patch for its trainer or server; or say what is missing.

    Configurations in Python are parsed, never executed. Nothing is written unless --html asks for it.
    """
    if explain is not None:
        print_explanation(explain, as_json=as_json)
        return
    if not paths:
        raise SettingsError(
            "No path was given.", "Give a log, a trainer's output folder, a run folder or a configuration."
        )
    threshold = severities_from(fail_on)
    if follow:
        for path in paths:
            refuse_address(path, "--follow watches files of this machine")
        follow_runs([Path(path) for path in paths], columns, FOLLOW_INTERVAL)
        return
    with scratch_folder() as folder:
        with progress("diagnosing") as report:
            diagnoses, gathered = diagnose_runs(paths, folder, columns=parse_columns(columns), on_progress=report)
        print_diagnoses(diagnoses, gathered, full=full, as_json=as_json, html=html)
    if any(finding.severity.value in threshold for diagnosis in diagnoses for finding in diagnosis.findings):
        raise typer.Exit(EXIT_FOUND)


def print_diagnoses(
    diagnoses: Sequence[RunDiagnosis], gathered: CollectedEvidence, *, full: bool, as_json: bool, html: Path | None
) -> None:
    """Print the diagnoses as a page or as JSON; the HTML page is always the full one."""
    document = json.dumps(to_json(diagnoses, gathered), indent=2, allow_nan=False) if as_json else None
    if document is not None and html is None:
        typer.echo(document)  # the curves of the page take a while, and nobody would see them
        return
    from breadth.doctor.page import doctor_page

    saved = None if html is None else doctor_page(diagnoses, gathered)
    page = saved if full and saved is not None else doctor_page(diagnoses, gathered, full=full)
    deliver(page, as_json=as_json, html=html, document=document, saved=saved)


def severities_from(fail_on: str | None) -> Sequence[str]:
    """Return the severities that fail the command: the given one and all that are worse."""
    names = [severity.value for severity in FINDING_SEVERITIES]
    if fail_on is not None and fail_on not in names:
        raise SettingsError(f"--fail-on got '{fail_on}'.", f"Choose one of {', '.join(names)}.")
    return [] if fail_on is None else names[: names.index(fail_on) + 1]


def print_explanation(name: str, *, as_json: bool) -> None:
    """Print what a finding means and its thresholds, or the list of all findings."""
    deliver(list_findings() if name == "all" else explain_finding(name), as_json=as_json, html=None)


Verdicts = Mapping[tuple[str, str], tuple[str, str]]
"""Run and finding -> severity and headline."""


def follow_runs(paths: Sequence[Path], columns: Sequence[str] | None, every: float) -> None:
    """Print a line when a finding appears, changes its severity or disappears, until interrupted."""
    try:
        for line in watch_verdicts(paths, columns, every):
            typer.echo(line)
    except KeyboardInterrupt:
        raise typer.Exit from None


def watch_verdicts(paths: Sequence[Path], columns: Sequence[str] | None, every: float) -> Iterator[str]:
    """Yield a line for every change of the verdict, the first verdict included; never ends."""
    known: Verdicts | None = None
    seen: object = None
    while True:
        now = file_state(paths)
        if now != seen:
            seen = now
            found = current_verdicts(paths, columns)
            if found is not None:
                yield from describe_changes(known, found)
                known = found
        time.sleep(every)


def file_state(paths: Sequence[Path]) -> object:
    """Return the size and time of every file: it changes when one is written to."""
    files = [
        file
        for path in paths
        for file in ([path] if path.is_file() else sorted(path.rglob("*")) if path.is_dir() else [])
    ]
    return tuple((str(file), stat.st_size, stat.st_mtime_ns) for file in files if (stat := _stat(file)) is not None)


def _stat(file: Path) -> os.stat_result | None:
    try:
        return file.stat()
    except OSError:
        return None  # deleted after it was listed


def current_verdicts(paths: Sequence[Path], columns: Sequence[str] | None) -> Verdicts | None:
    """Diagnose the files as they are now; None while nothing can be read yet."""
    with scratch_folder() as folder:
        try:
            diagnoses, _ = diagnose_runs(paths, folder, columns=parse_columns(columns))
        except BreadthError:
            return None
    return {
        (diagnosis.evidence.name, finding.name): (finding.severity.value, finding.headline)
        for diagnosis in diagnoses
        for finding in diagnosis.findings
    }


def describe_changes(known: Verdicts | None, found: Verdicts) -> Iterator[str]:
    """Yield a line for every difference between two verdicts."""
    if known is None and not found:
        yield add_time("nothing found so far")
    for place, (severity, headline) in found.items():
        before = (known or {}).get(place)
        if before is None:
            yield add_time(f"{describe_place(place)}: {severity}. {headline}")
        elif before[0] != severity:
            yield add_time(f"{describe_place(place)}: {severity}, was {before[0]}. {headline}")
    for place in (known or {}).keys() - found.keys():
        yield add_time(f"{describe_place(place)}: gone.")


def describe_place(place: tuple[str, str]) -> str:
    """Return the run and the finding in one phrase."""
    return f"{place[0]}, {place[1]}"


def add_time(text: str) -> str:
    """Put the time of day before a line."""
    return f"{time.strftime('%H:%M:%S')}  {one_line(text)}"
