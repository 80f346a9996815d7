"""What is prescribed for SGLang is spelled as our sampler of SGLang spells it; what it cannot do is left out."""

from __future__ import annotations

import json

from breadth.adapters.sglang.dialect import SglangDialect
from breadth.adapters.sglang.settings import SETTINGS
from breadth.bridge.doctor.finding import Change
from breadth.bridge.doctor.knobs import Knobs


def test_request_and_flags() -> None:
    request, server = SETTINGS.patch([Change("thinking_budget", 512), Change("votes", 4), Change("logprobs_raw", True)], Knobs())
    assert json.loads(request.removeprefix("request: ")) == {**SglangDialect().thinking_fields(512), "n": 4}
    assert "--enable-strict-thinking" in server
    assert "SGLANG_RETURN_ORIGINAL_LOGPROB=1" in server


def test_it_has_no_guard_against_loops() -> None:
    assert SETTINGS.patch([Change("loop_guard", True)], Knobs()) == ()
