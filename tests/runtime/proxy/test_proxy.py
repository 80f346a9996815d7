"""What requests share."""

from __future__ import annotations

import asyncio

import orjson
import pytest

from breadth.base.errors import StrategyError
from breadth.inference.records import Budget
from breadth.runtime.proxy.access import ProxyLimits
from breadth.runtime.proxy.client_request import read_request
from breadth.runtime.proxy.errors import ApiError
from breadth.runtime.proxy.proxy import Proxy, RequestRecord, random_seed
from breadth.runtime.proxy.routing import Policies
from breadth.runtime.samplers.openai import OpenAISampler
from breadth.testing.fake_replies import Reply
from breadth.testing.fake_server import FakeServer

HELLO = [{"role": "user", "content": "Hello"}]


def test_a_model_whose_name_has_an_at_is_left_whole_when_the_upstream_has_it() -> None:
    async def main() -> None:
        async with FakeServer(Reply.from_text("x"), models=("claude@2024",)) as fake:
            proxy = Proxy(OpenAISampler([fake.url]), Policies.parse("single", client_policies=True))
            chosen, model = await proxy.choose(
                read_request("/v1/chat/completions", orjson.dumps({"messages": HELLO, "model": "claude@2024"}))
            )
            assert (chosen.label, model) == ("single", "claude@2024")
            call = read_request("/v1/chat/completions", orjson.dumps({"messages": HELLO, "model": "claude@2024@vote"}))
            chosen, model = await proxy.choose(call)
            assert (chosen.label, model) == ("vote", "claude@2024")
            with pytest.raises(ApiError):
                await proxy.choose(
                    read_request("/v1/chat/completions", orjson.dumps({"messages": HELLO, "model": "claude@2023"}))
                )
            await proxy.close()

    asyncio.run(main())


def test_the_budget_is_the_tightest_of_request_policy_and_operator() -> None:
    proxy = Proxy(
        OpenAISampler(["http://127.0.0.1:9"]), Policies.parse("single"), limits=ProxyLimits(seconds=9.0, max_samples=7)
    )
    call = read_request(
        "/v1/chat/completions",
        orjson.dumps({"messages": HELLO, "breadth": {"budget": {"calls": 20, "output_tokens": 5}}}),
    )
    assert proxy.budget(call, proxy.policies.default) == Budget(calls=7, output_tokens=5, seconds=9.0)


@pytest.mark.parametrize(("default", "named"), [("best-of-n", []), ("single", ["judged=best-of-n"])])
def test_a_policy_that_the_upstream_cannot_run_is_refused_at_the_start(default: str, named: list[str]) -> None:
    with pytest.raises(StrategyError, match="judge"):
        Proxy(OpenAISampler(["http://127.0.0.1:9"]), Policies.parse(default, named))


def test_traces_and_seeds_are_fresh() -> None:
    assert RequestRecord("x").trace != RequestRecord("x").trace
    assert len({random_seed() for _ in range(5)}) > 1
