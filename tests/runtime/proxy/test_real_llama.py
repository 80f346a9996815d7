"""The proxy in front of a real llama.cpp server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from breadth.runtime.connect import connect
from breadth.runtime.proxy.proxy import Proxy
from breadth.runtime.proxy.routing import Policies
from breadth.runtime.proxy.server import Server

openai = pytest.importorskip("openai", reason="the openai SDK is not installed (extra 'dev')")

DIGIT = {"grammar": "root ::= [0-9]"}
"""Holds the small model to a reply that can be read, whatever it would write on this processor."""
ASKED = [{"role": "user", "content": "What is 2 + 3? Reply with the number only."}]


@asynccontextmanager
async def proxied(llama: str, policy: str = "single") -> AsyncIterator[tuple[Any, str, Proxy]]:
    """Give an openai client of a proxy in front of the server, its address and the proxy."""
    proxy = Proxy(await connect([llama]), Policies.parse(policy, ["careful=vote,n=4"], client_policies=True))
    async with (
        Server(proxy) as server,
        openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="unused", max_retries=0) as sdk,
    ):
        yield sdk, server.url, proxy


async def busy(llama: str) -> int:
    """Return the slots that are generating."""
    async with aiohttp.ClientSession() as http, http.get(f"{llama}/slots") as reply:
        return sum(slot["is_processing"] for slot in await reply.json())


def test_a_vote_has_a_confidence_and_the_usage_of_all_draws(llama: str) -> None:
    async def main() -> None:
        async with proxied(llama) as (sdk, _, proxy):
            wishes = DIGIT | {"breadth": {"policy": "vote,n=6", "reading": "number", "seed": 3}}
            reply = await sdk.chat.completions.create(
                model="smollm2", messages=ASKED, max_tokens=24, temperature=0.8, extra_body=wishes
            )
            about = reply.breadth
            assert (about["drawn"], about["arrived"], about["failed"]) == (6, 6, 0)
            assert (sum(vote["votes"] for vote in about["votes"]), about["unread"]) == (6, 0)
            assert about["votes"][0]["answer"] in reply.choices[0].message.content
            assert 0 < about["confidence"] < 1
            assert 6 <= reply.usage.completion_tokens <= 6 * 24
            assert reply.usage.prompt_tokens > 6 * 20
            assert proxy.ledger.spent.output_tokens == reply.usage.completion_tokens

    asyncio.run(main())


@pytest.mark.parametrize("model", ["smollm2", "smollm2@careful"])
def test_streaming_ends_with_usage_and_the_object(llama: str, model: str) -> None:
    async def main() -> None:
        async with proxied(llama) as (sdk, _, __):
            stream = await sdk.chat.completions.create(
                model=model,
                messages=ASKED,
                max_tokens=12,
                stream=True,
                stream_options={"include_usage": True},
                extra_body=DIGIT,
            )
            chunks = [chunk async for chunk in stream]
            assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices).strip()
            assert chunks[-1].breadth["arrived"] == (4 if "careful" in model else 1)
            assert chunks[-1].usage.completion_tokens == chunks[-1].breadth["cost"]["output_tokens"] > 0

    asyncio.run(main())


def test_an_adaptive_vote_on_a_plain_text(llama: str) -> None:
    async def main() -> None:
        async with proxied(llama, "adaptive-vote,most=6,width=3") as (sdk, _, __):
            reply = await sdk.completions.create(
                model="smollm2",
                prompt="2 + 2 = 4\n3 + 3 = 6\n1 + 1 =",
                max_tokens=4,
                extra_body={"grammar": 'root ::= " " [0-9]'},
            )
            assert reply.choices[0].text
            assert 1 <= reply.breadth["arrived"] <= 6

    asyncio.run(main())


def test_log_probs_and_json_are_the_servers_own(llama: str) -> None:
    async def main() -> None:
        async with proxied(llama, "vote,n=3") as (sdk, _, __):
            reply = await sdk.chat.completions.create(
                model="smollm2", messages=ASKED, max_tokens=4, logprobs=True, top_logprobs=5
            )
            assert len(reply.choices[0].logprobs.content[0].top_logprobs) == 5
            assert "logprobs" in reply.breadth["notes"][0]
            shape = {"type": "json_object"}
            reply = await sdk.chat.completions.create(
                model="smollm2", messages=ASKED, max_tokens=16, response_format=shape
            )
            assert reply.choices[0].message.content.lstrip().startswith("{")
            assert reply.breadth["drawn"] == 3

    asyncio.run(main())


@pytest.mark.parametrize("policy", ["single", "vote,n=3"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_that_does_not_fit_is_a_bad_request_in_words(llama: str, policy: str, stream: bool) -> None:
    async def main() -> None:
        async with proxied(llama, policy) as (sdk, _, __):
            long = [{"role": "user", "content": "word " * 3000}]
            with pytest.raises(openai.BadRequestError, match="context") as caught:
                await sdk.chat.completions.create(model="smollm2", messages=long, max_tokens=4, stream=stream)
            assert "127.0.0.1" not in str(caught.value)

    asyncio.run(main())


@pytest.mark.parametrize("policy", ["single", "vote,n=5"])
def test_a_client_that_leaves_frees_the_servers_slots(llama: str, policy: str) -> None:
    async def main() -> None:
        async with proxied(llama, policy) as (sdk, _, proxy):
            asked = [{"role": "user", "content": "Tell me a very long story about the sea."}]
            asking = asyncio.create_task(_consume(sdk, asked))
            async with asyncio.timeout(120):
                while await busy(llama) < (1 if policy == "single" else 5):
                    await asyncio.sleep(0.02)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            async with asyncio.timeout(120):
                while await busy(llama) or proxy.ledger.reservations:
                    await asyncio.sleep(0.02)
            assert proxy.ledger.spent.output_tokens < 900 * 5

    asyncio.run(main())


async def _consume(sdk: Any, asked: Any) -> None:
    stream = await sdk.chat.completions.create(
        model="smollm2", messages=asked, max_tokens=900, stream=True, extra_body={"ignore_eos": True}
    )
    async for _ in stream:
        pass
