"""The diagnosis: worst first, causes named, unreliable verdicts withdrawn, no crash on what a measure refuses."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

from breadth.adapters.trl.config import SETTINGS
from breadth.base.errors import MeasureError
from breadth.doctor.diagnosis import applicable, causes_of, diagnose_run, has_evidence, loops_of, run_check
from breadth.doctor.evidence.record import Evidence
from breadth.doctor.finding import FINDINGS, INFERENCE_FINDINGS, CannotTell, CheckResult, Excluded, Finding, Loop, Need
from breadth.inference.policy import Policy
from breadth.report.sections import Fact, Severity


@dataclass(frozen=True)
class Says:
    """Says what it is told to."""

    outcome: CheckResult
    causes: ClassVar[tuple[str, ...]] = ("cause", "absent")
    loop: ClassVar[Loop] = "training"

    def check(self, evidence: Evidence) -> CheckResult:
        return self.outcome


@dataclass(frozen=True)
class Breaks(Says):
    """Meets numbers that an instrument refuses."""

    def check(self, evidence: Evidence) -> CheckResult:
        raise MeasureError("Seven is too few.", "Give eight.")


def finding(name: str, severity: Severity, voids: tuple[str, ...] = ()) -> Finding:
    return Finding(name, severity, "strong", "training", f"{name} 1.", (Fact("x", 1.0),), "Nothing.", invalidates=voids)


def test_worst_first_with_causes_that_were_found() -> None:
    checks = {
        name: Says(finding(name, severity))
        for name, severity in (("mild", Severity.NOTE), ("bad", Severity.CRITICAL), ("cause", Severity.WARNING))
    }
    found = diagnose_run(Evidence("x"), checks)
    assert [one.name for one in found.findings] == ["bad", "cause", "mild"]
    assert found.findings[0].explained_by == ("cause",)
    assert found.conclusive_checks == ("bad", "cause", "mild")


def test_what_reads_a_number_that_must_not_be_believed_is_taken_back() -> None:
    checks = {
        "fall": Says(finding("fall", Severity.CRITICAL)),
        "artefact": Says(finding("artefact", Severity.WARNING, ("fall", "other"))),
    }
    found = diagnose_run(Evidence("x"), checks)
    assert [one.name for one in found.findings] == ["artefact"]
    assert found.cannot_tell == (CannotTell("fall", "it reads numbers that are not reliable: see artefact"),)


def test_what_an_instrument_refuses_is_a_reason_not_to_tell() -> None:
    found = diagnose_run(
        Evidence("x", data=("of training",)), {"odd": Breaks(None), "fine": Says(Excluded("fine", "it is 1"))}
    )
    assert found.cannot_tell == (CannotTell("odd", "Seven is too few.", "Give eight."),)
    assert found.clear == ("fine",)


def test_a_check_is_not_called_without_what_it_needs(make: Any) -> None:
    needs = {name: check.needs for name, check in FINDINGS if hasattr(check, "needs")}
    bare = make(reward=np.linspace(0, 1, 40))
    assert {run_check(name, FINDINGS.load(name), bare).missing for name in needs} == {  # type: ignore[union-attr]
        "rollouts were not recorded",
        "no sample of the training data was given",
        "the run's settings are not known",
    }
    assert {run_check(name, FINDINGS.load(name), Evidence("nothing")) for name in needs} == {None}

    class Broken(Says):
        needs: ClassVar[tuple[Need, ...]] = ("rollouts",)

        def check(self, evidence: Evidence) -> CheckResult:
            raise AssertionError("called without rollouts")

    found = run_check("broken", Broken(None), bare)
    assert isinstance(found, CannotTell)
    assert (found.name, found.missing) == ("broken", "rollouts were not recorded")
    with pytest.raises(AssertionError, match="called"):
        run_check("broken", Broken(None), make(rollouts={1: {"reward": [1.0], "problem": ["a"]}}))


def test_settings_of_a_policy_or_a_server_are_settings_too() -> None:
    assert has_evidence(Evidence("policy", policy=Policy()), "settings")
    assert has_evidence(Evidence("server", server={"kind": "vllm"}), "settings")
    assert has_evidence(Evidence("config", config=SETTINGS.translate({"num_generations": 4})), "settings")
    assert not has_evidence(Evidence("nothing"), "settings")


def test_every_finding_of_the_catalogue_survives_nothing_at_all() -> None:
    found = diagnose_run(Evidence("nothing"))
    assert (found.findings, found.clear, found.cannot_tell) == ((), (), ())


def test_what_tells_of_no_loop_is_neither_clear_nor_unsure() -> None:
    checks = {
        "unsure": Says(CannotTell("unsure", "a log")),
        "clear": Says(Excluded("clear", "it is 1")),
        "absent": Says(None),
    }
    assert diagnose_run(Evidence("x"), checks).cannot_tell == ()
    found = diagnose_run(Evidence("x", data=("of training",)), checks)
    assert (found.cannot_tell, found.clear) == ((CannotTell("unsure", "a log"),), ("clear",))


def test_a_whole_diagnosis_is_made_of_what_the_run_shows(make: Any) -> None:
    steps = np.linspace(0, 1, 80)
    found = diagnose_run(
        make(
            entropy=0.6 * 0.02**steps,
            reward=0.4 + 1e-3 * (-1.0) ** np.arange(80),
            zero_variance_groups=0.2 + 0.75 * steps,
        )
    )
    names = [one.name for one in found.findings]
    assert names[:2] == ["entropy-collapse", "zero-variance-groups"]
    starved = next(one for one in found.findings if one.name == "zero-variance-groups")
    assert "entropy-collapse" in starved.explained_by


def test_what_each_kind_of_evidence_tells_of(make: Any) -> None:
    assert loops_of(Evidence("x")) == set()
    assert loops_of(make(entropy=[0.5] * 9)) == {"training"}
    assert loops_of(make(entropy=[0.5] * 9, config=SETTINGS.translate({"num_generations": 4}))) == {
        "training",
        "configuration",
    }
    assert loops_of(Evidence("x", policy=Policy())) == set()
    assert loops_of(Evidence("x", data=("a",))) == {"training"}


def test_findings_of_inference_are_not_asked_where_they_would_only_keep_silent(make: Any) -> None:
    for evidence in (Evidence("x"), make(entropy=[0.5] * 9), make(config=SETTINGS.translate({"num_generations": 4}))):
        asked = applicable(evidence, loops_of(evidence))
        assert set(FINDINGS.names()) - set(asked) == set(INFERENCE_FINDINGS)
        assert [FINDINGS.load(name).check(evidence) for name in INFERENCE_FINDINGS] == [None] * len(INFERENCE_FINDINGS)
    for evidence in (Evidence("x", policy=Policy()), Evidence("x", server={})):
        assert applicable(evidence, loops_of(evidence)) == list(FINDINGS.names())


def test_a_server_alone_is_asked_what_a_probe_tells_and_the_rest_is_unmeasured() -> None:
    found = diagnose_run(
        Evidence("x", server={"dialect": {"kind": "vllm"}, "logprobs": "raw", "thinking_cap": "yes", "top_logprobs": 5})
    )
    assert {"processed-logprobs", "max-tokens-ignored"} <= set(found.clear)
    unsure = {one.name: one.switch_on for one in found.cannot_tell}
    assert unsure["over-thinking"] == "breadth tune URL --tasks FILE --out FOLDER"
    assert not {"entropy-collapse", "wrong-units"} & {*unsure, *found.clear}


def test_no_finding_of_the_catalogue_comes_from_itself() -> None:
    checks = {name: FINDINGS.load(name) for name in FINDINGS.names()}
    assert {cause for check in checks.values() for cause in check.causes} <= set(checks)
    kept: dict[str, Any] = dict.fromkeys(checks)
    causes = {name: causes_of(name, checks, kept, list(checks)) for name in checks}
    rest = set(causes)
    while free := {name for name in rest if not rest & set(causes[name])}:
        rest -= free
    assert not rest, f"each of these comes from another of them: {sorted(rest)}"


def test_of_three_in_a_ring_the_first_check_is_the_root() -> None:
    checks: dict[str, Any] = {
        name: SimpleNamespace(causes=(cause,)) for name, cause in (("first", "third"), ("second", "first"))
    }
    checks["third"] = SimpleNamespace(causes=("second",))
    kept: dict[str, Any] = dict.fromkeys(checks)
    found = {name: causes_of(name, checks, kept, list(checks)) for name in checks}
    assert found == {"first": (), "second": ("first",), "third": ("second",)}
    del kept["second"]
    assert causes_of("first", checks, kept, list(checks)) == ("third",)
