"""What an experiment is: a statement, the trials that test it, their folders, and how results become one page."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import orjson

from breadth.base.catalogue import Catalogue
from breadth.base.errors import BrokenFileError, require
from breadth.base.system import atomic_file, write_error
from breadth.lab.reasoner import check_files, default_folder, reasoner_digest, reasoner_prime
from breadth.report.sections import Page

EXPERIMENTS = Catalogue(
    "experiments",
    {
        "choices": "breadth.lab.experiments.choices:CHOICES",
        "choices-several": "breadth.lab.experiments.choices:OFF_POLICY_CHOICES",
        "remedies": "breadth.lab.experiments.remedies:REMEDIES",
        "corners": "breadth.lab.experiments.four_corners:CORNERS",
        "confirmation": "breadth.lab.experiments.four_corners:CONFIRMATION",
        "known-truth": "breadth.lab.experiments.known_truth:KNOWN_TRUTH",
    },
)
"""Every experiment by name."""


@dataclass(frozen=True)
class ExperimentSetup:
    """Base and number of seeds of an experiment."""

    seeds: int
    """Repetitions of every arm: as many seeds, from 0 unless the experiment begins elsewhere."""
    base: Path | None = None
    """Folder of the base; None is the one that ships."""
    weights: str = ""
    """Fingerprint of the base: results of different bases never mix."""
    prime: int = 29
    """Modulus of the base's task."""

    def __post_init__(self) -> None:
        require(self, "seeds", self.seeds >= 1, "1 or more")


@dataclass(frozen=True)
class ExperimentTrial:
    """One piece of work, done in a process and a folder of its own."""

    name: str
    """Arm and seed, e.g. ``plain/seed-0``: the folder's place in the experiment's."""
    work: str
    """``"module:function"``, called with the settings, the folder, the base's folder and a callback for units done;
    returns the result.
    """
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Everything the result depends on, as TOML can hold it."""
    units: int = 1
    """How much work it is; one unit is about one optimizer step."""

    @property
    def arm(self) -> str:
        """What is repeated over seeds: the name before the slash."""
        return self.name.partition("/")[0]


@dataclass(frozen=True)
class FinishedTrial:
    """A trial that has ended well."""

    trial: ExperimentTrial
    """The trial."""
    result: Mapping[str, Any]
    """Its result, the same for the same settings."""
    seconds: float
    """How long it took, summed over all attempts."""


class Experiment(Protocol):
    """A frozen record whose fields are its sizes."""

    @property
    def name(self) -> str:
        """What to type."""
        ...

    @property
    def statement(self) -> str:
        """What it tests, in one line."""
        ...

    @property
    def seeds(self) -> int:
        """Repetitions by default."""
        ...

    def trials(self, bench: ExperimentSetup) -> tuple[ExperimentTrial, ...]:
        """List the work."""
        ...

    def page(self, done: Sequence[FinishedTrial], bench: ExperimentSetup) -> Page:
        """Report the results of the trials that have ended."""
        ...


def load_setup(base: Path | None, seeds: int) -> ExperimentSetup:
    """Return the setup for a base, by default the shipped one; a damaged one is refused."""
    folder = default_folder() if base is None else base
    check_files(folder)
    return ExperimentSetup(seeds, base, reasoner_digest(base)[:16], reasoner_prime(base))


TRIAL_FILE, RESULT_FILE, FAILURE_FILE, LOG_FILE = "trial.toml", "result.json", "failure.txt", "log.txt"
"""Files in the folder of a trial: its work and settings, its result, its failure, the output of libraries."""


@dataclass(frozen=True)
class TrialResult:
    """The content of a result file."""

    result: Mapping[str, Any]
    """What the trial found."""
    seconds: float
    """How long it took."""


def prepare_trials(trials: Sequence[ExperimentTrial], folder: Path) -> None:
    """Make the folder of every trial; refuse, before anything runs, one that holds a trial with other settings."""
    for trial in trials:
        place = folder / trial.name
        wanted = {"work": trial.work, "settings": dict(trial.settings)}
        if (place / TRIAL_FILE).exists():
            refuse_other_settings(place / TRIAL_FILE, wanted)
            continue
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise write_error(place, error) from error
        _write_toml(place / TRIAL_FILE, wanted)


def read_trial(folder: Path) -> tuple[str, dict[str, Any]]:
    """Return the work and the settings of a trial."""
    table = _read_toml(folder / TRIAL_FILE)
    if not isinstance(table.get("work"), str) or not isinstance(table.get("settings", {}), dict):
        raise BrokenFileError(
            folder / TRIAL_FILE, "names no work.", "Move the folder away and run the experiment again."
        )
    return table["work"], table.get("settings", {})


def read_result(folder: Path) -> TrialResult | None:
    """Return what a trial found, None while it has not ended."""
    path = folder / RESULT_FILE
    if not path.exists():
        return None
    try:
        row = orjson.loads(path.read_bytes())
        return TrialResult(row["result"], float(row["seconds"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BrokenFileError(
            path, f"is no result of a trial: {error}.", "Delete it; the trial is then run again."
        ) from error


def write_result(folder: Path, result: Mapping[str, Any], seconds: float) -> None:
    """Write what a trial found, whole or not at all; an earlier failure is forgotten."""
    (folder / FAILURE_FILE).unlink(missing_ok=True)
    with atomic_file(folder / RESULT_FILE) as temporary:
        row = {"seconds": round(seconds, 1), "result": result}
        temporary.write_bytes(orjson.dumps(row, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS))


def list_finished(trials: Sequence[ExperimentTrial], folder: Path) -> list[FinishedTrial]:
    """List the trials that have ended well, in order."""
    pairs = [(trial, read_result(folder / trial.name)) for trial in trials]
    return [FinishedTrial(trial, result.result, result.seconds) for trial, result in pairs if result is not None]


def refuse_other_settings(path: Path, wanted: Mapping[str, Any]) -> None:
    """Refuse a folder whose trial was started with other settings."""
    import tomli_w

    there, asked_for = _read_toml(path), tomllib.loads(tomli_w.dumps(wanted))
    if there != asked_for:
        names = ", ".join(list_differences(there, asked_for))
        raise BrokenFileError(
            path,
            f"was begun with other settings: {names}. Results of different settings are not mixed.",
            "Name another folder with --out, or repeat the command and the base as they were.",
        )


def list_differences(before: Any, after: Any, where: str = "") -> list[str]:
    """Name what differs, with both values; tables and lists part by part."""
    if isinstance(before, list) and isinstance(after, list):
        before, after = dict(enumerate(before)), dict(enumerate(after))
    if isinstance(before, dict) and isinstance(after, dict):
        places = {**before, **after}
        return [name for key in places for name in list_differences(before.get(key), after.get(key), f"{where}.{key}")]
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

    with atomic_file(path) as temporary:
        temporary.write_text(tomli_w.dumps(table), encoding="utf-8")
