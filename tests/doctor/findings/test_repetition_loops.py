"""Loops are counted by the rule that breadth's own guard cuts by."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from breadth.doctor.finding import CannotTell, Change, Excluded, Finding
from breadth.doctor.findings.repetition_loops import FINDING
from breadth.inference.halting import Loop
from breadth.inference.policy import Policy
from breadth.inference.records import Sampling
from breadth.inference.strategies.budget_forcing import BudgetForcing
from breadth.inference.strategies.vote import Vote
from breadth.report.sections import Severity
from breadth.testing.findings import check_finding, check_outcome

TABLE = np.zeros((60, 8), dtype=np.int64)
FINE = "First add the two. The answer is 0."
LOOPED = "Let us see. " + "So we try the next one again. " * 60


def texts(looping: int, shape: tuple[int, int] = (60, 8), looped: str = LOOPED) -> list[str]:
    """Texts of which the first so many of each question end in a loop."""
    return [looped if place < looping else FINE for _ in range(shape[0]) for place in range(shape[1])]


def test_it_keeps_the_contract() -> None:
    check_finding(FINDING, "repetition-loops")
    assert 1 - (1 - FINDING.few) ** 8 == pytest.approx(1 / 13, abs=0.001)


def test_loops_in_plain_draws_are_a_warning(swept: Any) -> None:
    found = FINDING.check(swept(TABLE, texts={0: texts(1)}))
    assert isinstance(found, Finding)
    check_outcome(found, "repetition-loops")
    assert found.severity is Severity.WARNING
    # One of eight on every question: 12.5 %, which rounds to 12; the same share of the tokens, for all texts count 100.
    assert found.headline == "12% of the completions (as it comes) end in a loop."
    assert found.evidence[0].value.value == pytest.approx(1 / 8)  # type: ignore[union-attr]
    # Without spread the lower end is 0.005^(1/60) of it.
    assert found.evidence[0].value.low == pytest.approx(0.005 ** (1 / 60) / 8)  # type: ignore[union-attr]
    assert found.prescriptions[0].changes == (Change("loop_guard", True),)


def test_a_few_are_a_note_and_hardly_any_none(swept: Any) -> None:
    some = [
        LOOPED if number in range(0, 160, 8) else FINE for number in range(480)
    ]  # one text on 20 of 60 questions: 4.2 %
    found = FINDING.check(swept(TABLE, texts={0: some}))
    assert isinstance(found, Finding)
    assert found.severity is Severity.NOTE
    rare = [LOOPED if number in (0, 100) else FINE for number in range(480)]
    assert isinstance(FINDING.check(swept(TABLE, texts={0: rare})), Excluded)


@pytest.mark.parametrize("honest", ["| 0 | 0 | 0 |\n" * 15 + "The answer is 0.", "-" * 60, FINE, "0 " * 90])
def test_short_repetition_is_no_loop(swept: Any, honest: str) -> None:
    assert isinstance(FINDING.check(swept(TABLE, texts={0: [honest] * 480})), Excluded)


def test_forced_thinking_that_loops_is_a_note_unless_in_use(swept: Any) -> None:
    forced, written = {256: TABLE[:, :2]}, {0: texts(0), 256: texts(1, (60, 2))}
    idle = FINDING.check(swept(TABLE, forced, texts=written))
    assert isinstance(idle, Finding)
    assert (idle.severity, "think 256" in idle.headline) == (Severity.NOTE, True)
    used = FINDING.check(
        swept(TABLE, forced, texts=written, policy=Policy(strategy=BudgetForcing(cues=0, minimum=256, maximum=256)))
    )
    assert isinstance(used, Finding)
    assert (used.severity, "think 256" in used.headline) == (Severity.WARNING, True)


def test_what_is_there_already_is_not_prescribed(recorded: Any) -> None:
    guarded = Policy(strategy=Vote(8), halt=Loop(), sampling=Sampling(temperature=0.2))
    found = FINDING.check(recorded(TABLE, guarded, texts=texts(2)))
    assert isinstance(found, Finding)
    assert "recorded samples" in found.headline
    assert [one.changes for one in found.prescriptions] == [(Change("temperature", 0.6),)]


def test_hostile_text_is_not_repeated(swept: Any) -> None:
    hostile = "\x1b[31m<script>alert(1)</script> " * 80
    found = FINDING.check(swept(TABLE, texts={0: texts(8, looped=hostile)}))
    assert isinstance(found, Finding)
    assert "script" not in found.headline + "".join(str(fact) for fact in found.evidence)


def test_without_texts_it_cannot_tell(swept: Any) -> None:
    found = FINDING.check(swept(TABLE, texts={0: [""] * 480}))
    assert isinstance(found, CannotTell)
    check_outcome(found, "repetition-loops")
