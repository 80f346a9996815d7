"""The degenerate guard: no credit for successes that loop, repeat the answer or skip the computation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any, ClassVar

import torch

from breadth.base.catalogue import Paper
from breadth.base.errors import MechanismError, require
from breadth.base.stats import Mean
from breadth.measure.degeneracy import Gates, computation_tokens, response_degeneracy
from breadth.training.mechanism import CLIP_HIGHER, Effect, Mechanism, RecipeTable, Role, Selection
from breadth.training.records import Rollouts, not_none

DETECTORS = ("n-gram repetition", "tail loop", "answer repetition", "early answer", "computation skipping")
"""Detectors used here; the one for answers overused across problems needs more problems than one generation has."""


@dataclass(frozen=True)
class DegenerateGuardState:
    """What the degenerate guard keeps between generations."""

    generations: int = 0
    """Generations seen."""
    computation: float = 0.0
    """Numbers, operators and words of derivation before the answer in the median response of the first generations."""


@dataclass(frozen=True)
class DegenerateGuard(Mechanism[Rollouts, DegenerateGuardState]):
    """Zero the advantage of degenerate successes; never add any. Comes after the estimator.

    A positive advantage becomes 0 if at least ``gates.needed`` detectors fire: repeated 4-grams, a loop at the end, the
    answer stated too often, the answer given too early, computation skipped. Negative advantages stay. Overly hard
    problems teach such shortcuts before the accuracy moves (2605.28388). Detectors and gates are ours; we found no
    published formula (`breadth.measure.degeneracy`).

    Skipped computation is measured against the median response of the run's first ``settle`` generations, over all
    problems, because the base model's responses to each problem are unknown here. The detector is off until then. Its
    gate of 0.2 allows a problem five times easier than the typical one, and a second detector must agree.

    Harm: the advantages of a group no longer sum to zero, so a guard that fires often lowers the probability of the
    whole group. If ``muted`` is above a few per cent, repair the data or the checker. Honest long derivations repeat
    notation.
    """

    paper = Paper(
        "arXiv 2605.28388",
        "over-hard problems",
        "no formula was published; gates and states are ours, and the docstrings say so",
    )
    neutral: ClassVar[Mapping[str, Any]] = {"gates": Gates(needed=99)}
    recipes: ClassVar[Mapping[str, RecipeTable]] = {
        "guarded": RecipeTable(
            (
                {"kind": "group-advantage"},
                {"kind": "degenerate-guard"},
                {"kind": "rare-success-cap"},
                {"kind": "flat-filter", "on": "advantage"},
                CLIP_HIGHER,
                {"kind": "fork-thermostat"},
            ),
            "ours",
            "The thermostat; successes that look accidental are muted or capped first.",
        ),
    }

    follows = Role.ESTIMATOR

    gates: Gates = field(default_factory=Gates)
    """Threshold of each detector, and how many must fire; two, because each alone has honest causes."""
    settle: int = 5
    """Generations whose median response sets the reference computation."""

    def __post_init__(self) -> None:
        require(self, "gates", self.gates.needed >= 1, "gates that need 1 detector or more")
        require(self, "settle", self.settle >= 1, "1 or more")

    @property
    def needs(self) -> frozenset[str]:
        """The text of each response."""
        return frozenset({"texts"})

    def init(self) -> DegenerateGuardState:
        """Start with no generation seen."""
        return DegenerateGuardState()

    def apply(self, batch: Rollouts, state: DegenerateGuardState, selection: Selection | None) -> Effect[Rollouts]:
        """Check every response and zero the positive advantages of the degenerate ones."""
        texts, advantages = response_texts(batch), not_none(batch.advantages)
        reference = state.computation if state.generations >= self.settle else None
        reports = [response_degeneracy(text, reference=reference, gates=self.gates) for text in texts]
        flagged = torch.tensor([report.is_degenerate for report in reports], dtype=torch.bool, device=advantages.device)
        rising = advantages > 0
        muted = (flagged[:, None] if advantages.ndim == 2 else flagged) & rising
        positive = rising.any(1) if rising.ndim == 2 else rising
        stats = {
            detector.replace("-", "_").replace(" ", "_"): Mean(
                sum(detector in report.detections for report in reports), len(reports)
            )
            for detector in DETECTORS
        }
        stats |= {
            "flagged": Mean(flagged.sum(), len(reports)),
            "muted": Mean((flagged & positive).sum(), positive.sum()),
        }
        if state.generations < self.settle and texts:
            stats["computation_seen"] = Mean(median(map(computation_tokens, texts)), 1)
        return Effect(replace(batch, advantages=advantages.masked_fill(muted, 0.0)), stats=stats)

    def update(self, state: DegenerateGuardState, stats: Mapping[str, Any]) -> DegenerateGuardState:
        """Add the first generations to the reference; an empty one does not count."""
        if "computation_seen" not in stats:
            return state
        generations = state.generations + 1
        return DegenerateGuardState(
            generations, state.computation + (stats["computation_seen"].value - state.computation) / generations
        )


def response_texts(batch: Rollouts) -> list[str]:
    """Return the text of every response."""
    if batch.texts is None or len(batch.texts) != len(batch):
        raise MechanismError(
            f"The degenerate guard got {0 if batch.texts is None else len(batch.texts)} response texts for {len(batch)}"
            " rollouts.",
            "Provide the text of every response.",
        )
    return list(batch.texts)
