"""What forks and other tokens have kept of their entropy, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from breadth.doctor.evidence.rollouts import trained_ends
from breadth.doctor.signs.forks import Forks, measured_forks

FORK, PLAIN = 1.0, 0.1


def rows(entropies: Any, problems: int = 40) -> dict[str, Any]:
    return {
        "problem": [f"p{place % problems}" for place in range(len(entropies))],
        "sample": list(range(len(entropies))),
        "entropy": [list(one) for one in entropies],
    }


def texts(fork: float, plain: float, *, forks: int = 2, length: int = 10, rollouts: int = 80) -> dict[str, Any]:
    return rows([[fork] * forks + [plain] * (length - forks)] * rollouts)


def measured(make: Any, start: dict[str, Any], now: dict[str, Any]) -> Forks:
    evidence = make(rollouts={1: start, 2: now})
    found = measured_forks(evidence.run, trained_ends(evidence), 0.2)  # type: ignore[arg-type]  # there are two steps
    assert isinstance(found, Forks)
    return found


def test_forks_that_fell_among_tokens_that_did_not(make: Any) -> None:
    found = measured(make, texts(FORK, PLAIN), texts(0.2, PLAIN))
    assert found.left.value == pytest.approx(0.2)
    assert found.rest.value == pytest.approx(1.0)
    assert found.against_rest.value == pytest.approx(0.2)
    # Two of ten tokens fell by 0.8 and none of the others did.
    assert found.lost == pytest.approx(1.0)
    # Entropies of forks at the start lie on their edge; none lies above it.
    assert found.tokens == 1600


def test_a_fall_of_everything_alike_leaves_both_with_the_same(make: Any) -> None:
    rng = np.random.default_rng(0)
    spread = rng.exponential(0.3, (200, 30))
    found = measured(make, rows(spread), rows(0.4 * spread))
    assert found.left.value == pytest.approx(0.4, rel=0.01)
    assert found.rest.value == pytest.approx(0.4, rel=0.01)
    assert 1.0 in found.against_rest
    # Of an exponential spread the largest fifth holds 0.2 * (1 + ln 5) = 52 % of the entropy, and so of the loss.
    assert found.lost == pytest.approx(0.52, abs=0.02)
    # Above the edge of the start, ln 5 means, now lies exp(-ln 5 / 0.4) = 1.8 % of the tokens.
    assert found.open_then.value == pytest.approx(0.2, abs=0.01)
    assert found.open.value == pytest.approx(0.018, abs=0.006)


def test_longer_texts_do_not_dilute_forks(make: Any) -> None:
    found = measured(make, texts(FORK, PLAIN), texts(FORK, PLAIN, length=40))
    assert found.left.value == pytest.approx(1.0, rel=0.01)


def test_shorter_texts_of_the_same_kind_have_lost_nothing(make: Any) -> None:
    found = measured(make, texts(FORK, PLAIN, forks=4, length=20), texts(FORK, PLAIN, forks=2, length=10))
    assert found.left.value == pytest.approx(1.0, rel=0.01)
    assert found.rest.value == pytest.approx(1.0, rel=0.01)


def test_tokens_that_never_had_any_entropy_have_kept_it(make: Any) -> None:
    found = measured(make, texts(FORK, 0.0), texts(0.3, 0.0))
    assert found.left.value == pytest.approx(0.3)
    assert found.rest.value == 1.0


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (rows([[1.0]] * 20, problems=5), "fewer than 10 problems"),
        (rows([[]] * 20), "no entropies"),
    ],
)
def test_too_little_is_said_to_be_too_little(make: Any, now: dict[str, Any], said: str) -> None:
    evidence = make(rollouts={1: texts(FORK, PLAIN), 2: now})
    found = measured_forks(evidence.run, trained_ends(evidence), 0.2)  # type: ignore[arg-type]  # there are two steps
    assert isinstance(found, str)
    assert said in found


def test_a_start_without_entropy_cannot_be_compared_with(make: Any) -> None:
    evidence = make(rollouts={1: texts(0.0, 0.0), 2: texts(FORK, PLAIN)})
    found = measured_forks(evidence.run, trained_ends(evidence), 0.2)  # type: ignore[arg-type]  # there are two steps
    assert isinstance(found, str)
    assert "no token has any entropy" in found
