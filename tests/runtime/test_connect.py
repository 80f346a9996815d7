"""A sampler by address: the right dialect, the model checked, in words when not."""

from __future__ import annotations

import asyncio

import pytest

from breadth.adapters.llama_cpp.dialect import LlamaCppDialect
from breadth.base.errors import CatalogueError, ServerError
from breadth.inference.records import Candidate, Sampling
from breadth.runtime.connect import check_model, connect, model_names
from breadth.runtime.dialect import Dialect, Identity
from breadth.runtime.sampler import Draw, Meter


def drawn(url: str, dialect: str) -> tuple[Dialect, Candidate]:
    async def main() -> tuple[Dialect, Candidate]:
        sampler = await connect([url], dialect=dialect, model="smollm2")
        try:
            draw = Draw(({"role": "user", "content": "Say hi."},), Sampling(max_tokens=3), model="smollm2")
            return sampler.dialect, await sampler.draw(draw, Meter())
        finally:
            await sampler.close()

    return asyncio.run(main())


@pytest.mark.parametrize(("asked", "spoken"), [("auto", LlamaCppDialect()), ("openai", Dialect())])
def test_it_draws_from_a_real_server(llama: str, asked: str, spoken: Dialect) -> None:
    dialect, candidate = drawn(llama, asked)
    assert dialect == spoken
    assert candidate.text
    assert candidate.tokens == 3


def test_a_model_nobody_has_is_refused(llama: str) -> None:
    with pytest.raises(ServerError, match="has no model 'gpt-9'") as caught:
        asyncio.run(connect([llama], model="gpt-9"))
    assert "smollm2" in caught.value.remedy


def test_an_unknown_dialect_gets_the_nearest_spelling(llama: str) -> None:
    with pytest.raises(CatalogueError, match="vlm"):
        asyncio.run(connect([llama], dialect="vlm"))


def test_a_server_that_lists_nothing_is_not_second_guessed() -> None:
    nothing = Identity({"data": "odd"}, {}, {})
    assert model_names(nothing) == []
    check_model(nothing, "any", "http://h")
