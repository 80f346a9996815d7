"""The rule over a library of shapes: samples on the paper's synthetic question, and its fallbacks."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import product

import numpy as np
import pytest

from breadth.base.errors import SettingsError
from breadth.inference.stopping.beta_lead import BetaLead
from breadth.inference.stopping.shape_library import ShapeLibrary
from breadth.inference.stopping.shapes import Shapes, group_powers, group_shares, leader_pairs, leader_posterior
from breadth.inference.stored_votes import Paths
from breadth.inference.voting import VoteState

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
