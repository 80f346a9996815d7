"""The entropy law on a run: the score left when entropy is used up, where the law holds, and why not where it does not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from breadth.measure.entropy_law import LawFit, fit_law
from breadth.report.cells import Missing
from breadth.report.sections import Fact, Facts, Section
from breadth.runs.reader import Run

INTERVENTIONS = {
    "entropy_coef": "an entropy bonus",
    "entropy_coeff": "an entropy bonus",
    "use_adaptive_entropy": "an adaptive entropy bonus",
    "beta": "a KL penalty",
    "kl_loss_coef": "a KL penalty",
    "use_kl_loss": "a KL penalty",
}
"""Settings that act on entropy: the law was only ever seen without them. Name in the trainer's configuration -> what it
is.
"""


def law(run: Run) -> Sequence[Section]:
    """Fit score against exp(entropy) and say whether the fit may be believed."""
    found = fitted(run)
    if found is None:
        return []
    fit, reasons = found
    if reasons:
        return [
            Facts(
                "Entropy law: not valid here",
                [Fact(f"reason {number}", reason) for number, reason in enumerate(reasons, 1)],
            )
        ]
    return [Facts("Entropy law", _facts(fit))]


def fitted(run: Run) -> tuple[LawFit, list[str]] | None:
    """Fit the law to a run's entropy and reward, with why it may not be believed; None with fewer than three common steps."""
    entropy, score = run.series("entropy"), run.series("reward")
    steps, left, right = np.intersect1d(entropy.steps, score.steps, return_indices=True)
    if len(steps) < 3:
        return None
    fit = fit_law(
        steps, entropy.values[left], score.values[right], interventions=tuple(interventions(run.header.config))
    )
    return fit, [*fit.reasons, *_impossible(fit, run.header.reward_levels)]


def interventions(config: Mapping[str, Any]) -> Iterator[str]:
    """Name the settings of a configuration that act on entropy, wherever they are nested."""
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from interventions(value)
        elif key in INTERVENTIONS and _is_on(value):
            yield f"{INTERVENTIONS[key]} ({key} = {value})"


def _is_on(value: Any) -> bool:
    return value is True or (isinstance(value, int | float) and not isinstance(value, bool) and value > 0)


def _impossible(fit: LawFit, levels: Sequence[float]) -> Iterator[str]:
    """Object to a ceiling that the reward cannot reach: the law is a straight line and knows no bounds, the reward does."""
    if fit.valid and levels and fit.ceiling.low > max(levels):
        best = max(levels)
        yield (
            f"It puts the ceiling at {fit.ceiling.value:.3g}, above {best:g}, the largest reward there is: the score"
            " saturates first."
        )


def _facts(fit: LawFit) -> list[Fact]:
    left = fit.steps_left if fit.steps_left is not None else Missing("entropy is not falling")
    return [
        Fact("ceiling", fit.ceiling, note="training reward when entropy is used up, if nothing changes"),
        Fact("steps left", left, note=f"until entropy reaches {fit.floor:.3g} nats by its recent trend"),
        Fact("explained", fit.r2, note="share of the score's variance (R squared)"),
    ]
