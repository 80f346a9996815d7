"""Finding the answer in a completion."""

from __future__ import annotations

import time

import pytest

from breadth.base.errors import SettingsError
from breadth.inference.reading import Reading

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
