"""``fork-collapse``: entropy is gone at the tokens where solutions branch, however much is left elsewhere."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from breadth.doctor import prescriptions
from breadth.doctor.evidence.record import Evidence
from breadth.doctor.evidence.rollouts import (
    MIN_CLUSTERS,
    UNIT_INTERVAL,
    Ends,
    TokenSums,
    covers_training,
    entropy_threshold,
    evaluation_ends,
    missing_rollouts,
    token_logging_hint,
    token_sums,
    training_ends,
)
from breadth.doctor.finding import CannotTell, CheckResult, Excluded, Finding, Loop
from breadth.measure.intervals import Columns, Interval, Resamples, resample
from breadth.measure.validate import FloatArray
from breadth.report.sections import Fact, Severity
from breadth.runs.reader import Run

_NAME = "fork-collapse"


@dataclass(frozen=True)
class ForkCollapse:
    """The tokens of highest entropy, at which solutions branch, have lost it.

    Forks are the fifth of the tokens with the highest entropy (arXiv 2506.01939), ranked within each window. With a
    fixed threshold in nats from the start, most forks would be gone when all entropies halve, which would look like a
    collapse of forks. Where texts have grown longer, as many forks per text are compared as at the start, so mechanical
    tokens cannot dilute them. The share of tokens still above the start's threshold is shown for the reader and decides
    nothing.

    A fall at forks that is certainly deeper than elsewhere is a collapse of forks, which the mean entropy hides. Where
    everything falls alike it is a note on where the loss is, and ``entropy-collapse`` covers it. It misleads when the
    last steps have easier problems.
    """

    loop: ClassVar[Loop] = "training"
    causes: ClassVar[tuple[str, ...]] = ("entropy-collapse", "narrow-data-format", "train-inference-mismatch")
    summary: ClassVar[str] = "the tokens where solution paths part have lost their entropy"
    first_step: ClassVar[str] = "hold the entropy of those tokens (`ForkThermostat`)"

    forks: float = 0.2
    """Share of the tokens that count as forks: the paper's."""
    floor: float = 0.7
    """Share of the start below which, if certain, the loss is reported: the lower end of the band of our own entropy
    controller."""
    low: float = 0.25
    """Share below which it is a warning: with 73 % of the entropy used, the runs of arXiv 2505.22617 had reached 76 %
    of their total gain."""
    spent: float = 0.1
    """Share below which it is critical: with 93 % used they had reached 94 %."""

    def check(self, evidence: Evidence) -> CheckResult:
        """Compare the entropy of forks and of other tokens with the start."""
        if evidence.run is None or not covers_training(evidence):
            return None
        kind = evidence.run.header.entropies.get("entropy")
        if "entropy" not in evidence.run.columns:
            return CannotTell(_NAME, "the entropy of each token is not recorded", token_logging_hint(evidence))
        if kind is not None and kind.estimator == "sampled":
            return CannotTell(
                _NAME,
                "the recorded entropy is minus the log-probability of the sampled token",
                token_logging_hint(evidence),
            )
        windows = [ends for ends in (training_ends(evidence), evaluation_ends(evidence)) if ends is not None]
        if not windows:
            return missing_rollouts(evidence, _NAME)

        for ends in windows:
            found = compare_forks(evidence.run, ends, self.forks)
            if isinstance(found, ForkEntropy):
                return self.report(evidence, ends, found) if found.left.high < self.floor else self.exclude(found)
        return CannotTell(_NAME, str(found), token_logging_hint(evidence))

    def exclude(self, found: ForkEntropy) -> Excluded | CannotTell:
        """Return that forks kept enough of their entropy, or that the interval leaves it open."""
        left = found.left
        shown = f"forks have {left.value:.0%} of their entropy left ({left.low:.0%} to {left.high:.0%})"
        if left.value >= self.floor:
            return Excluded(_NAME, shown)
        return CannotTell(_NAME, shown, "record rollouts of more problems", undecided=True)

    def report(self, evidence: Evidence, ends: Ends, found: ForkEntropy) -> Finding:
        """Build the finding."""
        deeper = found.against_rest.high < 1
        kind = None if evidence.run is None else evidence.run.header.entropies.get("entropy")
        rest = f"{found.rest.value:.0%}"
        others = f", while the others kept {rest}" if deeper else f", and that of the others to {rest}"
        return Finding(
            _NAME,
            self.severity(found) if deeper else Severity.NOTE,
            "strong" if kind is not None and kind.estimator == "exact" else "likely",
            "training",
            f"The entropy of the forking tokens has fallen to {found.left.value:.0%} of its start{others}.",
            _facts(ends, found),
            "On the problems of the first steps the same policy is as uncertain at its forks as it was then.",
            f"{found.lost:.0%} of the lost entropy was lost at forks.",
            prescriptions.sort_by_lab_effect(
                (
                    prescriptions.add_kl_penalty(evidence),
                    prescriptions.hold_fork_entropy(),
                    prescriptions.raise_upper_clip(evidence),
                    prescriptions.train_on_forks(),
                )
            ),
        )

    def severity(self, found: ForkEntropy) -> Severity:
        """Return how bad the loss at forks is."""
        if found.left.high < self.spent:
            return Severity.CRITICAL
        return Severity.WARNING if found.left.high < self.low else Severity.NOTE


def _facts(ends: Ends, found: ForkEntropy) -> tuple[Fact, ...]:
    return (
        Fact(
            "entropy of forks, share of the start",
            found.left,
            "%",
            f"entropy of each token, {ends.where}, {found.tokens:,} tokens",
        ),
        Fact("entropy of other tokens, share of the start", found.rest, "%"),
        Fact("tokens as uncertain as a fork at the start, then", found.open_then, "%"),
        Fact("now", found.open, "%"),
        Fact("share of the loss at forks", found.lost, "%"),
    )


@dataclass(frozen=True)
class ForkEntropy:
    """Entropy of forks and of other tokens, now against the start."""

    left: Interval
    """Share of their entropy that forks have left."""
    rest: Interval
    """Share that the other tokens have left."""
    against_rest: Interval
    """The first over the second: below 1, forks have lost more."""
    open_then: Interval
    """Share of tokens above the start's fork threshold, at the start."""
    open: Interval
    """The same now, by the same threshold."""
    lost: float
    """Share of the lost entropy that was lost at forks."""
    tokens: int
    """Tokens read."""


def compare_forks(run: Run, ends: Ends, forks: float) -> ForkEntropy | str:
    """Compare the share ``forks`` of highest-entropy tokens with the start, or say why that is not possible.

    Each window has its own threshold. Where texts have grown, the share shrinks so that as many forks per text are
    compared as at the start.
    """
    then, now = (entropy_threshold(run, window, forks) for window in (ends.start, ends.now))
    if math.isnan(then.nats) or math.isnan(now.nats):
        return "the rollouts at one end of the run have no entropies"
    shares = (forks, forks * min(1.0, then.length / now.length))
    if shares[1] < forks:
        now = entropy_threshold(run, ends.now, shares[1])
    is_open = f"CAST(entropy > {then.nats!r} AS DOUBLE)"
    sums = [
        token_sums(run, window, {"nats": "entropy", "open": is_open, "above": f"greatest(entropy - {edge.nats!r}, 0)"})
        for window, edge in ((ends.start, then), (ends.now, now))
    ]
    found = resample_both_ends(sums)
    if min(int(np.count_nonzero(found.sums[f"tokens {end}"])) for end in (0, 1)) < MIN_CLUSTERS:
        return f"entropies of fewer than {MIN_CLUSTERS} problems are recorded at one end of the run"
    if not found.sums["nats 0"].sum() > 0:
        return "no token has any entropy at the start, so it cannot be compared with it"
    return compare_entropies(
        found, shares, (then.nats, now.nats), int(sum(window_sums.tokens.sum() for window_sums in sums))
    )


def resample_both_ends(sums: list[TokenSums]) -> Resamples:
    """Lay both windows out side by side, one column each, so that one resample of the problems holds both."""
    columns: dict[str, FloatArray] = {}
    for end, window_sums in enumerate(sums):
        before, after = (sum(len(other) for other in part) for part in (sums[:end], sums[end + 1 :]))
        columns |= {
            f"{name} {end}": np.pad(column, (before, after))
            for name, column in {**window_sums.sums, "tokens": window_sums.tokens}.items()
        }
    return resample(columns, np.concatenate([window_sums.problems for window_sums in sums]))


def compare_entropies(
    found: Resamples, shares: tuple[float, float], edges: tuple[float, float], tokens: int
) -> ForkEntropy:
    """Compare mean entropies of forks and of the rest.

    The mean of the largest share s is ``e + mean(max(H - e, 0)) / s`` for the threshold e above which s of the tokens
    lie. It is flat in e there, so the threshold's own error does not count, and tokens with equal entropies need no
    tie-breaking. Tokens that had no entropy count as unchanged.
    """

    def top(means: Columns, end: int) -> FloatArray:
        above: FloatArray = means[f"above {end}"] / means[f"tokens {end}"]
        return edges[end] + above / shares[end]

    def rest(means: Columns, end: int) -> FloatArray:
        every: FloatArray = means[f"nats {end}"] / means[f"tokens {end}"]
        return np.maximum(every - shares[end] * top(means, end), 0.0) / (1 - shares[end])

    def ratio(part: Callable[[Columns, int], FloatArray]) -> Callable[[Columns], FloatArray]:
        def share_left(means: Columns) -> FloatArray:
            before = part(means, 0)
            some = before > 1e-6 * top(means, 0)
            return np.where(some, part(means, 1) / np.where(some, before, 1.0), 1.0)

        return share_left

    sums = {name: column.mean(keepdims=True) for name, column in found.sums.items()}
    forks_lost = shares[0] * top(sums, 0) - shares[1] * top(sums, 1)
    lost = forks_lost + (1 - shares[0]) * rest(sums, 0) - (1 - shares[1]) * rest(sums, 1)
    anything = (0.0, math.inf)
    return ForkEntropy(
        found.interval(ratio(top), "tokens 1", anything),
        found.interval(ratio(rest), "tokens 1", anything),
        found.interval(lambda means: ratio(top)(means) / np.maximum(ratio(rest)(means), 1e-12), "tokens 1", anything),
        found.ratio("open 0", "tokens 0", UNIT_INTERVAL),
        found.ratio("open 1", "tokens 1", UNIT_INTERVAL),
        min(1.0, float(forks_lost[0] / lost[0])) if lost[0] > 0 else 1.0,
        tokens,
    )


FINDING = ForkCollapse()
"""The check with its default thresholds."""
