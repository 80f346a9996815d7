"""The plain OpenAI dialect: every field explicit, nothing a strict server would refuse, clear errors for the rest."""

from __future__ import annotations

import pytest

from breadth.base.errors import StrategyError
from breadth.inference.records import Sampling
from breadth.runtime.dialect import SERVER_DIALECTS, ServerDialect, ServerIdentity
from breadth.runtime.sampler import SampleRequest

CHAT = ({"role": "user", "content": "6 x 7?"},)
NOBODY = ServerIdentity({}, {}, {})


def test_a_chat_is_sent_with_every_sampling_field() -> None:
    sampling = Sampling(0.6, 0.9, max_tokens=50, stop=("\n",), presence_penalty=0.1, frequency_penalty=0.2)
    path, body = ServerDialect().build_request(SampleRequest(CHAT, sampling, model="m", seed=7))
    assert path == "/v1/chat/completions"
    assert body == {
        "model": "m",
        "messages": [{"role": "user", "content": "6 x 7?"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "seed": 7,
        "temperature": 0.6,
        "top_p": 0.9,
        "presence_penalty": 0.1,
        "frequency_penalty": 0.2,
        "max_tokens": 50,
        "stop": ["\n"],
    }


def test_a_text_is_continued_with_the_beginning_of_its_reply() -> None:
    path, body = ServerDialect().build_request(SampleRequest("6 x 7 =", prefix=" 4"))
    assert path == "/v1/completions"
    assert body["prompt"] == "6 x 7 = 4"
    assert "stop" not in body


@pytest.mark.parametrize(
    ("prompt", "fields"), [(CHAT, {"logprobs": True, "top_logprobs": 20}), ("6 x 7 =", {"logprobs": 20})]
)
def test_logprobs_are_asked_for_as_each_endpoint_wants(
    prompt: str | tuple[dict[str, str], ...], fields: dict[str, object]
) -> None:
    body = ServerDialect().build_request(SampleRequest(prompt, Sampling(top_logprobs=20)))[1]
    assert {name: body[name] for name in fields} == fields
    assert "logprobs" not in ServerDialect().build_request(SampleRequest(prompt))[1]


def test_options_of_the_user_come_last() -> None:
    body = ServerDialect().build_request(SampleRequest(CHAT, options={"tools": [1], "temperature": 2}))[1]
    assert (body["tools"], body["temperature"]) == ([1], 2)


@pytest.mark.parametrize("name", ["vllm", "sglang", "llama-cpp"])
def test_no_option_lifts_the_cap_on_thinking(name: str) -> None:
    dialect: ServerDialect = SERVER_DIALECTS.load(name)()
    options = dict.fromkeys(dialect.thinking_fields(9), 10**6)
    body = dialect.build_request(SampleRequest(CHAT, Sampling(thinking_tokens=9), options=options))[1]
    assert {field: body[field] for field in options} == dialect.thinking_fields(9)


def test_what_the_schema_cannot_say_is_refused() -> None:
    with pytest.raises(StrategyError, match="cap on thinking"):
        ServerDialect().build_request(SampleRequest(CHAT, Sampling(thinking_tokens=9)))
    with pytest.raises(StrategyError, match="continue a given prefix"):
        ServerDialect().build_request(SampleRequest(CHAT, prefix="It is"))


def test_it_recognises_nobody_and_knows_nothing() -> None:
    assert not ServerDialect().recognises(NOBODY)
    assert ServerDialect().fit_to(NOBODY) == ServerDialect()
    assert ServerDialect().speculates(NOBODY) is None


@pytest.mark.parametrize("name", SERVER_DIALECTS.entries)
def test_every_dialect_asks_for_a_stream_of_one_completion(name: str) -> None:
    dialect: ServerDialect = SERVER_DIALECTS.load(name)()
    body = dialect.build_request(SampleRequest(CHAT, model="m"))[1]
    assert body["stream"] is True
    assert body.get("n", 1) == 1
    assert not dialect.recognises(NOBODY)
