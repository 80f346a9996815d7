"""SGLang's dialect, by its source: the fields of the request, and how the server is recognised."""

from __future__ import annotations

import json

import pytest

from breadth.adapters.sglang import SETTINGS, SglangDialect
from breadth.doctor.finding import Change
from breadth.doctor.trainer_config import TrainerConfig
from breadth.inference.records import Sampling
from breadth.runtime.dialect import CHAT_PATH, COMPLETIONS_PATH, ServerIdentity
from breadth.runtime.sampler import SampleRequest


def test_request_and_flags() -> None:
    request, server = SETTINGS.patch(
        [Change("thinking_budget", 512), Change("votes", 4), Change("logprobs_raw", True)], TrainerConfig()
    )
    assert json.loads(request.removeprefix("request: ")) == {**SglangDialect().thinking_fields(512), "n": 4}
    assert "--enable-strict-thinking" in server
    assert "SGLANG_RETURN_ORIGINAL_LOGPROB=1" in server


def test_it_has_no_guard_against_loops() -> None:
    assert SETTINGS.patch([Change("loop_guard", True)], TrainerConfig()) == ()


QUESTION = ({"role": "user", "content": "2+2?"},)


def test_every_field_of_a_chat_is_explicit() -> None:
    sampling = Sampling(temperature=0.6, top_p=0.9, max_tokens=64, thinking_tokens=32, stop=("END",))
    path, body = SglangDialect().build_request(SampleRequest(QUESTION, sampling, model="m", seed=7))
    assert path == CHAT_PATH
    assert body == {
        "model": "m",
        "messages": [{"role": "user", "content": "2+2?"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "seed": 7,
        "temperature": 0.6,
        "top_p": 0.9,
        "top_k": -1,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "max_tokens": 64,
        "stop": ["END"],
        "custom_params": {"thinking_budget": 32},
    }


def test_a_beginning_is_a_last_message_left_open() -> None:
    _, body = SglangDialect().build_request(SampleRequest(QUESTION, prefix="It is"))
    assert body["messages"][-1] == {"role": "assistant", "content": "It is"}
    assert body["continue_final_message"] is True


def test_plain_text_is_continued_as_it_stands() -> None:
    path, body = SglangDialect().build_request(SampleRequest("2+2", Sampling(top_k=5), prefix=" ="))
    assert (path, body["prompt"], body["top_k"]) == (COMPLETIONS_PATH, "2+2 =", 5)


def test_it_is_recognised_by_its_models_or_its_settings() -> None:
    assert SglangDialect().recognises(ServerIdentity({"data": [{"id": "m", "owned_by": "sglang"}]}, {}, {}))
    assert SglangDialect().recognises(ServerIdentity({}, {}, {"/get_server_info": {"enable_strict_thinking": False}}))
    assert not SglangDialect().recognises(
        ServerIdentity({"data": [{"id": "m", "owned_by": "vllm"}, "m"]}, {}, {"/server_info": {}})
    )


@pytest.mark.parametrize(("algorithm", "speculates"), [(None, False), ("EAGLE", True)])
def test_speculation_is_told_by_its_settings(algorithm: str | None, speculates: bool) -> None:
    assert (
        SglangDialect().speculates(ServerIdentity({}, {}, {"/server_info": {"speculative_algorithm": algorithm}}))
        is speculates
    )
    assert SglangDialect().speculates(ServerIdentity({}, {}, {"/server_info": {}})) is None


def test_no_real_server_has_answered_it() -> None:
    assert not SglangDialect.tested_live


def test_nonsense_is_not_recognised() -> None:
    junk = ServerIdentity({"data": None}, {}, {"/props": [1], "/server_info": "x", "/get_server_info": 3})
    assert not SglangDialect().recognises(junk)
    assert SglangDialect().speculates(junk) is None
