"""Requests as they are passed on."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from breadth.adapters.llama_cpp.dialect import LlamaCppDialect
from breadth.base.errors import StrategyError
from breadth.inference.policy import Policy
from breadth.inference.records import Sampling
from breadth.inference.strategies.single import Single
from breadth.runtime.dialect import Dialect
from breadth.runtime.proxy.body import Call, read_call
from breadth.runtime.proxy.outgoing import outgoing
from breadth.runtime.proxy.policies import Chosen

HELLO = [{"role": "user", "content": "Hello"}]
PLAIN = Chosen(Policy(Single()), "single")
FILED = Chosen(Policy(Single(), Sampling(temperature=0.2, repetition_penalty=1.2, max_tokens=9), system="Be brief."), "file", sampled=True)


def call(path: str = "/v1/chat/completions", **fields: Any) -> Call:
    prompt: dict[str, Any] = {"prompt": "Once"} if path == "/v1/completions" else {"messages": HELLO}
    return read_call(path, orjson.dumps(prompt | fields))


def test_a_policy_in_words_changes_nothing() -> None:
    assert outgoing(call(top_k=-1, odd={"x": 1}), PLAIN, "", Dialect()) == {"messages": HELLO, "top_k": -1, "odd": {"x": 1}}


def test_a_policys_file_fills_in_what_the_client_leaves_open_under_the_servers_names() -> None:
    body = outgoing(call(temperature=1, repeat_penalty=1.0), FILED, "m", LlamaCppDialect())
    assert (body["temperature"], body["repeat_penalty"], body["max_tokens"], body["model"]) == (1, 1.0, 9, "m")
    assert "repetition_penalty" not in body
    assert body["messages"] == [{"role": "system", "content": "Be brief."}, *HELLO]
    assert "messages" not in outgoing(call("/v1/completions"), FILED, "m", LlamaCppDialect())


def test_the_newer_name_of_a_cap_is_not_contradicted() -> None:
    body = outgoing(call(max_completion_tokens=5), FILED, "", Dialect())
    assert (body["max_completion_tokens"], "max_tokens" in body) == (5, False)
    capped = outgoing(call(max_completion_tokens=5), FILED, "", Dialect(), cap=2)
    assert (capped["max_tokens"], "max_completion_tokens" in capped) == (2, False)


def test_a_stream_always_brings_its_usage_and_keeps_its_other_options() -> None:
    body = outgoing(call(stream=True, stream_options={"include_usage": False, "odd": 1}), PLAIN, "", Dialect())
    assert body["stream_options"] == {"include_usage": True, "odd": 1}


def test_thinking_is_capped_where_the_upstream_can() -> None:
    body = outgoing(call(breadth={"thinking_tokens": 64, "seed": 5}), PLAIN, "", LlamaCppDialect())
    assert 64 in body.values()
    assert body["seed"] == 5
    with pytest.raises(StrategyError, match="thinking"):
        outgoing(call(breadth={"thinking_tokens": 64}), PLAIN, "", Dialect())


def test_a_cap_leaves_no_other_name_for_it() -> None:
    body = outgoing(call(n_predict=900, max_completion_tokens=900), PLAIN, "m", Dialect(), cap=7)
    assert (body["max_tokens"], body.keys() & {"n_predict", "max_completion_tokens"}) == (7, set())
