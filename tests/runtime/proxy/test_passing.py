"""Requests passed on for a single draw."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest

from breadth.base.settings import dump
from breadth.inference.budget import Budget, Prices
from breadth.inference.policy import Policy
from breadth.inference.records import Sampling
from breadth.inference.strategies.single import Single
from breadth.runtime.proxy.limits import Limits
from breadth.testing.fake_replies import Reply
from breadth.testing.faults import Cut, ErrorInStream, MalformedJson, NoUsage, Scheduled, Slow

FOUR = Reply.of("So the answer is 4.")
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {}}}]


def test_the_upstream_gets_the_request_as_it_was_and_the_client_the_reply_as_it_is(serving: Any) -> None:
    async def main() -> None:
        async with serving(FOUR, "single") as served:
            fields = {
                "model": "fake",
                "temperature": 0.4,
                "top_k": -1,
                "logit_bias": {"5": -100},
                "logprobs": True,
                "top_logprobs": 2,
                "n": 2,
            }
            got = await served.ask(**fields)
            assert served.fake.requests[0].body == {"messages": [{"role": "user", "content": "What is 2 + 2?"}], **fields}
            assert len(got.json["choices"]) == 2
            assert got.json["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
            assert got.json["usage"]["completion_tokens"] == got.json["breadth"]["cost"]["output_tokens"] == 10
            assert served.proxy.ledger.spent.output_tokens == 10

    asyncio.run(main())


@pytest.mark.parametrize("with_usage", [True, False])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_a_single_draw_is_streamed_token_by_token(serving: Any, path: str, with_usage: bool) -> None:
    async def main() -> None:
        async with serving(Reply.of("So the answer is 4.", delay=0.03), "single") as served:
            options = {"stream_options": {"include_usage": True}} if with_usage else {}
            prompt = {"prompt": "2 + 2"} if path == "/v1/completions" else {"messages": [{"role": "user", "content": "2 + 2"}]}
            body = orjson.dumps(prompt | options | {"stream": True})
            times, raw = [], b""
            async with served.http.post(served.url + path, data=body, headers={"Content-Type": "application/json"}) as response:
                async for chunk in response.content.iter_any():
                    times.append(asyncio.get_running_loop().time())
                    raw += chunk
            assert len(times) >= 3  # one for all, or two, if it were kept back; a busy machine may join a few
            assert times[-1] - times[0] > 0.08
            events = [orjson.loads(line[6:]) for line in raw.decode().split("\n\n") if line.startswith("data: {")]
            choices = [event["choices"][0] for event in events if event["choices"]]
            assert (
                "".join(choice.get("text") or choice.get("delta", {}).get("content") or "" for choice in choices) == "So the answer is 4."
            )
            assert [event["choices"] for event in events].count([]) == int(with_usage)
            assert events[-1]["breadth"]["cost"]["output_tokens"] == 5
            assert raw.endswith(b"data: [DONE]\n\n")

    asyncio.run(main())


@pytest.mark.parametrize("fault", [Cut(after=3), MalformedJson(after=3), ErrorInStream(after=3)])
def test_a_stream_that_breaks_in_the_middle_ends_in_an_error_event(serving: Any, fault: Any) -> None:
    async def main() -> None:
        async with serving(FOUR, "single", faults=[fault]) as served:
            got = await served.ask(stream=True)
            assert got.status == 200
            assert "[DONE]" not in got.events
            assert got.events[-1]["error"]["code"].startswith("upstream_")
            assert served.fake.url not in got.raw.decode()
            page = (await served.get("/metrics")).raw.decode()
            assert 'policy="single",status="502"} 1.0' in page
            assert 'breadth_draws_total{outcome="failed"} 1.0' in page
            await served.at_rest()

    asyncio.run(main())


def test_a_stream_past_its_deadline_ends_in_an_error_event(serving: Any) -> None:
    async def main() -> None:
        async with serving(Reply.of("So the answer is 4.", delay=60), "single", limits=Limits(seconds=2)) as served:
            got = await served.ask(stream=True)
            assert got.status == 200
            assert got.events[-1]["error"]["code"] == "deadline"
            await served.at_rest()
            assert served.fake.requests[0].left is not None

    asyncio.run(main())


def test_tools_are_passed_through_a_vote_for_a_single_draw_that_says_so(serving: Any) -> None:
    async def main() -> None:
        async with serving(FOUR, "vote,n=5") as served:
            got = await served.ask(tools=TOOLS, tool_choice="auto")
            assert len(served.fake.requests) == 1
            assert (served.fake.requests[0].body["tools"], served.fake.requests[0].body["tool_choice"]) == (TOOLS, "auto")
            assert "tools" in got.json["breadth"]["notes"][0]
            got = await served.ask(tools=TOOLS, tool_choice="none")
            assert (got.json["breadth"]["drawn"], len(served.fake.requests)) == (5, 6)
            got = await served.ask(logprobs=True, top_logprobs=3)
            assert "logprobs" in got.json["breadth"]["notes"][0]
            assert len(got.json["choices"][0]["logprobs"]["content"][0]["top_logprobs"]) == 3

    asyncio.run(main())


def test_several_answers_need_the_policy_single(serving: Any) -> None:
    async def main() -> None:
        async with serving(FOUR, "vote,n=5") as served:
            got = await served.ask(n=3)
            assert (got.status, got.error["param"]) == (400, "n")
            assert served.fake.requests == []
            got = await served.ask(n=3, breadth={"policy": "single"})
            assert len(got.json["choices"]) == 3

    asyncio.run(main())


def test_a_file_of_the_operators_fills_in_what_the_client_leaves_open(serving: Any, tmp_path: Path) -> None:
    file = tmp_path / "one.toml"
    policy = Policy(Single(), Sampling(temperature=0.2, max_tokens=3), prices=Prices(output=1e6), system="Be brief.", model="fake")
    dump(policy, file)

    async def main() -> None:
        async with serving(FOUR, str(file)) as served:
            got = await served.ask(temperature=0.9)
            body = served.fake.requests[0].body
            assert (body["temperature"], body["max_tokens"], body["model"]) == (0.9, 3, "fake")
            assert body["messages"][0] == {"role": "system", "content": "Be brief."}
            assert got.json["breadth"]["cost"]["money"] == 3.0
            await served.ask(max_completion_tokens=4)
            body = served.fake.requests[1].body
            assert (body["max_completion_tokens"], "max_tokens" in body) == (4, False)

    asyncio.run(main())


def test_a_budget_caps_what_is_written(serving: Any) -> None:
    async def main() -> None:
        async with serving(FOUR, "single") as served:
            got = await served.ask(max_completion_tokens=50, breadth={"budget": {"output_tokens": 2}})
            body = served.fake.requests[0].body
            assert (body["max_tokens"], "max_completion_tokens" in body) == (2, False)
            assert (got.text, got.json["choices"][0]["finish_reason"]) == ("So the", "length")

    asyncio.run(main())


def test_tokens_are_counted_where_the_upstream_says_nothing(serving: Any) -> None:
    async def main() -> None:
        async with serving(FOUR, "single", faults=[NoUsage()]) as served:
            got = await served.ask(stream=True)
            assert got.events[-2]["breadth"]["cost"]["output_tokens"] == 5
            assert served.proxy.ledger.spent.output_tokens == 5

    asyncio.run(main())


def test_a_budget_of_the_policy_holds_for_requests_that_are_passed_on(serving: Any, tmp_path: Path) -> None:
    file = tmp_path / "one.toml"
    dump(Policy(Single(), budget=Budget(seconds=0.2)), file)

    async def main() -> None:
        slow = Scheduled(Slow(1.0), lambda number: True)
        async with serving(FOUR, str(file), faults=[slow]) as served:
            assert (await served.ask()).status == 504

    asyncio.run(main())
