"""How far the policy that drew the rollouts is from the one they are trained by: from the logged metric, and from the tokens alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from breadth.doctor.evidence import FEWEST as FEWEST_POINTS
from breadth.doctor.evidence import Evidence
from breadth.doctor.signs.token_windows import FEWEST, Kept, TokenSums, kept, token_sums
from breadth.doctor.windows import Window
from breadth.measure.intervals import ANYTHING, Interval, Resamples, resample
from breadth.measure.trends import Trend, factor_trend
from breadth.runs.reader import Run, Series

Bound: TypeAlias = Callable[[float], float]

UNITS: dict[str, tuple[str, Bound]] = {
    "sampling/sampling_logp_difference/mean": ("mean |difference of log-probabilities|", lambda apart: apart**2 / 2),
    "train_rollout_logprob_abs_diff": ("mean |difference of log-probabilities|", lambda apart: apart**2 / 2),
    "rollout_probs_diff_mean": ("mean |difference of probabilities|", lambda apart: 2 * apart**2),
    **dict.fromkeys(
        ("mismatch_kl/all/mean", "vllm_kl", "gen_kl_error", "kl_sample_train_v2"), ("divergence", lambda apart: apart)
    ),
}
"""How a trainer's metric ends -> what it is, and the divergence in nats a token that it proves at least.

A mean of |log p - log q| of d proves d^2 / 2 to second order (the divergence is half the mean square); a mean |p - q|
of d proves 2 d^2 by Pinsker, for the token itself is an event whose two probabilities differ by that much.
"""
WHOLE = 0.99
"""Share of the rollouts that must have their lists: one in a hundred left out moves a mean by about a percent at most.
"""


def proven_divergence(theirs: str) -> tuple[str, Bound] | None:
    """Return what a trainer's metric measures and what divergence it proves; None for one whose unit is not known."""
    return next((unit for name, unit in UNITS.items() if theirs == name or theirs.endswith(f"/{name}")), None)


def divergence_of_entropy(evidence: Evidence, found: Trend) -> Interval | None:
    """Return the divergence that the logged metric proves now over the entropy, the larger of then and now; None where a part is missing.

    The larger, because a policy that has become sure of nearly everything has little entropy and the same rounding
    errors.
    """
    unit, entropy = proven_divergence(evidence.logged("mismatch")), evidence.trend("entropy")
    if unit is None or entropy is None:
        return None
    scale = max(entropy.start, entropy.end, key=lambda one: one.value)
    if scale.low <= 0:
        return None
    low, value, high = (unit[1](max(end, 0.0)) for end in (found.end.low, found.end.value, found.end.high))
    return Interval(value / scale.value, low / scale.high, high / scale.low, method="ends of both intervals")


@dataclass(frozen=True)
class Growth:
    """How a positive metric has grown."""

    times: Interval
    """Now over the start."""
    goes_on: bool
    """Whether it rises over the second half of the run too."""


def growth(series: Series) -> Growth | None:
    """Return how many times its start a metric is; by its logarithm, as it grows by factors.

    None where it is not above 0 throughout.
    """
    half = len(series) // 2
    if half < FEWEST_POINTS or series.values.min() <= 0:
        return None
    whole, since = factor_trend(series.steps, series.values), factor_trend(series.steps[half:], series.values[half:])
    return None if whole.ratio is None else Growth(whole.ratio, whole.verdict == since.verdict == "rising")


def temperatures(evidence: Evidence) -> tuple[float, float] | None:
    """Return the temperatures that entropies were taken at and rollouts drawn at; None unless both are recorded."""
    kind = None if evidence.run is None else evidence.run.header.entropies.get("entropy")
    scored, drawn = None if kind is None else kind.temperature, evidence.knobs.temperature
    return None if scored is None or drawn is None else (scored, drawn)


@dataclass(frozen=True)
class Surprise:
    """Tokens of a window against the entropy that they should have been drawn with."""

    excess: Interval
    """Mean of -log p less entropy, nats a token: 0 for tokens drawn from p, whatever p is."""
    share: Interval
    """The same as a share of the entropy."""
    nats: float
    """Entropy of all tokens read."""
    apart: float
    """Mean of |-log p - entropy|: 0 where what is called entropy is minus the log-probability itself."""
    rollouts: int
    """Rollouts read."""
    tokens: int
    """Tokens read."""


def surprise(run: Run, window: Window) -> Surprise | None:
    """Compare how surprising tokens are with how surprising they should be on average; None without the two lists.

    Given what was written before it, a token drawn from p has ``E[-log p] = H(p)``. So the sum over a rollout is a
    martingale that ends at a stopping time, its mean is 0 for every prompt, and rollouts are independent: the interval
    resamples them. Drawn from q instead, the mean is ``H(q) - H(p) + KL(q || p)``.
    """
    terms = {"gap": "-{0} - entropy", "nats": "entropy", "apart": "abs(-{0} - entropy)"}
    for name in ("logprob", "old_logprob"):
        sums = token_sums(run, window, {ours: term.format(name) for ours, term in terms.items()}, (name, "entropy"))
        if len(sums):
            break
    else:
        return None
    found = _by_rollout(sums)
    return Surprise(
        found.ratio("gap", "tokens", ANYTHING),
        found.ratio("gap", "nats", ANYTHING),
        float(sums.sums["nats"].sum()),
        float(sums.sums["apart"].sum() / sums.tokens.sum()),
        len(sums),
        int(sums.tokens.sum()),
    )


def divergence(run: Run, window: Window) -> Interval | None:
    """Return KL(sampler || trainer) as a share of the sampler's entropy, both estimated from what it drew; None below ten rollouts."""
    sums = token_sums(
        run, window, {"apart": "old_logprob - logprob", "nats": "-old_logprob"}, ("old_logprob", "logprob")
    )
    return _by_rollout(sums).ratio("apart", "nats", ANYTHING) if len(sums) >= FEWEST else None


def _by_rollout(sums: TokenSums) -> Resamples:
    return resample({**sums.sums, "tokens": sums.tokens}, np.arange(len(sums)))


def selection(evidence: Evidence, run: Run, window: Window) -> str:
    """Say why the rollouts may have been chosen by their outcome, which changes what their tokens look like; empty where they were not.

    Of a problem that is solved 95 times in 100 only the groups with a failure survive a filter for flat groups, and
    failures are what surprises.
    """
    if evidence.knobs.filter_flat:
        return "groups without a difference in reward were drawn anew, and what is left was chosen by its outcome"
    column = "logprobs" if "logprobs" in run.columns else "old_logprobs"
    found: Kept = kept(run, window, column)
    if found.told < WHOLE * found.rollouts:
        return (
            f"only {found.told:,} of {found.rollouts:,} rollouts have their log-probabilities, and which ones may"
            " depend on the outcome"
        )
    if evidence.knobs.filter_flat is None and not found.flat:
        return (
            "no group has equal rewards or advantages, so groups may have been left out by their outcome, and nothing"
            " says they were not"
        )
    return ""
