"""The fork thermostat: keeps the entropy of the forking tokens inside a band, in both directions. Ours."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

from torch import Tensor

from breadth.base.catalogue import Paper
from breadth.base.errors import require
from breadth.base.stats import Mean
from breadth.training.entropy import ENTROPY_GRADIENT, EntropyHistogram, entropy_bonus_terms
from breadth.training.mechanism import CLIP_HIGHER, Effect, Mechanism, NoEffect, RecipeTable, Regime, Selection
from breadth.training.ops import masked_values
from breadth.training.records import Batch, not_none

MAX_TRAIL_LENGTH = 256
"""Entries the audit trail keeps; the oldest go first."""


@dataclass(frozen=True)
class Action:
    """One entry of the thermostat's audit trail."""

    step: int
    """Optimizer step after which it acted."""
    what: str
    """What it did."""
    why: str
    """The numbers behind it."""


@dataclass(frozen=True)
class ThermostatState:
    """What the fork thermostat keeps between steps."""

    steps: int = 0
    """Optimizer steps seen."""
    start: float = 0.0
    """Mean entropy of the forking tokens over the settling steps so far, in nats; the band's reference once they are
    over.
    """
    entropy: float = 0.0
    """Mean entropy of the forking tokens in the last step, in nats."""
    threshold: float | None = None
    """Entropy threshold of the forking tokens in the last step, in nats; None before the first."""
    push: float = 0.0
    """Integral part of the coefficient."""
    coefficient: float = 0.0
    """Coefficient of the entropy on forking tokens: above 0 a bonus, below 0 a penalty."""
    mode: str = "settling"
    """Settling, inside, raising or lowering."""
    trail: tuple[Action, ...] = ()
    """The last changes of mode, oldest first."""

    def with_mode(self, mode: str, what: str, why: str) -> Self:
        """Return the state in another mode, with what was done and why in the trail."""
        return replace(self, mode=mode, trail=(*self.trail, Action(self.steps, what, why))[-MAX_TRAIL_LENGTH:])


FORK_THRESHOLD_SHARE = 0.9
"""Share of the threshold from which a token forks; at 1, a policy whose entropy falls evenly would have no forks left.
"""


@dataclass(frozen=True)
class ForkThermostat(Mechanism[Batch, ThermostatState]):
    """Keep entropy where the policy decides: a bonus on forking tokens below the band, a penalty above it.

    Forking tokens are the ``share`` with the largest entropy (2506.01939), by nine tenths of the threshold of the step
    before, so no survey is needed. H is the mean entropy of that share. With ``forks="planning"`` they are the planning
    tokens, if the trainer marks them, and H is the mean over all of them. (Entropy is also high where the policy does
    not know a fact, and keeping it there rewards ignorance.) ``start`` is the mean of H over the first ``settle``
    steps, and the band is ``[floor, ceiling] * start``. With the relative distance ``e`` to the nearest edge of the
    band (0 inside), once per optimizer step::

        push       += integral * e          unless the coefficient is at its limit and e points outwards
        coefficient = clip(proportional * e + push, -limit, limit)
        loss       -= coefficient * entropy on the forking tokens

    Inside the band the push stays constant: it keeps holding H until H leaves on the other side. Other tokens are not
    touched and may become deterministic. The exact entropy has a gradient, so it also acts on strictly on-policy
    updates. ``dry_run`` only reports what it would do.

    Defaults: the share is the paper's; band and gains are ours, tried on the tiny reasoner of
    ``tools/measure_effects.py`` only. A larger model or learning rate may need others: begin with ``dry_run``.

    Harm: entropy is not a goal in itself: one paper saw no clear relation between its level and the score (2505.22617).
    A floor above what the task needs keeps the policy from committing; monitor the reward together with the entropy.
    """

    paper = Paper("ours", "a band for the entropy of the forking tokens")
    neutral: ClassVar[Mapping[str, Any]] = {"limit": 0.0}
    recipes: ClassVar[Mapping[str, RecipeTable]] = {
        "thermostat": RecipeTable(
            ({"kind": "group-advantage"}, CLIP_HIGHER, {"kind": "fork-thermostat"}),
            "ours",
            "Group advantages and clip-higher; the entropy of the forking tokens is held in a band around the run's own"
            " start.",
        ),
    }

    share: float = 0.2
    """Share of tokens that fork if the entropy decides; 0.2 in 2506.01939."""
    forks: Literal["entropy", "planning"] = "entropy"
    """What makes a token fork: a large entropy, or being a planning token."""
    floor: float = 0.7
    """Lower edge of the band, as a multiple of the start."""
    ceiling: float = 1.5
    """Upper edge of the band, as a multiple of the start."""
    settle: int = 5
    """Optimizer steps whose mean is the start; it does not act in them."""
    proportional: float = 0.05
    """Coefficient for a distance of one whole start."""
    integral: float = 0.01
    """Growth of the push per step at that distance."""
    limit: float = 0.2
    """Largest coefficient in either direction."""
    dry_run: bool = False
    """Only report."""

    def __post_init__(self) -> None:
        require(self, "share", 0 < self.share <= 1, "a number above 0, at most 1")
        require(self, "forks", self.forks in ("entropy", "planning"), "'entropy' or 'planning'")
        require(self, "floor", 0 <= self.floor < self.ceiling, "a number from 0 to below the ceiling")
        require(self, "settle", self.settle >= 1, "1 or more")
        for field in ("proportional", "integral", "limit"):
            require(self, field, getattr(self, field) >= 0, "a number of 0 or more")

    @property
    def needs(self) -> frozenset[str]:
        """The entropy of each token, with its gradient; which tokens plan, if those are the forks."""
        return frozenset({"entropy", ENTROPY_GRADIENT} | ({"planning"} if self.forks == "planning" else set()))

    def init(self) -> ThermostatState:
        """Start with no step seen and a coefficient of 0."""
        return ThermostatState()

    def apply(self, batch: Batch, state: ThermostatState, selection: Selection | None) -> Effect[Batch]:
        """Add the entropy term of this micro-batch's forking tokens and count all entropies."""
        entropy = not_none(batch.entropy)
        forks = self.forking_tokens(batch, state)
        coefficient = 0.0 if self.dry_run else state.coefficient
        terms = tuple(masked_values(term, forks) for term in entropy_bonus_terms(batch, coefficient))
        settled = batch.mask & ~forks
        stats = {
            "entropies": EntropyHistogram.from_tokens(entropy, forks if self.forks == "planning" else batch.mask),
            "forks": Mean(forks.sum(), batch.mask.sum()),
            "mechanical_entropy": Mean(masked_values(entropy.detach(), settled).sum(), settled.sum()),
        }
        return Effect(batch, terms, stats)

    def update(self, state: ThermostatState, stats: Mapping[str, Any]) -> ThermostatState:
        """Measure the forking tokens, update the coefficient, and record a change of mode."""
        share = 1.0 if self.forks == "planning" else self.share
        threshold, entropy = stats["entropies"].top_share(share) if "entropies" in stats else (math.inf, math.nan)
        if math.isnan(entropy):
            return state
        steps = state.steps + 1
        if steps <= self.settle:
            start = state.start + (entropy - state.start) / steps
            return replace(state, steps=steps, start=start, entropy=entropy, threshold=threshold)
        error = self.distance_to_band(entropy, state.start)
        push = state.push + self.integral * error
        wanted = self.proportional * error + push
        coefficient = max(-self.limit, min(self.limit, wanted))
        if wanted != coefficient and error * wanted > 0:
            push = state.push  # anti-wind-up: integrating at the limit would only delay the way back
        moved = replace(state, steps=steps, entropy=entropy, threshold=threshold, push=push, coefficient=coefficient)
        return self._record_mode(moved, error)

    def upgrade_state(self, table: Mapping[str, Any]) -> Mapping[str, Any]:
        """Rename the key of earlier checkpoints: ``mode`` was ``mood``."""
        return {"mode" if key == "mood" else key: value for key, value in table.items()}

    def no_effect(self, regime: Regime) -> NoEffect | None:
        """Report a limit or gains of 0: the coefficient stays zero."""
        if self.limit == 0 or self.proportional == self.integral == 0:
            reason = "its limit or both of its gains are 0, so entropy is never rewarded or penalised."
            return NoEffect("fork-thermostat", reason, "Set limit and a gain above 0; to only report, set dry_run.")
        return None

    def forking_tokens(self, batch: Batch, state: ThermostatState) -> Tensor:
        """Return a mask of the forking tokens."""
        if self.forks == "planning":
            return batch.mask & not_none(batch.planning)
        rounded = not_none(batch.entropy).detach().float()  # like the histogram, so equal entropies fork together
        return batch.mask & (
            rounded >= (math.inf if state.threshold is None else FORK_THRESHOLD_SHARE * state.threshold)
        )

    def distance_to_band(self, entropy: float, start: float) -> float:
        """Return how far H is outside the band, in units of the start: positive below the floor, negative above."""
        if start <= 0:
            return 0.0
        relative = entropy / start
        return max(self.floor - relative, 0.0) - max(relative - self.ceiling, 0.0)

    def _record_mode(self, state: ThermostatState, error: float) -> ThermostatState:
        mode = "raising" if error > 0 else "lowering" if error < 0 else "inside"
        if mode == state.mode:
            return state
        edges = f"{self.floor * state.start:.4g} to {self.ceiling * state.start:.4g}"
        why = (
            f"fork entropy {state.entropy:.4g} nats, band {edges} ({self.floor:g} to {self.ceiling:g} of the start"
            f" {state.start:.4g})"
        )
        what = (
            f"{state.mode} -> {mode}, coefficient"
            f" {state.coefficient:+.4g}{' (dry run: not applied)' if self.dry_run else ''}"
        )
        return state.with_mode(mode, what, why)
