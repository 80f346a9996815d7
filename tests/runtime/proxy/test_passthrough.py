"""Requests passed on for a single sample."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import orjson
import pytest

from breadth.adapters.llama_cpp import LlamaCppDialect
from breadth.base.errors import ServerError, StrategyError
from breadth.base.settings import dump
from breadth.inference.policy import Policy
from breadth.inference.records import Budget, Prices, Sampling
from breadth.inference.strategies.single import Single
from breadth.runtime.dialect import ServerDialect
from breadth.runtime.proxy.access import ProxyLimits
from breadth.runtime.proxy.client_request import ClientRequest, read_request
from breadth.runtime.proxy.passthrough import EventRelay, charge_usage, text_size, upstream_body
from breadth.runtime.proxy.routing import ChosenPolicy
from breadth.runtime.proxy.upstream import EventStream
from breadth.runtime.sampler import Meter
from breadth.runtime.samplers.connection import Endpoint
from breadth.runtime.samplers.redaction import Redactor
from breadth.runtime.wire import EventParser
from breadth.testing.fake_replies import Reply
from breadth.testing.fake_server import wait_until
from breadth.testing.faults import Cut, ErrorInStream, Fault, Hang, MalformedJson, NoUsage, Scheduled, Slow

HELLO = [{"role": "user", "content": "Hello"}]
PLAIN = ChosenPolicy(Policy(Single()), "single")
FILED = ChosenPolicy(
    Policy(Single(), Sampling(temperature=0.2, repetition_penalty=1.2, max_tokens=9), system="Be brief."),
    "file",
    sets_sampling=True,
)


def call(path: str = "/v1/chat/completions", **fields: Any) -> ClientRequest:
    prompt: dict[str, Any] = {"prompt": "Once"} if path == "/v1/completions" else {"messages": HELLO}
    return read_request(path, orjson.dumps(prompt | fields))


def test_a_policy_in_words_changes_nothing() -> None:
    assert upstream_body(call(top_k=-1, metadata={"x": 1}), PLAIN, "", ServerDialect()) == {
        "messages": HELLO,
        "top_k": -1,
        "metadata": {"x": 1},
    }


def test_a_policys_file_fills_in_what_the_client_leaves_open_under_the_servers_names() -> None:
    body = upstream_body(call(temperature=1, repeat_penalty=1.0), FILED, "m", LlamaCppDialect())
    assert (body["temperature"], body["repeat_penalty"], body["max_tokens"], body["model"]) == (1, 1.0, 9, "m")
    assert "repetition_penalty" not in body
    assert body["messages"] == [{"role": "system", "content": "Be brief."}, *HELLO]
    assert "messages" not in upstream_body(call("/v1/completions"), FILED, "m", LlamaCppDialect())


def test_the_newer_name_of_a_cap_is_not_contradicted() -> None:
    body = upstream_body(call(max_completion_tokens=5), FILED, "", ServerDialect())
    assert (body["max_completion_tokens"], "max_tokens" in body) == (5, False)
    capped = upstream_body(call(max_completion_tokens=5), FILED, "", ServerDialect(), cap=2)
    assert (capped["max_tokens"], "max_completion_tokens" in capped) == (2, False)


def test_a_stream_always_brings_its_usage_and_keeps_its_other_options() -> None:
    body = upstream_body(
        call(stream=True, stream_options={"include_usage": False, "odd": 1}), PLAIN, "", ServerDialect()
    )
    assert body["stream_options"] == {"include_usage": True, "odd": 1}


def test_thinking_is_capped_where_the_upstream_can() -> None:
    body = upstream_body(call(breadth={"thinking_tokens": 64, "seed": 5}), PLAIN, "", LlamaCppDialect())
    assert 64 in body.values()
    assert body["seed"] == 5
    with pytest.raises(StrategyError, match="thinking"):
        upstream_body(call(breadth={"thinking_tokens": 64}), PLAIN, "", ServerDialect())


def test_a_cap_leaves_no_other_name_for_it() -> None:
    body = upstream_body(call(n_predict=900, max_completion_tokens=900), PLAIN, "m", ServerDialect(), cap=7)
    assert (body["max_tokens"], body.keys() & {"n_predict", "max_completion_tokens"}) == (7, set())


TEXT = b'{"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":null}],"odd":  1}'
END = b'{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}'
USAGE = b'{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":4}}}'


def flow(marked: bool = True) -> EventStream:
    return EventStream(Endpoint("http://up"), cast("Any", None), EventParser(), [], marked)


def told(raw: bytes) -> list[Any]:
    lines = [line.removeprefix(b"data: ") for line in raw.split(b"\n\n") if line]
    return [line.decode() if line == b"[DONE]" else orjson.loads(line) for line in lines]


def test_events_pass_byte_for_byte_and_the_last_carries_our_object() -> None:
    meter = Meter()
    passage = EventRelay(meter, with_usage=True)
    assert passage.relay(flow(), [TEXT, TEXT]) == (b"data: " + TEXT + b"\n\n") * 2
    assert meter.tokens == 2
    assert told(passage.relay(flow(), [END, USAGE])) == [orjson.loads(END)]
    assert (meter.tokens, meter.prompt_tokens, meter.cached_tokens) == (7, 9, 4)
    last, done = told(passage.finish(flow(), {"trace": "t"}))
    assert (last, done) == (orjson.loads(USAGE) | {"breadth": {"trace": "t"}}, "[DONE]")


def test_relaying_leaves_no_garbage_behind() -> None:
    passage = EventRelay(Meter(), with_usage=True, redactor=Redactor("sk-0123456789abcdef"))
    gc.collect()
    gc.disable()
    try:
        passage.relay(flow(), [TEXT] * 100)
        left = gc.collect()
    finally:
        gc.enable()
    assert left < 10, "a cycle for each event made the memory of a server grow by 4 MB an hour"


def test_a_client_that_asked_for_no_usage_gets_no_event_without_choices() -> None:
    passage = EventRelay(Meter(), with_usage=False)
    assert told(passage.relay(flow(), [TEXT, END, USAGE])) == [orjson.loads(TEXT)]
    assert told(passage.finish(flow(), {})) == [orjson.loads(END) | {"breadth": {}}, "[DONE]"]


def test_several_choices_each_keep_their_end() -> None:
    second = END.replace(b'"index":0', b'"index":1')
    passage = EventRelay(Meter(), with_usage=False)
    assert told(passage.relay(flow(), [END, TEXT, second])) == [orjson.loads(TEXT), orjson.loads(END)]
    assert told(passage.finish(flow(), {}))[0]["choices"][0]["index"] == 1


def test_a_stream_that_ends_in_the_middle_is_an_error() -> None:
    passage = EventRelay(Meter(), with_usage=False)
    passage.relay(flow(), [TEXT])
    with pytest.raises(ServerError, match="middle"):
        passage.finish(flow(marked=False), {})
    passage.relay(flow(), [END])
    assert b"[DONE]" in passage.finish(flow(marked=False), {})


@pytest.mark.parametrize(
    "event", [b"{", b"[]", b'{"error":{"message":"died"}}', b'{"object":"error","message":"died"}', b'{"choices":3}']
)
def test_an_event_that_is_none_is_an_error_and_never_passed_on(event: bytes) -> None:
    with pytest.raises(ServerError, match="http://up"):
        EventRelay(Meter(), with_usage=False).relay(flow(), [event])


@pytest.mark.parametrize(
    "usage",
    [{}, {"prompt_tokens": None, "completion_tokens": "7"}, {"prompt_tokens": -3, "prompt_tokens_details": None}],
)
def test_a_usage_that_makes_no_sense_counts_nothing(usage: dict[str, Any]) -> None:
    meter = Meter()
    charge_usage(meter, usage)
    assert (meter.prompt_tokens, meter.cached_tokens, meter.tokens) == (0, 0, 0)


def test_a_usage_that_makes_no_sense_leaves_what_was_counted() -> None:
    meter = Meter()
    EventRelay(meter, with_usage=True).relay(
        flow(), [TEXT, b'{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":-1}}', TEXT]
    )
    assert (meter.prompt_tokens, meter.tokens) == (9, 2)
    charge_usage(meter, {"prompt_tokens": 9, "completion_tokens": 7.0, "prompt_tokens_details": {"cached_tokens": 99}})
    assert (meter.prompt_tokens, meter.cached_tokens, meter.tokens) == (9, 9, 7)


def test_an_event_of_several_lines_stays_one_event() -> None:
    sent = EventRelay(Meter(), with_usage=False).relay(flow(), [b'{"choices":\n[{"index":0,"delta":{"content":"x"}}]}'])
    assert sent == b'data: {"choices":\ndata: [{"index":0,"delta":{"content":"x"}}]}\n\n'
    assert EventParser().feed(sent) == [b'{"choices":\n[{"index":0,"delta":{"content":"x"}}]}']


@pytest.mark.parametrize("choices", ["[null]", "[1]", "null", "{}"])
def test_choices_that_are_none_are_an_error(choices: str) -> None:
    with pytest.raises(ServerError, match="without choices"):
        EventRelay(Meter(), with_usage=False).relay(flow(), [b'{"choices":' + choices.encode() + b"}"])


@pytest.mark.parametrize(
    ("events", "relayed"),
    [
        ([b"abcd"] * 9, 3),  # a token an event
        ([b"ab"] * 9, 6),  # half a token an event
        ([b"x" * 4000], 0),  # a thousand tokens in one
        ([b""] * 3000, 1072),  # nothing at all, for ever
    ],
)
def test_a_stream_is_cut_where_the_upstream_writes_more_than_it_may(events: list[bytes], relayed: int) -> None:
    meter = Meter()
    passage = EventRelay(meter, with_usage=True, max_tokens=3)
    sent = passage.relay(flow(), [TEXT.replace(b'"x"', b'"' + text + b'"') for text in events])
    assert (sent.count(b"data: "), passage.is_cut) == (relayed, True)
    end, usage, done = told(passage.finish(flow(marked=False), {"trace": "t"}))
    assert end["choices"] == [{"index": 0, "finish_reason": "length", "delta": {}}]
    assert (usage["choices"], usage["usage"]["completion_tokens"], done) == ([], meter.tokens, "[DONE]")
    assert meter.tokens >= relayed or not events[0]


def test_replies_nobody_asked_for_and_counts_over_the_cap_cut_a_stream_too() -> None:
    passage = EventRelay(Meter(), with_usage=False, max_tokens=3, replies=2)
    for index in (b"0", b"1"):
        assert passage.relay(flow(), [TEXT.replace(b'"index":0', b'"index":' + index)])
    assert passage.relay(flow(), [TEXT.replace(b'"index":0', b'"index":2')]) == b""
    assert [choice["index"] for choice in told(passage.finish(flow(), {}))[0]["choices"]] == [0, 1]
    passage = EventRelay(Meter(), with_usage=False, max_tokens=3)
    assert passage.relay(flow(), [TEXT[:-1] + b',"usage":{"completion_tokens":4}}']) == b""
    assert passage.is_cut


@pytest.mark.parametrize(
    "event",
    [
        TEXT[:-1] + b',"junk":"%s"}',
        TEXT.replace(b'"content":"x"', b'"audio":{"data":"%s"}'),
        TEXT.replace(b'"content":"x"', b'"role":"%s"'),
        TEXT.replace(b'"content":"x"', b'"%s":1'),
        END[:-1] + b',"junk":"%s"}',
    ],
)
def test_a_stream_is_cut_whatever_field_is_too_long(event: bytes) -> None:
    passage = EventRelay(Meter(), with_usage=True, max_tokens=1)
    assert b"%s" in event
    events = [event.replace(b"%s", b"A" * 100_000)] * 100
    assert len(passage.relay(flow(), events)) < 1_200_000
    assert passage.is_cut


def test_a_reply_as_long_as_it_may_be_is_not_cut() -> None:
    passage = EventRelay(Meter(), with_usage=False, max_tokens=2)
    passage.relay(flow(), [TEXT, TEXT, END, USAGE])
    assert not passage.is_cut


def test_a_count_at_the_beginning_is_not_what_was_written() -> None:
    meter = Meter()
    early = TEXT[:-1] + b',"usage":{"prompt_tokens":9,"completion_tokens":0}}'
    EventRelay(meter, with_usage=False).relay(flow(), [early, TEXT, TEXT])
    assert (meter.prompt_tokens, meter.tokens) == (9, 3)


FOUR = Reply.from_text("So the answer is 4.")
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
            assert served.fake.requests[0].body == {
                "messages": [{"role": "user", "content": "What is 2 + 2?"}],
                **fields,
            }
            assert len(got.json["choices"]) == 2
            assert got.json["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
            assert got.json["usage"]["completion_tokens"] == got.json["breadth"]["cost"]["output_tokens"] == 10
            assert served.proxy.ledger.spent.output_tokens == 10

    asyncio.run(main())


@pytest.mark.parametrize("with_usage", [True, False])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_a_single_draw_is_streamed_token_by_token(serving: Any, path: str, with_usage: bool) -> None:
    async def main() -> None:
        async with serving(Reply.from_text("So the answer is 4.", delay=0.03), "single") as served:
            options = {"stream_options": {"include_usage": True}} if with_usage else {}
            prompt = (
                {"prompt": "2 + 2"}
                if path == "/v1/completions"
                else {"messages": [{"role": "user", "content": "2 + 2"}]}
            )
            body = orjson.dumps(prompt | options | {"stream": True})
            times, raw = [], b""
            async with served.http.post(
                served.url + path, data=body, headers={"Content-Type": "application/json"}
            ) as response:
                async for chunk in response.content.iter_any():
                    times.append(asyncio.get_running_loop().time())
                    raw += chunk
            assert len(times) >= 3  # one for all, or two, if it were kept back; a busy machine may join a few
            assert times[-1] - times[0] > 0.08
            events = [orjson.loads(line[6:]) for line in raw.decode().split("\n\n") if line.startswith("data: {")]
            choices = [event["choices"][0] for event in events if event["choices"]]
            assert (
                "".join(choice.get("text") or choice.get("delta", {}).get("content") or "" for choice in choices)
                == "So the answer is 4."
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
            assert 'breadth_samples_total{outcome="failed"} 1.0' in page
            await served.at_rest()

    asyncio.run(main())


def test_a_stream_past_its_deadline_ends_in_an_error_event(serving: Any) -> None:
    async def main() -> None:
        async with serving(
            Reply.from_text("So the answer is 4.", delay=60), "single", limits=ProxyLimits(seconds=2)
        ) as served:
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
            assert (served.fake.requests[0].body["tools"], served.fake.requests[0].body["tool_choice"]) == (
                TOOLS,
                "auto",
            )
            assert "tools" in got.json["breadth"]["notes"][0]
            got = await served.ask(tools=TOOLS, tool_choice="none")
            assert (got.json["breadth"]["drawn"], len(served.fake.requests)) == (5, 6)
            got = await served.ask(logprobs=True, top_logprobs=3)
            assert "logprobs" in got.json["breadth"]["notes"][0]
            assert len(got.json["choices"][0]["logprobs"]["content"][0]["top_logprobs"]) == 3

    asyncio.run(main())


def test_several_answers_need_the_policy_single(serving: Any) -> None:
    async def main() -> None:
        async with serving(FOUR, "vote,n=5", client_policies=True) as served:
            got = await served.ask(n=3)
            assert (got.status, got.error["param"]) == (400, "n")
            assert served.fake.requests == []
            got = await served.ask(n=3, breadth={"policy": "single"})
            assert len(got.json["choices"]) == 3

    asyncio.run(main())


def test_a_file_of_the_operators_fills_in_what_the_client_leaves_open(serving: Any, tmp_path: Path) -> None:
    file = tmp_path / "one.toml"
    policy = Policy(
        Single(), Sampling(temperature=0.2, max_tokens=3), prices=Prices(output=1e6), system="Be brief.", model="fake"
    )
    dump(policy, file)

    async def main() -> None:
        async with serving(FOUR, str(file)) as served:
            got = await served.ask(temperature=0.9)
            body = served.fake.requests[0].body
            assert (body["temperature"], body["max_tokens"], body["model"]) == (0.9, 3, "fake")
            assert body["messages"][0] == {"role": "system", "content": "Be brief."}
            assert got.json["breadth"]["cost"]["money"] == 3.0
            await served.ask(max_completion_tokens=2)
            body = served.fake.requests[1].body
            assert (body["max_tokens"], "max_completion_tokens" in body) == (2, False)

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


@dataclass(frozen=True)
class CapIgnored(Fault):
    """The upstream writes as much as it likes."""

    def request(self, body: dict[str, Any]) -> dict[str, Any]:
        """Drop the cap."""
        return {name: value for name, value in body.items() if name != "max_tokens"}


def endless(body: dict[str, Any], number: int) -> Reply:
    """Write on until nobody listens."""
    del body, number
    return Reply.from_text("word " * 5000, delay=0.005)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_no_more_is_relayed_than_was_asked_for(serving: Any, path: str) -> None:
    prompt = {"prompt": "?"} if path == "/v1/completions" else {"messages": HELLO}

    async def main() -> None:
        async with serving(endless, "single", faults=[CapIgnored()]) as served:
            got = await served.post(path, stream=True, max_tokens=16, **prompt)
            assert got.raw.count(b"word") == 16
            *_, last, done = got.events
            assert (last["choices"][0]["finish_reason"], done) == ("length", "[DONE]")
            assert "more tokens than allowed" in last["breadth"]["notes"][0]
            await served.at_rest()
            assert served.fake.requests[0].left is not None
            assert 16 < served.proxy.ledger.spent.output_tokens < 5000

    asyncio.run(main())


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_a_whole_reply_is_cut_where_its_tokens_cannot_be_so_long(serving: Any, path: str) -> None:
    prompt = {"prompt": "?"} if path == "/v1/completions" else {"messages": HELLO}
    long = Reply.from_text("word " * 5000, reasoning="hm " * 500)

    async def main() -> None:
        async with serving(long, "single", faults=[CapIgnored()]) as served:
            got = await served.post(path, max_tokens=16, **prompt)
            choice = got.json["choices"][0]
            assert text_size(choice) == 16 * 128
            assert (choice["finish_reason"], choice.get("logprobs")) == ("length", None)
            assert "more tokens than allowed" in got.json["breadth"]["notes"][0]
            assert served.proxy.ledger.spent.output_tokens > 5000, "it was written all the same"

    asyncio.run(main())


def test_no_more_replies_are_relayed_than_were_asked_for(serving: Any) -> None:
    @dataclass(frozen=True)
    class Three(Fault):
        """The upstream writes three replies, however many it is asked for."""

        def request(self, body: dict[str, Any]) -> dict[str, Any]:
            """Ask for three."""
            return body | {"n": 3}

    async def main() -> None:
        async with serving(FOUR, "single", faults=[Three()]) as served:
            for count in (1, 2):
                got = await served.ask(n=count)
                assert len(got.json["choices"]) == count
                assert got.json["breadth"]["notes"]

    asyncio.run(main())


@pytest.mark.parametrize("text", ["word " * 1_000_000, "[" * 30_000])
def test_a_whole_reply_far_larger_than_its_tokens_is_refused(serving: Any, text: str) -> None:
    async def main() -> None:
        async with serving(Reply.from_text(text), "single", faults=[CapIgnored()]) as served:
            got = await served.ask(max_tokens=16)
            assert (got.status, got.error["code"]) == (502, "upstream_failed")
            assert "than the tokens it may have" in got.error["message"]
            assert len(served.fake.requests) == 1

    asyncio.run(main())


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/v1/chat/completions", {"logprobs": True, "top_logprobs": 20}),
        ("/v1/completions", {"logprobs": 20, "echo": True}),
        ("/v1/chat/completions", {"n": 3}),
    ],
)
def test_a_whole_reply_within_its_tokens_is_relayed_as_it_is(serving: Any, path: str, fields: dict[str, Any]) -> None:
    prompt = {"prompt": "word " * 500} if path == "/v1/completions" else {"messages": HELLO}

    async def main() -> None:
        async with serving(Reply.from_text("word " * 400), "single") as served:
            got = await served.post(path, max_tokens=400, **prompt, **fields)
            assert got.status == 200
            assert got.json["breadth"]["notes"] == []
            assert got.raw.count(b"word") >= 400 * fields.get("n", 1)

    asyncio.run(main())


def test_the_operators_ceiling_cuts_a_stream_that_asked_for_none(serving: Any) -> None:
    async def main() -> None:
        async with serving(endless, "single", limits=ProxyLimits(max_tokens=5)) as served:
            assert (await served.ask(stream=True)).raw.count(b"word") == 5
            assert "max_tokens" not in served.fake.requests[0].body

    asyncio.run(main())


def test_a_client_that_leaves_a_stream_pays_for_what_has_come(serving: Any) -> None:
    async def main() -> None:
        async with serving(Reply.from_text("word " * 2000 + "end", delay=0.02), "single") as served:
            body = {"messages": HELLO, "stream": True}
            async with served.http.post(f"{served.url}/v1/chat/completions", json=body) as response:
                for _ in range(3):
                    await response.content.readuntil(b"word")
            await served.at_rest()
            spent = served.proxy.ledger.spent
            assert 3 <= spent.output_tokens < 2000
            assert spent.input_tokens > 0

    asyncio.run(main())


def test_a_client_that_leaves_before_the_reply_pays_for_its_prompt(serving: Any) -> None:
    async def main() -> None:
        async with serving(FOUR, "single", faults=[Hang()]) as served:
            asking = asyncio.create_task(served.ask())
            await wait_until(lambda: served.fake.open_requests)
            asking.cancel()
            await served.at_rest()
            assert served.proxy.ledger.spent.input_tokens > 0

    asyncio.run(main())


def test_a_client_that_leaves_a_vote_before_a_word_of_it_pays_for_its_prompts(serving: Any) -> None:
    async def main() -> None:
        async with serving(FOUR, "vote,n=3", faults=[Hang()]) as served:
            asking = asyncio.create_task(served.ask("Why? " * 100))
            await wait_until(lambda: served.fake.open_requests == 3)
            asking.cancel()
            await served.at_rest()
            assert served.proxy.ledger.spent.input_tokens > 3 * 100

    asyncio.run(main())


def test_a_whole_reply_without_usage_is_estimated(serving: Any) -> None:
    async def main() -> None:
        async with serving(FOUR, "single", faults=[NoUsage()]) as served:
            cost = (await served.ask()).json["breadth"]["cost"]
            assert (cost["output_tokens"], cost["input_tokens"] > 0) == (5, True)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/v1/completions", {"prompt": [7] * 2000}),
        ("/v1/completions", {"prompt": ["word " * 1000, "word " * 1000], "n": 1}),
        ("/v1/chat/completions", {"messages": HELLO, "tools": [TOOLS[0] | {"description": "word " * 2000}]}),
        ("/v1/chat/completions", {"messages": HELLO, "documents": [{"text": "word " * 2000}]}),
        ("/v1/chat/completions", {"messages": [*HELLO, {"role": "user", "name": "a" * 9000, "content": "?"}]}),
    ],
)
def test_everything_the_upstream_must_read_counts_as_input(
    serving: Any, tmp_path: Path, path: str, fields: dict[str, Any]
) -> None:
    file = tmp_path / "one.toml"

    async def main(budget: Budget, status: int) -> None:
        dump(Policy(Single(), budget=budget, prices=Prices(input=1.0)), file)
        async with serving(FOUR, str(file)) as served:
            got = await served.post(path, **fields)
            assert (got.status, len(served.fake.requests)) == (status, int(status == 200))

    asyncio.run(main(Budget(input_tokens=1000), 400))
    asyncio.run(main(Budget(money=0.001), 400))
    asyncio.run(main(Budget(input_tokens=20_000, money=0.1), 200))


def test_a_budget_of_the_policy_holds_for_requests_that_are_passed_on(serving: Any, tmp_path: Path) -> None:
    file = tmp_path / "one.toml"
    dump(Policy(Single(), budget=Budget(seconds=0.2)), file)

    async def main() -> None:
        slow = Scheduled(Slow(1.0), lambda number: True)
        async with serving(FOUR, str(file), faults=[slow]) as served:
            assert (await served.ask()).status == 504

    asyncio.run(main())
