"""The folder of a trial: what is asked for, what was found, and why it failed if it did."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from breadth.base.atomic import whole_file, write_error
from breadth.base.errors import BrokenFileError
from breadth.lab.trials.experiment import Done, Trial

ASKED, FOUND, FAILED, LOG = "trial.toml", "result.json", "failure.txt", "log.txt"
"""In the folder of a trial: its work and settings, its result, why it failed, what libraries said meanwhile."""


@dataclass(frozen=True)
class Found:
    """What stands in a result file."""

    result: Mapping[str, Any]
    """What the trial found."""
    seconds: float
    """How long it took."""


def prepare(trials: Sequence[Trial], folder: Path) -> None:
    """Make the folder of every trial; refuse, before anything runs, one that holds a trial with other settings."""
    for trial in trials:
        place = folder / trial.name
        wanted = {"work": trial.work, "settings": dict(trial.settings)}
        if (place / ASKED).exists():
            _compare(place / ASKED, wanted)
            continue
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise write_error(place, error) from error
        _write_toml(place / ASKED, wanted)


def asked(folder: Path) -> tuple[str, dict[str, Any]]:
    """Return the work and the settings of a trial."""
    table = _read_toml(folder / ASKED)
    if not isinstance(table.get("work"), str) or not isinstance(table.get("settings", {}), dict):
        raise BrokenFileError(folder / ASKED, "names no work.", "Move the folder away and run the experiment again.")
    return table["work"], table.get("settings", {})


def found(folder: Path) -> Found | None:
    """Return what a trial found, None while it has not ended."""
    path = folder / FOUND
    if not path.exists():
        return None
    try:
        row = orjson.loads(path.read_bytes())
        return Found(row["result"], float(row["seconds"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BrokenFileError(
            path, f"is no result of a trial: {error}.", "Delete it; the trial is then run again."
        ) from error


def write_found(folder: Path, result: Mapping[str, Any], seconds: float) -> None:
    """Write what a trial found, whole or not at all; an earlier failure is forgotten."""
    (folder / FAILED).unlink(missing_ok=True)
    with whole_file(folder / FOUND) as temporary:
        row = {"seconds": round(seconds, 1), "result": result}
        temporary.write_bytes(orjson.dumps(row, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS))


def done(trials: Sequence[Trial], folder: Path) -> list[Done]:
    """List the trials that have ended well, in order."""
    pairs = [(trial, found(folder / trial.name)) for trial in trials]
    return [Done(trial, one.result, one.seconds) for trial, one in pairs if one is not None]


def _compare(path: Path, wanted: Mapping[str, Any]) -> None:
    import tomli_w

    there, asked_for = _read_toml(path), tomllib.loads(tomli_w.dumps(wanted))
    if there != asked_for:
        names = ", ".join(_differing(there, asked_for))
        raise BrokenFileError(
            path,
            f"was begun with other settings: {names}. Results of different settings are not mixed.",
            "Name another folder with --out, or repeat the command and the base as they were.",
        )


def _differing(before: Any, after: Any, where: str = "") -> list[str]:
    """Name what differs, with both values; tables and lists part by part."""
    if isinstance(before, list) and isinstance(after, list):
        before, after = dict(enumerate(before)), dict(enumerate(after))
    if isinstance(before, dict) and isinstance(after, dict):
        places = {**before, **after}
        return [name for key in places for name in _differing(before.get(key), after.get(key), f"{where}.{key}")]
    if before == after:
        return []
    return [f"{where.removeprefix('.').removeprefix('settings.')} was {_short(before)}, now {_short(after)}"]


def _short(value: Any) -> str:
    text = "not set" if value is None else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BrokenFileError(
            path, f"cannot be read: {error.strerror or error}.", "Check the path and its permissions."
        ) from error
    except ValueError as error:
        raise BrokenFileError(
            path, f"is not TOML: {error}.", "Move the folder away and run the experiment again."
        ) from error


def _write_toml(path: Path, table: Mapping[str, Any]) -> None:
    import tomli_w

    with whole_file(path) as temporary:
        temporary.write_text(tomli_w.dumps(table), encoding="utf-8")
