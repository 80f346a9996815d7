"""The records of the inference loop: what they refuse, and what they derive."""

from __future__ import annotations

import math
import pickle
import time
from typing import Any

import numpy as np
import pytest

from breadth.base.errors import SettingsError
from breadth.base.settings import dumps, loads
from breadth.inference.records import (
    Answer,
    Ask,
    Budget,
    Candidate,
    Fork,
    Prices,
    Reading,
    Sampling,
    Spend,
    Task,
    text_of,
)

STATED = [
    (r"so \boxed{12}", "12"),
    ("12 apples.\n#### 42", "42"),
    ("<answer>7</answer>", "7"),
    ("The answer is 0.50.", "0.50"),
    ("It might be 7 or 8", None),
    (r"so \boxed{12", None),
    ("", None),
]


@pytest.mark.parametrize(("text", "answer"), STATED)
def test_stated(text: str, answer: str | None) -> None:
    assert Reading().read(text) == answer


NUMBERS = [
    ("I get 3 and then 4", "4", "4"),
    (r"\boxed{5} out of 9", "5", "5"),
    ("so 1,000.", "1,000", "1000"),
    ("12,345,678.90 dollars", "12,345,678.90", "12345678.9"),
    ("one of 1,2,3", "3", "3"),
    ("x = -3", "-3", "-3"),
    ("(−3)", "−3", "-3"),
    ("a range of 3-5", "5", "5"),
    ("10-5", "5", "5"),
    ("3e8 metres", "3e8", "300000000"),
    ("about 1.5e-3.", "1.5e-3", "0.0015"),
    ("half, 1/2", "1/2", "0.5"),
    (".5", ".5", "0.5"),
    ("50%", "50%", "50%"),
    ("5 -", "5", "5"),
    ("no number", None, None),
]


@pytest.mark.parametrize(("text", "answer", "key"), NUMBERS)
def test_the_last_number_where_nothing_is_stated(text: str, answer: str | None, key: str | None) -> None:
    assert Reading("number").read_with_key(text) == (answer, key)


def test_the_whole_reply() -> None:
    assert Reading("whole").read_with_key("  Paris \n") == ("Paris", "paris")
    assert Reading("whole").read_with_key(" \n") == (None, None)
    assert Reading("whole").read_with_key("N/A") == (None, None)


def test_a_complete_reply_that_is_nothing_but_an_answer_is_read() -> None:
    assert Reading().read_with_key("19.0") == ("19.0", "19")
    assert Reading().read_with_key("I think so") == (None, None)
    assert Reading().read("12", ended=False) is None


def test_only_a_stated_answer_counts_in_a_text_cut_at_its_cap() -> None:
    assert Reading("whole").read("Par", ended=False) is None
    assert Reading("number").read("3 and 4", ended=False) is None
    assert Reading("number").read(r"so \boxed{4}. Let me check 5", ended=False) == "4"
    assert Reading().read("#### 42\nNext", ended=False) == "42"


@pytest.mark.parametrize("cut", ["The answer is 12", "The answer is 12.", "#### 4", "The answer is 12.5 met"])
def test_an_answer_at_the_very_end_of_a_cut_text_may_be_half_of_one(cut: str) -> None:
    assert Reading().read(cut, ended=False) is None
    assert Reading().read(cut) is not None


def test_a_long_text_is_read_at_once() -> None:
    begun = time.process_time()
    for text in ("1," * 200_000, "1" * 200_000, "-" * 200_000, "1.5e" * 50_000):
        Reading("number").read(text)
    assert time.process_time() - begun < 2


def test_an_unknown_way_is_refused() -> None:
    with pytest.raises(SettingsError, match="stated, number, whole"):
        Reading("last")  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": -0.1},
        {"temperature": math.nan},
        {"top_p": 0.0},
        {"top_p": 1.1},
        {"top_k": -1},
        {"min_p": 2.0},
        {"repetition_penalty": 0.0},
        {"repetition_penalty": math.inf},
        {"presence_penalty": math.nan},
        {"frequency_penalty": -math.inf},
        {"stop": ("Wait", "")},
        {"max_tokens": 0},
        {"thinking_tokens": -1},
        {"top_logprobs": -1},
    ],
)
def test_bad_sampling_is_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=next(iter(wrong))):
        Sampling(**wrong)


def test_sampling_survives_toml_and_pickle() -> None:
    sampling = Sampling(0.0, 1.0, 40, thinking_tokens=100, stop=("\n\n", "Wait"), top_logprobs=20)
    assert loads(Sampling, dumps(sampling)) == sampling == pickle.loads(pickle.dumps(sampling))
    assert loads(Sampling, dumps(Sampling())) == Sampling()


@pytest.mark.parametrize("wrong", [{"n": -1}, {"wait": -1}])
def test_bad_requests_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(SettingsError, match=next(iter(wrong))):
        Ask(**wrong)  # type: ignore[arg-type]  # wrong on purpose


def test_a_fork_waits_for_no_fewer_than_none() -> None:
    with pytest.raises(SettingsError, match="wait = -1"):
        Fork((), wait=-1)


def test_the_question_is_the_last_thing_the_user_said() -> None:
    chat = (
        {"role": "user", "content": "first"},
        {"role": "assistant", "content": "yes?"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "what is "},
                {"type": "image_url", "image_url": {}},
                {"text": "this?"},
            ],
        },
        {"role": "assistant", "content": "Let me"},
    )
    assert Task(chat).question == "what is this?"
    assert Task("2 + 2 =").question == "2 + 2 ="
    assert Task(()).question == ""
    assert Task(({"role": "user"},)).question == ""


@pytest.mark.parametrize(
    ("content", "text"), [(None, ""), (3, ""), ("a", "a"), ([{"text": 3}, "b", {"text": "c"}], "c"), ([], "")]
)
def test_text_of_any_content(content: Any, text: str) -> None:
    assert text_of(content) == text


def test_a_task_with_another_seed_is_otherwise_the_same() -> None:
    task = Task("q", "name", reading=Reading("number"), seed=3)
    assert task.with_seed(4) == Task("q", "name", reading=Reading("number"), seed=4)
    assert task.seed == 3


def test_a_candidate_compares_without_its_arrays() -> None:
    with_arrays = Candidate("a", confidences=np.ones(3, dtype=np.float32), logprobs=np.zeros(3, dtype=np.float32))
    assert with_arrays == Candidate("a")
    assert Candidate("b", prefix="a").full_text == "ab"


def test_what_an_answer_derives() -> None:
    drawn = (
        Candidate("so 4", "4.0", "4", prefix="Well, "),
        Candidate("?"),
        Candidate("4", "4", "4", independent=False),
    )
    answer = Answer(drawn[0], candidates=drawn)
    assert (answer.text, answer.key, answer.answer, answer.unread, answer.independent) == (
        "Well, so 4",
        "4",
        "4.0",
        1,
        False,
    )
    nothing = Answer()
    assert (nothing.text, nothing.key, nothing.answer, nothing.unread, nothing.independent) == ("", None, None, 0, True)


def test_spends_add_up_field_by_field() -> None:
    assert Spend(1, 2, 3, 4, 5.0, 6.0) + Spend(10, 20, 30, 40, 50.0, 60.0) == Spend(11, 22, 33, 44, 55.0, 66.0)
    assert Spend(calls=1) + Spend() == Spend(calls=1)


def test_cached_tokens_have_their_own_price() -> None:
    spend = Spend(input_tokens=3_000_000, cached_tokens=1_000_000, output_tokens=500_000)
    assert Prices(input=1.0, cached=0.25, output=4.0).cost_of(spend) == pytest.approx(2.0 + 0.25 + 2.0)


@pytest.mark.parametrize("name", ["calls", "input_tokens", "output_tokens", "seconds", "money"])
def test_a_negative_ceiling_is_refused(name: str) -> None:
    with pytest.raises(SettingsError, match=name):
        Budget(**{name: -1})


def test_a_budget_survives_toml() -> None:
    budget = Budget(output_tokens=1000, seconds=2.5)
    assert loads(Budget, dumps(budget)) == budget
