"""The probe, against the real llama.cpp server and a fake one."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from socket import socket
from typing import Any

import pytest

from breadth.adapters.llama_cpp import LlamaCppDialect
from breadth.adapters.vllm import VllmDialect
from breadth.base.errors import BrokenFileError, ServerError
from breadth.runtime.connect import ServerClient
from breadth.runtime.dialect import ServerDialect, ServerIdentity
from breadth.runtime.probe import COUNTING_PREFIX, Capabilities, Trials, only_model, probe
from breadth.runtime.samplers.openai import OpenAISampler
from breadth.testing.fake_replies import Reply, ReplyToken, split_tokens
from breadth.testing.fake_server import FakeServer, ReplyScript
from breadth.testing.faults import EmptyText, Fault, Hang, NIgnored, NoLogprobs, NoUsage, Scheduled, Status

FOUND = Capabilities(
    "http://x",
    "m",
    LlamaCppDialect(thinks=True),
    20,
    "raw",
    "yes",
    "yes",
    "yes",
    "yes",
    "yes",
    "yes",
    "no",
    1024,
    8,
    ("a: b",),
)


def test_it_round_trips_through_toml(tmp_path: Path) -> None:
    for one in (FOUND, Capabilities("http://x", "", ServerDialect())):
        one.save(tmp_path / "server.toml")
        assert Capabilities.load(tmp_path / "server.toml") == one


def test_a_damaged_file_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    FOUND.save(file)
    file.write_text(file.read_text().replace("prefix =", "prefx ="))
    with pytest.raises(BrokenFileError, match=r"server.toml: there is no setting 'prefx'"):
        Capabilities.load(file)


def test_what_was_not_found_is_not_offered() -> None:
    assert FOUND.offers == {"logprobs", "confidences", "prefix", "seed", "thinking", "halt"}
    poor = replace(FOUND, top_logprobs=0, prefix="no", seed="no", thinking_cap="no")
    assert poor.offers == {"halt"}
    assert replace(FOUND, top_logprobs=1).offers == FOUND.offers - {"confidences"}


def test_what_could_not_be_told_is_believed_of_the_dialect() -> None:
    plain = Capabilities("http://x", "m", ServerDialect(), top_logprobs=5)
    assert plain.offers == {"logprobs", "confidences", "seed", "halt"}
    assert replace(plain, dialect=VllmDialect()).offers == plain.offers | {"prefix", "thinking"}


def test_it_is_shown_in_words() -> None:
    rows = dict(FOUND.rows())
    assert rows["log-probs"] == "raw, 20 alternatives"
    assert rows["dialect"] == "llama-cpp"
    assert rows["context"] == "1024 tokens"
    assert rows["remark"] == "a: b"
    strange = dict(Capabilities("http://x", "m", VllmDialect()).rows())
    assert strange["dialect"] == "vllm (no real server has answered it in our tests)"
    assert (strange["log-probs"], strange["context"]) == ("none", "unknown")


def concluded(
    trial: Callable[[Trials], Awaitable[Any]],
    script: ReplyScript | Reply,
    *faults: Fault | Scheduled,
    dialect: ServerDialect | None = None,
) -> tuple[Any, list[str]]:
    async def main() -> tuple[Any, list[str]]:
        async with FakeServer(script, faults=faults) as server, ServerClient(server.url, seconds=5) as site:
            sampler = OpenAISampler(server.url, dialect=dialect or VllmDialect(), attempts=1)
            try:
                trials = Trials(site, sampler, "fake")
                return await trial(trials), trials.remarks
            finally:
                await sampler.close()

    return asyncio.run(main())


def heated(processed: bool) -> ReplyScript:
    """A server whose two likeliest tokens have odds of 3 to 1, or 3**4 to 1 after a temperature of a quarter."""

    def script(request: dict[str, Any], number: int) -> Reply:
        odds = 3 ** (1 / request["temperature"]) if processed else 3.0
        return Reply((ReplyToken("red", math.log(odds / (1 + odds)), (("blue", math.log(1 / (1 + odds))),)),))

    return script


def test_raw_log_probs_are_told_from_processed_ones() -> None:
    assert concluded(Trials.classify_logprobs, heated(processed=False)) == ("raw", [])
    assert concluded(Trials.classify_logprobs, heated(processed=True)) == ("processed", [])
    even = Reply((ReplyToken("red", -0.7, (("blue", -0.71),)),))
    verdict, remarks = concluded(Trials.classify_logprobs, even)
    assert verdict == "unknown"
    assert "equally likely" in remarks[0]
    assert concluded(Trials.classify_logprobs, Reply.from_text("red"), Status(400))[0] == "unknown"


def test_the_largest_number_of_alternatives_is_found() -> None:
    assert concluded(Trials.count_top_logprobs, Reply.from_text("red")) == (20, [])
    top, remarks = concluded(Trials.count_top_logprobs, Reply.from_text("red"), NoLogprobs())
    assert top == 0
    assert "none were sent" in remarks[0]
    refused = Scheduled(Status(400), lambda number: number < 2)  # 20 and 5 are too many
    assert concluded(Trials.count_top_logprobs, Reply.from_text("red"), refused)[0] == 1
    top, remarks = concluded(Trials.count_top_logprobs, Reply.from_text("red"), Status(400))
    assert (top, len(remarks)) == (0, 3)


def test_usage_is_looked_for_in_the_stream() -> None:
    assert concluded(Trials.check_usage, Reply.from_text("red"))[0] == "yes"
    assert concluded(Trials.check_usage, Reply.from_text("red"), NoUsage())[0] == "no"
    with pytest.raises(ServerError, match="status 401"):
        concluded(Trials.check_usage, Reply.from_text("red"), Status(401))


def test_a_beginning_is_continued_or_not() -> None:
    def continues(request: dict[str, Any], number: int) -> Reply:
        return Reply.from_text(" 9, 10" if request["messages"][-1]["content"] == COUNTING_PREFIX else "1, 2")

    assert concluded(Trials.check_prefix, continues)[0] == "yes"
    assert concluded(Trials.check_prefix, Reply.from_text("Sure! 1, 2"))[0] == "no"
    assert concluded(Trials.check_prefix, Reply.from_text("x"), EmptyText())[0] == "no"
    verdict, remarks = concluded(Trials.check_prefix, Reply.from_text("no no no no"))
    assert verdict == "unknown"
    assert "repeats the same text" in remarks[0]
    verdict, remarks = concluded(Trials.check_prefix, continues, dialect=ServerDialect())
    assert verdict == "no"
    assert "plain OpenAI schema" in remarks[0]
    assert concluded(Trials.check_prefix, continues, Status(422))[0] == "no"
    assert concluded(Trials.check_prefix, continues, Status(503))[0] == "unknown"


def test_a_model_that_cannot_count_is_given_half_of_its_own_reply() -> None:
    reply = "I like green leaves and blue skies"

    def continues(request: dict[str, Any], number: int) -> Reply:
        given = request["messages"][-1]["content"]
        return Reply.from_text(reply.removeprefix(given) if given and reply.startswith(given) else reply)

    assert concluded(Trials.check_prefix, continues)[0] == "yes"
    assert concluded(Trials.check_prefix, Reply.from_text(reply))[0] == "no"


def test_seeds_are_kept_to_or_not() -> None:
    assert concluded(Trials.check_seed, lambda request, _: Reply.from_text(f"seed {request['seed']}"))[0] == "yes"
    assert concluded(Trials.check_seed, lambda _, number: Reply.from_text(f"draw {number}"))[0] == "no"
    verdict, remarks = concluded(Trials.check_seed, Reply.from_text("red"))
    assert verdict == "unknown"
    assert "same text" in remarks[0]


def test_n_is_heeded_or_not() -> None:
    assert concluded(Trials.check_n, Reply.from_text("red"))[0] == "yes"
    assert concluded(Trials.check_n, Reply.from_text("red"), NIgnored())[0] == "no"
    assert concluded(Trials.check_n, Reply.from_text("red"), Status(400))[0] == "no"


def thinker(heeds: bool, thought: int = 40) -> ReplyScript:
    def script(request: dict[str, Any], number: int) -> Reply:
        cap = request.get("thinking_token_budget", thought) if heeds else thought
        return Reply(split_tokens("56"), split_tokens("hm " * thought)[:cap])

    return script


def test_a_cap_on_thinking_is_kept_or_not() -> None:
    assert concluded(Trials.check_thinking, thinker(heeds=True))[0] == ("yes", "yes")
    assert concluded(Trials.check_thinking, thinker(heeds=False))[0] == ("yes", "no")
    assert concluded(Trials.check_thinking, thinker(heeds=False, thought=10))[0] == (
        "yes",
        "no",
    )  # within the slack, but not shortened
    assert concluded(Trials.check_thinking, thinker(heeds=True, thought=3))[0] == ("yes", "unknown")
    verdicts, remarks = concluded(Trials.check_thinking, Reply.from_text("56"))
    assert verdicts == ("no", "unknown")
    assert "no thinking" in remarks[0]
    assert concluded(Trials.check_thinking, thinker(heeds=True), dialect=ServerDialect())[0] == ("yes", "no")
    refuses = Scheduled(Status(400), lambda number: number == 1)
    assert concluded(Trials.check_thinking, thinker(heeds=True), refuses)[0] == ("yes", "no")
    assert concluded(Trials.check_thinking, thinker(heeds=True), Status(500))[0] == ("unknown", "unknown")


def test_the_real_server_is_found_as_it_is(llama: str) -> None:
    found = asyncio.run(probe(llama))
    assert found == Capabilities(
        url=llama,
        model="smollm2",
        dialect=LlamaCppDialect(thinks=False),
        top_logprobs=1000,
        logprobs="raw",
        prefix="yes",
        seed="yes",
        n="yes",
        thinking="no",
        thinking_cap="unknown",
        usage="yes",
        speculative="no",
        context=1024,
        slots=8,
        remarks=("Whether thinking can be capped is unknown: the model did no thinking that is separated.",),
    )


def test_a_thinking_server_is_found_to_cap(thinking_llama: str) -> None:
    found = asyncio.run(probe(thinking_llama))
    assert found.dialect == LlamaCppDialect(thinks=True)
    assert (found.thinking, found.thinking_cap, found.prefix) == ("yes", "yes", "yes")
    assert found.offers == {"logprobs", "confidences", "prefix", "seed", "halt", "thinking"}


def test_an_unknown_server_is_spoken_to_plainly() -> None:
    async def main() -> Capabilities:
        async with FakeServer(lambda request, _: Reply.from_text(f"seed {request['seed']}")) as server:
            return await probe(f"{server.url}/v1")

    found = asyncio.run(main())
    assert found.dialect == ServerDialect()
    assert (found.top_logprobs, found.prefix, found.seed, found.speculative, found.context) == (
        20,
        "no",
        "yes",
        "unknown",
        None,
    )
    assert found.offers == {"logprobs", "confidences", "seed", "halt"}


@pytest.mark.parametrize(
    ("fault", "model", "problem"),
    [(Status(402), "", "402"), (None, "nope", "has no model 'nope'"), (Hang(), "", "did not answer in 0.3 s")],
)
def test_a_server_that_draws_nothing_is_an_error(fault: Status | Hang | None, model: str, problem: str) -> None:
    async def main() -> None:
        async with FakeServer(Reply.from_text("x"), faults=[fault] if fault else []) as server:
            await probe(server.url, model=model, seconds=0.3)

    with pytest.raises(ServerError, match=problem):
        asyncio.run(main())


def test_a_server_that_is_not_there_is_an_error() -> None:
    with socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound, and nobody listens
        address = f"http://127.0.0.1:{closed.getsockname()[1]}"
        with pytest.raises(ServerError, match=rf"No server answers at {address} \(connection refused\)"):
            asyncio.run(probe(address))


def test_one_of_several_models_must_be_named() -> None:
    several = ServerIdentity({"data": [{"id": "a"}, {"id": "b"}]}, {}, {})
    with pytest.raises(ServerError, match="several models, and none was named: a, b"):
        only_model("http://x", several)
    assert only_model("http://x", ServerIdentity({"data": [{"id": "a"}, "junk"]}, {}, {})) == "a"
    assert only_model("http://x", ServerIdentity({}, {}, {})) == ""


def test_a_dialect_is_fitted_where_it_can_be() -> None:
    identity = ServerIdentity({}, {}, {"/props": {"chat_template": "{{ m.reasoning_content }}"}})
    assert LlamaCppDialect().fit_to(identity) == LlamaCppDialect(thinks=True)
    assert VllmDialect().fit_to(identity) == VllmDialect()
