"""A reply being written: spaces, stop texts across tokens, the end, thinking in its place or apart, log-probs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from breadth.inference.records import Sampling
from breadth.lab.sampling.engine import Token
from breadth.lab.server.requests import Wanted
from breadth.lab.server.writing import Entry, Piece, Writing
from breadth.lab.task.vocabulary import build_tokenizer
from breadth.lab.task.wording import Wording
from breadth.runtime.dialect import CHAT, COMPLETIONS

TOKENIZER = build_tokenizer(7)
WORDING = Wording(TOKENIZER)
WANTED = Wanted(CHAT, WORDING.tokens(["3", "="]), "", Sampling(), 1, 0, stream=False, counted=False, alternatives=None)


def drawn(text: str, last: str = "") -> list[Token]:
    """Tokens of a text; the last one ends the reply if it is the end mark, or is cut where ``last`` says so."""
    numbers = [TOKENIZER.get_vocab()[word] for word in text.split()]
    ends = {WORDING.end: "stop"}
    found = [Token(number, -0.5, 1.0, ((number, -0.5), (5, -2.0)), last=ends.get(number, "")) for number in numbers]  # type: ignore[arg-type]
    return [*found[:-1], replace(found[-1], last=last or found[-1].last)]  # type: ignore[arg-type]


def write(
    text: str, wanted: Wanted = WANTED, last: str = "", *, apart: bool = False
) -> tuple[Writing, list[list[Piece]]]:
    writing = Writing(wanted, WORDING, apart=apart)
    return writing, [writing.take(token) for token in drawn(text, last)]


def shown(steps: list[list[Piece]], *, thought: bool = False) -> str:
    return "".join(piece.shown for step in steps for piece in step if piece.thought == thought)


def stopping(*stops: str) -> Wanted:
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
    wanted = replace(WANTED, before=before, tokens=WORDING.tokens(["3", "=", *before.split()]))
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
    continued = replace(WANTED, before="<think>", tokens=WORDING.tokens(["3", "=", "<think>"]))
    assert shown(write("add 3 </think> 3 <eos>", continued, apart=True)[1], thought=True) == " add 3"


def test_thinking_is_set_apart_in_chats_only() -> None:
    assert (
        shown(write("<think> 3 </think> 3", replace(WANTED, path=COMPLETIONS), apart=True)[1]) == "<think> 3 </think> 3"
    )


def test_log_probs_come_with_the_tokens_of_the_text() -> None:
    _, steps = write("add 3 <eos>", replace(WANTED, alternatives=2))
    entries = [piece.entry for step in steps for piece in step]
    # Token 5 is the closing mark; at the very beginning no space stands before it.
    assert entries == [
        Entry("add", -0.5, (("add", -0.5), ("</think>", -2.0))),
        Entry(" 3", -0.5, ((" 3", -0.5), (" </think>", -2.0))),
    ]
    assert write("add", replace(WANTED, alternatives=0))[1][0][0].entry == Entry("add", -0.5, ())
    assert write("add")[1][0][0].entry is None
