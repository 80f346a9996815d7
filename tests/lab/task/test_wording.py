"""Questions with and without spaces, cues of strategies, tokens and text: one wording."""

from __future__ import annotations

import numpy as np
import pytest

from breadth.lab.task.problems import LEVELS, draw_problems
from breadth.lab.task.vocabulary import build_tokenizer
from breadth.lab.task.wording import Wording, beginning_words, question_words, words_in

TOKENIZER = build_tokenizer(7)
WORDING = Wording(TOKENIZER)
POSED = "( 3 + 4 ) * ( 5 + 6 ) ="


@pytest.mark.parametrize("text", [POSED, "(3+4)*(5+6)=", " (3 +4)* (5+ 6)\n=", "(3+4)*(5+6)", "( 3 + 4 ) * ( 5 + 6 )"])
def test_a_question_is_read_the_same_with_and_without_spaces_and_equals_sign(text: str) -> None:
    assert question_words([text]) == POSED.split()


@pytest.mark.parametrize("level", LEVELS)
def test_every_problem_survives_the_loss_of_its_spaces(level: str) -> None:
    for problem in draw_problems(50, 29, level, 0):  # type: ignore[arg-type] # one of LEVELS
        assert question_words([problem.text.replace(" ", "")]) == problem.words


def test_a_chat_becomes_the_tokens_its_template_makes() -> None:
    chat = [{"role": "user", "content": POSED}]
    by_template = TOKENIZER.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
    assert (
        list(WORDING.tokens(question_words([POSED]))) == TOKENIZER(by_template, add_special_tokens=False)["input_ids"]
    )


def test_several_texts_are_one_question_and_nothing_stays_nothing() -> None:
    assert question_words(["(3+4)*", "2="]) == ["(", "3", "+", "4", ")", "*", "2", "="]
    assert question_words(["", " \n "]) == []


def test_cues_of_strategies_are_said_in_the_reasoners_words() -> None:
    # What budget forcing writes: a cue right behind a value, and a call for the answer behind thinking that was cut.
    assert beginning_words("<think>\nadd 3 + 4 =0Wait left") == ["<think>", "add", "3", "+", "4", "=0", "again", "left"]
    assert beginning_words("<think>\n3 +\n</think>\nFinal Answer:") == ["<think>", "3", "+", "</think>"]


def test_words_the_reasoner_has_not_are_unknown_and_its_own_marks_cannot_be_forged() -> None:
    vocabulary = TOKENIZER.get_vocab()
    unknown = vocabulary["<unk>"]
    assert WORDING.tokens(words_in("What is 7?")) == (vocabulary["<bos>"], *[unknown] * 4)  # numbers end at 6
    assert WORDING.tokens(["<pad>", "<bos>", "<eos>"]) == (vocabulary["<bos>"], *[unknown] * 3)
    assert WORDING.tokens(["<think>", "6"]) == (vocabulary["<bos>"], vocabulary["<think>"], vocabulary["6"])


def test_tokens_written_one_by_one_are_read_back_as_they_were() -> None:
    tokens = [int(token) for token in np.random.default_rng(0).integers(4, WORDING.size, 60)]
    for given in ("", "<think>\n", "<think>"):
        text = given
        for token in tokens:
            text += WORDING.text(token, text)
        assert list(WORDING.tokens(words_in(text))[1 + len(words_in(given)) :]) == tokens


def test_thinking_is_open_behind_an_opening_mark_that_is_not_closed() -> None:
    told = {
        "": False,
        "<think> 3": True,
        "<think> 3 </think> 3": False,
        "<think> </think> <think>": True,
        "</think>": False,
    }
    assert {text: WORDING.thinks(WORDING.tokens(text.split())) for text in told} == told
