"""Votes through the proxy: partial failures, streams with signs of life, clients that leave, deadlines."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from breadth.runtime.proxy.limits import Limits
from breadth.testing.fake_replies import Reply
from breadth.testing.faults import Hang, Scheduled, Status, every
from breadth.testing.waiting import until

FOUR, FIVE = Reply.of("So the answer is 4."), Reply.of("So the answer is 5.")
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
            seeds = [frozenset(arrival.body["seed"] for arrival in served.fake.requests[at : at + 2]) for at in (0, 2, 4, 6)]
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
            assert about["discarded"] + about["failed"] == 4  # cancelled, or out of time by themselves in the same moment
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
        async with serving(FOUR, "vote,n=8", limits=Limits(draws=2)) as served:
            about = (await served.ask(breadth={"budget": {"calls": 5}})).json["breadth"]
            assert (about["drawn"], len(served.fake.requests)) == (2, 2)

    asyncio.run(main())


def test_a_vote_is_streamed_with_signs_of_life_then_the_text_and_the_object(serving: Any) -> None:
    async def main() -> None:
        slow = Reply.of("So the answer is 4.", wait=1.5)
        async with serving(slow, "vote,n=3", limits=Limits(heartbeat=0.05)) as served:
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
        async with serving(FOUR, "vote,n=3", faults=[Hang()], limits=Limits(heartbeat=0.05, seconds=2)) as served:
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
        slow = Reply.of("word " * 4000, delay=0.01)
        async with serving(slow, policy, limits=Limits(heartbeat=0.05)) as served:
            body = orjson.dumps({"messages": [{"role": "user", "content": "?"}], "stream": stream})
            response = asyncio.create_task(served.http.post(served.url + "/v1/chat/completions", data=body, headers=JSON))
            await until(lambda: served.fake.requests and served.fake.in_flight == len(served.fake.requests))
            await until(lambda: all(arrival.events >= 10 or not arrival.body.get("stream") for arrival in served.fake.requests))
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
            assert f'breadth_draws_total{{outcome="discarded"}} {float(spent.calls)}' in page
            assert 'status="499"} 1.0' in page

    asyncio.run(main())


JSON = {"Content-Type": "application/json"}


def test_an_adaptive_vote_stops_what_it_does_not_need_and_counts_it_as_saved(serving: Any) -> None:
    async def main() -> None:
        def script(body: dict[str, Any], number: int) -> Reply:
            return FOUR if number < 6 else Reply.of("word " * 300, delay=0.02)

        async with serving(script, "adaptive-vote,most=40,width=12") as served:
            about = (await served.ask()).json["breadth"]
            assert (about["stopped"], about["answer"]) == ("agreed", "4")
            await served.at_rest()
            page = (await served.get("/metrics")).raw.decode()
            assert f"breadth_draws_saved_total {40.0 - about['drawn']}" in page

    asyncio.run(main())


def test_a_policy_that_needs_what_the_upstream_lacks_is_refused(serving: Any) -> None:
    async def main() -> None:
        async with serving(FOUR) as served:
            got = await served.ask(breadth={"policy": "best-of-n"})
            assert (got.status, got.error["code"]) == (400, "bad_policy")
            assert "judge" in got.error["message"]
            assert served.fake.requests == []

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
