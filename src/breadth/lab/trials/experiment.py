"""What an experiment is: a statement, the trials that test it, and how what they found becomes one page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from breadth.base.catalogue import Catalogue
from breadth.base.checks import require
from breadth.lab.model.reasoner import check, digest, shipped
from breadth.lab.task.tasks import prime_of
from breadth.report.sections import Page

EXPERIMENTS = Catalogue(
    "experiments",
    {
        "choices": "breadth.lab.experiments.choices:CHOICES",
        "choices-several": "breadth.lab.experiments.choices:SEVERAL_CHOICES",
        "remedies": "breadth.lab.experiments.remedies:REMEDIES",
        "corners": "breadth.lab.experiments.four_corners:CORNERS",
        "confirmation": "breadth.lab.experiments.four_corners:CONFIRMATION",
        "known-truth": "breadth.lab.experiments.known_truth:KNOWN_TRUTH",
    },
)
"""Every experiment by name."""


@dataclass(frozen=True)
class Bench:
    """What an experiment is made on."""

    seeds: int
    """Repetitions of every arm: as many seeds, from 0 unless the experiment begins elsewhere."""
    base: Path | None = None
    """Folder of the base; None is the one that ships."""
    weights: str = ""
    """Fingerprint of the base: results of different bases never mix."""
    prime: int = 29
    """What the base reckons modulo."""

    def __post_init__(self) -> None:
        require(self, "seeds", self.seeds >= 1, "1 or more")


@dataclass(frozen=True)
class Trial:
    """One piece of work, done in a process and a folder of its own."""

    name: str
    """Arm and seed, e.g. ``plain/seed-0``: the folder's place in the experiment's."""
    work: str
    """``"module:function"``, called with the settings, the folder, the base's folder and whom to tell of units done;
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
class Done:
    """A trial that has ended well."""

    trial: Trial
    """Which."""
    result: Mapping[str, Any]
    """What it found; the same for the same settings."""
    seconds: float
    """How long it took, summed over interruptions it was taken up after."""


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
        """Repetitions unless told otherwise."""
        ...

    def trials(self, bench: Bench) -> tuple[Trial, ...]:
        """List the work."""
        ...

    def page(self, done: Sequence[Done], bench: Bench) -> Page:
        """Say what was found, by as many trials as have ended."""
        ...


def bench_of(base: Path | None, seeds: int) -> Bench:
    """Look at a base, by default the one that ships, and refuse one that is damaged."""
    folder = shipped() if base is None else base
    check(folder)
    return Bench(seeds, base, digest(base)[:16], prime_of(base))
