"""The library of shapes, and the rule over it: samples on the paper's synthetic question, and its fallbacks."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import permutations, product
from pathlib import Path

import numpy as np
import pytest

from breadth.base.errors import BrokenFileError, MeasureError, SettingsError
from breadth.inference.stopping.posterior import BetaLead
from breadth.inference.stopping.shapes import (
    CONCENTRATIONS,
    MAX_COUNT_VECTORS,
    MAX_SHAPES,
    RARE_ANSWERS,
    UNSEEN_VOTES,
    ShapeLibrary,
    Shapes,
    add_rare_answers,
    fit_mixture,
    group_powers,
    group_shares,
    is_shape,
    leader_pairs,
    leader_posterior,
    novelty_likelihoods,
    scale_rows,
    shape_likelihoods,
    smooth_shares,
)
from breadth.inference.stored_votes import Paths
from breadth.inference.voting import VoteState


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


SHARES = (0.5, 0.2, 0.1, 0.1, 0.05, 0.03, 0.01, 0.01)
LIBRARY = ShapeLibrary((SHARES,), (1.0,))


def test_the_samples_of_the_paper() -> None:
    # arXiv 2602.05395: 18.07 samples at delta = .01 with the shape known; the predicted rate is 16.75.
    votes = np.random.default_rng(0).choice(len(SHARES), size=(4000, 90), p=SHARES).astype(np.int32)
    paths = Paths(votes)
    along = Shapes(0.01, LIBRARY).is_decided_along(paths)
    taken = along.argmax(axis=1) + 1
    assert along.any(axis=1).mean() > 0.999
    assert taken.mean() == pytest.approx(18.07, abs=0.5)
    winners = np.array([np.bincount(row[:end]).argmax() for row, end in zip(votes, taken, strict=True)])
    assert np.mean(winners != 0) <= 0.01


def test_at_a_stop_the_chance_is_what_was_asked() -> None:
    rule = Shapes(0.05, LIBRARY)
    assert rule.posterior(VoteState((3,), (0, 0, 0))) == pytest.approx(0.92487, abs=5e-6)
    assert not rule.is_decided(VoteState((3,), (0, 0, 0)))
    assert rule.is_decided(VoteState((5, 1), (0,) * 6))
    assert "1 past questions" in rule.basis


def test_without_a_library_or_beyond_it_it_is_the_beta_rule() -> None:
    standing = VoteState((4, 1, 1), (0,) * 6)
    assert Shapes().posterior(standing) == BetaLead().posterior(standing)
    assert "no library" in Shapes().basis
    two = Shapes(0.05, ShapeLibrary(((0.6, 0.4),), (1.0,)))
    assert two.posterior(standing) == BetaLead().posterior(standing)


@pytest.mark.parametrize("delta", [0.0, -0.1, 0.51])
def test_an_impossible_delta_is_refused(delta: float) -> None:
    with pytest.raises(SettingsError, match="delta"):
        Shapes(delta)


def test_exactly_the_chance_asked_for_stops() -> None:
    # Without a library 1 to 0 is 3/4, 1 to 1 is 1/2.
    assert Shapes(0.25).is_decided(VoteState((1,), (0,)))
    assert not Shapes(0.24).is_decided(VoteState((1,), (0,)))
    assert Shapes(0.5).is_decided(VoteState((1, 1), (0, 1)))
    assert not Shapes(0.5).is_decided(VoteState())
    classes = np.array([[-1, 0, 1]], dtype=np.int32)
    assert Shapes(0.25).is_decided_along(Paths(classes)).tolist() == [[False, True, False]]
    assert Shapes(0.5).is_decided_along(Paths(classes)).tolist() == [[False, True, True]]


FOUR = ShapeLibrary(((0.45, 0.25, 0.2, 0.1),), (1.0,))
EIGHT = ShapeLibrary(((0.5, 0.2, 0.1, 0.1, 0.05, 0.03, 0.01, 0.01),), (1.0,))


@pytest.mark.parametrize(
    ("library", "standing", "chance"),
    [
        (FOUR, (6, 0, 0), 0.964107),
        (FOUR, (5, 1, 0), 0.910517),
        (FOUR, (4, 2, 0), 0.759997),
        (FOUR, (3, 3, 0), 0.468940),
        (FOUR, (2, 2, 2), 0.348592),
        (EIGHT, (1, 0, 0), 0.5),
        (EIGHT, (3, 0, 0), 0.92487),
        (EIGHT, (5, 1, 0), 0.98275),
        (EIGHT, (9, 2, 3), 0.99877),
    ],
)
def test_the_published_form(library: ShapeLibrary, standing: tuple[int, int, int], chance: float) -> None:
    digits = 5e-7 if library is FOUR else 5e-6
    assert leader_posterior(library, *standing) == pytest.approx(chance, abs=digits)


def by_counting(shapes: list[tuple[float, ...]], weights: list[float], votes: int) -> dict[tuple[int, int, int], float]:
    """Enumerate all sequences of votes, equals ordered at random; return the share where a largest share leads."""
    every: dict[tuple[int, int, int], float] = defaultdict(float)
    right: dict[tuple[int, int, int], float] = defaultdict(float)
    for shape, weight in zip(shapes, weights, strict=True):
        for sequence in product(range(len(shape)), repeat=votes):
            counts = Counter(sequence)
            ranked = [*sorted(counts.values(), reverse=True), 0]
            standing = (ranked[0], ranked[1], votes - ranked[0] - ranked[1])
            chance = weight * float(np.prod([shape[label] for label in sequence]))
            leaders = [label for label, count in counts.items() if count == ranked[0]]
            every[standing] += chance
            right[standing] += chance * float(np.mean([shape[label] == shape[0] for label in leaders]))
    return {standing: right[standing] / every[standing] for standing in every}


@pytest.mark.parametrize(
    ("shapes", "weights"),
    [
        ([(0.45, 0.25, 0.2, 0.1)], [1.0]),
        ([(0.6, 0.2, 0.1, 0.1), (0.4, 0.3, 0.2, 0.1)], [0.7, 0.3]),
        ([(0.35, 0.35, 0.2, 0.1), (0.25, 0.25, 0.25, 0.25)], [0.5, 0.5]),
        ([(0.6, 0.4), (0.5, 0.3, 0.2), (0.4, 0.2, 0.2, 0.2)], [0.5, 0.3, 0.2]),
    ],
)
def test_every_standing_is_what_counting_all_sequences_gives(
    shapes: list[tuple[float, ...]], weights: list[float]
) -> None:
    library = ShapeLibrary(tuple(shapes), tuple(weights))
    for votes in range(1, 7):
        for standing, chance in by_counting(shapes, weights, votes).items():
            assert leader_posterior(library, *standing) == pytest.approx(chance, abs=1e-12), standing


def test_rare_answers_are_answers() -> None:
    # .7 and twelve of .025: after a tie of one to one the leader is the first answer with chance 1/2 * P(first was
    # drawn).
    library = ShapeLibrary(((0.7,),), (1.0,))
    shape = (0.7, *[0.025] * 12)
    assert group_shares(library).sizes.tolist() == [[1, 12]]
    for standing, chance in by_counting([shape], [1.0], 3).items():
        assert leader_posterior(library, *standing) == pytest.approx(chance, abs=1e-12)


def test_a_standing_no_shape_can_give_is_unknown() -> None:
    assert leader_posterior(ShapeLibrary(((0.6, 0.4),), (1.0,)), 2, 1, 1) is None


def test_a_hundred_votes_do_not_break_it() -> None:
    assert leader_posterior(EIGHT, 60, 25, 35) == pytest.approx(1, abs=1e-9)
    assert leader_posterior(EIGHT, 21, 20, 60) is not None


def test_many_answers_with_one_vote_each_by_hand() -> None:
    # One half, and twelve of r = 1/24. With 2 to 1 and eight more of one vote either the half leads and nine of the
    # twelve follow, or one of the twelve leads and eight or nine of the other eleven do. The factor r^9 cancels:
    # 1/4 * 220 against 12 * (1/2 * 165 r + 55 r^2).
    library = ShapeLibrary(((0.5,),), (1.0,))
    other = 12 * (165 / 2 / 24 + 55 / 24**2)
    assert leader_posterior(library, 2, 1, 8) == pytest.approx(55 / (55 + other), rel=1e-12)
    # Ten answers with one vote each: the half is among them with 1/2 * 220 against 66 r, and leads with 1/10 then.
    assert leader_posterior(library, 1, 1, 8) == pytest.approx(110 / (110 + 66 / 24) / 10, rel=1e-12)


def test_states_share_their_series() -> None:
    leader_pairs.cache_clear()
    for rest in range(33):
        leader_posterior(EIGHT, 9, 4, rest)
    for length in (8, 16, 32):
        leader_pairs(EIGHT, 4, length)
    assert leader_pairs.cache_info().misses == 3


def test_the_powers_of_a_group_by_hand() -> None:
    # Counts up to 2, of exactly 2 with y = 1/2. One answer of .6: 1 + .6 x + .5 .36/2 x^2. Two of .2: the square of
    # 1 + .2 x + .5 .04/2 x^2, which is 1 + .4 x + (.04 + .02) x^2 + .004 x^3 up to x^3.
    groups = group_shares(ShapeLibrary(((0.6, 0.2, 0.2),), (1.0,)))
    nothing = [1.0, 0.0, 0.0, 0.0]
    powers = [
        [series[0, 0].tolist() for series in group_powers(groups, group, 2, 3, np.array([0.5]))] for group in (0, 1)
    ]
    assert powers[0] == [pytest.approx([1.0, 0.6, 0.09, 0.0]), nothing, nothing]
    assert powers[1] == [pytest.approx([1.0, 0.4, 0.06, 0.004]), pytest.approx([1.0, 0.2, 0.01, 0.0]), nothing]


def test_only_answers_and_pairs_that_exist_are_kept() -> None:
    library = ShapeLibrary(((0.5, 0.5), (0.6, 0.3, 0.1)), (0.5, 0.5))
    groups = group_shares(library)
    assert groups.sizes.tolist() == [[2, 0, 0], [1, 1, 1]]
    assert groups.shares.tolist() == [[0.5, 0.0, 0.0], [0.6, 0.3, 0.1]]
    # Two ordered pairs of equal answers as one row, and six of three different ones.
    assert sorted(leader_pairs(library, 1, 8).weights.tolist()) == [0.5] * 6 + [1.0]
