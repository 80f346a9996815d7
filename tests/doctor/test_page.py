"""The page says the verdict first, proves it, words the patch, and names what it cannot tell."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from breadth.adapters.trl.config import SETTINGS as TRL
from breadth.adapters.verl.config import SETTINGS as VERL
from breadth.doctor.collect import CollectedEvidence
from breadth.doctor.diagnosis import RunDiagnosis, diagnose_run
from breadth.doctor.evidence.record import Evidence
from breadth.doctor.finding import Change, Finding, Loop, Prescription
from breadth.doctor.findings.entropy_collapse import FINDING as COLLAPSE
from breadth.doctor.findings.no_learning import FINDING as NO_LEARNING
from breadth.doctor.findings.numerical_failure import FINDING as NUMERICAL
from breadth.doctor.findings.score_collapse import FINDING as SCORE_COLLAPSE
from breadth.doctor.findings.truncation import FINDING as TRUNCATION
from breadth.doctor.page import doctor_page, lead_finding, list_unused, render_patch, to_json
from breadth.report.sections import Curve, Fact, Facts, Listing, Severity, Table, Text, Verdict
from breadth.runs.schema import Remark

T = np.linspace(0, 1, 100)
CHECKS: dict[str, Any] = {"entropy-collapse": COLLAPSE, "truncation": TRUNCATION}
WITH_SCORE: dict[str, Any] = {"score-collapse": SCORE_COLLAPSE, **CHECKS}


def test_verdict_then_picture_then_proof_then_patch(make: Any, around: Callable[..., Any]) -> None:
    config = TRL.translate({"num_iterations": 2, "beta": 0.0})
    case = make(entropy=around(0.8 * 0.03**T, 0.005), reward=around(0.5 + 0 * T, 0.01), config=config)
    page = doctor_page(
        [diagnose_run(case, CHECKS)],
        CollectedEvidence(used=("a.json: log",), unused=(Remark("is a pickle.", "/x/b.pt"),)),
    )
    verdict, entropy, reward, proof, patch, unsure = page.sections
    assert isinstance(entropy, Curve)
    assert isinstance(reward, Curve)
    assert isinstance(verdict, Verdict)
    assert verdict.severity is Severity.CRITICAL
    assert isinstance(proof, Facts)
    assert [fact.name for fact in proof.facts[:3]] == ["entropy at the start", "entropy now", "share of the start"]
    assert proof.facts[-1].note == "breadth doctor --explain entropy-collapse"
    assert isinstance(patch, Listing)
    lines = patch.text.split("\n")
    assert lines[0].startswith("# 1. Add a KL penalty to the reference policy, 0.01 to begin with.")
    assert "GRPOConfig(epsilon_high=0.28)" in lines
    assert "GRPOConfig(beta=0.01)" in lines
    assert isinstance(unsure, Facts)
    assert (unsure.title, unsure.facts[0].name) == ("What more data would show", "truncation")
    assert [fact.value for fact in page.provenance] == ["a.json: log", "b.pt is a pickle."]


def test_files_that_were_not_read_for_one_reason_are_one_line() -> None:
    unknown = [
        Remark(f"is of no kind we know; it starts with '{number}'.", f"x/{number}.json", None, "Map it.")
        for number in range(6)
    ]
    facts = list_unused([*unknown, Remark("is a pickle.", "x/a.bin", None, "Write JSON.")], 2)
    assert [(fact.value, fact.note) for fact in facts] == [
        (
            "0.json is of no kind we know; it starts with '0'. The same for 1.json, 2.json, 3.json and 2 more.",
            "Map it.",
        ),
        ("a.bin is a pickle.", "Write JSON."),
    ]
    assert [fact.value for fact in list_unused(unknown, 0)] == ["and 6 more files"]


def healthy(make: Any, around: Callable[..., Any]) -> Evidence:
    """Return a run whose score rises while its entropy stays."""
    case: Evidence = make(entropy=around(0.5 + 0 * T, 0.01), reward=around(0.3 + 0.3 * T, 0.01, 1))
    return case


def test_nothing_found_is_said_with_the_numbers_that_exclude_it(make: Any, around: Callable[..., Any]) -> None:
    page = doctor_page([diagnose_run(healthy(make, around), WITH_SCORE)], CollectedEvidence())
    verdict, *curves, more = page.sections
    assert [isinstance(curve, Curve) for curve in curves] == [True, True]
    assert isinstance(verdict, Verdict)
    assert verdict.severity is Severity.GOOD
    assert verdict.headline == "Nothing found in 2 checks."
    assert [fact.name for fact in verdict.numbers] == ["score-collapse", "entropy-collapse"]
    # What only other data would show is an invitation, no reason for doubt.
    assert isinstance(more, Facts)
    assert (more.title, more.facts[0].name) == ("What more data would show", "truncation")


def test_without_a_score_nothing_found_is_no_good_news(make: Any, around: Callable[..., Any]) -> None:
    one = diagnose_run(make(entropy=around(0.5 + 0 * T, 0.01)), WITH_SCORE)
    verdict = doctor_page([one], CollectedEvidence()).sections[0]
    assert isinstance(verdict, Verdict)
    assert verdict.severity is Severity.CANNOT_TELL
    assert verdict.body.startswith("The log holds no score")
    overview = doctor_page([one, one], CollectedEvidence()).sections[0]
    assert isinstance(overview, Table)
    assert overview.rows[0][1] == "cannot tell"


def test_a_score_of_a_few_steps_is_not_called_absent(make: Any) -> None:
    one = diagnose_run(make(reward=[0.1, 0.2, 0.3]), {"numerical-failure": NUMERICAL, **WITH_SCORE})
    verdict = doctor_page([one], CollectedEvidence()).sections[0]
    assert isinstance(verdict, Verdict)
    assert "The score was logged at 3 steps; 8 are needed" in verdict.body


def test_a_question_as_an_action_ends_with_its_own_mark(make: Any, around: Callable[..., Any]) -> None:
    flat = make(reward=around(0.5 + 0 * T, 0.01), entropy=around(0.5 + 0 * T, 0.01))
    page = doctor_page([diagnose_run(flat, {"no-learning": NO_LEARNING})], CollectedEvidence())
    (patch,) = [section for section in page.sections if isinstance(section, Listing)]
    assert "do the texts end? Most runs" in " ".join(patch.text.replace("#", "").split())


def test_an_undecided_check_of_what_matters_is_a_doubt(make: Any, around: Callable[..., Any]) -> None:
    # 9 % are cut or 11 %: the level that warns, 10 %, lies within the noise of the last eighth.
    odd = np.where(np.arange(100) % 2 == 0, 0.0, 0.21)
    case = make(entropy=around(0.5 + 0 * T, 0.01), reward=around(0.3 + 0.3 * T, 0.01, 1), truncated=odd)
    diagnosis = diagnose_run(case, WITH_SCORE)
    assert [check.name for check in diagnosis.inconclusive_checks] == ["truncation"]
    assert not diagnosis.is_good
    verdict = doctor_page([diagnosis], CollectedEvidence()).sections[0]
    assert isinstance(verdict, Verdict)
    assert verdict.severity is Severity.CANNOT_TELL
    assert verdict.body.startswith("truncation: ")
    assert verdict.body.endswith("Excluded: score-collapse, entropy-collapse.")


def test_a_short_page_leaves_out_and_says_so(make: Any, around: Callable[..., Any]) -> None:
    score = np.where(T < 0.7, 0.6, 0.1)
    case = make(entropy=around(0.8 * 0.03**T, 0.005), reward=around(score, 0.01), config=TRL.translate({"beta": 0.0}))
    diagnosis = diagnose_run(case, WITH_SCORE)
    full, short = (doctor_page([diagnosis], CollectedEvidence(), full=full).sections for full in (True, False))
    assert len(short) < len(full)
    verdict, picture, proof, patch, others, rest = short
    assert isinstance(verdict, Verdict)
    assert isinstance(picture, Curve)
    assert isinstance(proof, Facts)
    assert isinstance(patch, Listing)
    assert isinstance(others, Facts)
    assert others.title == "Also found"
    assert isinstance(rest, Text)
    assert rest.text.endswith("Every number, patch and missing piece: --full.")


def test_a_run_that_tells_nothing_is_not_called_healthy(make: Any) -> None:
    page = doctor_page([diagnose_run(make(odd=T), CHECKS)], CollectedEvidence())
    assert isinstance(page.sections[0], Verdict)
    assert page.sections[0].severity is Severity.CANNOT_TELL


def test_several_runs_begin_with_a_table(make: Any, around: Callable[..., Any]) -> None:
    bad, good = make(entropy=around(0.8 * 0.03**T, 0.005)), healthy(make, around)
    page = doctor_page([diagnose_run(bad, WITH_SCORE), diagnose_run(good, WITH_SCORE)], CollectedEvidence())
    assert isinstance(page.sections[0], Table)
    assert [row[1:] for row in page.sections[0].rows] == [("critical", "entropy-collapse"), ("nothing found", "-")]


def said(name: str, severity: Severity, explained_by: tuple[str, ...] = ()) -> Finding:
    return Finding(
        name, severity, "strong", "training", f"{name} 1.", (Fact("x", 1.0),), "Nothing.", explained_by=explained_by
    )


def test_the_root_leads_and_not_what_it_explains() -> None:
    effect, root, note = (
        said("effect", Severity.CRITICAL, ("root",)),
        said("root", Severity.WARNING),
        said("small", Severity.NOTE),
    )
    assert lead_finding([effect, root, note]) is root
    assert lead_finding([effect]) is effect
    page = doctor_page([RunDiagnosis(Evidence("x"), (effect, root, note), (), ())], CollectedEvidence())
    assert isinstance(page.sections[0], Verdict)
    assert page.sections[0].headline == "root 1."
    assert page.sections[0].body == "Finding: root. Also found: effect (critical), small (note)."


def test_the_documented_keys(make: Any) -> None:
    case = make(
        entropy=0.8 * 0.03 ** np.linspace(0, 1, 60),
        config=VERL.translate({"data.train_batch_size": 64}),
        trainer="verl",
    )
    found = to_json(
        [diagnose_run(case, {"entropy-collapse": COLLAPSE, "truncation": TRUNCATION})], CollectedEvidence(used=("x",))
    )
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert list(found) == ["schema", "findings", "cannot_tell", "checked", "excluded", "used", "unused"]
    (finding,) = found["findings"]
    assert {"name", "severity", "confidence", "loop", "evidence", "prescriptions"} <= finding.keys()
    assert finding["evidence"][2]["value"]["high"] < 0.2
    patches = [line for one in finding["prescriptions"] for line in one["patch"]]
    assert "actor_rollout_ref.actor.clip_ratio_high=0.28" in patches
    assert found["cannot_tell"][0].keys() == {"run", "name", "missing", "switch_on", "undecided"}
    assert found["checked"] == [{"run": "made", "names": ["entropy-collapse"]}]


def finding(loop: Loop) -> Finding:
    return Finding("x", Severity.NOTE, "strong", loop, "1.", (), "")


def test_by_loop() -> None:
    raised = Prescription("Raise it.", "Why.", (Change("clip_high", 0.28),))
    capped = Prescription("Cap it.", "Why.", (Change("thinking_budget", 512),))
    case = Evidence("x", dialect=TRL, server={"dialect": {"kind": "vllm"}})
    assert render_patch(raised, finding("training"), case) == ("GRPOConfig(epsilon_high=0.28)",)
    lines = render_patch(capped, finding("inference"), case)
    assert lines[:2] == ("[sampling]", "thinking_tokens = 512")
    assert any("thinking_token_budget" in line for line in lines[2:])
    assert render_patch(raised, finding("training"), Evidence("x")) == ()


def test_what_was_not_logged_is_shown_by_what_stood_in_for_it(make: Any) -> None:
    capped = make(length=np.r_[np.linspace(300, 512, 20), np.full(40, 512.0)], accuracy=np.linspace(0.2, 0.6, 60))
    sections = doctor_page([diagnose_run(capped)], CollectedEvidence(), full=False).sections
    assert [section.title for section in sections if isinstance(section, Curve)] == ["Mean length"]
    falls = make(accuracy=np.r_[np.linspace(0.2, 0.8, 40), np.full(20, 0.1)])
    sections = doctor_page([diagnose_run(falls)], CollectedEvidence(), full=False).sections
    assert [section.title for section in sections if isinstance(section, Curve)] == ["Accuracy"]
