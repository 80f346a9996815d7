"""The reasoner over HTTP, end to end: the openai SDK, our strategies, the probe, clients that leave, draining."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import openai
import orjson
import pytest
import torch
from openai import AsyncOpenAI

from breadth.adapters.llama_cpp import LlamaCppDialect
from breadth.base.errors import ServerError, SettingsError
from breadth.inference.policy import Policy
from breadth.inference.records import Reading, Sampling
from breadth.inference.strategies.adaptive_vote import AdaptiveVote
from breadth.inference.strategies.budget_forcing import BudgetForcing
from breadth.inference.strategy import Strategy
from breadth.lab.reasoner import Reasoner, ReasonerShape, build_reasoner
from breadth.lab.server.server import LabServer, LabServerSettings
from breadth.lab.task.teacher import ArithmeticFacts, Teacher
from breadth.lab.task.vocabulary import vocabulary_words
from breadth.runtime.connect import connect
from breadth.runtime.dialect import CHAT_PATH, COMPLETIONS_PATH
from breadth.runtime.driver import Driver, SolveResult
from breadth.runtime.probe import probe
from breadth.testing.fake_server import wait_until

QUESTION = "(3+4)*(5+6)="
ASKED: list[Any] = [{"role": "user", "content": QUESTION}]
GREEDY = "<think> add 3 + 4 =0 5 + 6 =4 0 * 4 =0 </think> 0"
"""The likeliest of the four traces it knows."""
Use = Callable[[AsyncOpenAI], Awaitable[Any]]


def use(reasoner: Reasoner, work: Use, **settings: Any) -> Any:
    """Do something with the SDK while the reasoner is served."""

    async def main() -> Any:
        server = LabServer(reasoner, LabServerSettings(**settings))
        async with server, AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
            return await work(client)

    return asyncio.run(main())


def chat(reasoner: Reasoner, messages: list[Any] = ASKED, settings: dict[str, Any] | None = None, **fields: Any) -> Any:
    async def work(client: AsyncOpenAI) -> Any:
        return await client.chat.completions.create(model="routes", messages=messages, **fields)

    return use(reasoner, work, **(settings or {}))


def test_a_whole_reply(memorised: Reasoner) -> None:
    reply = chat(memorised, temperature=0)
    assert reply.choices[0].message.content == GREEDY
    assert reply.choices[0].finish_reason == "stop"
    # Read: the beginning and 12 words. Written: 16 words and the end, 13 of them between the marks.
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens, reply.usage.total_tokens) == (13, 17, 30)
    assert reply.usage.completion_tokens_details.reasoning_tokens == 13


def test_a_stream_says_the_same_token_by_token(memorised: Reasoner) -> None:
    async def work(client: AsyncOpenAI) -> tuple[str, list[Any]]:
        whole = await client.chat.completions.create(model="routes", messages=ASKED, seed=4)
        asked = {"seed": 4, "stream": True, "stream_options": {"include_usage": True}}
        stream = await client.chat.completions.create(model="routes", messages=ASKED, **asked)  # type: ignore[call-overload] # one of its forms
        return whole.choices[0].message.content or "", [chunk async for chunk in stream]

    whole, chunks = use(memorised, work)
    pieces = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices and chunk.choices[0].delta.content]
    assert "".join(pieces) == whole
    assert [piece.strip() for piece in pieces] == whole.split()
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].usage.completion_tokens == len(pieces) + 1


def test_log_probs_are_the_models_own(memorised: Reasoner) -> None:
    # At temperature 0.5 and top-p 0.9: what is told is before both.
    reply = chat(memorised, temperature=0.5, top_p=0.9, seed=2, logprobs=True, top_logprobs=3).choices[0]
    text = f"( 3 + 4 ) * ( 5 + 6 ) = {reply.message.content}"
    tokens = torch.tensor([memorised.tokenizer(text)["input_ids"]])
    with torch.inference_mode():
        raw = memorised.model(input_ids=tokens).logits[0].double().log_softmax(-1)[12:-1]
    entries = reply.logprobs.content
    assert "".join(entry.token for entry in entries) == reply.message.content
    assert [entry.logprob for entry in entries] == pytest.approx(
        raw.gather(1, tokens[0, 13:, None])[:, 0].tolist(), abs=1e-4
    )
    told = [[top.logprob for top in entry.top_logprobs] for entry in entries]
    assert torch.tensor(told).flatten().tolist() == pytest.approx(raw.topk(3).values.flatten().tolist(), abs=1e-4)


def test_plain_completions_with_log_probs(memorised: Reasoner) -> None:
    async def work(client: AsyncOpenAI) -> Any:
        return await client.completions.create(
            model="routes", prompt=f"{QUESTION} <think>", temperature=0, logprobs=2, max_tokens=3
        )

    choice = use(memorised, work).choices[0]
    assert (choice.text, choice.finish_reason) == (" add 3 +", "length")
    assert choice.logprobs.tokens == [" add", " 3", " +"]
    assert [len(top) for top in choice.logprobs.top_logprobs] == [2, 2, 2]
    assert choice.logprobs.text_offset == [20, 24, 26]  # behind the 20 characters of the prompt


def test_a_reply_that_was_begun_is_continued_wherever_it_stood(memorised: Reasoner) -> None:
    words = GREEDY.split()

    async def work(client: AsyncOpenAI) -> list[str]:
        texts = []
        for place in range(1, len(words)):
            begun = [*ASKED, {"role": "assistant", "content": " ".join(words[:place])}]
            reply = await client.chat.completions.create(model="routes", messages=begun, temperature=0)
            texts.append(" ".join(words[:place]) + (reply.choices[0].message.content or ""))
        return texts

    assert use(memorised, work) == [GREEDY] * (len(words) - 1)


def test_several_replies_have_seeds_of_their_own(memorised: Reasoner) -> None:
    async def work(client: AsyncOpenAI) -> list[list[str | None]]:
        asked = [{"n": 8, "seed": 3}, {"n": 8, "seed": 3}, {"n": 1, "seed": 3}]
        replies = [await client.chat.completions.create(model="routes", messages=ASKED, **one) for one in asked]  # type: ignore[call-overload]
        return [[choice.message.content for choice in reply.choices] for reply in replies]

    eight, again, one = use(memorised, work)
    assert eight == again
    assert eight[:1] == one
    assert len(set(eight)) > 1


def test_stop_texts_and_thinking_budgets(memorised: Reasoner) -> None:
    stopped = chat(memorised, temperature=0, stop=["</think>"]).choices[0]
    assert (stopped.message.content, stopped.finish_reason) == (GREEDY.partition("</think>")[0], "stop")
    capped = chat(memorised, temperature=0, extra_body={"reasoning_budget_tokens": 5})
    assert capped.choices[0].message.content.startswith("<think> add 3 + 4 =0 </think> ")
    assert capped.usage.completion_tokens_details.reasoning_tokens == 5


def test_thinking_can_be_set_apart(memorised: Reasoner) -> None:
    reply = chat(memorised, temperature=0, settings={"reasoning_format": "deepseek"})
    message = reply.choices[0].message
    assert (message.content, message.reasoning_content) == ("0", "add 3 + 4 =0 5 + 6 =4 0 * 4 =0")
    assert reply.usage.completion_tokens == 17


def test_errors_reach_the_sdk_as_its_own(memorised: Reasoner) -> None:
    with pytest.raises(openai.BadRequestError, match="presence_penalty"):
        chat(memorised, presence_penalty=1.0)
    with pytest.raises(openai.BadRequestError, match="nothing to answer"):
        chat(memorised, [{"role": "user", "content": ""}])


def solved(reasoner: Reasoner, strategy: Strategy, sampling: Sampling, **settings: Any) -> SolveResult:
    async def main() -> SolveResult:
        async with LabServer(reasoner, LabServerSettings(**settings)) as server:
            sampler = await connect([server.url])
            try:
                task = Policy(strategy, sampling, Reading("whole")).task(QUESTION)
                return await Driver(sampler).solve(strategy, task)
            finally:
                await sampler.close()

    return asyncio.run(main())


@pytest.mark.parametrize("reasoning_format", ["none", "deepseek"])
def test_a_vote_is_taken_over_it(memorised: Reasoner, reasoning_format: str) -> None:
    drawn = solved(
        memorised,
        AdaptiveVote(most=16),
        Sampling(temperature=1.0, top_p=1.0, top_logprobs=5),
        reasoning_format=reasoning_format,
    )
    assert drawn.answer.key == "0"  # three of the four traces it knows
    assert drawn.failed == 0
    for candidate in drawn.arrived:
        assert candidate.reasoning
        assert candidate.thinking_tokens == len(candidate.reasoning.split())
        assert candidate.logprobs is not None
        assert len(candidate.logprobs) == candidate.tokens - 1  # the end of the reply has no text and no log-prob


@pytest.mark.parametrize("reasoning_format", ["none", "deepseek"])
@pytest.mark.parametrize("budget", [6, 60])
def test_thinking_is_forced_to_a_budget_from_outside(memorised: Reasoner, reasoning_format: str, budget: int) -> None:
    strategy = BudgetForcing(cues=0, minimum=budget, maximum=budget)
    drawn = solved(memorised, strategy, Sampling(temperature=1.0, max_tokens=150), reasoning_format=reasoning_format)
    assert drawn.answer.figures["thinking_tokens"] == budget
    assert drawn.answer.figures["forced"] == 1.0
    assert (drawn.answer.figures["cues"] >= 1) == (budget == 60)  # its longest trace thinks 31 tokens
    assert drawn.answer.chosen is not None


def test_the_probe_finds_what_is_there(memorised: Reasoner) -> None:
    async def main() -> Any:
        async with LabServer(memorised) as server:
            return await probe(server.url)

    found = asyncio.run(main())
    assert found.dialect == LlamaCppDialect(thinks=False)
    assert (found.top_logprobs, found.logprobs) == (len(vocabulary_words(7)), "raw")
    assert (found.seed, found.n, found.usage, found.thinking, found.thinking_cap, found.speculative) == (
        "yes",
        "yes",
        "yes",
        "yes",
        "yes",
        "no",
    )
    assert (found.context, found.slots) == (256, 512)


def test_fields_that_it_does_not_know_are_no_error(memorised: Reasoner) -> None:
    async def main() -> int:
        async with LabServer(memorised) as server, aiohttp.ClientSession(server.url) as session:
            asked = {"messages": ASKED, "max_tokens": 4, "anything": {"else": 1}}
            async with session.post(CHAT_PATH, json=asked) as response:
                return response.status

    assert asyncio.run(main()) == 200


@pytest.fixture(scope="module")
def endless() -> Reasoner:
    """Untaught: at temperature 0 it repeats itself for ever."""
    return build_reasoner(
        Teacher(ArithmeticFacts(prime=7)), ReasonerShape(hidden=32, layers=1, heads=2, inner=32, context=4096)
    )


def test_a_client_that_leaves_frees_its_rows(endless: Reasoner) -> None:
    async def main() -> tuple[int, int]:
        async with LabServer(endless) as server, aiohttp.ClientSession(server.url) as session:
            asked = {"messages": ASKED, "temperature": 0, "stream": True, "n": 4}
            async with session.post(CHAT_PATH, json=asked) as response:
                await response.content.readline()
                during = server.in_flight
                response.close()
            await wait_until(lambda: not (server.in_flight or server.engine.open))
            return during, server.in_flight + server.engine.open

    assert asyncio.run(main()) == (4, 0)


def test_what_is_in_flight_is_finished_before_the_end(endless: Reasoner) -> None:
    async def main() -> Any:
        async with aiohttp.ClientSession() as session:
            async with LabServer(endless) as server:
                asking = asyncio.create_task(
                    session.post(server.url + CHAT_PATH, json={"messages": ASKED, "temperature": 0, "max_tokens": 200})
                )
                await wait_until(lambda: server.in_flight)
            async with await asking as response:
                return await response.json()

    reply = asyncio.run(main())
    assert reply["usage"]["completion_tokens"] == 200


def test_what_takes_too_long_is_ended(endless: Reasoner) -> None:
    async def main() -> None:
        async with aiohttp.ClientSession() as session:
            async with LabServer(endless, LabServerSettings(drain_seconds=0.05)) as server:
                asking = asyncio.create_task(
                    session.post(server.url + CHAT_PATH, json={"messages": ASKED, "temperature": 0})
                )
                await wait_until(lambda: server.in_flight)
            with pytest.raises(aiohttp.ClientError):
                await asking

    asyncio.run(main())


def test_a_port_that_is_taken_is_said(endless: Reasoner) -> None:
    async def main() -> None:
        async with LabServer(endless) as first:
            port = int(first.url.rpartition(":")[2])
            async with LabServer(endless, LabServerSettings(port=port)):
                pass

    with pytest.raises(SettingsError, match="taken by another program"):
        asyncio.run(main())


@pytest.mark.parametrize(
    "wrong", [{"threads": 0}, {"max_running": 0}, {"max_in_flight": 0}, {"reasoning_format": "both"}]
)
def test_settings_are_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=next(iter(wrong))):
        LabServerSettings(**wrong)


ASKED_PAGES = {"messages": [{"role": "user", "content": "(3+4)*(5+6)="}]}
Exchange = Callable[[aiohttp.ClientSession, LabServer], Awaitable[Any]]


@pytest.fixture(scope="module")
def tiny() -> Reasoner:
    return build_reasoner(
        Teacher(ArithmeticFacts(prime=7)), ReasonerShape(hidden=32, layers=1, heads=2, inner=32, context=128)
    )


def talk(reasoner: Reasoner, exchange: Exchange, **settings: Any) -> Any:
    async def main() -> Any:
        async with (
            LabServer(reasoner, LabServerSettings(**settings)) as server,
            aiohttp.ClientSession(server.url) as session,
        ):
            return await exchange(session, server)

    return asyncio.run(main())


def got(reasoner: Reasoner, path: str) -> Any:
    async def exchange(session: aiohttp.ClientSession, _: LabServer) -> Any:
        async with session.get(path) as response:
            return await response.json()

    return talk(reasoner, exchange)


def posted(reasoner: Reasoner, path: str, data: bytes, **settings: Any) -> tuple[int, dict[str, Any]]:
    async def exchange(session: aiohttp.ClientSession, _: LabServer) -> tuple[int, dict[str, Any]]:
        async with session.post(path, data=data) as response:
            return response.status, await response.json()

    status, body = talk(reasoner, exchange, **settings)
    return status, body


def test_it_says_what_it_is_and_does_not_claim_to_be_another(tiny: Reasoner) -> None:
    (model,) = got(tiny, "/v1/models")["data"]
    weights = sum(tensor.numel() for tensor in tiny.model.parameters())
    assert (model["id"], model["owned_by"]) == ("routes", "breadth")
    assert model["meta"] == {"n_ctx": 128, "n_vocab": len(vocabulary_words(7)), "n_params": weights}
    props = got(tiny, "/props")
    assert props["chat_template"] == tiny.tokenizer.chat_template
    assert props["total_slots"] == 512
    assert props["default_generation_settings"]["params"]["temperature"] == 1.0
    assert got(tiny, "/health") == {"status": "ok"}


@pytest.mark.parametrize(
    ("path", "data", "status", "code"),
    [
        (CHAT_PATH, b"{", 400, "bad_json"),
        (CHAT_PATH, b"[]", 400, "bad_json"),
        (CHAT_PATH, b'{"messages": "hello"}', 400, "invalid_value"),
        (CHAT_PATH, orjson.dumps(ASKED_PAGES | {"model": "gpt-5"}), 404, "model_not_found"),
        (COMPLETIONS_PATH, orjson.dumps({"prompt": "3 " * 200}), 400, "context_length_exceeded"),
        (COMPLETIONS_PATH, orjson.dumps({"prompt": "3 " * 1000}), 413, "body_too_large"),
        ("/v1/embeddings", b"{}", 404, "unknown_path"),
        ("/health", b"{}", 405, "method_not_allowed"),
    ],
)
def test_what_is_wrong_is_said_in_openais_shape(tiny: Reasoner, path: str, data: bytes, status: int, code: str) -> None:
    got_status, body = posted(tiny, path, data, max_body_bytes=1500)
    assert got_status == status
    assert body["error"]["code"] == code
    assert set(body["error"]) == {"message", "type", "param", "code"}


def test_a_body_that_is_not_what_its_headers_say(tiny: Reasoner) -> None:
    async def exchange(session: aiohttp.ClientSession, _: LabServer) -> int:
        async with session.post(CHAT_PATH, data=b"no gzip", headers={"Content-Encoding": "gzip"}) as response:
            return response.status

    assert talk(tiny, exchange) == 400


def broken(server: LabServer) -> None:
    """Make the engine fail every job, as it does when the weights are not finite."""

    def submit(job: Any, on_token: Any, on_failure: Callable[[Exception], None]) -> Any:
        ticket = server.engine.__class__.submit(server.engine, job, on_token, on_failure)
        ticket.fail(ServerError("The model's logits are not finite.", "Load other weights.", status=500))
        return ticket

    server.engine.submit = submit  # type: ignore[method-assign] # only here


def test_a_fault_of_ours_is_no_reply(tiny: Reasoner) -> None:
    async def exchange(session: aiohttp.ClientSession, server: LabServer) -> tuple[int, bytes, bytes]:
        broken(server)
        async with (
            session.post(CHAT_PATH, json=ASKED_PAGES) as whole,
            session.post(CHAT_PATH, json=ASKED_PAGES | {"stream": True}) as stream,
        ):
            return whole.status, await whole.read(), await stream.read()

    status, whole, stream = talk(tiny, exchange)
    assert status == 500
    assert "not finite" in orjson.loads(whole)["error"]["message"]
    assert b'"error"' in stream
    assert b"not finite" in stream
    assert b"[DONE]" not in stream


def test_one_too_many_is_told_when_to_come_back(tiny: Reasoner) -> None:
    async def exchange(session: aiohttp.ClientSession, server: LabServer) -> tuple[list[int], str | None]:
        with server.reserve(3):
            async with session.post(CHAT_PATH, json=ASKED_PAGES | {"n": 2}) as full:
                pass
            async with session.post(CHAT_PATH, json=ASKED_PAGES | {"max_tokens": 1}) as fits:
                pass
        async with session.post(CHAT_PATH, json=ASKED_PAGES | {"n": 2, "max_tokens": 1}) as later:
            return [full.status, fits.status, later.status], full.headers.get("Retry-After")

    assert talk(tiny, exchange, max_in_flight=4) == ([429, 200, 200], "1")


def test_about_to_end_it_takes_nothing_new(tiny: Reasoner) -> None:
    async def exchange(session: aiohttp.ClientSession, server: LabServer) -> list[int]:
        server.draining = True
        async with session.post(CHAT_PATH, json=ASKED_PAGES) as refused, session.get("/health") as health:
            return [refused.status, health.status]

    assert talk(tiny, exchange) == [503, 503]
