"""Forks that close while the rest stays open are found; what the mean entropy shows as well is a note."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from breadth.doctor.evidence.rollouts import training_ends
from breadth.doctor.finding import CannotTell, Excluded, Finding
from breadth.doctor.findings.fork_collapse import FINDING, ForkEntropy, compare_forks
from breadth.report.sections import Severity
from breadth.runs.schema import EntropyKind
from breadth.testing.findings import check_finding, check_outcome

NAME = "fork-collapse"


def rows(
    forks: float = 1.0, others: float = 1.0, *, length: int = 40, seed: int = 0, problems: int = 30
) -> dict[str, Any]:
    """200 rollouts: one token in five forks, with about 1 nat; the others have about 0.1; both times a factor."""
    rng = np.random.default_rng(seed)
    is_fork = rng.random((200, length)) < 8 / length
    entropy = np.where(
        is_fork, forks * rng.uniform(0.8, 1.2, is_fork.shape), others * rng.uniform(0.05, 0.15, is_fork.shape)
    )
    return {
        "problem": [f"p{place % problems}" for place in range(200)],
        "sample": list(range(200)),
        "entropy": entropy.tolist(),
    }


def run(make: Any, now: dict[str, Any], **given: Any) -> Any:
    return make(rollouts={1: rows(seed=99), 2: now}, **given)


def test_it_keeps_the_contract() -> None:
    check_finding(FINDING, NAME)


@pytest.mark.parametrize(
    ("forks", "others", "severity"),
    [
        (0.05, 0.2, Severity.CRITICAL),
        (0.2, 1.0, Severity.WARNING),
        (0.4, 1.0, Severity.NOTE),
        (0.2, 0.2, Severity.NOTE),
        (0.4, 0.2, Severity.NOTE),
        (0.7, 1.0, None),
        (1.0, 0.1, None),
        (1.0, 1.0, None),
        (1.6, 1.0, None),
    ],
)
def test_severity_follows_what_forks_have_left_beside_the_rest(
    make: Any, forks: float, others: float, severity: Severity | None
) -> None:
    found = FINDING.check(run(make, rows(forks, others)))
    if severity is None:
        assert isinstance(found, Excluded)
        return
    assert isinstance(found, Finding)
    check_outcome(found, NAME)
    assert found.severity is severity
    assert found.evidence[0].value.value == pytest.approx(forks, rel=0.25)  # type: ignore[union-attr]


def test_the_mean_hides_it(make: Any) -> None:
    """Forks fall to about a third, the others double: the mean keeps 0.2 * 0.35 + 0.8 * 0.22 = 0.246 of 0.28."""
    now = rows(0.35, 2.2)
    assert np.mean(now["entropy"]) / np.mean(rows(seed=99)["entropy"]) > 0.8
    found = FINDING.check(run(make, now))
    assert isinstance(found, Finding)
    assert found.evidence[0].value.high < 0.5  # type: ignore[union-attr]
    assert found.evidence[1].value.low > 1.5  # type: ignore[union-attr]
    assert "while the others kept" in found.headline
    assert found.cost == "100% of the lost entropy was lost at forks."


@pytest.mark.parametrize("length", [16, 160])
def test_longer_and_shorter_texts_are_no_collapse(make: Any, length: int) -> None:
    rng = np.random.default_rng(1)
    share = 8 / 40 if length < 40 else 8 / length
    is_fork = rng.random((200, length)) < share
    entropy = np.where(is_fork, rng.uniform(0.8, 1.2, is_fork.shape), rng.uniform(0.05, 0.15, is_fork.shape))
    now = {"problem": [f"p{place % 30}" for place in range(200)], "entropy": entropy.tolist()}
    assert isinstance(FINDING.check(run(make, now)), Excluded)


def test_held_out_rollouts_do_where_trained_ones_have_no_entropies(make: Any) -> None:
    plain = {"problem": ["a", "b"]}
    found = FINDING.check(make(rollouts={1: plain, 2: plain}, held_out={0: rows(seed=99), 50: rows(0.2)}))
    assert isinstance(found, Finding)
    assert "held-out" in found.evidence[0].note


def test_what_is_missing_is_said_with_what_brings_it(make: Any) -> None:
    bare = FINDING.check(make(reward=np.linspace(0, 1, 40), trainer="prime-rl"))
    assert isinstance(bare, CannotTell)
    check_outcome(bare, NAME)
    assert bare.switch_on == "trainer.enable_token_export = true"
    once = FINDING.check(make(rollouts={1: rows()}, reward=np.linspace(0, 1, 40)))
    assert isinstance(once, CannotTell)
    assert "one step" in once.missing
    few = FINDING.check(make(rollouts={1: rows(problems=4), 2: rows(0.1, problems=4)}))
    assert isinstance(few, CannotTell)
    assert "problems" in few.missing


def test_minus_the_log_probability_is_no_entropy(make: Any) -> None:
    found = FINDING.check(run(make, rows(0.1), kind=EntropyKind("sampled", 1.0, "token-mean", "response")))
    assert isinstance(found, CannotTell)
    likely = FINDING.check(run(make, rows(0.1), kind=EntropyKind()))
    assert isinstance(likely, Finding)
    assert likely.confidence == "likely"


FORK, PLAIN = 1.0, 0.1


def fork_rows(entropies: Any, problems: int = 40) -> dict[str, Any]:
    return {
        "problem": [f"p{place % problems}" for place in range(len(entropies))],
        "sample": list(range(len(entropies))),
        "entropy": [list(one) for one in entropies],
    }


def texts(fork: float, plain: float, *, forks: int = 2, length: int = 10, rollouts: int = 80) -> dict[str, Any]:
    return fork_rows([[fork] * forks + [plain] * (length - forks)] * rollouts)


def measured(make: Any, start: dict[str, Any], now: dict[str, Any]) -> ForkEntropy:
    evidence = make(rollouts={1: start, 2: now})
    found = compare_forks(evidence.run, training_ends(evidence), 0.2)  # type: ignore[arg-type]  # there are two steps
    assert isinstance(found, ForkEntropy)
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
    found = measured(make, fork_rows(spread), fork_rows(0.4 * spread))
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
        (fork_rows([[1.0]] * 20, problems=5), "fewer than 10 problems"),
        (fork_rows([[]] * 20), "no entropies"),
    ],
)
def test_too_little_is_said_to_be_too_little(make: Any, now: dict[str, Any], said: str) -> None:
    evidence = make(rollouts={1: texts(FORK, PLAIN), 2: now})
    found = compare_forks(evidence.run, training_ends(evidence), 0.2)  # type: ignore[arg-type]  # there are two steps
    assert isinstance(found, str)
    assert said in found


def test_a_start_without_entropy_cannot_be_compared_with(make: Any) -> None:
    evidence = make(rollouts={1: texts(0.0, 0.0), 2: texts(FORK, PLAIN)})
    found = compare_forks(evidence.run, training_ends(evidence), 0.2)  # type: ignore[arg-type]  # there are two steps
    assert isinstance(found, str)
    assert "no token has any entropy" in found
