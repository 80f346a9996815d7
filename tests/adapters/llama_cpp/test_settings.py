"""What is prescribed for llama.cpp is what the real server takes."""

from __future__ import annotations

import json
from typing import Any
from urllib.request import Request, urlopen

from breadth.adapters.llama_cpp.dialect import LlamaCppDialect
from breadth.adapters.llama_cpp.settings import SETTINGS
from breadth.bridge.doctor.finding import Change
from breadth.bridge.doctor.knobs import Knobs


def fields(*changes: Change) -> dict[str, Any]:
    request = SETTINGS.patch(changes, Knobs())[0]
    found: dict[str, Any] = json.loads(request.removeprefix("request: "))
    return found


def asked(url: str, **more: Any) -> Any:
    body = {"messages": [{"role": "user", "content": "Say a word again and again."}], "temperature": 0.0, "seed": 1, **more}
    request = Request(f"{url}/v1/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"})  # noqa: S310 - ours
    with urlopen(request, timeout=120) as reply:  # noqa: S310 - the address of our own server
        return json.load(reply)


def test_fields_are_those_of_the_dialect() -> None:
    assert fields(Change("thinking_budget", 64)) == LlamaCppDialect().thinking_fields(64)
    assert SETTINGS.patch([Change("votes", 4)], Knobs()) == ('request: {"n": 4}', "server: --parallel 4")


def test_the_real_server_votes_caps_and_sends_raw_alternatives(llama: str) -> None:
    reply = asked(llama, **fields(Change("votes", 2), Change("max_tokens", 5), Change("top_logprobs", 3), Change("logprobs_raw", True)))
    assert len(reply["choices"]) == 2
    assert all(choice["finish_reason"] == "length" for choice in reply["choices"])
    assert [len(one["top_logprobs"]) for one in reply["choices"][0]["logprobs"]["content"]] == [3] * 5


def test_the_real_server_s_guard_against_loops_changes_what_it_writes(llama: str) -> None:
    plain = asked(llama, max_tokens=120, dry_multiplier=0.0)["choices"][0]["message"]["content"]
    guarded = asked(llama, max_tokens=120, **fields(Change("loop_guard", True)))["choices"][0]["message"]["content"]
    assert plain != guarded


def test_the_real_server_keeps_to_a_cap_on_thinking(thinking_llama: str) -> None:
    def thought(budget: int) -> str:
        reply = asked(thinking_llama, max_tokens=80, **fields(Change("thinking_budget", budget)))
        return str(reply["choices"][0]["message"].get("reasoning_content") or "")

    assert len(thought(5)) < len(thought(60))
