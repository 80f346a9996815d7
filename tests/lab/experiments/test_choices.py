"""The choices made on train problems, from curves made by hand."""

from __future__ import annotations

import pytest

from breadth.lab.experiments.choices import Choices
from breadth.lab.trials.experiment import ExperimentSetup, ExperimentTrial, FinishedTrial
from breadth.measure.intervals import Interval
from breadth.report.sections import Table, Verdict

EXPERIMENT = Choices(rates=(0.1, 0.2, 0.4), prices=(0.5, 1.0, 2.0), steps=40, every=20)


def done(rate: float, seed: int, early: float, late: float) -> FinishedTrial:
    return ended(f"rate-{rate:g}/seed-{seed}", early, late, 0.3)


def priced(price: float, voted: float, seed: int = 0) -> FinishedTrial:
    return ended(f"price-{price:g}/seed-{seed}", 0.0, 0.0, voted)


def ended(name: str, early: float, late: float, voted: float) -> FinishedTrial:
    curve = {"steps": list(range(1, 41)), "reward": [early] * 20 + [late] * 20}
    return FinishedTrial(
        ExperimentTrial(name, "m:w"),
        {"train": curve, "validation": {"passed": 0.2, "voted": voted, "covered": 0.8, "tokens": 20.0}},
        1.0,
    )


FOUND = [
    done(0.1, 0, 0.1, 0.2),
    done(0.1, 1, 0.1, 0.4),
    done(0.2, 0, 0.5, 0.3),
    done(0.2, 1, 0.7, 0.3),
    done(0.4, 0, 0.0, 0.0),
    done(0.4, 1, 0.0, 0.1),
]


def test_the_best_rate_and_number_of_steps_by_hand() -> None:
    verdict, table, *_ = EXPERIMENT.page(FOUND, ExperimentSetup(2)).sections
    assert isinstance(verdict, Verdict)
    assert (
        verdict.headline
        == "Plain GRPO scores best on its own training problems at a learning rate of 0.2 after 20 steps."
    )
    assert verdict.body == "The best lies inside what was tried."
    assert isinstance(table, Table)
    assert [column.name for column in table.columns] == ["steps", "rate 0.1", "rate 0.2", "rate 0.4"]
    values = [[cell.value for cell in row[1:] if isinstance(cell, Interval)] for row in table.rows]
    assert values == [pytest.approx([0.1, 0.6, 0.0]), pytest.approx([0.3, 0.3, 0.05])]


def test_a_best_at_the_edge_says_so() -> None:
    (verdict, *_) = EXPERIMENT.page([done(0.4, 0, 0.1, 0.9)], ExperimentSetup(1)).sections
    assert isinstance(verdict, Verdict)
    assert verdict.body == "The best is at the smallest or largest rate tried and at the last step: it may lie beyond."


def test_the_price_with_the_best_vote_over_seeds() -> None:
    # 2.0 is best at one seed, but 0.35 on average
    runs = [*FOUND, priced(0.5, 0.31), priced(1.0, 0.4), priced(2.0, 0.6), priced(2.0, 0.1, seed=1)]
    _, verdict, _, table, _ = EXPERIMENT.page(runs, ExperimentSetup(2)).sections
    assert isinstance(verdict, Verdict)
    assert verdict.headline == "The coefficient of the anchor is 1."
    assert "try them there" not in verdict.body
    assert "None is better" not in verdict.body
    assert isinstance(table, Table)
    values = [[cell.value for cell in row[1:] if isinstance(cell, Interval)] for row in table.rows]
    assert values[3:] == [
        pytest.approx(row) for row in ([0.2, 0.31, 0.8, 20], [0.2, 0.4, 0.8, 20], [0.2, 0.35, 0.8, 20])
    ]


def test_a_best_price_that_is_worse_than_none_is_said_to_be() -> None:
    _, verdict, *_ = EXPERIMENT.page([*FOUND, priced(0.5, 0.29)], ExperimentSetup(2)).sections
    assert isinstance(verdict, Verdict)
    assert "None is better than plain" in verdict.body


def test_prices_tried_at_a_rate_that_is_not_the_best_are_said_to_be() -> None:
    _, verdict, *_ = EXPERIMENT.page([*FOUND, done(0.4, 2, 3.0, 3.0), priced(0.5, 0.9)], ExperimentSetup(3)).sections
    assert isinstance(verdict, Verdict)
    assert "plain does best at 0.4, so try them there" in verdict.body


def test_nothing_has_ended() -> None:
    (verdict,) = EXPERIMENT.page([], ExperimentSetup(1)).sections
    assert isinstance(verdict, Verdict)
    assert verdict.headline == "No run has ended yet."


def test_trials_differ_in_rate_price_and_seed_alone() -> None:
    trials = EXPERIMENT.trials(ExperimentSetup(2))
    names = ["rate-0.1", "rate-0.2", "rate-0.4", "price-0.5", "price-1", "price-2"]
    assert [trial.name for trial in trials] == [f"{name}/seed-{seed}" for seed in range(2) for name in names]
    courses = [trial.settings["grpo_run"] for trial in trials]
    assert (
        len(
            {
                str({key: value for key, value in one.items() if key not in ("learning_rate", "seed", "chain")})
                for one in courses
            }
        )
        == 1
    )
    assert {one["learning_rate"] for one in courses[3:6]} == {0.2}
    coefficients = [
        [part["coefficient"] for part in one["chain"]["mechanisms"] if "coefficient" in part] for one in courses[:6]
    ]
    assert coefficients == [[], [], [], [0.5], [1.0], [2.0]]
