"""From the engine's thread to the event loop: every token once, in order; failures told; leaving cancels."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from breadth.base.errors import ServerError
from breadth.inference.records import Sampling
from breadth.lab.model.reasoner import Reasoner, Shape, build
from breadth.lab.sampling.engine import Engine, Job, draw_all
from breadth.lab.server.listening import Listening
from breadth.lab.server.requests import Wanted
from breadth.lab.server.writing import Writing
from breadth.lab.task.facts import Facts
from breadth.lab.task.teacher import Teacher
from breadth.lab.task.wording import Wording, question_words
from breadth.runtime.dialect import CHAT
from breadth.testing.fake_server import until


@pytest.fixture(scope="module")
def endless() -> Reasoner:
    """Untaught: at temperature 0 it repeats itself for ever."""
    return build(Teacher(Facts(prime=7)), Shape(hidden=32, layers=1, heads=2, inner=32, context=4096))


@contextmanager
def engine_of(reasoner: Reasoner) -> Iterator[Engine]:
    engine = Engine(reasoner)
    try:
        yield engine
    finally:
        engine.close()


def wanted_of(reasoner: Reasoner, replies: int, sampling: Sampling) -> tuple[Wanted, list[Writing]]:
    wording = Wording(reasoner.tokenizer)
    tokens = wording.tokens(question_words(["(3+4)*(5+6)="]))
    wanted = Wanted(CHAT, tokens, "", sampling, replies, 0, stream=True, counted=False, alternatives=None)
    return wanted, [Writing(wanted, wording, index) for index in range(replies)]


async def heard(engine: Engine, wanted: Wanted, writings: list[Writing]) -> list[str]:
    texts = [""] * len(writings)
    with Listening(engine, wanted, writings) as listening:
        async for told in listening.batches():
            for writing, pieces in told:
                texts[writing.index] += "".join(piece.shown for piece in pieces)
    return texts


def test_what_is_heard_is_what_is_drawn(memorised: Reasoner) -> None:
    sampling = Sampling(temperature=1.0, top_p=1.0, max_tokens=40)
    wanted, writings = wanted_of(memorised, 8, sampling)
    with engine_of(memorised) as engine:
        texts = asyncio.run(heard(engine, wanted, writings))
    drawn = draw_all(memorised, [Job(wanted.tokens, sampling, seed) for seed in wanted.seeds()])
    assert texts == [
        memorised.tokenizer.decode([token for token in one.ids if token != 3]) for one in drawn
    ]  # 3 is the end
    assert [writing.finish for writing in writings] == [one.finish for one in drawn]
    assert [writing.tokens for writing in writings] == [len(one.ids) for one in drawn]
    assert len(set(texts)) > 1


def test_a_stop_text_ends_the_draw(endless: Reasoner) -> None:
    sampling = Sampling(temperature=0.0, max_tokens=30)
    (drawn,) = draw_all(endless, [Job(wanted_of(endless, 1, sampling)[0].tokens, sampling)])
    word = endless.tokenizer.convert_ids_to_tokens(int(drawn.ids[20]))
    stopped, stopping = wanted_of(endless, 1, Sampling(temperature=0.0, max_tokens=4000, stop=(f"{word} ",)))
    with engine_of(endless) as engine:
        asyncio.run(heard(engine, stopped, stopping))
        assert stopping[0].tokens < 30
        assert stopping[0].finish == "stop"
        asyncio.run(until(lambda: not engine.open))


def test_leaving_cancels_what_is_still_drawn(endless: Reasoner) -> None:
    wanted, writings = wanted_of(endless, 3, Sampling(temperature=0.0, max_tokens=4000))

    async def main(engine: Engine) -> int:
        with Listening(engine, wanted, writings) as listening:
            async for _ in listening.batches():
                break
        return engine.open

    with engine_of(endless) as engine:
        asyncio.run(main(engine))
        asyncio.run(until(lambda: not engine.open))
        assert all(0 < writing.tokens < 4000 for writing in writings[:1])


def test_what_the_engine_fails_with_is_raised(endless: Reasoner) -> None:
    wanted, writings = wanted_of(endless, 2, Sampling(temperature=0.0, max_tokens=4000))

    async def main(engine: Engine) -> None:
        with Listening(engine, wanted, writings) as listening:
            async for _ in listening.batches():
                await asyncio.to_thread(engine.close)

    with engine_of(endless) as engine, pytest.raises(ServerError, match="closed"):
        asyncio.run(main(engine))
