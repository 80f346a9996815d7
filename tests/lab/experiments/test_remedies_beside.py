"""The table beside what is held out, and the pair that is chosen there."""

from __future__ import annotations

import pytest

from breadth.lab.experiments.remedies_beside import beside
from breadth.lab.trials.experiment import Done, Trial
from breadth.measure.intervals import Interval
from breadth.report.sections import Table, Verdict


def judged(arm: str, seed: int, voted: float) -> Done:
    return Done(
        Trial(f"{arm}/seed-{seed}", "m:w"),
        {"beside": {"passed": 0.1, "voted": voted, "covered": 0.5, "tokens": 20.0}},
        1.0,
    )


def test_the_pair_has_the_best_votes_of_one_regime() -> None:
    votes = {
        "on-policy": (0.5, 0.5),
        "ucb": (0.2, 0.4),
        "anchor": (0.4, 0.4),
        "forking": (0.1, 0.3),
        "gppo": (0.9, 0.1),
    }
    verdict, table = beside(
        [judged(arm, seed, vote) for arm, both in votes.items() for seed, vote in enumerate(both)], 16
    )
    assert isinstance(verdict, Verdict)
    assert verdict.headline == "The pair to try is anchor and ucb."  # gppo's 0.5 is of another regime, and alone there
    assert isinstance(table, Table)
    (row,) = [row for row in table.rows if row[0] == "ucb"]
    assert isinstance(row[2], Interval)
    assert row[2].value == pytest.approx(0.3)


def test_without_a_judgement_there_is_nothing_to_show() -> None:
    assert beside([Done(Trial("base", "m:w"), {"looks": []}, 1.0)], 16) == []
    (table,) = beside([judged("anchor", 0, 0.4)], 16)
    assert isinstance(table, Table)
