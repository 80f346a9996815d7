"""Every fault of the fake server, and every strategy, through the whole proxy."""

from __future__ import annotations

import asyncio
import time
from dataclasses import MISSING, fields
from typing import Any

import pytest

from breadth.inference.catalogue import STRATEGIES
from breadth.runtime.proxy.access import ProxyLimits
from breadth.testing.fake_replies import Reply
from breadth.testing.faults import (
    Cut,
    DuplicatedChunks,
    EmptyText,
    ErrorInStream,
    Fault,
    Hang,
    MalformedJson,
    NIgnored,
    NoLogprobs,
    NoUsage,
    Slow,
    Status,
    WrongContentType,
    first,
)

FOUR, FIVE = Reply.from_text("So the answer is 4."), Reply.from_text("So the answer is 5.")
DEADLY: dict[str, tuple[Fault, int]] = {
    "500": (Status(500), 502),
    "503": (Status(503), 503),
    "html": (Status(500, shaped=False), 502),
    "429": (Status(429, retry_after=30), 429),
    "429 without": (Status(429), 429),
    "401": (Status(401), 502),
    "400": (Status(400), 400),
    "login page": (WrongContentType(), 502),
    "cut": (Cut(after=3), 502),
    "malformed": (MalformedJson(after=3), 502),
}
"""What no draw survives -> the status a client is told."""
HARMLESS: dict[str, Fault] = {
    "slow": Slow(0.002),
    "duplicated": DuplicatedChunks(),
    "n ignored": NIgnored(),
    "no log-probs": NoLogprobs(),
    "no usage": NoUsage(),
}
POLICIES = ("single", "vote,n=3", "adaptive-vote,most=4")


def mixed(body: dict[str, Any], number: int) -> Reply:
    del body
    return FIVE if number % 4 == 0 else FOUR


@pytest.mark.parametrize(
    ("name", "policy"), [(name, policy) for name in DEADLY for policy in POLICIES] + [("error in stream", "vote,n=3")]
)
def test_when_all_draws_fail_the_error_is_the_upstreams_and_never_an_answer(
    serving: Any, name: str, policy: str
) -> None:
    fault, status = DEADLY.get(name, (ErrorInStream(after=3), 502))

    async def main() -> None:
        async with serving(FOUR, policy, faults=[fault]) as served:
            begun = time.monotonic()
            got = await served.ask(breadth={"budget": {"seconds": 20}})
            assert got.status == status, got.raw
            assert set(got.json) == {"error"}
            assert got.error["message"]
            assert served.fake.url not in got.raw.decode()
            assert time.monotonic() - begun < 10
            if name == "429":
                assert got.headers["Retry-After"] in ("29", "30")
            await served.at_rest()

    asyncio.run(main())


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", HARMLESS)
def test_what_does_no_harm_is_answered(serving: Any, name: str, policy: str) -> None:
    async def main() -> None:
        async with serving(FOUR, policy, faults=[HARMLESS[name]]) as served:
            got = await served.ask()
            assert (got.status, got.text) == (200, "So the answer is 4.")
            await served.at_rest()

    asyncio.run(main())


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", ["500", "429 without", "cut", "malformed", "login page"])
def test_a_fault_that_passes_is_tried_again(serving: Any, name: str, policy: str) -> None:
    async def main() -> None:
        async with serving(FOUR, policy, faults=[first(1, DEADLY[name][0])]) as served:
            got = await served.ask()
            assert (got.status, got.text, got.json["breadth"]["failed"]) == (200, "So the answer is 4.", 0)

    asyncio.run(main())


@pytest.mark.parametrize("policy", POLICIES)
def test_retry_after_is_kept_to(serving: Any, policy: str) -> None:
    async def main() -> None:
        async with serving(FOUR, policy, faults=[first(1, Status(429, retry_after=1))]) as served:
            got = await served.ask()
            came = [arrival.came for arrival in served.fake.requests]
            assert got.status == 200
            assert max(came) - min(came) >= 0.95

    asyncio.run(main())


def test_empty_replies_are_an_answer_without_a_vote_and_say_so(serving: Any) -> None:
    async def main() -> None:
        async with serving(FOUR, "vote,n=3", faults=[EmptyText()]) as served:
            got = await served.ask()
            about = got.json["breadth"]
            assert (got.status, got.text, about["unread"], about["votes"], about["confidence"]) == (
                200,
                "",
                3,
                [],
                None,
            )
            assert about["notes"]

    asyncio.run(main())


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("stream", [False, True])
def test_a_hanging_upstream_ends_at_the_deadline(serving: Any, policy: str, stream: bool) -> None:
    async def main() -> None:
        async with serving(FOUR, policy, faults=[Hang()], limits=ProxyLimits(seconds=0.3)) as served:
            begun = time.monotonic()
            got = await served.ask(stream=stream)
            assert got.status == 504
            assert 0.25 < time.monotonic() - begun < 5
            assert got.error["code"] == "deadline"
            await served.at_rest()
            assert all(arrival.left for arrival in served.fake.requests)

    asyncio.run(main())


@pytest.mark.parametrize("name", STRATEGIES.names())
def test_every_strategy_is_answered_or_refused_for_what_it_needs(serving: Any, name: str) -> None:
    async def main() -> None:
        async with serving(mixed, client_policies=True) as served:
            got = await served.ask(breadth={"policy": name, "budget": {"calls": 48, "seconds": 20}})
            kind = STRATEGIES.load(name)
            needed = [field for field in fields(kind) if field.default is field.default_factory is MISSING]
            if needed:  # such as the stages of a cascade
                assert (got.status, "is missing" in got.error["message"]) == (400, True)
                return
            missing = kind().needs - served.proxy.sampler.offers
            assert (got.status, "error" in got.json) == ((400, True) if missing else (200, False)), got.raw
            assert all(need in got.error["message"] for need in missing)
            if not missing:
                assert got.text.startswith("So the answer is")
                assert got.json["breadth"]["strategy"] == name
            await served.at_rest()

    asyncio.run(main())
