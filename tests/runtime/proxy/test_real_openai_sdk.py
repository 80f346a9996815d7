"""The openai Python SDK as a client of the proxy."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from breadth.runtime.proxy.client_request import PASSED_FIELDS
from breadth.testing.fake_replies import Reply
from breadth.testing.faults import Cut, Hang, Status, first

openai = pytest.importorskip("openai", reason="the openai SDK is not installed (extra 'dev')")

ASKED = [{"role": "user", "content": "What is 2 + 2?"}]
KEY = "correct-horse-battery"


def mixed(body: dict[str, Any], number: int) -> Reply:
    del body
    return Reply.from_text(
        "So the answer is 5." if number % 4 == 0 else "So the answer is 4.", reasoning="Two and two."
    )


def client(served: Any, **settings: Any) -> Any:
    return openai.AsyncOpenAI(
        base_url=f"{served.url}/v1", api_key=settings.pop("key", KEY), **({"max_retries": 0} | settings)
    )


def test_every_field_that_the_sdk_documents_is_handed_on() -> None:
    from openai.types import completion_create_params as texts
    from openai.types.chat import completion_create_params as chats

    chat = chats.CompletionCreateParamsBase.__annotations__.keys()
    text = texts.CompletionCreateParamsBase.__annotations__.keys()
    assert len(chat) > 30
    assert not (chat | text) - PASSED_FIELDS


def test_chat_by_extra_body_by_suffix_and_by_the_servers_policy(serving: Any) -> None:
    async def main() -> None:
        async with serving(mixed, "vote,n=4", keys=[KEY], client_policies=True) as served, client(served) as sdk:
            plain = await sdk.chat.completions.create(model="fake", messages=ASKED)
            assert plain.choices[0].message.content == "So the answer is 4."
            assert plain.choices[0].message.reasoning_content == "Two and two."
            assert plain.breadth["drawn"] == 4
            assert plain.usage.completion_tokens == 4 * 8
            assert plain._request_id == plain.breadth["trace"]
            extra = await sdk.chat.completions.create(
                model="fake", messages=ASKED, extra_body={"breadth": {"policy": "vote,n=3"}}
            )
            assert extra.breadth["drawn"] == 3
            suffix = await sdk.chat.completions.create(
                model="fake@adaptive-vote,most=5", messages=ASKED, temperature=0.5, max_tokens=64
            )
            assert suffix.breadth["strategy"] == "adaptive-vote"
            assert served.fake.requests[-1].body["temperature"] == 0.5

    asyncio.run(main())


@pytest.mark.parametrize("policy", ["single", "vote,n=4"])
def test_streaming_with_usage_and_the_object_at_the_end(serving: Any, policy: str) -> None:
    async def main() -> None:
        async with serving(mixed, policy) as served, client(served) as sdk:
            stream = await sdk.chat.completions.create(
                model="fake", messages=ASKED, stream=True, stream_options={"include_usage": True}
            )
            chunks = [chunk async for chunk in stream]
            text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
            assert text.startswith("So the answer is ")
            assert chunks[-1].usage.completion_tokens == 8 * (1 if policy == "single" else 4)
            assert chunks[-1].breadth["strategy"] == policy.partition(",")[0]

    asyncio.run(main())


def test_plain_completions_whole_and_streamed(serving: Any) -> None:
    async def main() -> None:
        async with serving(Reply.from_text("So the answer is 4."), "vote,n=2") as served, client(served) as sdk:
            whole = await sdk.completions.create(model="fake", prompt="2 + 2 =")
            assert whole.choices[0].text == "So the answer is 4."
            stream = await sdk.completions.create(model="fake", prompt="2 + 2 =", stream=True)
            assert "".join([chunk.choices[0].text async for chunk in stream]) == "So the answer is 4."

    asyncio.run(main())


def test_models(serving: Any) -> None:
    async def main() -> None:
        async with serving(mixed, named=["careful=vote"]) as served, client(served) as sdk:
            assert [model.id async for model in sdk.models.list()] == ["fake", "fake@careful"]

    asyncio.run(main())


def test_errors_are_the_sdks_own_exceptions(serving: Any) -> None:
    async def caught(served: Any, **fields: Any) -> Any:
        async with client(served, **({"key": fields.pop("key")} if "key" in fields else {})) as sdk:
            with pytest.raises(openai.APIStatusError) as error:
                await sdk.chat.completions.create(**({"model": "fake", "messages": ASKED} | fields))
        return error.value

    async def main() -> None:
        async with serving(mixed, "vote,n=2", keys=[KEY], client_policies=True) as served:
            wrong = await caught(served, key="some-other-key")
            assert (type(wrong), wrong.code) == (openai.AuthenticationError, "invalid_api_key")
            bad = await caught(served, extra_body={"breadth": {"policy": "vot"}})
            assert (type(bad), bad.param) == (openai.BadRequestError, "breadth.policy")
            assert "'vote'" in bad.message
            assert isinstance(await caught(served, model="nonsense"), openai.NotFoundError)
        for fault, expected in (
            (Status(429, retry_after=30), openai.RateLimitError),
            (Status(500), openai.InternalServerError),
        ):
            async with serving(mixed, "vote,n=2", faults=[fault]) as served:
                assert isinstance(await caught(served), expected)

    asyncio.run(main())


@pytest.mark.parametrize("policy", ["single", "vote,n=2"])
def test_a_stream_that_breaks_raises_and_is_never_taken_for_an_answer(serving: Any, policy: str) -> None:
    async def main() -> None:
        async with serving(mixed, policy, faults=[Cut(after=4)]) as served, client(served) as sdk:
            with pytest.raises(openai.APIError):
                async for _ in await sdk.chat.completions.create(model="fake", messages=ASKED, stream=True):
                    pass

    asyncio.run(main())


def test_the_sdks_retries_meet_a_proxy_that_has_retried_already(serving: Any) -> None:
    async def main() -> None:
        async with (
            serving(mixed, "single", faults=[first(2, Status(500))], attempts=1) as served,
            client(served, max_retries=2) as sdk,
        ):
            reply = await sdk.chat.completions.create(model="fake", messages=ASKED)
            assert reply.choices[0].message.content
            assert len(served.fake.requests) == 3

    asyncio.run(main())


@pytest.mark.parametrize("policy", ["single", "vote,n=3"])
def test_a_client_that_gives_up_ends_the_draws(serving: Any, policy: str) -> None:
    async def main() -> None:
        async with serving(mixed, policy, faults=[Hang()]) as served, client(served, timeout=0.3) as sdk:
            with pytest.raises(openai.APITimeoutError):
                await sdk.chat.completions.create(model="fake", messages=ASKED)
            await served.at_rest()
            assert all(arrival.left is not None for arrival in served.fake.requests)

    asyncio.run(main())


def test_tools_come_through(serving: Any) -> None:
    async def main() -> None:
        tools = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}]
        async with serving(mixed, "vote,n=3") as served, client(served) as sdk:
            reply = await sdk.chat.completions.create(model="fake", messages=ASKED, tools=tools)
            assert served.fake.requests[0].body["tools"] == tools
            assert reply.breadth["drawn"] == 1

    asyncio.run(main())
