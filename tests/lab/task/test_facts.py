"""Firm facts are certain, shaky ones come as the formula says, and the seed alone decides which are which."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from breadth.base.errors import SettingsError
from breadth.lab.task.facts import SIGNS, Facts

HALF = Facts(prime=7, shaky=0.5, right=0.1, believed=0.6, seed=3)
SHAKY = Facts(prime=7, shaky=1.0, right=0.1, believed=0.6, seed=3)


def test_the_tables_hold_sums_and_products_modulo_the_prime() -> None:
    assert HALF.value("+", 5, 6) == 4  # 11 - 7
    assert HALF.value("*", 5, 6) == 2  # 30 - 28
    assert HALF.value("*", 0, 6) == 0


def test_chances_sum_to_one_and_firm_facts_are_certain() -> None:
    assert np.allclose(HALF.chances.sum(-1), 1, atol=1e-12)
    tables, firsts, seconds = np.nonzero(HALF.firm)
    assert (HALF.chances[tables, firsts, seconds, HALF.truth[HALF.firm]] == 1).all()


def test_a_shaky_fact_by_hand() -> None:
    # Left over: 1 - 0.1 - 0.6 = 0.3, over 7 values: 0.3 / 7 each. The truth has 0.1 more, the rivals 0.6 times 0.5, 0.3
    # and 0.2 more.
    spread = 0.3 / 7
    expected = sorted([spread + 0.1, spread + 0.3, spread + 0.18, spread + 0.12, spread, spread, spread])
    assert np.allclose(np.sort(SHAKY.chances, -1), expected)
    tables, firsts, seconds = np.indices(SHAKY.truth.shape)
    assert np.allclose(SHAKY.chances[tables, firsts, seconds, SHAKY.truth], 1 / 7)  # 0.3 / 7 + 0.1


def test_about_the_asked_share_is_shaky_and_order_matters() -> None:
    facts = Facts(prime=11, shaky=0.4, right=0.1, believed=0.6, seed=0)
    # 242 facts, 145.2 firm ones expected, standard deviation sqrt(242 * 0.4 * 0.6) = 7.6
    assert abs(int(facts.firm.sum()) - 145.2) < 4 * 7.6
    assert any(facts.is_firm("+", a, b) != facts.is_firm("+", b, a) for a in range(11) for b in range(a))


@pytest.mark.parametrize(("shaky", "firm"), [(0.0, True), (1.0, False)])
def test_none_and_all(shaky: float, firm: bool) -> None:
    assert (Facts(prime=5, shaky=shaky, right=0.1, believed=0.6).firm == firm).all()


def test_recall_follows_the_chances() -> None:
    rng = np.random.default_rng(0)
    for sign, first, second in (("+", 3, 5), ("*", 3, 5), ("*", 0, 0)):
        drawn = np.bincount([SHAKY.recall(sign, first, second, rng) for _ in range(4000)], minlength=7)
        expected = 4000 * SHAKY.chances[SIGNS.index(sign), first, second]
        assert (
            (drawn - expected) ** 2 / expected
        ).sum() < 22.5  # chi-square, 6 degrees of freedom: passed by 1 in 1,000


def test_firm_facts_are_always_recalled_right() -> None:
    facts, rng = Facts(prime=5, shaky=0.0, right=0.1, believed=0.6), np.random.default_rng(0)
    for sign in SIGNS:
        for first, second in np.ndindex(5, 5):
            assert {facts.recall(sign, first, second, rng) for _ in range(20)} == {facts.value(sign, first, second)}


def test_a_value_with_no_chance_is_never_recalled() -> None:
    certain = Facts(prime=7, shaky=1.0, right=0.0, believed=1.0, seed=1)
    rng = np.random.default_rng(0)
    drawn = np.bincount([certain.recall("+", 2, 3, rng) for _ in range(500)], minlength=7)
    assert ((drawn > 0) == (certain.chances[0, 2, 3] > 0)).all()
    assert drawn[5] == 0  # the truth, of chance nothing


def test_the_smallest_draw_skips_values_with_no_chance() -> None:
    class Zero(np.random.Generator):
        def random(self, *_: Any, **__: Any) -> Any:
            return 0.0

    firm = Facts(prime=5, shaky=0.0, right=0.1, believed=0.6)
    assert firm.recall("+", 1, 2, Zero(np.random.PCG64(0))) == 3  # values 0, 1 and 2 have no chance


@pytest.mark.parametrize(("right", "believed"), [(0.9, 0.1), (0.7, 0.3), (1.0, 0.0), (0.0, 1.0), (0.0, 0.0)])
def test_right_and_believed_may_fill_the_whole(right: float, believed: float) -> None:
    facts = Facts(prime=5, shaky=1.0, right=right, believed=believed)  # 1 - 0.9 is a little less than 0.1
    assert (facts.chances >= 0).all()
    assert np.allclose(facts.chances.sum(-1), 1)


def test_the_seed_decides() -> None:
    again = Facts(prime=7, shaky=0.5, right=0.1, believed=0.6, seed=3)
    other = Facts(prime=7, shaky=0.5, right=0.1, believed=0.6, seed=4)
    assert (again.chances == HALF.chances).all()
    assert (again.firm != other.firm).any()
    mistaken = Facts(prime=7, shaky=1.0, right=0.1, believed=0.6, seed=4)
    assert (mistaken.chances != SHAKY.chances).any()


def test_the_draws_are_not_those_of_the_seed_alone() -> None:
    # Whoever draws from default_rng(seed), or from (seed, 0), which is the same, must not meet the draws that made the
    # tables.
    streams: list[Any] = [(3, 11), (3, 12), (3, 0), 3]
    firm = [bool(((np.random.default_rng(stream).random((2, 7, 7)) >= 0.5) == HALF.firm).all()) for stream in streams]
    assert firm == [True, False, False, False]
    mistaken = [_mistaken(np.random.default_rng(stream)) == SHAKY.chances[0, 0, 0].argmax() for stream in streams]
    assert mistaken == [False, True, False, False]


def _mistaken(rng: np.random.Generator) -> int:
    """The value that 0 + 0 is most often mistaken for: of the six false ones, 1 to 6, the first drawn."""
    return int(rng.choice(6, 3, replace=False)[0]) + 1


@pytest.mark.parametrize(
    "wrong",
    [
        *({"prime": prime} for prime in (-7, 0, 1, 2, 3, 4, 9, 25)),
        *({"shaky": share} for share in (-0.1, 1.1, float("nan"))),
        *({"right": chance} for chance in (-0.1, 1.1, float("nan"))),
        *({"believed": chance} for chance in (-0.1, 0.95, float("nan"))),  # with right = 0.1 at most 0.9
        {"seed": -1},
    ],
)
def test_nonsense_is_refused(wrong: dict[str, Any]) -> None:
    (field,) = wrong
    with pytest.raises(SettingsError, match=f"Facts got {field} = "):
        Facts(**{"prime": 7, "shaky": 0.5, "right": 0.1, "believed": 0.6, **wrong})
