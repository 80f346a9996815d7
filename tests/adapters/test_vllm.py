"""vLLM's dialect, by its source: the fields of the request, and how the server is recognised."""

from __future__ import annotations

import json

import pytest

from breadth.adapters.vllm import LOOP, SETTINGS, VllmDialect
from breadth.doctor.finding import Change
from breadth.doctor.trainer_config import TrainerConfig
from breadth.inference.halting import Loop
from breadth.inference.records import Sampling
from breadth.runtime.dialect import CHAT_PATH, COMPLETIONS_PATH, ServerIdentity
from breadth.runtime.sampler import SampleRequest


def patch(*changes: Change) -> tuple[str, ...]:
    return SETTINGS.patch(changes, TrainerConfig())


def test_a_cap_on_thinking_and_what_the_server_needs_for_it() -> None:
    request, server = patch(Change("thinking_budget", 512))
    assert json.loads(request.removeprefix("request: ")) == VllmDialect().thinking_fields(512)
    assert server == "server: --reasoning-parser <the model's>"


def test_alternatives_beyond_the_server_s_own_cap_need_a_flag() -> None:
    assert len(patch(Change("top_logprobs", 20))) == 1
    request, server = patch(Change("top_logprobs", 40))
    assert json.loads(request.removeprefix("request: ")) == VllmDialect().logprob_fields(40, CHAT_PATH)
    assert server == "server: --max-logprobs 40"


def test_one_request_for_all_of_it() -> None:
    request, server = patch(
        Change("votes", 8), Change("max_tokens", 2048), Change("logprobs_raw", True), Change("temperature", 0.7)
    )
    assert json.loads(request.removeprefix("request: ")) == {"n": 8, "max_tokens": 2048, "temperature": 0.7}
    assert server == "server: --logprobs-mode raw_logprobs"


def test_the_guard_against_loops_ends_what_ours_ends() -> None:
    (request,) = patch(Change("loop_guard", True))
    assert json.loads(request.removeprefix("request: ")) == {"repetition_detection": LOOP}
    assert LOOP["min_pattern_size"] * LOOP["min_count"] == Loop().least  # 50 tokens four times
    assert patch(Change("loop_guard", False)) == ()
    assert patch(Change("clip_high", 0.28), Change("kl", 0.1)) == ()


QUESTION = ({"role": "user", "content": "2+2?"},)


def test_every_field_of_a_chat_is_explicit() -> None:
    sampling = Sampling(
        temperature=0.6,
        top_p=0.9,
        top_k=20,
        min_p=0.05,
        repetition_penalty=1.1,
        max_tokens=64,
        thinking_tokens=32,
        top_logprobs=20,
    )
    path, body = VllmDialect().build_request(SampleRequest(QUESTION, sampling, model="m", seed=7))
    assert path == CHAT_PATH
    assert body == {
        "model": "m",
        "messages": [{"role": "user", "content": "2+2?"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "seed": 7,
        "temperature": 0.6,
        "top_p": 0.9,
        "top_k": 20,
        "min_p": 0.05,
        "repetition_penalty": 1.1,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "max_tokens": 64,
        "thinking_token_budget": 32,
        "logprobs": True,
        "top_logprobs": 20,
    }


def test_all_tokens_are_minus_one() -> None:
    assert VllmDialect().build_request(SampleRequest(QUESTION))[1]["top_k"] == -1


def test_a_beginning_is_a_last_message_left_open() -> None:
    _, body = VllmDialect().build_request(SampleRequest(QUESTION, prefix="It is"))
    assert body["messages"][-1] == {"role": "assistant", "content": "It is"}
    assert (body["continue_final_message"], body["add_generation_prompt"]) == (True, False)
    assert "continue_final_message" not in VllmDialect().build_request(SampleRequest(QUESTION))[1]


def test_plain_text_is_continued_as_it_stands() -> None:
    path, body = VllmDialect().build_request(SampleRequest("2+2", Sampling(top_logprobs=3), prefix=" ="))
    assert (path, body["prompt"], body["logprobs"]) == (COMPLETIONS_PATH, "2+2 =", 3)


def test_it_is_recognised_by_its_models() -> None:
    assert VllmDialect().recognises(ServerIdentity({"data": [{"id": "m", "owned_by": "vllm"}]}, {}, {}))
    assert not VllmDialect().recognises(ServerIdentity({"data": [{"id": "m", "owned_by": "sglang"}]}, {}, {}))
    assert not VllmDialect().recognises(ServerIdentity({"data": ["m"]}, {}, {}))


@pytest.mark.parametrize(
    ("told", "speculates"),
    [
        ("model='m', speculative_config=None, x", False),
        ("speculative_config=SpeculativeConfig(method='mtp')", True),
        ("model='m'", None),
    ],
)
def test_speculation_is_told_in_development_mode_only(told: str, speculates: bool | None) -> None:
    assert VllmDialect().speculates(ServerIdentity({}, {}, {"/server_info": {"vllm_config": told}})) is speculates
    assert VllmDialect().speculates(ServerIdentity({}, {}, {})) is None


def test_no_real_server_has_answered_it() -> None:
    assert not VllmDialect.tested_live


def test_nonsense_is_not_recognised() -> None:
    junk = ServerIdentity({"data": None}, {}, {"/props": [1], "/server_info": "x", "/get_server_info": 3})
    assert not VllmDialect().recognises(junk)
    assert VllmDialect().speculates(junk) is None
