"""Forks that close while the rest stays open are found; what the mean entropy shows as well is a note."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from breadth.doctor.finding import CannotTell, Finding
from breadth.doctor.findings.fork_collapse import FINDING
from breadth.report.sections import Severity
from breadth.runs.schema import EntropyKind
from breadth.testing.findings import check_finding, check_said

NAME = "fork-collapse"


def rows(
    forks: float = 1.0, others: float = 1.0, *, length: int = 40, seed: int = 0, problems: int = 30
) -> dict[str, Any]:
    """200 rollouts in which a token in five forks, with about 1 nat, and the others have about 0.1; both times a factor."""
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
        assert found is None
        return
    assert isinstance(found, Finding)
    check_said(found, NAME)
    assert found.severity is severity
    assert found.evidence[0].value.value == pytest.approx(forks, rel=0.25)  # type: ignore[union-attr]


def test_the_mean_hides_it(make: Any) -> None:
    """Forks fall to about a third while the others double: the mean entropy keeps 0.2 * 0.35 + 0.8 * 0.22 = 0.246 of 0.28."""
    now = rows(0.35, 2.2)
    assert np.mean(now["entropy"]) / np.mean(rows(seed=99)["entropy"]) > 0.8
    found = FINDING.check(run(make, now))
    assert isinstance(found, Finding)
    assert found.evidence[0].value.high < 0.5  # type: ignore[union-attr]
    assert found.evidence[1].value.low > 1.5  # type: ignore[union-attr]
    assert "while the others kept" in found.headline
    assert found.cost == "100% of the entropy that was lost was lost at forks."


@pytest.mark.parametrize("length", [16, 160])
def test_longer_and_shorter_texts_are_no_collapse(make: Any, length: int) -> None:
    rng = np.random.default_rng(1)
    share = 8 / 40 if length < 40 else 8 / length
    is_fork = rng.random((200, length)) < share
    entropy = np.where(is_fork, rng.uniform(0.8, 1.2, is_fork.shape), rng.uniform(0.05, 0.15, is_fork.shape))
    now = {"problem": [f"p{place % 30}" for place in range(200)], "entropy": entropy.tolist()}
    assert FINDING.check(run(make, now)) is None


def test_held_out_rollouts_do_where_trained_ones_have_no_entropies(make: Any) -> None:
    plain = {"problem": ["a", "b"]}
    found = FINDING.check(make(rollouts={1: plain, 2: plain}, held_out={0: rows(seed=99), 50: rows(0.2)}))
    assert isinstance(found, Finding)
    assert "held-out" in found.evidence[0].note


def test_what_is_missing_is_said_with_what_brings_it(make: Any) -> None:
    bare = FINDING.check(make(reward=np.linspace(0, 1, 40), trainer="prime-rl"))
    assert isinstance(bare, CannotTell)
    check_said(bare, NAME)
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
