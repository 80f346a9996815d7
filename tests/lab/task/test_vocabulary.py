"""One word is one token, texts come back as they went in, and a text begins once, chat or not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from breadth.lab.task.problems import LEVELS, draw_problem, draw_problems
from breadth.lab.task.teacher import ArithmeticFacts, Teacher
from breadth.lab.task.vocabulary import (
    BEGIN,
    PAD,
    UNKNOWN,
    RoutesTokens,
    build_tokenizer,
    prefix_words,
    question_words,
    vocabulary_words,
    words_in_text,
)

transformers = pytest.importorskip("transformers", reason="the extra 'train' is not installed")

WRITER = Teacher(
    ArithmeticFacts(prime=7, shaky=0.5, right=0.1, believed=0.6), attempts=3, content=0.6, careless=0.4, cut=0.3
)
POSED = "( 3 + 4 ) * ( 5 + 6 ) ="


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return build_tokenizer(7)


def test_every_word_is_one_token_and_has_its_number(tokenizer: Any) -> None:
    words = vocabulary_words(7)
    assert len(words) == len(set(words)) == len(tokenizer) == tokenizer.vocab_size
    assert words[-14:] == ["0", "1", "2", "3", "4", "5", "6", "=0", "=1", "=2", "=3", "=4", "=5", "=6"]
    assert words.index("=") == len(words) - 15  # the sign that ends a posed problem is a word of its own
    for number, word in enumerate(words):
        assert tokenizer(word, add_special_tokens=False)["input_ids"] == [number]
        assert tokenizer.decode([number]) == word
    assert (tokenizer.pad_token_id, tokenizer.unk_token_id) == (0, words.index(UNKNOWN))
    assert (tokenizer.bos_token, tokenizer.eos_token) == (BEGIN, "<eos>")


def test_traces_come_back_as_they_went_in(tokenizer: Any) -> None:
    rng = np.random.default_rng(0)
    for number in range(60):
        problem = draw_problem(rng, 7, LEVELS[number % 3])
        words = [*problem.words, *WRITER.write(problem, rng).words]
        ids = tokenizer(" ".join(words))["input_ids"]
        assert ids == [vocabulary_words(7).index(word) for word in (BEGIN, *words)]
        assert tokenizer.decode(ids) == " ".join([BEGIN, *words])
        assert tokenizer.decode(ids, skip_special_tokens=True) == " ".join(
            words[:-1]
        )  # thinking marks stay, begin and end go


def test_what_is_no_word_is_unknown(tokenizer: Any) -> None:
    unknown = tokenizer.unk_token_id
    assert tokenizer("7 hm 3+4 add", add_special_tokens=False)["input_ids"] == [
        unknown,
        unknown,
        unknown,
        vocabulary_words(7).index("add"),
    ]
    assert tokenizer("")["input_ids"] == [tokenizer.bos_token_id]


def test_a_result_is_a_word_of_its_own(tokenizer: Any) -> None:
    words = vocabulary_words(7)
    ids = tokenizer("=3 = 3 =7 ==3 3=", add_special_tokens=False)["input_ids"]
    assert ids == [*(words.index(word) for word in ("=3", "=", "3")), *[tokenizer.unk_token_id] * 3]


def test_a_chat_is_the_plain_text_and_begins_once(tokenizer: Any) -> None:
    plain = tokenizer(POSED)["input_ids"]
    chat = [{"role": "system", "content": "Think."}, {"role": "user", "content": POSED}]
    for asking in (True, False):
        assert tokenizer.apply_chat_template(chat, add_generation_prompt=asking)["input_ids"] == plain
    rendered = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
    assert tokenizer(rendered, add_special_tokens=False)["input_ids"] == plain
    assert plain.count(tokenizer.bos_token_id) == 1
    assert tokenizer.apply_chat_template([*chat, *chat])["input_ids"] == [*plain, *plain[1:]]


def test_a_prefix_set_behind_a_rendered_chat_is_cut_into_words(tokenizer: Any) -> None:
    rendered = tokenizer.apply_chat_template(
        [{"role": "user", "content": POSED}], add_generation_prompt=True, tokenize=False
    )
    continued = tokenizer(rendered + "<think> add 3", add_special_tokens=False)["input_ids"]
    assert continued == tokenizer(POSED + " <think> add 3")["input_ids"]


def test_padding_stands_on_the_left(tokenizer: Any) -> None:
    batch = tokenizer([POSED, "( 3 + 4 ) * 5 ="], padding=True)
    assert tokenizer.decode(batch["input_ids"][1]) == f"{PAD} {PAD} {PAD} {PAD} {BEGIN} ( 3 + 4 ) * 5 ="
    assert batch["attention_mask"][1] == [0] * 4 + [1] * 9


def test_saving_keeps_it(tokenizer: Any, tmp_path: Path) -> None:
    tokenizer.save_pretrained(tmp_path)
    loaded = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path)
    assert loaded.get_vocab() == tokenizer.get_vocab()
    assert loaded.padding_side == "left"
    assert loaded.chat_template == tokenizer.chat_template
    assert loaded.special_tokens_map == tokenizer.special_tokens_map
    assert (
        loaded(["7 " + POSED, "3"], padding=True)["input_ids"]
        == tokenizer(["7 " + POSED, "3"], padding=True)["input_ids"]
    )


TOKENIZER = build_tokenizer(7)
WORDING = RoutesTokens(TOKENIZER)


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
    assert prefix_words("<think>\nadd 3 + 4 =0Wait left") == ["<think>", "add", "3", "+", "4", "=0", "again", "left"]
    assert prefix_words("<think>\n3 +\n</think>\nFinal Answer:") == ["<think>", "3", "+", "</think>"]


def test_words_the_reasoner_has_not_are_unknown_and_its_own_marks_cannot_be_forged() -> None:
    vocabulary = TOKENIZER.get_vocab()
    unknown = vocabulary["<unk>"]
    assert WORDING.tokens(words_in_text("What is 7?")) == (vocabulary["<bos>"], *[unknown] * 4)  # numbers end at 6
    assert WORDING.tokens(["<pad>", "<bos>", "<eos>"]) == (vocabulary["<bos>"], *[unknown] * 3)
    assert WORDING.tokens(["<think>", "6"]) == (vocabulary["<bos>"], vocabulary["<think>"], vocabulary["6"])


def test_tokens_written_one_by_one_are_read_back_as_they_were() -> None:
    tokens = [int(token) for token in np.random.default_rng(0).integers(4, WORDING.size, 60)]
    for given in ("", "<think>\n", "<think>"):
        text = given
        for token in tokens:
            text += WORDING.text(token, text)
        assert list(WORDING.tokens(words_in_text(text))[1 + len(words_in_text(given)) :]) == tokens


def test_thinking_is_open_behind_an_opening_mark_that_is_not_closed() -> None:
    told = {
        "": False,
        "<think> 3": True,
        "<think> 3 </think> 3": False,
        "<think> </think> <think>": True,
        "</think>": False,
    }
    assert {text: WORDING.thinks(WORDING.tokens(text.split())) for text in told} == told
