"""What is prescribed for vLLM is spelled as our sampler of vLLM spells it."""

from __future__ import annotations

import json

from breadth.adapters.vllm.dialect import VllmDialect
from breadth.adapters.vllm.settings import LOOP, SETTINGS
from breadth.bridge.doctor.finding import Change
from breadth.bridge.doctor.knobs import Knobs
from breadth.inference.halts.loop import Loop
from breadth.runtime.dialect import CHAT


def patch(*changes: Change) -> tuple[str, ...]:
    return SETTINGS.patch(changes, Knobs())


def test_a_cap_on_thinking_and_what_the_server_needs_for_it() -> None:
    request, server = patch(Change("thinking_budget", 512))
    assert json.loads(request.removeprefix("request: ")) == VllmDialect().thinking_fields(512)
    assert server == "server: --reasoning-parser <the model's>"


def test_alternatives_beyond_the_server_s_own_cap_need_a_flag() -> None:
    assert len(patch(Change("top_logprobs", 20))) == 1
    request, server = patch(Change("top_logprobs", 40))
    assert json.loads(request.removeprefix("request: ")) == VllmDialect().logprob_fields(40, CHAT)
    assert server == "server: --max-logprobs 40"


def test_one_request_for_all_of_it() -> None:
    request, server = patch(Change("votes", 8), Change("max_tokens", 2048), Change("logprobs_raw", True), Change("temperature", 0.7))
    assert json.loads(request.removeprefix("request: ")) == {"n": 8, "max_tokens": 2048, "temperature": 0.7}
    assert server == "server: --logprobs-mode raw_logprobs"


def test_the_guard_against_loops_ends_what_ours_ends() -> None:
    (request,) = patch(Change("loop_guard", True))
    assert json.loads(request.removeprefix("request: ")) == {"repetition_detection": LOOP}
    assert LOOP["min_pattern_size"] * LOOP["min_count"] == Loop().least  # 50 tokens four times
    assert patch(Change("loop_guard", False)) == ()
    assert patch(Change("clip_high", 0.28), Change("kl", 0.1)) == ()
