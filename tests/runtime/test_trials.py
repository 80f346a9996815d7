"""The trials: what each concludes from what a server does, with servers that do as told."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from breadth.adapters.vllm.dialect import VllmDialect
from breadth.base.errors import ServerError
from breadth.runtime.dialect import Dialect
from breadth.runtime.samplers.openai import OpenAISampler
from breadth.runtime.site import Site
from breadth.runtime.trials import COUNTED, Trials
from breadth.testing.fake_replies import Reply, Token, words
from breadth.testing.fake_server import FakeServer, Script
from breadth.testing.faults import EmptyText, Fault, NIgnored, NoLogprobs, NoUsage, Scheduled, Status


def concluded(
    trial: Callable[[Trials], Awaitable[Any]], script: Script | Reply, *faults: Fault | Scheduled, dialect: Dialect | None = None
) -> tuple[Any, list[str]]:
    async def main() -> tuple[Any, list[str]]:
        async with FakeServer(script, faults=faults) as server, Site(server.url, seconds=5) as site:
            sampler = OpenAISampler(server.url, dialect=dialect or VllmDialect(), attempts=1)
            try:
                trials = Trials(site, sampler, "fake")
                return await trial(trials), trials.remarks
            finally:
                await sampler.close()

    return asyncio.run(main())


def heated(processed: bool) -> Script:
    """A server whose two likeliest tokens have odds of 3 to 1, or 3**4 to 1 after a temperature of a quarter."""

    def script(request: dict[str, Any], number: int) -> Reply:
        odds = 3 ** (1 / request["temperature"]) if processed else 3.0
        return Reply((Token("red", math.log(odds / (1 + odds)), (("blue", math.log(1 / (1 + odds))),)),))

    return script


def test_raw_log_probs_are_told_from_processed_ones() -> None:
    assert concluded(Trials.logprobs, heated(processed=False)) == ("raw", [])
    assert concluded(Trials.logprobs, heated(processed=True)) == ("processed", [])
    even = Reply((Token("red", -0.7, (("blue", -0.71),)),))
    verdict, remarks = concluded(Trials.logprobs, even)
    assert verdict == "unknown"
    assert "equally likely" in remarks[0]
    assert concluded(Trials.logprobs, Reply.of("red"), Status(400))[0] == "unknown"


def test_the_largest_number_of_alternatives_is_found() -> None:
    assert concluded(Trials.top_logprobs, Reply.of("red")) == (20, [])
    top, remarks = concluded(Trials.top_logprobs, Reply.of("red"), NoLogprobs())
    assert top == 0
    assert "none were sent" in remarks[0]
    refused = Scheduled(Status(400), lambda number: number < 2)  # 20 and 5 are too many
    assert concluded(Trials.top_logprobs, Reply.of("red"), refused)[0] == 1
    top, remarks = concluded(Trials.top_logprobs, Reply.of("red"), Status(400))
    assert (top, len(remarks)) == (0, 3)


def test_usage_is_looked_for_in_the_stream() -> None:
    assert concluded(Trials.alive, Reply.of("red"))[0] == "yes"
    assert concluded(Trials.alive, Reply.of("red"), NoUsage())[0] == "no"
    with pytest.raises(ServerError, match="status 401"):
        concluded(Trials.alive, Reply.of("red"), Status(401))


def test_a_beginning_is_continued_or_not() -> None:
    def continues(request: dict[str, Any], number: int) -> Reply:
        return Reply.of(" 9, 10" if request["messages"][-1]["content"] == COUNTED else "1, 2")

    assert concluded(Trials.prefix, continues)[0] == "yes"
    assert concluded(Trials.prefix, Reply.of("Sure! 1, 2"))[0] == "no"
    assert concluded(Trials.prefix, Reply.of("x"), EmptyText())[0] == "no"
    verdict, remarks = concluded(Trials.prefix, Reply.of("no no no no"))
    assert verdict == "unknown"
    assert "over and over" in remarks[0]
    verdict, remarks = concluded(Trials.prefix, continues, dialect=Dialect())
    assert verdict == "no"
    assert "plain OpenAI schema" in remarks[0]
    assert concluded(Trials.prefix, continues, Status(422))[0] == "no"
    assert concluded(Trials.prefix, continues, Status(503))[0] == "unknown"


def test_a_model_that_cannot_count_is_given_half_of_its_own_reply() -> None:
    reply = "I like green leaves and blue skies"

    def continues(request: dict[str, Any], number: int) -> Reply:
        given = request["messages"][-1]["content"]
        return Reply.of(reply.removeprefix(given) if given and reply.startswith(given) else reply)

    assert concluded(Trials.prefix, continues)[0] == "yes"
    assert concluded(Trials.prefix, Reply.of(reply))[0] == "no"


def test_seeds_are_kept_to_or_not() -> None:
    assert concluded(Trials.seed, lambda request, _: Reply.of(f"seed {request['seed']}"))[0] == "yes"
    assert concluded(Trials.seed, lambda _, number: Reply.of(f"draw {number}"))[0] == "no"
    verdict, remarks = concluded(Trials.seed, Reply.of("red"))
    assert verdict == "unknown"
    assert "same text" in remarks[0]


def test_n_is_heeded_or_not() -> None:
    assert concluded(Trials.n, Reply.of("red"))[0] == "yes"
    assert concluded(Trials.n, Reply.of("red"), NIgnored())[0] == "no"
    assert concluded(Trials.n, Reply.of("red"), Status(400))[0] == "no"


def thinker(heeds: bool, thought: int = 40) -> Script:
    def script(request: dict[str, Any], number: int) -> Reply:
        cap = request.get("thinking_token_budget", thought) if heeds else thought
        return Reply(words("56"), words("hm " * thought)[:cap])

    return script


def test_a_cap_on_thinking_is_kept_or_not() -> None:
    assert concluded(Trials.thinking, thinker(heeds=True))[0] == ("yes", "yes")
    assert concluded(Trials.thinking, thinker(heeds=False))[0] == ("yes", "no")
    assert concluded(Trials.thinking, thinker(heeds=False, thought=10))[0] == ("yes", "no")  # within the slack, but not shortened
    assert concluded(Trials.thinking, thinker(heeds=True, thought=3))[0] == ("yes", "unknown")
    verdicts, remarks = concluded(Trials.thinking, Reply.of("56"))
    assert verdicts == ("no", "unknown")
    assert "no thinking" in remarks[0]
    assert concluded(Trials.thinking, thinker(heeds=True), dialect=Dialect())[0] == ("yes", "no")
    refuses = Scheduled(Status(400), lambda number: number == 1)
    assert concluded(Trials.thinking, thinker(heeds=True), refuses)[0] == ("yes", "no")
    assert concluded(Trials.thinking, thinker(heeds=True), Status(500))[0] == ("unknown", "unknown")
