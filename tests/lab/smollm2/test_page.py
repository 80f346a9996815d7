"""The page of made-up results: what shows is said to show, what does not is said not to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from breadth.lab.evaluation.evaluate import PolicyEval, ScoresAtK
from breadth.lab.evaluation.extended_vs_parallel import ExtendedVsParallel, FinalAnswers
from breadth.lab.evaluation.training_log import TrainingLog
from breadth.lab.smollm2.evaluation import UNKNOWN_ENTROPY, SmolLM2Arm, SumsEval
from breadth.lab.smollm2.experiment import SmolLM2Plan
from breadth.lab.smollm2.page import SmolLM2Results, smollm2_page
from breadth.lab.trials.experiment import ExperimentSetup
from breadth.measure.intervals import Interval
from breadth.report.sections import Page, Severity, Table, Verdict

PLAN = SmolLM2Plan(samples=8, votes=4, problems=16, compared_problems=16)


def rates(share: float) -> tuple[float, ...]:
    """Sixteen problems, of which a share is solved always and the others never."""
    return tuple(float(place < 16 * share) for place in range(16))


def breadth(passed: float, covered: float, entropy: float) -> SumsEval:
    known = Interval(entropy, entropy - 0.1, entropy + 0.1)
    curve = tuple(ScoresAtK(k, rates(rate), rates(rate)) for k, rate in ((1, passed), (4, passed), (8, covered)))
    measured = PolicyEval(
        8, curve, known, UNKNOWN_ENTROPY, UNKNOWN_ENTROPY, known, Interval(11.0, 10.0, 12.0), 1.0, {}, "1+2+3=", ()
    )
    return SumsEval(measured, Interval(3.0, 2.0, 4.0), 0.125)


def arm(found: SumsEval, extended: float, parallel: float) -> SmolLM2Arm:
    def replies(share: float, tokens: int) -> FinalAnswers:
        right = tuple((bool(one),) for one in rates(share))
        return FinalAnswers(
            tuple(("1",) if one[0] else ("",) for one in right), right, ((tokens,),) * 16, ((100,),) * 16
        )

    log = TrainingLog((1, 2), (0.25, 0.75), (1.0, 0.5), (0.5, 0.0), (0.0, 1.0))
    return SmolLM2Arm(found, ExtendedVsParallel(96, replies(extended, 100), replies(parallel, 40)), log)


def made(plain: Sequence[SmolLM2Arm], protected: Sequence[SmolLM2Arm], base: SumsEval | None) -> Page:
    return smollm2_page(
        SmolLM2Results(PLAN, ExperimentSetup(len(plain) or 1, weights="abc"), base, plain, protected, 12.34),
        "What it tests.",
    )


def verdicts(page: Page) -> list[Verdict]:
    return [one for one in page.sections if isinstance(one, Verdict)]


def table(page: Page, title: str) -> Table:
    return next(one for one in page.sections if isinstance(one, Table) and one.title.startswith(title))


@pytest.fixture(scope="module")
def shown() -> Page:
    """Everything shows: plain loses half of the coverage, a vote is right on twelve problems, long thought on four."""
    plain, protected = arm(breadth(0.75, 0.5, 0.4), 0.25, 0.75), arm(breadth(0.75, 1.0, 0.9), 0.25, 1.0)
    return made([plain], [protected], breadth(0.25, 1.0, 1.0))


def test_what_shows_is_said(shown: Page) -> None:
    corners, narrowing = verdicts(shown)
    assert corners.headline.startswith("Each remedy pays")
    assert "another seed may differ" in corners.body
    # 0.4 of 1.0 nats; pass@1 from 4 to 12 of 16, pass@8 from 16 to 8.
    assert narrowing.severity is Severity.WARNING
    assert (
        narrowing.headline
        == "On held-out sums plain GRPO leaves 40% of the base's entropy; pass@1 rises, pass@8 falls."
    )
    assert [fact.value.value for fact in narrowing.numbers if isinstance(fact.value, Interval)] == [0.5, -0.5]


def test_the_tables_by_hand(shown: Page) -> None:
    first = table(shown, "The four corners").rows
    assert [[cell.value for cell in row[1:] if isinstance(cell, Interval)] for row in first] == [
        [0.25, 0.75],
        [0.25, 1.0],
    ]
    policies = table(shown, "The policies")
    assert [row[0] for row in policies.rows] == ["base", "plain GRPO", "protected"]
    assert [cell.value for cell in policies.rows[1][1:5] if isinstance(cell, Interval)] == [0.75, 0.75, 0.5, 0.4]
    assert policies.rows[1][7] == 0.125
    spent = table(shown, "What each corner spends")
    assert spent.rows[1][1:] == (40.0, 0.6, 0.25)  # 40 of 100 tokens; four of sixteen without an answer
    went = table(shown, "How training went")
    assert went.rows[0] == ("plain GRPO: right", 0.5, 0.5)  # both windows hold both generations
    claims = {row[0]: row[2] for row in table(shown, "What should show").rows}
    assert claims["plain training lowers pass@8"] == "shows"
    assert claims["pass@1 of protected is above plain's"] == "does not show"


def test_what_does_not_show_is_said_not_to() -> None:
    same = breadth(0.5, 0.5, 1.0)
    corners, narrowing = verdicts(made([arm(same, 0.5, 0.5)], [arm(same, 0.5, 0.5)], same))
    assert corners.headline.startswith("This run shows neither")
    assert narrowing.severity is Severity.NOTE
    assert "no significant change in pass@1, no significant change in pass@8" in narrowing.headline


def test_several_seeds_have_intervals_over_seeds() -> None:
    plain = [arm(breadth(share, 0.5, 0.4), 0.25, 0.75) for share in (0.5, 0.75)]
    page = made(plain, [replace(one) for one in plain], breadth(0.25, 1.0, 1.0))
    cell = table(page, "The policies").rows[1][1]
    assert isinstance(cell, Interval)
    assert (cell.value, cell.method) == (0.625, "Student's t over 2 seeds")
    assert "seeds of training" in table(page, "The policies").note


def test_while_nothing_can_be_compared() -> None:
    page = made([], [], breadth(0.25, 1.0, 1.0))
    assert verdicts(page)[0].severity is Severity.CANNOT_TELL
    assert table(page, "The base").rows[0][0] == "base"
    assert len(made([], [], None).sections) == 1


def test_without_the_base_the_corners_stand() -> None:
    one = arm(breadth(0.5, 0.5, 1.0), 0.5, 0.5)
    page = made([one], [one], None)
    assert len(verdicts(page)) == 1
    assert [row[0] for row in table(page, "The policies").rows] == ["plain GRPO", "protected"]
