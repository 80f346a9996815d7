"""The probe, against the real llama.cpp server and a fake one."""

from __future__ import annotations

import asyncio

import pytest

from breadth.adapters.llama_cpp.dialect import LlamaCppDialect
from breadth.adapters.vllm.dialect import VllmDialect
from breadth.base.errors import ServerError
from breadth.runtime.capabilities import Capabilities
from breadth.runtime.dialect import Dialect, Identity
from breadth.runtime.probe import only_model, probe
from breadth.testing.fake_replies import Reply
from breadth.testing.fake_server import FakeServer
from breadth.testing.faults import Hang, Status


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
        remarks=("Whether thinking can be capped could not be told: the model did no thinking that is set apart.",),
    )


def test_a_thinking_server_is_found_to_cap(thinking_llama: str) -> None:
    found = asyncio.run(probe(thinking_llama))
    assert found.dialect == LlamaCppDialect(thinks=True)
    assert (found.thinking, found.thinking_cap, found.prefix) == ("yes", "yes", "yes")
    assert found.offers == {"logprobs", "confidences", "prefix", "seed", "halt", "thinking"}


def test_an_unknown_server_is_spoken_to_plainly() -> None:
    async def main() -> Capabilities:
        async with FakeServer(lambda request, _: Reply.of(f"seed {request['seed']}")) as server:
            return await probe(f"{server.url}/v1")

    found = asyncio.run(main())
    assert found.dialect == Dialect()
    assert (found.top_logprobs, found.prefix, found.seed, found.speculative, found.context) == (20, "no", "yes", "unknown", None)
    assert found.offers == {"logprobs", "confidences", "seed", "halt"}


@pytest.mark.parametrize(
    ("fault", "model", "problem"),
    [(Status(402), "", "402"), (None, "nope", "has no model 'nope'"), (Hang(), "", "did not answer in 0.3 s")],
)
def test_a_server_that_draws_nothing_is_an_error(fault: Status | Hang | None, model: str, problem: str) -> None:
    async def main() -> None:
        async with FakeServer(Reply.of("x"), faults=[fault] if fault else []) as server:
            await probe(server.url, model=model, seconds=0.3)

    with pytest.raises(ServerError, match=problem):
        asyncio.run(main())


def test_a_server_that_is_not_there_is_an_error() -> None:
    with pytest.raises(ServerError, match="No server answers"):
        asyncio.run(probe("http://127.0.0.1:9"))


def test_one_of_several_models_must_be_named() -> None:
    several = Identity({"data": [{"id": "a"}, {"id": "b"}]}, {}, {})
    with pytest.raises(ServerError, match="several models, and none was named: a, b"):
        only_model("http://x", several)
    assert only_model("http://x", Identity({"data": [{"id": "a"}, "junk"]}, {}, {})) == "a"
    assert only_model("http://x", Identity({}, {}, {})) == ""


def test_a_dialect_is_fitted_where_it_can_be() -> None:
    identity = Identity({}, {}, {"/props": {"chat_template": "{{ m.reasoning_content }}"}})
    assert LlamaCppDialect().fitted(identity) == LlamaCppDialect(thinks=True)
    assert VllmDialect().fitted(identity) == VllmDialect()
