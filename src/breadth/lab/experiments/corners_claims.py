"""What the four corners should show, claim by claim, and whether they do: over problems and over seeds, or not at all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from breadth.lab.measuring.corners import Arm, Corners, Effect, compare
from breadth.lab.measuring.measured import Measured
from breadth.lab.measuring.seeds import over_seeds
from breadth.measure.intervals import Interval
from breadth.report.cells import Cell
from breadth.report.sections import Column, Table

HALF = 0.5
"""Share of the base's entropy that plain training is said to leave less than."""


@dataclass(frozen=True)
class Policies:
    """The base and what became of it, one reasoner a seed."""

    base: Measured
    """Before training."""
    plain: Sequence[Arm]
    """After plain training."""
    protected: Sequence[Arm]
    """After protected training."""


def policies_table(found: Policies, k: int, votes: int) -> Table:
    """Return what the base and both arms know and how broad they are."""
    rows: list[list[Cell]] = [["base", *_numbers(found.base, k, votes)]]
    for name, arms in (("plain GRPO", found.plain), ("protected", found.protected)):
        by_seed = [[number.value for number in _numbers(arm.measured, k, votes)] for arm in arms]
        rows.append([name, *(over_seeds(values, bounds=(0.0, np.inf)) for values in zip(*by_seed, strict=True))])
    columns = [
        Column("policy"),
        Column("pass@1"),
        Column(f"maj@{votes}"),
        Column(f"pass@{k}"),
        Column("entropy", "nats"),
        Column("forks", "nats"),
        Column("mechanical", "nats"),
        Column("tokens"),
    ]
    return Table(
        "The policies on held-out problems",
        columns,
        rows,
        "Intervals over seeds of training; the base's over problems.",
    )


def claims(found: Policies, table: Corners) -> Table:
    """Return every claim with its number and whether it shows."""
    rows: list[list[Cell]] = [
        [what, number, "shows" if shows else "does not show"] for what, number, shows in _claims(found, table)
    ]
    return Table(
        "What should show",
        [Column("claim"), Column("difference"), Column("verdict")],
        rows,
        "A claim shows when its interval over problems and its interval over seeds (Student's t, which stands here)"
        " both leave out zero.",
    )


def _claims(found: Policies, table: Corners) -> Iterator[tuple[str, Interval, bool]]:
    k = table.k
    ratios = [arm.measured.entropy.value / found.base.entropy.value for arm in found.plain]
    left = over_seeds(ratios, bounds=(0.0, np.inf))
    yield "plain training leaves less than half of the base's entropy (share left)", left, left.high < HALF
    yield _above("plain training raises pass@1", change(found.plain, found.base, 1))
    yield _below(f"plain training lowers pass@{k}", change(found.plain, found.base, k))
    yield _above("protected training raises pass@1", change(found.protected, found.base, 1))
    yield _above("pass@1 of protected is above plain's", table.pass_1_change)
    yield _above(f"pass@{k} of protected is above plain's", table.pass_k_kept)
    yield _above(f"pass@{k} of protected is above the base's", change(found.protected, found.base, k))
    yield _above("a vote beats one long thought after plain training", table.vote_when_plain)
    yield _above("a vote beats one long thought after protected training", table.vote_when_protected)
    yield _above("protection adds to the vote", table.protection_when_parallel)
    yield _above("the vote gains more after protected training (interaction)", table.interaction)


def _above(what: str, effect: Effect) -> tuple[str, Interval, bool]:
    return what, effect.quoted, effect.shows and effect.value.value > 0


def _below(what: str, effect: Effect) -> tuple[str, Interval, bool]:
    return what, effect.quoted, effect.shows and effect.value.value < 0


def change(arms: Sequence[Arm], base: Measured, k: int) -> Effect:
    """Return how much pass@k has changed since the base, over the seeds of an arm."""
    after = np.array([arm.measured.at(k).passed for arm in arms])
    return compare(after, np.broadcast_to(np.array(base.at(k).passed), after.shape))


def _numbers(one: Measured, k: int, votes: int) -> list[Interval]:
    rates = [one.at(1).pass_rate, one.at(votes).majority_rate, one.at(k).pass_rate]
    return [*rates, one.entropy, one.planning, one.execution, one.tokens]
