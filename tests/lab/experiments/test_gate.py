"""The gate: a base that fails it, checks by hand, and what training makes of a base."""

from __future__ import annotations

from pathlib import Path

import pytest

from breadth.base.errors import BrokenFileError, SettingsError
from breadth.lab.experiments.gate import Gate, GateCheck, GateResult, gate_page, run_gate
from breadth.lab.reasoner import Reasoner, save_reasoner
from breadth.measure.intervals import Interval
from breadth.measure.paired_tests import hump_test
from breadth.report.jsonable import render_json
from breadth.report.sections import Severity, Table, Verdict

GATE = Gate(problems=6, samples=8, forced_samples=2)


def by_name(passage: GateResult) -> dict[str, GateCheck]:
    return {check.quantity: check for check in passage.checks}


def test_a_base_of_one_problem_is_measured_and_told_what_it_lacks(memorised: Reasoner, tmp_path: Path) -> None:
    course = tmp_path / "course"
    for place in ("policy", "stages/2"):
        save_reasoner(memorised, course / place)
    told: list[str] = []
    passage = run_gate(memorised, GATE, course, told.append)
    checks = by_name(passage)
    assert checks["rarer format's share"].is_met is False  # it was taught one format only
    lost = checks["pass@8 after plain training minus before"]
    assert isinstance(lost.value, Interval)
    assert (lost.value.value, lost.is_met) == (0.0, False)  # the policy is the base itself, drawn alike
    assert "at least 0 thinking tokens" in told
    assert "the policy of step 2" in told
    assert passage.hump.budgets[0] == 0
    assert passage.hump.budgets[-1] == pytest.approx(8 * passage.natural, abs=1)
    assert not passage.is_met
    verdict, table, _ = gate_page(passage, GATE, "breadth lab gate").sections
    assert isinstance(verdict, Verdict)
    assert verdict.severity is Severity.WARNING
    assert "rarer format's share" in verdict.headline
    assert isinstance(table, Table)
    assert len(table.rows) == len(passage.checks) == 7
    assert render_json(gate_page(passage, GATE, "breadth lab gate"))


def test_all_met_is_good() -> None:
    hump = hump_test([0, 1], [[1, 0]] * 30)
    passage = GateResult((GateCheck("pass@1", "0.1 to 0.4", 0.2, True),), hump, 20.0)
    assert passage.is_met
    (verdict, *_) = gate_page(passage, Gate(), "breadth lab gate").sections
    assert isinstance(verdict, Verdict)
    assert (verdict.severity, verdict.headline) == (Severity.GOOD, "All 1 conditions are met.")


def test_a_folder_without_a_policy_is_refused(memorised: Reasoner, tmp_path: Path) -> None:
    with pytest.raises(BrokenFileError, match="no trained policy"):
        run_gate(memorised, GATE, tmp_path)


def test_too_few_replies_for_a_vote_are_refused() -> None:
    with pytest.raises(SettingsError, match="samples"):
        Gate(samples=4)
