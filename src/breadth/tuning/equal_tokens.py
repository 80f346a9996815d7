"""Thinking longer against voting on more draws, at the same number of tokens, on the same questions."""

from __future__ import annotations

from dataclasses import dataclass

from breadth.measure.intervals import Interval, mean_interval
from breadth.measure.paired_tests import PairedComparison, paired_difference
from breadth.tuning.evidence import Evidence
from breadth.tuning.options import votes_of


@dataclass(frozen=True)
class EqualTokens:
    """One forced budget and the widest vote over plain draws that costs no more."""

    budget: int
    """Thinking tokens forced."""
    serial: Interval
    """Score of one forced trace."""
    serial_tokens: float
    """Tokens it writes, the answer included."""
    width: int
    """Plain draws voted on."""
    parallel: Interval
    """Score of that vote."""
    parallel_tokens: float
    """Tokens they write."""
    difference: PairedComparison
    """Parallel less serial."""


def equal_tokens(evidence: Evidence) -> tuple[EqualTokens, ...]:
    """Compare at every budget that pays for at least one plain draw.

    The width is set by mean tokens alone, never by scores, so there is no luck in the match. Where the budget would pay
    for more draws than there are, the vote is of all there are and costs less than the trace: the comparison then leans
    against the vote.
    """
    plain = evidence.plain
    each = float(plain.tokens.mean())
    found = []
    for arm in evidence.serial:
        cost = float(arm.tokens.mean())
        width = min(int(cost / each + 1e-9), plain.classes.shape[1]) if each > 0 else 0
        if width < 1 or arm.arm.budget is None:
            continue
        serial, parallel = arm.worth.mean(axis=1), votes_of(plain, [width])[:, 0]
        found.append(
            EqualTokens(
                arm.arm.budget,
                mean_interval(serial, bounds=(0.0, 1.0)),
                cost,
                width,
                mean_interval(parallel, bounds=(0.0, 1.0)),
                each * width,
                paired_difference(parallel, serial),
            )
        )
    return tuple(found)
