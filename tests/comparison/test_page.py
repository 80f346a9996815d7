"""The page of a comparison: the advice first, everything paired, what cannot be told said."""

from __future__ import annotations

from breadth.comparison.accuracy import keep_common_problems, measure_curves, read_run_policies, recommend
from breadth.comparison.page import comparison_page
from breadth.report.cells import Missing
from breadth.report.sections import Curve, Severity, Table, Verdict
from breadth.runs.reader import Run


def test_every_part_is_there_in_order(broad: Run, narrow: Run) -> None:
    found, most = keep_common_problems([*read_run_policies(narrow, "narrow"), *read_run_policies(broad, "broad")])
    measured = [measure_curves(policy, most) for policy in found]
    page = comparison_page(measured, recommend(measured))
    verdict = page.sections[0]
    assert isinstance(verdict, Verdict)
    assert verdict.severity is Severity.CANNOT_TELL
    assert (
        verdict.headline
        == "For 4 samples per question: broad, step 0 with a vote of 4, 56.2% right. It is not shown to beat narrow,"
        " step 50."
    )
    tables = {section.title: section for section in page.sections if isinstance(section, Table)}
    assert [section.title for section in page.sections if isinstance(section, Curve)] == ["pass@k", "maj@k"]
    assert tables["Difference to narrow, step 50, problem by problem"].rows[0][3].value == 0.5  # type: ignore[union-attr]
    assert isinstance(tables["Breadth"].rows[0][3], Missing)
    assert tables["Beyond the samples"].rows[0][3] == "too few samples to test"
