"""The library of shapes: what it recovers, how it is kept, what it refuses."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

from breadth.base.errors import BrokenFileError, MeasureError, SettingsError
from breadth.inference.stopping.shape_library import (
    CONCENTRATIONS,
    MAX_COUNT_VECTORS,
    MAX_SHAPES,
    RARE_ANSWERS,
    UNSEEN_VOTES,
    ShapeLibrary,
    add_rare_answers,
    fit_mixture,
    is_shape,
    novelty_likelihoods,
    scale_rows,
    shape_likelihoods,
    smooth_shares,
)


def test_by_hand_two_shapes() -> None:
    # Votes 3 to 1. Shape (.8, .2): .8^3 .2 + .2^3 .8 = .1024 + .0064 = .1088; shape (.5, .5): two ways of 1/16 = .125.
    found = shape_likelihoods([(3, 1)], np.array([[0.8, 0.2], [0.5, 0.5]]))[0]
    assert found[0] / found[1] == pytest.approx(0.1088 / 0.125)


def test_equal_shares_count_every_way_to_use_them() -> None:
    # 5 to 1 to 1 on (.7, .1, .1, .1): 3 * 2 ordered ways for the two single votes. The swap of the first two adds .1^5
    # .7 for each.
    shares = np.array([[0.7, 0.1, 0.1, 0.1], [0.4, 0.3, 0.2, 0.1]])
    found = shape_likelihoods([(5, 1, 1)], shares)[0]
    first = 6 * (0.7**5 * 0.1 * 0.1 + 0.1**5 * 0.7 * 0.1)
    second = 0.4**5 * 0.3 * 0.2 + 0.3**5 * 0.4 * 0.2
    assert found[0] / found[1] == pytest.approx(first / second)


def test_a_clear_race_is_scored_as_the_sum_over_all_assignments() -> None:
    shares, votes = (0.85, 0.1, 0.05), (30, 4, 0)
    everything = sum(
        np.prod([share**count for share, count in zip(order, votes, strict=True)]) for order in permutations(shares)
    )
    flat = sum(
        np.prod([share**count for share, count in zip(order, votes, strict=True)])
        for order in permutations((0.6, 0.25, 0.15))
    )
    found = shape_likelihoods([votes], np.array([shares, (0.6, 0.25, 0.15)]))[0]
    # What is left out is the runner-up on the third share: (1/2)^4 of the whole, (3/5)^4 for the flat shape.
    assert found[0] / found[1] == pytest.approx(everything / flat, rel=0.1)


def test_more_answers_than_a_shape_has_are_unlikely_not_impossible() -> None:
    found = shape_likelihoods([(2, 1, 1, 1)], np.array([[1.0, 0.0], [0.5, 0.5]]))
    assert np.all(found > 0)
    # 2 to 1 on (1): 1^2 * 1e-12; on (.5, .5): two ways of 1/8.
    found = shape_likelihoods([(2, 1), (1, 1, 1, 1)], np.array([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]]))
    assert found[0, 0] / found[0, 1] == pytest.approx(4e-12)


def test_the_restaurant_process_by_hand() -> None:
    # Two votes: equal with chance 1 / (c + 1), different with c / (c + 1).
    found = novelty_likelihoods([(2,), (1, 1)])
    grid = np.array(CONCENTRATIONS)
    np.testing.assert_allclose(found[0] / found[0, 0], (1 / (grid + 1)) / (1 / (grid[0] + 1)))
    np.testing.assert_allclose(found[1] / found[1, -1], (grid / (grid + 1)) / (grid[-1] / (grid[-1] + 1)))


def test_two_kinds_of_questions_are_told_apart_and_the_noise_taken_out() -> None:
    rng = np.random.default_rng(0)
    easy, hard = rng.multinomial(40, (0.95, 0.05), 300), rng.multinomial(40, (0.5, 0.3, 0.2), 100)
    library = ShapeLibrary.fit([*easy.tolist(), *hard.tolist()])
    leaders = np.array([shape[0] for shape in library.shapes])
    weights = np.array(library.weights)
    assert weights[leaders > 0.8].sum() == pytest.approx(0.75, abs=0.02)
    assert weights @ leaders == pytest.approx(0.75 * 0.95 + 0.25 * 0.5, abs=0.02)
    # The shares of 40 votes spread by sqrt(.5 * .5 / 40) = .08 around one half; the fitted ones by much less.
    hard_ones = leaders < 0.8
    spread = np.sqrt(np.average((leaders[hard_ones] - 0.5) ** 2, weights=weights[hard_ones]))
    assert spread < 0.055
    assert library.questions == 400


def test_order_and_zeros_of_counts_do_not_matter() -> None:
    assert ShapeLibrary.fit([[1, 5, 0], [4]]) == ShapeLibrary.fit([[4, 0], [0, 5, 1], [0]])


def test_a_large_library_stays_small() -> None:
    rng = np.random.default_rng(1)
    counts = rng.multinomial(40, rng.dirichlet((3, 1, 1, 0.5, 0.5), 1500))
    library = ShapeLibrary.fit(counts.tolist())
    assert len(library.shapes) <= MAX_SHAPES
    assert sum(library.weights) == pytest.approx(1, abs=1e-5)


def test_it_survives_its_file(tmp_path: Path) -> None:
    library = ShapeLibrary.fit([[38, 2], [20, 15, 5], [40]])
    library.dump(tmp_path / "shapes.toml")
    assert ShapeLibrary.load(tmp_path / "shapes.toml") == library
    (tmp_path / "shapes.toml").write_text("shapes = [[0.2, 0.5]]\nweights = [1.0]\n")
    with pytest.raises(BrokenFileError, match="largest first"):
        ShapeLibrary.load(tmp_path / "shapes.toml")


def test_what_the_shares_lack_goes_to_rare_answers() -> None:
    shares = add_rare_answers((0.7, 0.18))
    assert shares[2:].tolist() == pytest.approx([0.01] * RARE_ANSWERS)
    assert add_rare_answers((0.75, 0.25)).tolist() == [0.75, 0.25] + [0.0] * RARE_ANSWERS


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"shapes": ((1.0,),), "weights": ()}, "one weight per shape"),
        ({"shapes": ((1.0,),), "weights": (0.0,)}, "above 0"),
        ({"shapes": ((0.7, 0.6),), "weights": (1.0,)}, "sum of at most 1"),
        ({"shapes": ((),), "weights": (1.0,)}, "shares above 0"),
        ({"shapes": ((1.0, 0.0),), "weights": (1.0,)}, "shares above 0"),
        ({"novelty": (1.0,)}, "10 weights"),
        ({"questions": -1}, "number of questions"),
    ],
)
def test_libraries_that_make_no_sense_are_refused(settings: dict[str, tuple[object, ...]], problem: str) -> None:
    with pytest.raises(SettingsError, match=problem):
        ShapeLibrary(**settings)  # type: ignore[arg-type]


def test_nothing_to_fit_is_refused() -> None:
    with pytest.raises(MeasureError, match="no question"):
        ShapeLibrary.fit([[], [0, 0]])
    assert ShapeLibrary().empty


def test_a_single_vote_for_another_answer_counts() -> None:
    alone, challenged = ShapeLibrary.fit([[9]] * 4), ShapeLibrary.fit([[9, 1]] * 4)
    assert alone != challenged
    assert max(len(shape) for shape in challenged.shapes) == 2
    assert challenged == ShapeLibrary.fit([[9, 1, 0]] * 4)
    assert challenged.questions == 4


def test_novelty_weights_may_be_zero_but_not_all_or_negative() -> None:
    size = len(CONCENTRATIONS)
    assert ShapeLibrary(((1.0,),), (1.0,), (1.0,) + (0.0,) * (size - 1)).novelty[0] == 1.0
    for novelty in ((0.0,) * size, (1.0,) * (size - 1), (2.0, -1.0) + (0.0,) * (size - 2)):
        with pytest.raises(SettingsError, match="novelty"):
            ShapeLibrary(((1.0,),), (1.0,), novelty)
    assert ShapeLibrary().empty
    assert ShapeLibrary().questions == 0
    with pytest.raises(SettingsError, match="questions"):
        ShapeLibrary(questions=-1)


def test_rows_are_scaled_to_their_largest() -> None:
    np.testing.assert_allclose(
        scale_rows(np.log([[1.0, 2.0, 8.0], [30.0, 3.0, 10.0]])), [[1 / 8, 1 / 4, 1], [1, 0.1, 1 / 3]]
    )


def test_two_hundred_steps_of_em_by_hand() -> None:
    # With one question each step multiplies the odds of two components by the ratio of their likelihoods.
    for repeats in (1.0, 7.0):
        weights = fit_mixture(np.array([[1.0, 0.99]]), np.array([repeats]))
        assert weights.sum() == pytest.approx(1)
        assert weights[1] / weights[0] == pytest.approx(0.99**200)
    # Three questions of the first kind and one of the second; a spare 0.1 for each of the three components.
    apart, times = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]), np.array([3.0, 1.0])
    assert fit_mixture(apart, times).tolist() == pytest.approx([0.75, 0.25, 0.0])
    assert fit_mixture(apart, times, 0.1).tolist() == pytest.approx([3.1 / 4.3, 1.1 / 4.3, 0.1 / 4.3])


def test_a_fit_by_hand_to_questions_without_dissent() -> None:
    # Of 4 / 4.05, 4 / 4.5 and 4 / 6 the first explains 4 to 0 best, so EM gives it all.
    library = ShapeLibrary.fit([[4]] * 4)
    assert (library.shapes, library.weights, library.questions) == (((0.98765432,),), (1.0,), 4)
    # The most concentrated process explains it 1e5 times as well as the least; a spare 0.1 for each of ten.
    assert library.novelty[0] == max(library.novelty)
    assert library.novelty[-1] == pytest.approx(0.1 / (4 + 10 * 0.1), abs=1e-4)
    assert sum(library.novelty) == pytest.approx(1, abs=1e-6)


def test_the_candidates_are_the_documented_ones() -> None:
    assert len(CONCENTRATIONS) == 10
    assert CONCENTRATIONS[::3] == pytest.approx((0.03, 0.3, 3, 30)), "a decade in three steps"
    assert (UNSEEN_VOTES, MAX_SHAPES, MAX_COUNT_VECTORS) == ((0.05, 0.5, 2.0), 64, 400)
    assert smooth_shares((3, 1), 0.05) == (0.74074074, 0.24691358)


def test_shares_may_fall_short_of_one_or_exceed_it_by_rounding() -> None:
    assert is_shape((0.5, 0.5))
    assert is_shape((0.5, 0.5 + 5e-7)) is False, "not largest first"
    assert is_shape((0.5 + 5e-7, 0.5))
    assert is_shape((1 + 1e-6,))
    assert not is_shape((0.5 + 2e-6, 0.5))
    assert add_rare_answers((1 - 5e-10,))[1:].tolist() == [0.0] * 12
    assert add_rare_answers((1 - 1.2e-7,))[1:].tolist() == pytest.approx([1e-8] * 12)
    assert add_rare_answers((0.5 + 5e-7, 0.5))[2:].tolist() == [0.0] * 12


def test_libraries_that_are_equal_hash_alike() -> None:
    first, second = ShapeLibrary.fit([[4], [3, 1]]), ShapeLibrary.fit([[3, 1], [4]])
    assert first == second
    assert hash(first) == hash(second) != hash(ShapeLibrary.fit([[4]]))


def test_the_first_and_the_last_of_the_vote_counts_become_candidates() -> None:
    # Sorted as (1), (2, 2) and (9): the single vote and the nine are explained best by shapes of their own.
    shapes = ShapeLibrary.fit([[1], [2, 2], [9]]).shapes
    assert smooth_shares((9,), 0.05) in shapes
    assert smooth_shares((2, 2), 0.05) in shapes


def test_weights_are_rounded_to_eight_digits() -> None:
    library = ShapeLibrary.fit([[4], [3, 1], [2, 2]])
    assert len(library.weights) > 1
    for weight in (*library.weights, *library.novelty):
        assert weight == round(weight, 8)
