"""Votes through the proxy: partial failures, streams with signs of life, clients that leave, deadlines."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest

from breadth.base.settings import dump
from breadth.inference.halting import Loop
from breadth.inference.policy import Policy
from breadth.inference.records import Answer, Candidate, Finish, Spend, Task
from breadth.inference.strategies.vote import Vote
from breadth.runtime.driver import SolveResult
from breadth.runtime.proxy.access import ProxyLimits
from breadth.runtime.proxy.answer import breadth_field, finish_reason, stream_events, usage_of, whole_body
from breadth.testing.fake_replies import Reply
from breadth.testing.fake_server import wait_until
from breadth.testing.faults import Hang, Scheduled, Status, every

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
LONG = "It is four. " * 30


def solved(candidate: Candidate) -> SolveResult:
    answer = Answer(
        candidate, confidence=0.9, basis="b", votes={"4": 3.0, "5": 1.0}, candidates=(candidate,) * 4, stopped="most"
    )
    spend = Spend(5, 100, 40, 30, 1.0, 0.25)
    return SolveResult(
        Task("?", model="asked"),
        answer,
        spend,
        (candidate,) * 4,
        6,
        1,
        1,
        {"http://up:1 broke": 1},
        None,
        2.0,
        False,
        "abc",
    )


def test_usage_is_that_of_all_draws() -> None:
    assert usage_of(solved(Candidate("x")).spend) == {
        "prompt_tokens": 100,
        "completion_tokens": 30,
        "total_tokens": 130,
        "prompt_tokens_details": {"cached_tokens": 40},
    }


def test_the_object_says_how_sure_by_what_votes_at_what_cost_and_hides_the_upstream() -> None:
    about = breadth_field(solved(Candidate("x", key="4")), Vote(), "careful", ["http://up:1"])
    assert about["votes"] == [
        {"answer": "4", "votes": 3.0, "share": 0.75},
        {"answer": "5", "votes": 1.0, "share": 0.25},
    ]
    assert (about["confidence"], about["basis"], about["policy"], about["strategy"], about["trace"]) == (
        0.9,
        "b",
        "careful",
        "vote",
        "abc",
    )
    assert (about["drawn"], about["arrived"], about["failed"], about["discarded"], about["unread"]) == (6, 4, 1, 1, 0)
    assert about["cost"]["money"] == 0.25
    assert about["errors"] == [{"problem": "The upstream broke", "times": 1}]


def test_a_chat_and_a_text_each_have_their_shape() -> None:
    got = solved(Candidate(" is 4.", prefix="It", model="real", reasoning="hm", finish="length"))
    chat = whole_body(CHAT, got, {})
    assert (chat["id"], chat["object"], chat["model"]) == ("chatcmpl-abc", "chat.completion", "real")
    assert chat["choices"][0]["message"] == {"role": "assistant", "content": "It is 4.", "reasoning_content": "hm"}
    assert chat["choices"][0]["finish_reason"] == "length"
    text = whole_body(TEXT, got, {})
    assert (text["id"], text["object"], text["choices"][0]["text"]) == ("cmpl-abc", "text_completion", "It is 4.")
    assert whole_body(CHAT, solved(Candidate("x")), {})["model"] == "asked"


@pytest.mark.parametrize(
    ("finish", "told"), [("stop", "stop"), ("halt", "stop"), ("length", "length"), ("content_filter", "content_filter")]
)
def test_finish_reasons_are_the_schemas(finish: Finish, told: str) -> None:
    assert finish_reason(solved(Candidate("x", finish=finish))) == told


def events(path: str, *, with_usage: bool) -> list[Any]:
    raw = b"".join(
        stream_events(path, solved(Candidate(LONG, reasoning="hm")), {"trace": "abc"}, with_usage=with_usage)
    ).decode()
    lines = [line.removeprefix("data: ") for line in raw.split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    return [orjson.loads(line) for line in lines[:-1]]


@pytest.mark.parametrize("with_usage", [True, False])
def test_a_streamed_chat_adds_up_to_the_text(with_usage: bool) -> None:
    told = events(CHAT, with_usage=with_usage)
    deltas = [event["choices"][0]["delta"] for event in told if event["choices"]]
    assert deltas[0]["role"] == "assistant"
    assert "".join(delta.get("content", "") for delta in deltas) == LONG
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == "hm"
    assert len(deltas) > 5
    assert [event["choices"][0]["finish_reason"] for event in told if event["choices"]] == [None] * (
        len(deltas) - 1
    ) + ["stop"]
    assert "breadth" in told[-1]
    assert ("usage" in told[-1], told[-1]["choices"] == []) == (with_usage, with_usage)


def test_a_streamed_text_adds_up_too() -> None:
    assert "".join(event["choices"][0]["text"] for event in events(TEXT, with_usage=False)) == LONG


FOUR, FIVE = Reply.from_text("So the answer is 4."), Reply.from_text("So the answer is 5.")
POLICIES = ("single", "vote,n=3", "adaptive-vote,most=4")


def mixed(body: dict[str, Any], number: int) -> Reply:
    del body
    return FIVE if number % 4 == 0 else FOUR


def test_a_vote_answers_with_a_whole_reply_its_usage_and_how_sure(serving: Any) -> None:
    async def main() -> None:
        async with serving(mixed, "vote,n=8") as served:
            got = await served.ask(temperature=0.5, max_completion_tokens=50, stop=["END"], user="u")
            about, body = got.json["breadth"], served.fake.requests[0].body
            assert (got.status, got.text, about["answer"]) == (200, "So the answer is 4.", "4")
            assert (about["votes"][0]["votes"], about["drawn"], about["arrived"], about["failed"]) == (6.0, 8, 8, 0)
            assert 0.5 < about["confidence"] < 1
            assert got.json["usage"]["completion_tokens"] == 40
            assert got.headers["x-request-id"] == about["trace"]
            assert (body["temperature"], body["max_tokens"], body["stop"], body["user"]) == (0.5, 50, ["END"], "u")
            assert len({arrival.body["seed"] for arrival in served.fake.requests}) == 8
            assert "breadth" not in body

    asyncio.run(main())


def test_the_same_seed_draws_the_same_and_no_seed_draws_afresh(serving: Any) -> None:
    async def main() -> None:
        async with serving(FOUR, "vote,n=2") as served:
            for seed in (7, 7, None, None):
                await served.ask(seed=seed)
            seeds = [
                frozenset(arrival.body["seed"] for arrival in served.fake.requests[at : at + 2]) for at in (0, 2, 4, 6)
            ]
            assert seeds[0] == seeds[1]
            assert len({seeds[0], seeds[2], seeds[3]}) == 3

    asyncio.run(main())


def test_when_some_draws_fail_it_answers_from_the_rest_and_says_how_many_failed(serving: Any) -> None:
    async def main() -> None:
        async with serving(FOUR, "vote,n=6", faults=[every(3, Status(500))], attempts=1) as served:
            got = await served.ask()
            about = got.json["breadth"]
            assert (got.status, got.text) == (200, "So the answer is 4.")
            assert (about["arrived"], about["failed"]) == (6, 2)
            assert about["errors"][0]["times"] == 2
            assert served.fake.url not in got.raw.decode()

    asyncio.run(main())


def test_at_the_deadline_what_has_arrived_is_answered_with(serving: Any) -> None:
    async def main() -> None:
        hangs = Scheduled(Hang(), lambda number: number >= 2)
        async with serving(FOUR, "vote,n=6", faults=[hangs]) as served:
            got = await served.ask(breadth={"budget": {"seconds": 0.4}})
            about = got.json["breadth"]
            assert (got.status, got.text, about["arrived"]) == (200, "So the answer is 4.", 2)
            assert (
                about["discarded"] + about["failed"] == 4
            )  # cancelled, or out of time by themselves in the same moment
            assert about["budget_spent"] is True

    asyncio.run(main())


@pytest.mark.parametrize("budget", [{"calls": 0}, {"output_tokens": 0}])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_budget_of_nothing_is_refused_and_nothing_is_drawn(serving: Any, policy: str, budget: dict[str, int]) -> None:
    async def main() -> None:
        async with serving(FOUR, policy) as served:
            got = await served.ask(breadth={"budget": budget})
            assert (got.status, got.error["param"]) == (400, "breadth.budget")
            assert served.fake.requests == []

    asyncio.run(main())


def test_a_budget_of_the_request_is_kept_to(serving: Any) -> None:
    async def main() -> None:
        async with serving(FOUR, "vote,n=8") as served:
            about = (await served.ask(breadth={"budget": {"calls": 3}})).json["breadth"]
            assert (about["drawn"], len(served.fake.requests), about["budget_spent"]) == (3, 3, True)

    asyncio.run(main())


def test_a_request_cannot_spend_more_than_the_operator_allows(serving: Any) -> None:
    async def main() -> None:
        async with serving(FOUR, "vote,n=8", limits=ProxyLimits(max_samples=2)) as served:
            about = (await served.ask(breadth={"budget": {"calls": 5}})).json["breadth"]
            assert (about["drawn"], len(served.fake.requests)) == (2, 2)

    asyncio.run(main())


def test_a_vote_is_streamed_with_signs_of_life_then_the_text_and_the_object(serving: Any) -> None:
    async def main() -> None:
        slow = Reply.from_text("So the answer is 4.", wait=1.5)
        async with serving(slow, "vote,n=3", limits=ProxyLimits(heartbeat_seconds=0.05)) as served:
            got = await served.ask(stream=True, stream_options={"include_usage": True})
            beats = got.raw.count(b": drawing\n\n")
            assert got.status == 200
            assert got.headers["Content-Type"].startswith("text/event-stream")
            assert 2 <= beats <= 60  # thirty, fewer on a machine that stalls
            *told, end, done = got.events
            assert (end["choices"], done) == ([], "[DONE]")
            assert "".join(event["choices"][0]["delta"].get("content", "") for event in told) == "So the answer is 4."
            assert end["usage"]["completion_tokens"] == 15
            assert (end["breadth"]["answer"], end["breadth"]["arrived"]) == ("4", 3)
            assert got.headers["x-request-id"] == end["breadth"]["trace"]

    asyncio.run(main())


def test_an_error_before_the_first_sign_of_life_has_its_status_and_one_after_it_is_an_event(serving: Any) -> None:
    async def main() -> None:
        async with serving(FOUR, "vote,n=3", faults=[Status(500)]) as served:
            assert (await served.ask(stream=True)).status == 502
        async with serving(
            FOUR, "vote,n=3", faults=[Hang()], limits=ProxyLimits(heartbeat_seconds=0.05, seconds=2)
        ) as served:
            got = await served.ask(stream=True)
            assert got.status == 200
            assert [event["error"]["code"] for event in got.events] == ["deadline"]
            page = (await served.get("/metrics")).raw.decode()
            assert 'policy="vote",status="504"} 1.0' in page

    asyncio.run(main())


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("policy", ["vote,n=5", "adaptive-vote", "single"])
def test_a_client_that_leaves_ends_its_draws_at_once(serving: Any, policy: str, stream: bool) -> None:
    async def main() -> None:
        slow = Reply.from_text("word " * 4000, delay=0.01)
        async with serving(slow, policy, limits=ProxyLimits(heartbeat_seconds=0.05)) as served:
            body = orjson.dumps({"messages": [{"role": "user", "content": "?"}], "stream": stream})
            response = asyncio.create_task(
                served.http.post(served.url + "/v1/chat/completions", data=body, headers=JSON)
            )
            await wait_until(lambda: served.fake.requests and served.fake.open_requests == len(served.fake.requests))
            await wait_until(
                lambda: all(arrival.events >= 10 or not arrival.body.get("stream") for arrival in served.fake.requests)
            )
            if response.done():
                (await response).close()
            response.cancel()
            await asyncio.gather(response, return_exceptions=True)
            await served.at_rest()
            assert served.fake.requests
            assert all(arrival.left is not None for arrival in served.fake.requests)
            spent = served.proxy.ledger.spent
            assert spent.calls == len(served.fake.requests)
            if stream or policy != "single":
                assert 0 < spent.output_tokens < 4000 * spent.calls
            page = (await served.get("/metrics")).raw.decode()
            assert f'breadth_samples_total{{outcome="discarded"}} {float(spent.calls)}' in page
            assert 'status="499"} 1.0' in page

    asyncio.run(main())


JSON = {"Content-Type": "application/json"}


def test_an_adaptive_vote_stops_what_it_does_not_need_and_counts_it_as_saved(serving: Any) -> None:
    async def main() -> None:
        def script(body: dict[str, Any], number: int) -> Reply:
            return FOUR if number < 6 else Reply.from_text("word " * 300, delay=0.02)

        async with serving(script, "adaptive-vote,most=40,width=12") as served:
            about = (await served.ask()).json["breadth"]
            assert (about["stopped"], about["answer"]) == ("agreed", "4")
            await served.at_rest()
            page = (await served.get("/metrics")).raw.decode()
            assert f"breadth_samples_saved_total {40.0 - about['drawn']}" in page

    asyncio.run(main())


def test_a_policy_that_needs_what_the_upstream_lacks_is_refused(serving: Any) -> None:
    async def main() -> None:
        async with serving(FOUR, client_policies=True) as served:
            got = await served.ask(breadth={"policy": "best-of-n"})
            assert (got.status, got.error["code"]) == (400, "bad_policy")
            assert "judge" in got.error["message"]
            assert served.fake.requests == []

    asyncio.run(main())


def test_the_rule_that_ends_a_completion_is_part_of_the_policy(serving: Any, tmp_path: Path) -> None:
    dump(Policy(Vote(n=2), halt=Loop()), tmp_path / "halting.toml")

    async def main() -> None:
        looping = Reply.from_text("and so on, " * 400)
        async with serving(looping, str(tmp_path / "halting.toml")) as served:
            got = await served.ask()
            assert got.status == 200
            assert 0 < len(got.text) < len("and so on, " * 400)

    asyncio.run(main())


def test_a_text_is_continued_by_vote_too(serving: Any) -> None:
    async def main() -> None:
        async with serving(mixed, "vote,n=4") as served:
            got = await served.post("/v1/completions", prompt="2 + 2 =")
            assert (got.status, got.text, got.json["object"]) == (200, "So the answer is 4.", "text_completion")
            assert {arrival.body["prompt"] for arrival in served.fake.requests} == {"2 + 2 ="}
            refused = await served.post("/v1/completions", prompt=["a", "b"])
            assert (refused.status, refused.error["param"]) == (400, "prompt")

    asyncio.run(main())
