"""The fork thermostat: holds the entropy of the forking tokens inside a band, in both directions. Ours."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

from torch import Tensor

from breadth.base.checks import require
from breadth.base.stats import Mean
from breadth.training.entropy import ENTROPY_GRADIENT, EntropyHistogram, entropy_bonus_terms
from breadth.training.mechanism import Effect, Mechanism, NoEffect, Regime, Selection
from breadth.training.ops import masked_values
from breadth.training.records import Batch, not_none

MAX_TRAIL_LENGTH = 256
"""Entries the audit trail keeps; the oldest go first."""


@dataclass(frozen=True)
class Action:
    """One entry of the thermostat's audit trail."""

    step: int
    """Optimizer step after which it was taken."""
    what: str
    """What it did."""
    why: str
    """The numbers that made it do so."""


@dataclass(frozen=True)
class ThermostatState:
    """What the fork thermostat remembers between steps."""

    steps: int = 0
    """Optimizer steps seen."""
    start: float = 0.0
    """Mean entropy of the forking tokens over the settling steps so far, in nats; the band's reference once they are
    over.
    """
    entropy: float = 0.0
    """Mean entropy of the forking tokens in the last step, in nats."""
    threshold: float | None = None
    """Entropy above which the share of forking tokens lay in the last step, in nats; None before the first."""
    push: float = 0.0
    """Integral part of the coefficient."""
    coefficient: float = 0.0
    """Price of one nat of entropy on a forking token: above 0 it is paid for, below 0 it is charged."""
    mode: str = "settling"
    """Settling, inside, raising or lowering."""
    trail: tuple[Action, ...] = ()
    """The last changes of mood, oldest first."""

    def with_mode(self, mode: str, what: str, why: str) -> Self:
        """Return the state in another mood, with what was done and why in the trail."""
        return replace(self, mode=mode, trail=(*self.trail, Action(self.steps, what, why))[-MAX_TRAIL_LENGTH:])


FORK_THRESHOLD_SHARE = 0.9
"""A token forks from this share of the threshold on: were it all of it, a policy whose entropy falls evenly would have
no forks left.
"""


@dataclass(frozen=True)
class ForkThermostat(Mechanism[Batch, ThermostatState]):
    """Keep the policy undecided where it decides: pay for entropy on forking tokens below their band, charge for it above.

    Forking tokens are the ``share`` with the largest entropy (2506.01939), by nine tenths of the threshold of the step
    before, so no survey is needed. H is the mean entropy of the largest share. Or they are the tokens that plan, where
    the trainer is told which those are (``forks="planning"``), and H is the mean over all of them: entropy also sits
    where the policy does not know a fact, and to keep it there is to pay for ignorance. Further, ``start`` its mean
    over the first ``settle`` steps, and the band ``[floor, ceiling] * start``. With the relative distance ``e`` to the
    nearest edge of the band (0 inside), once per optimizer step::

        push       += integral * e          unless the coefficient is at its limit and e points outwards
        coefficient = clip(proportional * e + push, -limit, limit)
        loss       -= coefficient * entropy on the forking tokens

    Inside the band the push stays as it is: what brought H back goes on holding it, until H leaves on the other side.
    Mechanical tokens are left alone and may settle. The exact entropy carries the gradient, so it acts on strictly
    on-policy updates too. ``dry_run`` reports what it would do and does nothing.

    Defaults: the share is the paper's; band and gains are ours, tried on the tiny reasoner of
    ``tools/measure_effects.py`` only. A larger model or learning rate may want others: begin with ``dry_run``.

    Harm: holding entropy is no goal of its own: one paper saw no clear relation between a held level and the score
    (2505.22617). A floor above what the task needs keeps the policy from committing; watch the reward beside the
    entropy.
    """

    share: float = 0.2
    """Share of tokens that fork, where they are told by their entropy; 0.2 in 2506.01939."""
    forks: Literal["entropy", "planning"] = "entropy"
    """What makes a token fork: a large entropy, or being one that plans."""
    floor: float = 0.7
    """Lower edge of the band, as a multiple of the start."""
    ceiling: float = 1.5
    """Upper edge of the band, as a multiple of the start."""
    settle: int = 5
    """Optimizer steps whose mean sets the start; nothing is done in them."""
    proportional: float = 0.05
    """Coefficient for a distance of one whole start."""
    integral: float = 0.01
    """What one step at that distance adds to the push."""
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
        """Nothing seen, nothing done."""
        return ThermostatState()

    def apply(self, batch: Batch, state: ThermostatState, selection: Selection | None) -> Effect[Batch]:
        """Price the entropy of this micro-batch's forking tokens and count all entropies."""
        entropy = not_none(batch.entropy)
        forks = self._forks(batch, entropy, state)
        coefficient = 0.0 if self.dry_run else state.coefficient
        terms = tuple(masked_values(price, forks) for price in entropy_bonus_terms(batch, coefficient))
        settled = batch.mask & ~forks
        stats = {
            "entropies": EntropyHistogram.from_tokens(entropy, forks if self.forks == "planning" else batch.mask),
            "forks": Mean(forks.sum(), batch.mask.sum()),
            "mechanical_entropy": Mean(masked_values(entropy.detach(), settled).sum(), settled.sum()),
        }
        return Effect(batch, terms, stats)

    def update(self, state: ThermostatState, stats: Mapping[str, Any]) -> ThermostatState:
        """Measure the forking tokens, move the coefficient, and write down a change of mood."""
        share = 1.0 if self.forks == "planning" else self.share
        threshold, entropy = stats["entropies"].top(share) if "entropies" in stats else (math.inf, math.nan)
        if math.isnan(entropy):
            return state
        steps = state.steps + 1
        if steps <= self.settle:
            start = state.start + (entropy - state.start) / steps
            return replace(state, steps=steps, start=start, entropy=entropy, threshold=threshold)
        error = self._distance(entropy, state.start)
        push = state.push + self.integral * error
        wanted = self.proportional * error + push
        coefficient = max(-self.limit, min(self.limit, wanted))
        if wanted != coefficient and error * wanted > 0:
            push = state.push  # wound up against the limit: integrating on would only delay the way back
        moved = replace(state, steps=steps, entropy=entropy, threshold=threshold, push=push, coefficient=coefficient)
        return self._record_mode(moved, error)

    def no_effect(self, regime: Regime) -> NoEffect | None:
        """Without gains or with a limit of zero the coefficient stays zero."""
        if self.limit == 0 or self.proportional == self.integral == 0:
            reason = "its limit or both of its gains are 0, so nothing is ever paid or charged."
            return NoEffect("fork-thermostat", reason, "Set limit and a gain above 0; to only report, set dry_run.")
        return None

    def _forks(self, batch: Batch, entropy: Tensor, state: ThermostatState) -> Tensor:
        """Return which tokens fork."""
        if self.forks == "planning":
            return batch.mask & not_none(batch.planning)
        rounded = entropy.detach().float()  # as the histogram rounds, so that tokens of equal entropy fork together
        return batch.mask & (
            rounded >= (math.inf if state.threshold is None else FORK_THRESHOLD_SHARE * state.threshold)
        )

    def _distance(self, entropy: float, start: float) -> float:
        """Return how far H is outside the band in units of the start: above 0 below the floor, below 0 above the ceiling."""
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
