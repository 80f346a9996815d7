"""``breadth doctor --follow``: look again whenever the files have changed, and say once what is new in the verdict."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import typer

from breadth.base.errors import BreadthError
from breadth.report.plaintext import one_line

Verdicts = Mapping[tuple[str, str], tuple[str, str]]
"""Run and finding -> severity and headline."""


def keep_looking(paths: Sequence[Path], columns: Sequence[str] | None, every: float) -> None:
    """Look until interrupted; a finding is announced when it appears, when it gets better or worse, and when it goes."""
    try:
        for line in announcements(paths, columns, every):
            typer.echo(line)
    except KeyboardInterrupt:
        raise typer.Exit from None


def announcements(paths: Sequence[Path], columns: Sequence[str] | None, every: float) -> Iterator[str]:
    """Yield a line for every change of the verdict, beginning with the first one; ends never."""
    known: Verdicts | None = None
    seen: object = None
    while True:
        now = _state(paths)
        if now != seen:
            seen = now
            found = _verdicts(paths, columns)
            if found is not None:
                yield from _changes(known, found)
                known = found
        time.sleep(every)


def _state(paths: Sequence[Path]) -> object:
    """Return what changes when a file is written to."""
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
        return None  # gone between listing and looking


def _verdicts(paths: Sequence[Path], columns: Sequence[str] | None) -> Verdicts | None:
    """Diagnose as things stand; None while there is nothing that can be read yet."""
    from breadth.api import diagnose_runs
    from breadth.cli.import_ import parse_columns

    with TemporaryDirectory(prefix="breadth-") as workshop:
        try:
            diagnoses, _ = diagnose_runs(paths, Path(workshop), columns=parse_columns(columns))
        except BreadthError:
            return None
    return {
        (one.evidence.name, finding.name): (finding.severity.value, finding.headline)
        for one in diagnoses
        for finding in one.findings
    }


def _changes(known: Verdicts | None, found: Verdicts) -> Iterator[str]:
    if known is None and not found:
        yield _stamped("nothing found so far")
    for place, (severity, headline) in found.items():
        before = (known or {}).get(place)
        if before is None:
            yield _stamped(f"{_named(place)}: {severity}. {headline}")
        elif before[0] != severity:
            yield _stamped(f"{_named(place)}: {severity}, was {before[0]}. {headline}")
    for place in (known or {}).keys() - found.keys():
        yield _stamped(f"{_named(place)}: gone.")


def _named(place: tuple[str, str]) -> str:
    return f"{place[0]}, {place[1]}"


def _stamped(text: str) -> str:
    return f"{time.strftime('%H:%M:%S')}  {one_line(text)}"
