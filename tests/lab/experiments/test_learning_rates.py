"""The choice of the learning rate, from curves made by hand."""

from __future__ import annotations

import pytest

from breadth.lab.experiment import Bench, Done, Trial
from breadth.lab.experiments.learning_rates import LearningRates
from breadth.measure.intervals import Interval
from breadth.report.sections import Table, Verdict

EXPERIMENT = LearningRates(rates=(0.1, 0.2, 0.4), steps=40, every=20)


def done(rate: float, seed: int, early: float, late: float) -> Done:
    passed = [early] * 20 + [late] * 20
    return Done(Trial(f"rate-{rate:g}/seed-{seed}", "m:w"), {"train": {"steps": list(range(1, 41)), "passed": passed}}, 1.0)


FOUND = [
    done(0.1, 0, 0.1, 0.2),
    done(0.1, 1, 0.1, 0.4),
    done(0.2, 0, 0.5, 0.3),
    done(0.2, 1, 0.7, 0.3),
    done(0.4, 0, 0.0, 0.0),
    done(0.4, 1, 0.0, 0.1),
]


def test_the_best_rate_and_number_of_steps_by_hand() -> None:
    verdict, table, _ = EXPERIMENT.page(FOUND, Bench(2)).sections
    assert isinstance(verdict, Verdict)
    assert verdict.headline == "Plain GRPO scores best on its own training problems at a rate of 0.2 after 20 steps."
    assert verdict.body == "The best lies inside what was tried."
    assert isinstance(table, Table)
    assert [column.name for column in table.columns] == ["steps", "rate 0.1", "rate 0.2", "rate 0.4"]
    values = [[cell.value for cell in row[1:] if isinstance(cell, Interval)] for row in table.rows]
    assert values == [pytest.approx([0.1, 0.6, 0.0]), pytest.approx([0.3, 0.3, 0.05])]


def test_a_best_at_the_edge_says_so() -> None:
    (verdict, *_) = EXPERIMENT.page([done(0.4, 0, 0.1, 0.9)], Bench(1)).sections
    assert isinstance(verdict, Verdict)
    assert verdict.body == "The best is at the smallest or largest rate tried and at the last step: it may lie beyond."


def test_trials_differ_in_rate_and_seed_alone() -> None:
    trials = EXPERIMENT.trials(Bench(2))
    assert [trial.name for trial in trials] == [f"rate-{rate:g}/seed-{seed}" for seed in range(2) for rate in (0.1, 0.2, 0.4)]
    rest = {str({key: value for key, value in trial.settings["course"].items() if key not in ("rate", "seed")}) for trial in trials}
    assert len(rest) == 1
