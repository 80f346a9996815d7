"""A check of a loop that the evidence does not tell of was not made."""

from __future__ import annotations

from typing import Any

from breadth.adapters.trl.config import SETTINGS
from breadth.doctor.catalogue import FINDINGS, INFERENCE
from breadth.doctor.diagnosis import diagnose
from breadth.doctor.evidence import Evidence
from breadth.doctor.loops import askable, loops_of
from breadth.inference.policy import Policy


def test_what_each_kind_of_evidence_tells_of(make: Any) -> None:
    assert loops_of(Evidence("x")) == set()
    assert loops_of(make(entropy=[0.5] * 9)) == {"training"}
    assert loops_of(make(entropy=[0.5] * 9, knobs=SETTINGS.knobs({"num_generations": 4}))) == {
        "training",
        "configuration",
    }
    assert loops_of(Evidence("x", policy=Policy())) == set()
    assert loops_of(Evidence("x", data=("a",))) == {"training"}


def test_findings_of_inference_are_not_asked_where_they_would_only_keep_silent(make: Any) -> None:
    for evidence in (Evidence("x"), make(entropy=[0.5] * 9), make(knobs=SETTINGS.knobs({"num_generations": 4}))):
        asked = askable(evidence, loops_of(evidence))
        assert set(FINDINGS.names()) - set(asked) == set(INFERENCE)
        assert [FINDINGS.load(name).check(evidence) for name in INFERENCE] == [None] * len(INFERENCE)
    for evidence in (Evidence("x", policy=Policy()), Evidence("x", server={})):
        assert askable(evidence, loops_of(evidence)) == list(FINDINGS.names())


def test_a_server_alone_is_asked_what_a_probe_tells_and_the_rest_is_unmeasured() -> None:
    found = diagnose(
        Evidence("x", server={"dialect": {"kind": "vllm"}, "logprobs": "raw", "thinking_cap": "yes", "top_logprobs": 5})
    )
    assert {"processed-logprobs", "max-tokens-ignored"} <= set(found.clear)
    unsure = {one.name: one.switch_on for one in found.cannot_tell}
    assert unsure["over-thinking"] == "breadth tune URL --tasks FILE --out FOLDER"
    assert not {"entropy-collapse", "wrong-units"} & {*unsure, *found.clear}
