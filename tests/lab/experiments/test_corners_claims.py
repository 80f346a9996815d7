"""The claims of the four corners, on arms whose numbers are made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from breadth.lab.experiments.corners_claims import Policies, claims, policies_table
from breadth.lab.measuring.both_ways import BothWays, Replies
from breadth.lab.measuring.corners import Arm, corners
from breadth.lab.measuring.measured import AtK, Measured
from breadth.measure.intervals import Interval

PROBLEMS = 20


def measured(one: float, all_of_them: int, entropy: float) -> Measured:
    """Every problem has the same pass@1; so many have a right reply among eight."""
    once = (one,) * PROBLEMS
    covered = tuple(float(place < all_of_them) for place in range(PROBLEMS))
    width = Interval(entropy, entropy, entropy)
    return Measured(
        8, (AtK(1, once, once), AtK(8, covered, once)), width, width, width, width, width, 1.0, {}, "1 =", ()
    )


def replies(right: int) -> Replies:
    rows = tuple((place < right,) for place in range(PROBLEMS))
    return Replies(tuple(("1",) for _ in rows), rows, ((10,),) * PROBLEMS, ((10,),) * PROBLEMS)


def arm(found: Measured, long: int, vote: int) -> Arm:
    return Arm(found, BothWays(96, replies(long), replies(vote)))


BASE = measured(0.2, 19, 1.0)
PLAIN = [arm(measured(0.3, 9, 0.40), 2, 8), arm(measured(0.32, 10, 0.44), 2, 8)]
PROTECTED = [arm(measured(0.4, 17, 0.6), 2, 16), arm(measured(0.42, 18, 0.6), 2, 17)]
FOUND = Policies(BASE, PLAIN, PROTECTED)


def check(found: Policies, claim: str, number: float, verdict: str) -> None:
    table = claims(found, corners(found.plain, found.protected, k=8, votes=8))
    (row,) = (row for row in table.rows if row[0] == claim)
    assert isinstance(row[1], Interval)
    assert row[1].value == pytest.approx(number)
    assert row[2] == verdict


def test_what_shows() -> None:
    # Student's t of two seeds reaches 12.7 times half their distance to either side of the mean
    check(FOUND, "plain training lowers pass@8", -0.475, "shows")  # 0.025 to either side of it: t reaches 0.32
    check(
        FOUND, "plain training leaves less than half of the base's entropy (share left)", 0.42, "does not show"
    )  # t reaches 0.25
    check(FOUND, "a vote beats one long thought after plain training", 0.3, "shows")
    check(FOUND, "pass@8 of protected is above plain's", 0.4, "shows")  # 8 of 20 more at both seeds
    check(FOUND, "pass@8 of protected is above the base's", -0.075, "does not show")


def test_a_claim_that_fails_is_not_said_to_show() -> None:
    swapped = replace(FOUND, plain=PROTECTED, protected=PLAIN)
    check(swapped, "pass@8 of protected is above plain's", -0.4, "does not show")
    check(swapped, "protection adds to the vote", -0.425, "does not show")


def test_the_policies() -> None:
    rows = policies_table(FOUND, 8, 8).rows
    assert [row[0] for row in rows] == ["base", "plain GRPO", "protected"]
    assert [row[1].value for row in rows] == pytest.approx([0.2, 0.31, 0.41])  # type: ignore[union-attr]  # intervals
    assert [row[3].value for row in rows] == pytest.approx([0.95, 0.475, 0.875])  # type: ignore[union-attr]  # intervals
