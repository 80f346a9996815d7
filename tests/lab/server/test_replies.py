"""A reply being written: spaces, stop texts across tokens, the end, thinking in its place or apart, log-probs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import orjson
import pytest

from breadth.base.errors import ServerError
from breadth.inference.records import Sampling
from breadth.lab.reasoner import Reasoner, ReasonerShape, build_reasoner
from breadth.lab.sampling.batch import CompletionJob, sample_all
from breadth.lab.sampling.engine import Engine, SampledToken
from breadth.lab.server.replies import ReplyEncoder, ReplyPiece, ReplyStream, ReplyWriter, ShownLogprob
from breadth.lab.server.requests import CompletionRequest
from breadth.lab.task.teacher import ArithmeticFacts, Teacher
from breadth.lab.task.vocabulary import RoutesTokens, build_tokenizer, question_words
from breadth.runtime.dialect import CHAT_PATH, COMPLETIONS_PATH
from breadth.runtime.wire import CHUNK_DECODER, DONE_EVENT
from breadth.testing.fake_server import wait_until

TOKENIZER = build_tokenizer(7)
WORDING = RoutesTokens(TOKENIZER)
WANTED = CompletionRequest(
    CHAT_PATH, WORDING.tokens(["3", "="]), "", Sampling(), 1, 0, stream=False, include_usage=False, alternatives=None
)


def drawn(text: str, last: str = "") -> list[SampledToken]:
    """Tokens of a text; the last one ends the reply if it is the end mark, or is cut where ``last`` says so."""
    numbers = [TOKENIZER.get_vocab()[word] for word in text.split()]
    ends = {WORDING.end: "stop"}
    found = [
        SampledToken(number, -0.5, 1.0, ((number, -0.5), (5, -2.0)), last=ends.get(number, ""))  # type: ignore[arg-type]
        for number in numbers
    ]
    return [*found[:-1], replace(found[-1], last=last or found[-1].last)]  # type: ignore[arg-type]


def write(
    text: str, wanted: CompletionRequest = WANTED, last: str = "", *, apart: bool = False
) -> tuple[ReplyWriter, list[list[ReplyPiece]]]:
    writing = ReplyWriter(wanted, WORDING, apart=apart)
    return writing, [writing.take(token) for token in drawn(text, last)]


def shown(steps: list[list[ReplyPiece]], *, thought: bool = False) -> str:
    return "".join(piece.shown for step in steps for piece in step if piece.thought == thought)


def stopping(*stops: str) -> CompletionRequest:
    return replace(WANTED, sampling=Sampling(stop=stops))


def test_words_are_set_apart_by_spaces_and_the_end_is_counted_but_not_shown() -> None:
    writing, steps = write("<think> add 3 </think> 3 <eos>")
    assert shown(steps) == "<think> add 3 </think> 3"
    assert [len(step) for step in steps] == [1, 1, 1, 1, 1, 0]
    assert (writing.finish, writing.tokens, writing.thinking) == ("stop", 6, 2)


def test_a_reply_that_is_cut_says_so() -> None:
    writing, steps = write("<think> add 3", last="length")
    assert (writing.finish, shown(steps), writing.thinking) == ("length", "<think> add 3", 2)


@pytest.mark.parametrize(
    ("before", "text"), [("<think>", " add 3"), ("<think>\n", "add 3"), ("<think> left ", "add 3")]
)
def test_a_beginning_is_continued_with_a_space_only_where_one_is_missing(before: str, text: str) -> None:
    wanted = replace(WANTED, prefix=before, tokens=WORDING.tokens(["3", "=", *before.split()]))
    writing, steps = write("add 3", wanted)
    assert shown(steps) == text
    assert writing.thinking == 2


def test_a_stop_text_is_left_out_and_what_may_begin_one_is_held_back() -> None:
    writing, steps = write("3 + 4 = 0 </think> 0", stopping("4 = 0 <"))
    # " 4", " =" and " 0" are held until " </think>" decides; of " 4" the space stands before the stop text.
    assert [[piece.shown for piece in step] for step in steps] == [["3"], [" +"], [], [], [], [" "], []]
    assert (writing.finish, writing.tokens) == ("stop", 6)


def test_what_looked_like_a_stop_text_and_was_none_is_shown() -> None:
    _, steps = write("3 + 4 = 1 2", stopping("4 = 0"))
    assert [[piece.shown for piece in step] for step in steps] == [["3"], [" +"], [], [], [" 4", " =", " 1"], [" 2"]]


def test_what_is_held_back_is_shown_at_the_end() -> None:
    assert shown(write("3 + 4 = <eos>", stopping("4 = 0"))[1]) == "3 + 4 ="
    assert shown(write("3 + 4 =", stopping("4 = 0"), last="length")[1]) == "3 + 4 ="


def test_the_earliest_of_several_stop_texts_counts_and_a_stop_beats_the_cap() -> None:
    writing, steps = write("3 + 4", stopping("4", "+ 4"), last="length")
    assert (shown(steps), writing.finish) == ("3 ", "stop")


def test_thinking_set_apart_loses_its_marks_and_nothing_else() -> None:
    writing, steps = write("<think> add 3 </think> 3 <eos>", apart=True)
    assert (shown(steps, thought=True), shown(steps)) == ("add 3", "3")
    assert (writing.tokens, writing.thinking) == (6, 2)
    continued = replace(WANTED, prefix="<think>", tokens=WORDING.tokens(["3", "=", "<think>"]))
    assert shown(write("add 3 </think> 3 <eos>", continued, apart=True)[1], thought=True) == " add 3"


def test_thinking_is_set_apart_in_chats_only() -> None:
    assert (
        shown(write("<think> 3 </think> 3", replace(WANTED, path=COMPLETIONS_PATH), apart=True)[1])
        == "<think> 3 </think> 3"
    )


def test_log_probs_come_with_the_tokens_of_the_text() -> None:
    _, steps = write("add 3 <eos>", replace(WANTED, alternatives=2))
    entries = [piece.entry for step in steps for piece in step]
    # Token 5 is the closing mark; at the very beginning no space stands before it.
    assert entries == [
        ShownLogprob("add", -0.5, (("add", -0.5), ("</think>", -2.0))),
        ShownLogprob(" 3", -0.5, ((" 3", -0.5), (" </think>", -2.0))),
    ]
    assert write("add", replace(WANTED, alternatives=0))[1][0][0].entry == ShownLogprob("add", -0.5, ())
    assert write("add")[1][0][0].entry is None


@pytest.fixture(scope="module")
def endless() -> Reasoner:
    """Untaught: at temperature 0 it repeats itself for ever."""
    return build_reasoner(
        Teacher(ArithmeticFacts(prime=7)), ReasonerShape(hidden=32, layers=1, heads=2, inner=32, context=4096)
    )


@contextmanager
def engine_of(reasoner: Reasoner) -> Iterator[Engine]:
    engine = Engine(reasoner)
    try:
        yield engine
    finally:
        engine.close()


def wanted_of(reasoner: Reasoner, replies: int, sampling: Sampling) -> tuple[CompletionRequest, list[ReplyWriter]]:
    wording = RoutesTokens(reasoner.tokenizer)
    tokens = wording.tokens(question_words(["(3+4)*(5+6)="]))
    wanted = CompletionRequest(
        CHAT_PATH, tokens, "", sampling, replies, 0, stream=True, include_usage=False, alternatives=None
    )
    return wanted, [ReplyWriter(wanted, wording, index) for index in range(replies)]


async def heard(engine: Engine, wanted: CompletionRequest, writings: list[ReplyWriter]) -> list[str]:
    texts = [""] * len(writings)
    with ReplyStream(engine, wanted, writings) as listening:
        async for told in listening.batches():
            for writing, pieces in told:
                texts[writing.index] += "".join(piece.shown for piece in pieces)
    return texts


def test_what_is_heard_is_what_is_drawn(memorised: Reasoner) -> None:
    sampling = Sampling(temperature=1.0, top_p=1.0, max_tokens=40)
    wanted, writings = wanted_of(memorised, 8, sampling)
    with engine_of(memorised) as engine:
        texts = asyncio.run(heard(engine, wanted, writings))
    drawn = sample_all(memorised, [CompletionJob(wanted.tokens, sampling, seed) for seed in wanted.seeds()])
    assert texts == [
        memorised.tokenizer.decode([token for token in one.ids if token != 3]) for one in drawn
    ]  # 3 is the end
    assert [writing.finish for writing in writings] == [one.finish for one in drawn]
    assert [writing.tokens for writing in writings] == [len(one.ids) for one in drawn]
    assert len(set(texts)) > 1


def test_a_stop_text_ends_the_draw(endless: Reasoner) -> None:
    sampling = Sampling(temperature=0.0, max_tokens=30)
    (drawn,) = sample_all(endless, [CompletionJob(wanted_of(endless, 1, sampling)[0].tokens, sampling)])
    word = endless.tokenizer.convert_ids_to_tokens(int(drawn.ids[20]))
    stopped, stopping = wanted_of(endless, 1, Sampling(temperature=0.0, max_tokens=4000, stop=(f"{word} ",)))
    with engine_of(endless) as engine:
        asyncio.run(heard(engine, stopped, stopping))
        assert stopping[0].tokens < 30
        assert stopping[0].finish == "stop"
        asyncio.run(wait_until(lambda: not engine.open))


def test_leaving_cancels_what_is_still_drawn(endless: Reasoner) -> None:
    wanted, writings = wanted_of(endless, 3, Sampling(temperature=0.0, max_tokens=4000))

    async def main(engine: Engine) -> int:
        with ReplyStream(engine, wanted, writings) as listening:
            async for _ in listening.batches():
                break
        return engine.open

    with engine_of(endless) as engine:
        asyncio.run(main(engine))
        asyncio.run(wait_until(lambda: not engine.open))
        assert all(0 < writing.tokens < 4000 for writing in writings[:1])


def test_what_the_engine_fails_with_is_raised(endless: Reasoner) -> None:
    wanted, writings = wanted_of(endless, 2, Sampling(temperature=0.0, max_tokens=4000))

    async def main(engine: Engine) -> None:
        with ReplyStream(engine, wanted, writings) as listening:
            async for _ in listening.batches():
                await asyncio.to_thread(engine.close)

    with engine_of(endless) as engine, pytest.raises(ServerError, match="closed"):
        asyncio.run(main(engine))


WORDING_REPLIES = RoutesTokens(build_tokenizer(7))
NUMBERS = build_tokenizer(7).get_vocab()
CHATTED = CompletionRequest(
    CHAT_PATH,
    WORDING_REPLIES.tokens(["3", "+"]),
    "",
    Sampling(),
    1,
    0,
    stream=False,
    include_usage=True,
    alternatives=1,
)
PLAIN = replace(CHATTED, path=COMPLETIONS_PATH, prefix="3 +")


def written(wanted: CompletionRequest, text: str, *, apart: bool = False) -> tuple[ReplyWriter, list[ReplyPiece]]:
    writing = ReplyWriter(wanted, WORDING_REPLIES, apart=apart)
    pieces: list[ReplyPiece] = []
    for word in text.split():
        number = NUMBERS[word]
        pieces += writing.take(
            SampledToken(number, -0.25, 0.5, ((number, -0.25),), last="stop" if word == "<eos>" else "")
        )
    return writing, pieces


def whole(wanted: CompletionRequest, text: str, *, apart: bool = False) -> dict[str, Any]:
    writing, pieces = written(wanted, text, apart=apart)
    body: dict[str, Any] = orjson.loads(ReplyEncoder(wanted, "tiny").whole([writing], [pieces]))
    return body


def test_a_whole_chat() -> None:
    body = whole(CHATTED, "<think> 3 </think> 3 <eos>")
    assert (body["object"], body["model"], body["id"][:9]) == ("chat.completion", "tiny", "chatcmpl-")
    (choice,) = body["choices"]
    assert choice["message"] == {"role": "assistant", "content": "<think> 3 </think> 3"}
    assert choice["finish_reason"] == "stop"
    assert "".join(entry["token"] for entry in choice["logprobs"]["content"]) == choice["message"]["content"]
    entry = choice["logprobs"]["content"][1]
    assert entry == {
        "token": " 3",
        "logprob": -0.25,
        "bytes": [32, 51],
        "top_logprobs": [{"token": " 3", "logprob": -0.25, "bytes": [32, 51]}],
    }
    # Read 3; written: four words and the end, one of them between the marks.
    assert body["usage"] == {
        "prompt_tokens": 3,
        "completion_tokens": 5,
        "total_tokens": 8,
        "completion_tokens_details": {"reasoning_tokens": 1},
    }


def test_thinking_set_apart() -> None:
    message = whole(CHATTED, "<think> 3 </think> 4 <eos>", apart=True)["choices"][0]["message"]
    assert message == {"role": "assistant", "content": "4", "reasoning_content": "3"}


def test_a_whole_plain_completion_has_log_probs_in_parallel_lists() -> None:
    body = whole(PLAIN, "4 = <eos>")
    assert body["object"] == "text_completion"
    assert body["choices"] == [
        {
            "index": 0,
            "text": " 4 =",
            "logprobs": {
                "tokens": [" 4", " ="],
                "token_logprobs": [-0.25, -0.25],
                "top_logprobs": [{" 4": -0.25}, {" =": -0.25}],
                "text_offset": [3, 5],  # counted from the beginning of the prompt "3 +", as OpenAI does
            },
            "finish_reason": "stop",
        }
    ]


def test_no_log_probs_where_none_were_asked_for() -> None:
    assert whole(replace(CHATTED, alternatives=None), "3 <eos>")["choices"][0]["logprobs"] is None


def test_a_stream_is_read_by_our_own_reader_as_it_was_written() -> None:
    for wanted in (replace(CHATTED, stream=True), replace(PLAIN, stream=True)):
        writing, pieces = written(wanted, "4 = <eos>")
        replies = ReplyEncoder(wanted, "tiny")
        stream = (
            replies.first(writing) + b"".join(replies.piece(writing, piece) for piece in pieces) + replies.last(writing)
        )
        events = (stream + replies.end([writing])).split(b"\n\n")
        assert events[-2:] == [DONE_EVENT.strip(), b""]
        chunks = [CHUNK_DECODER.decode(event.removeprefix(b"data: ")) for event in events[:-2]]
        choices = [choice for chunk in chunks for choice in chunk.choices or []]
        text = "".join((choice.text if choice.delta is None else choice.delta.content) or "" for choice in choices)
        assert text == ("4 =" if wanted.chat else " 4 =")
        assert [choice.finish_reason for choice in choices][-2:] == [None, "stop"]
        assert chunks[-1].choices == []
        assert chunks[-1].usage is not None
        assert chunks[-1].usage.completion_tokens == 3


def test_offsets_go_on_from_event_to_event() -> None:
    wanted = replace(PLAIN, stream=True)
    writing, pieces = written(wanted, "4 = <eos>")
    replies = ReplyEncoder(wanted, "tiny")
    events = [orjson.loads(replies.piece(writing, piece).removeprefix(b"data: ")) for piece in pieces]
    assert [event["choices"][0]["logprobs"]["text_offset"] for event in events] == [[3], [5]]


def test_usage_ends_a_stream_only_where_it_was_asked_for() -> None:
    assert ReplyEncoder(replace(CHATTED, include_usage=False, stream=True), "tiny").end([]) == DONE_EVENT
