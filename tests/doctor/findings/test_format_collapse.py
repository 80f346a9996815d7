"""One format that takes over from several is found, and only weighs where something was lost with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from breadth.doctor.finding import CannotTell, Excluded, Finding
from breadth.doctor.findings.format_collapse import FINDING, format_shift
from breadth.measure.response_style import surface_format
from breadth.report.sections import Severity
from breadth.testing.findings import check_finding, check_outcome

NAME = "format-collapse"
TEXTS = {
    "prose": (
        "We add the two numbers and then take away what was given to the neighbours before noon, which leaves the rest."
    ),
    "numbered": "1. Add the numbers.\n2. Take away the rest.\n3. State it.",
    "code": "```python\nprint(3 + 4)\n```",
    "bullets": "- add them all up\n- take some away again",
}


def rows(shares: dict[str, int], right: float | None = None) -> dict[str, Any]:
    """So many texts of each format, in a fixed mixed order; of every group of four so many are right."""
    kinds = (
        np.random.default_rng(0).permutation([kind for kind, count in shares.items() for _ in range(count)]).tolist()
    )
    found: dict[str, Any] = {
        "problem": [f"p{place // 4}" for place in range(len(kinds))],
        "sample": list(range(len(kinds))),
        "completion": [TEXTS[kind] for kind in kinds],
    }
    if right is not None:
        found["correct"] = [place // 4 < right * len(kinds) / 4 and place % 4 == 0 for place in range(len(kinds))]
    return found


SEVERAL = {"prose": 80, "numbered": 70, "code": 50}


def run(make: Any, start: dict[str, int], now: dict[str, int], **given: Any) -> Any:
    return make(rollouts={1: rows(start), 2: rows(now)}, **given)


def test_the_texts_are_what_they_are_called() -> None:
    assert {kind: surface_format(text) for kind, text in TEXTS.items()} == {kind: kind for kind in TEXTS}


def test_it_keeps_the_contract() -> None:
    check_finding(FINDING, NAME)


@pytest.mark.parametrize(
    ("start", "now", "found"),
    [
        (SEVERAL, {"prose": 196, "code": 4}, True),
        (SEVERAL, {"prose": 200}, True),
        (SEVERAL, {"prose": 180, "code": 20}, False),
        (SEVERAL, SEVERAL, False),
        ({"prose": 190, "code": 10}, {"prose": 200}, False),
        ({"prose": 200}, {"prose": 200}, False),
        ({"prose": 200}, SEVERAL, False),
    ],
    ids=["taken over", "all", "not surely", "several", "was one nearly", "was one", "more"],
)
def test_one_must_surely_have_taken_over_from_several(
    make: Any, start: dict[str, int], now: dict[str, int], found: bool
) -> None:
    outcome = FINDING.check(run(make, start, now))
    if not found:
        assert isinstance(outcome, Excluded)
        return
    assert isinstance(outcome, Finding)
    check_outcome(outcome, NAME)
    assert outcome.severity is Severity.NOTE
    # exp(-(0.4 ln 0.4 + 0.35 ln 0.35 + 0.25 ln 0.25)) = 2.946234 effective formats.
    assert outcome.evidence[0].value.value == pytest.approx(2.946234)  # type: ignore[union-attr]
    assert outcome.evidence[1].value.value == pytest.approx(0.4)  # type: ignore[union-attr]
    assert "written as prose now, out of 2.9 formats at the start" in outcome.headline


def test_it_weighs_where_coverage_or_the_reward_fell_with_it(make: Any, around: Callable[..., Any]) -> None:
    one = {"prose": 200}
    lost = FINDING.check(make(rollouts={1: rows(SEVERAL, 0.9), 2: rows(one, 0.4)}))
    assert isinstance(lost, Finding)
    assert lost.severity is Severity.WARNING
    # 45 of 50 groups had a right rollout, now 20 have.
    assert "pass@4 has fallen by 0.5" in lost.headline
    gained = FINDING.check(make(rollouts={1: rows(SEVERAL, 0.4), 2: rows(one, 0.9)}))
    assert isinstance(gained, Finding)
    assert gained.severity is Severity.NOTE
    falling = FINDING.check(run(make, SEVERAL, one, reward=around(np.linspace(0.6, 0.2, 80), 0.01)))
    assert isinstance(falling, Finding)
    assert falling.severity is Severity.WARNING
    assert "the reward has fallen" in falling.headline


def test_the_shift_names_the_leading_format(make: Any) -> None:
    found = format_shift(run(make, SEVERAL, {"numbered": 150, "bullets": 50}))
    assert found is not None
    assert found.leading == "numbered"
    assert found.share.change.value == pytest.approx(0.75 - 0.35)
    assert found.texts == (200, 200)


def test_what_is_missing_is_said(make: Any) -> None:
    bare = FINDING.check(make(reward=np.linspace(0, 1, 40), trainer="verl"))
    assert isinstance(bare, CannotTell)
    assert bare.switch_on.startswith("trainer.rollout_data_dir=DIR")
    few = FINDING.check(run(make, {"prose": 8, "code": 8}, {"prose": 16}))
    assert isinstance(few, CannotTell)
    assert "4 problems" in few.missing
