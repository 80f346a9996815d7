"""Options: votes scored exactly from the same samples, costs that add up, cheapest first."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from breadth.inference.strategies.single import Single
from breadth.inference.strategies.vote import Vote
from breadth.tuning.choice import (
    Option,
    OptionChoice,
    choose,
    compare_at_equal_tokens,
    improvement_p_values,
    list_options,
    plain_votes,
)
from breadth.tuning.evidence import SweepEvidence

Made = Callable[..., SweepEvidence]


def test_votes_are_scored_over_all_ways_to_draw(made: Made) -> None:
    # Four right, three of one wrong answer, one of another: the numbers of the specification for k = 1, 2, 3, 5, 8.
    evidence = made([[0, 0, 0, 0, 1, 1, 1, 2]], widths=(1, 2, 3, 5, 8))
    votes = plain_votes(evidence)
    assert [option.score for option in votes] == pytest.approx([0.5, 0.5, 0.57143, 0.66071, 1.0], abs=1e-5)
    assert [option.cost for option in votes] == [10, 20, 30, 50, 80]
    assert [option.strategy for option in votes] == [Single(), Vote(2), Vote(3), Vote(5), Vote(8)]


def test_an_answer_that_cannot_be_read_is_no_vote_and_a_cost(made: Made) -> None:
    evidence = made([[0, -1]], widths=(1, 2))
    one, two = plain_votes(evidence)
    assert (one.score, two.score) == (0.5, 1.0)
    assert (one.cost, two.cost) == (10, 20)


def test_options_are_sorted_by_cost_and_carry_their_strategies(made: Made) -> None:
    evidence = made([[0, 1], [0, 0]], {8: [[1], [0]], 64: [[0], [0]]}, widths=(1, 2))
    options = list_options(evidence)
    assert [(option.name, option.cost) for option in options] == [
        ("one plain sample", 10),
        ("think 8", 12),
        ("vote of 2", 20),
        ("think 64", 68),
    ]
    assert options[1].strategy == evidence.serial[0].arm.strategy
    np.testing.assert_array_equal(options[1].scores, [0, 1])
    np.testing.assert_array_equal(options[0].scores, [0.5, 1])


def test_one_plain_draw_is_always_there(made: Made) -> None:
    assert [option.width for option in plain_votes(made([[0, 0, 0]], widths=(3,)))] == [1, 3]


def test_a_vote_takes_as_long_as_the_slowest_of_its_draws(made: Made) -> None:
    evidence = made([[0, 0, 0, 0]], widths=(1, 2, 4), seconds=[[1.0, 3.0, 2.0, 2.0]], money=0.5)
    # Groups of two: 3 and 2 seconds.
    assert [option.seconds for option in plain_votes(evidence)] == [2.0, 2.5, 3.0]
    assert [option.money for option in plain_votes(evidence)] == [0.5, 1.0, 2.0]


def test_the_vote_is_the_widest_that_costs_no_more(made: Made) -> None:
    # Plain draws cost 10, traces 4 more than their budget: 35 pays for 3, 99 for more than the four there are, 9 for
    # none.
    evidence = made([[0, 0, 1, 1], [0, 0, 0, 1]], {5: [[0], [1]], 31: [[1], [1]], 95: [[0], [0]]}, widths=(1, 4))
    pairs = compare_at_equal_tokens(evidence)
    assert [(pair.budget, pair.width, pair.serial_tokens, pair.parallel_tokens) for pair in pairs] == [
        (31, 3, 35, 30),
        (95, 4, 99, 40),
    ]
    # Votes of three: of 2 against 2 right in half of the draws; of 3 against 1 always. The trace is right on none.
    assert pairs[0].parallel.value == pytest.approx(0.75)
    assert pairs[0].difference.difference.value == pytest.approx(0.75)
    # Votes of four: a tie counts half, and the second is right. The trace is right on both.
    assert pairs[1].difference.difference.value == pytest.approx(-0.25)


def test_without_forced_thinking_there_is_nothing_to_compare(made: Made) -> None:
    assert compare_at_equal_tokens(made([[0, 1]])) == ()


COSTS = (10, 20, 40, 80, 160, 320)
DEFAULT = 1


def chosen(
    scores: np.ndarray[tuple[int, ...], np.dtype[np.float64]], costs: Sequence[float] = COSTS, seed: int = 0
) -> OptionChoice:
    """Choose among options of which the second is one plain sample and the others are forced thinking."""
    options = [
        Option(
            f"o{place}",
            Single() if place == DEFAULT else Vote(2),
            1,
            None if place == DEFAULT else 8,
            column,
            np.full(len(scores), cost),
            0.0,
            0.0,
        )
        for place, (column, cost) in enumerate(zip(scores.T, costs, strict=True))
    ]
    return choose(options, seed=seed)


def drawn(
    accuracies: Sequence[float], questions: int, seed: int, spread: float = 0.15
) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Draw four samples of each option on questions whose difficulty differs."""
    rng = np.random.default_rng(seed)
    chances = np.clip(np.asarray(accuracies) + rng.normal(0, spread, (questions, 1)), 0.02, 0.98)
    return np.asarray(rng.binomial(4, chances) / 4)


def test_the_test_of_a_gain_by_hand() -> None:
    # Three questions that all gain: one of the eight patterns of signs gains as much.
    assert improvement_p_values(np.ones((3, 1))) == pytest.approx([1 / 8])
    # Two columns of opposite sign: the best of them gains as much in the pattern and in its mirror; it is never as bad
    # as the other.
    assert improvement_p_values(np.array([[1.0, -1.0]] * 3)) == pytest.approx([2 / 8, 1])
    assert improvement_p_values(-np.ones((3, 1))) == 1
    assert improvement_p_values(np.zeros((3, 2))) == pytest.approx([1, 1])
    assert improvement_p_values(np.zeros((3, 0))).size == 0


def test_without_any_difference_more_is_seldom_paid() -> None:
    outcomes = [chosen(drawn([0.5] * 6, 50, seed), seed=seed).outcome for seed in range(60)]
    # A test at 5 %: more than 8 of 60 has a chance of 1 %.
    assert outcomes.count("better") <= 8


def test_the_cheapest_within_one_standard_error_of_the_best_is_taken() -> None:
    choices = [chosen(drawn([0.3, 0.5, 0.6, 0.75, 0.77, 0.6], 60, seed), seed=seed) for seed in range(40)]
    assert {choice.outcome for choice in choices} == {"better"}
    assert {choice.option.name for choice in choices} <= {"o3", "o4"}
    truth = {"o3": 0.75, "o4": 0.77}
    held = sum(truth[choice.option.name] in choice.score for choice in choices)
    assert held >= 34  # 95 % of 40 is 38
    assert all(choice.gain.difference.low > 0 for choice in choices)


def test_the_range_of_costs_holds_the_choice() -> None:
    choice = chosen(drawn([0.3, 0.5, 0.6, 0.75, 0.77, 0.6], 60, 0))
    assert choice.cost.low <= choice.option.cost <= choice.cost.high
    assert choice.cost.value == pytest.approx(choice.option.cost)


def test_a_cheaper_option_needs_proof_that_it_loses_little() -> None:
    # The cheap option gives the same answers as one plain sample, and nothing dearer does better.
    # From 60 questions that all agree a loss of 6 % cannot be left out; from 150 it can.
    base = drawn([0.6], 150, 1)
    same = np.hstack([base] * 6)
    assert chosen(same[:60]).outcome == "cannot tell"
    assert (chosen(same).outcome, chosen(same).option.name) == ("cheaper", "o0")
    worse = np.hstack([base * 0.5, base, base, base, base, base])
    assert (chosen(worse).outcome, chosen(worse).option.name) == ("enough", "o1")


def test_noise_is_no_proof_that_a_cheap_option_will_do() -> None:
    choice = chosen(drawn([0.45, 0.5, 0.5, 0.5, 0.5, 0.5], 20, 4))
    assert (choice.outcome, choice.option.name, choice.is_conclusive) == ("cannot tell", "o1", False)


def test_few_questions_choose_nothing_whatever_they_say() -> None:
    scores = np.zeros((11, 6))
    scores[:, 4] = 1
    choice = chosen(scores)
    assert (choice.outcome, choice.option.name, choice.best.name) == ("cannot tell", "o1", "o4")
    assert chosen(np.vstack([scores, scores[:1]])).option.name == "o4"


def test_one_question_is_no_crash() -> None:
    assert chosen(np.ones((1, 6))).outcome == "cannot tell"


def test_equal_costs_do_not_matter() -> None:
    scores = drawn([0.3, 0.5, 0.9], 60, 0)[:, [0, 1, 2, 2, 2, 2]]
    assert chosen(scores, (20, 20, 20, 20, 40, 80)).option.cost == 20


def test_an_option_that_varies_much_is_not_chosen_for_its_wide_error() -> None:
    # The dearest gains a tenth on every question. The one before it is all or nothing: 0.05 below the best, with a
    # standard error of
    # 0.072, and no more above one plain sample.
    plain = np.full(40, 0.5)
    wild = np.tile([1.0, 0.1], 20)
    choice = chosen(np.column_stack([plain - 0.4, plain, plain - 0.2, plain - 0.2, wild, plain + 0.1]))
    assert (choice.outcome, choice.option.name) == ("better", "o5")
    assert choice.cost.value == pytest.approx(320)


def test_a_gain_that_is_gone_on_other_questions_is_not_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = drawn([0.3, 0.5, 0.6, 0.75, 0.77, 0.6], 60, 0)
    # Whatever the folds choose, it does worse there than one plain sample.
    monkeypatch.setattr("breadth.tuning.choice.cross_fit", lambda table, *_: (table[:, 0], [0] * 5))
    choice = chosen(scores)
    assert (choice.outcome, choice.option.name, choice.is_conclusive, choice.agreement) == (
        "cannot tell",
        "o1",
        False,
        0,
    )
    assert choice.p_value < 0.05


def test_without_a_more_expensive_option_a_gain_is_not_ruled_out() -> None:
    scores = drawn([0.3, 0.6], 60, 0)
    assert chosen(scores, COSTS[:2]).outcome == "cannot tell"
