"""What a sweep will cost, told from a few samples of each arm before it starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from breadth.base.errors import SettingsError
from breadth.inference.budget import Spend
from breadth.inference.sweep_plan import SweepPlan

MARGIN = 0.9
"""Share of a ceiling that is planned with: a pilot of a few questions errs by some tenths."""


@dataclass(frozen=True)
class Estimate:
    """What is still to be drawn, and about what it takes."""

    questions: int
    """Questions of the sweep."""
    of: int
    """Questions in the file."""
    samples: int
    """Samples of the whole sweep."""
    drawn: int
    """Of those, drawn already: the pilot, or an earlier attempt."""
    coming: Spend
    """What the others will use; seconds on the clock, with all streams busy."""
    spent: Spend
    """What has been used so far."""
    pilot: int
    """Samples it was told from."""


def needed(plan: SweepPlan, pilot: Mapping[int, Sequence[Spend]]) -> Spend:
    """Return what one question will use over all arms, by the mean of each arm's pilot samples."""
    parts = [_scaled(sum(samples, Spend()), plan.arms[arm].draws / len(samples)) for arm, samples in pilot.items() if samples]
    return sum(parts, Spend())


def affordable(plan: SweepPlan, each: Spend, there: int, ceiling: int | None) -> int:
    """Return how many questions the ceiling on output tokens pays for; refuse one that pays for fewer than three."""
    if ceiling is None or each.output_tokens == 0:
        return there
    number = min(there, int(MARGIN * ceiling / each.output_tokens))
    if number < min(3, there):
        raise SettingsError(
            f"The ceiling is {ceiling:,} output tokens, but one question takes about {each.output_tokens:,} "
            f"({plan.samples_each} samples): that is not even three questions.",
            f"Raise --budget-tokens to {int(12 * each.output_tokens / MARGIN):,} or more, or try fewer --widths and --budgets.",
        )
    return number


def estimate(plan: SweepPlan, each: Spend, drawn: int, spent: Spend, *, of: int, at_once: int, pilot: int) -> Estimate:
    """Sum up: what the samples that are missing will use, at the pilot's rates."""
    samples = plan.questions * plan.samples_each
    missing = max(0, samples - drawn) / plan.samples_each
    coming = _scaled(each, missing)
    streams = max(1, min(at_once, samples - drawn))
    clock = Spend(coming.calls, coming.input_tokens, coming.cached_tokens, coming.output_tokens, coming.seconds / streams, coming.money)
    return Estimate(plan.questions, of, samples, min(drawn, samples), clock, spent, pilot)


def _scaled(spend: Spend, factor: float) -> Spend:
    return Spend(
        round(spend.calls * factor),
        round(spend.input_tokens * factor),
        round(spend.cached_tokens * factor),
        round(spend.output_tokens * factor),
        spend.seconds * factor,
        spend.money * factor,
    )
