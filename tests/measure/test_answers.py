"""The stated answer in every form completions use, in forms that only look like it, and in hostile text."""

from __future__ import annotations

import itertools
import time
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from breadth.base.errors import MeasureError
from breadth.measure import answers
from breadth.measure.answers import (
    answer_classes,
    answer_key,
    final_answer,
    is_prose,
    number_key,
    reference_key,
    stated_answer,
    stated_answers,
)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"so it is \boxed{\frac{1}{2}}.", r"\frac{1}{2}"),
        (r"\boxed{1}, no: \boxed{2}", "2"),
        (r"\fbox{7}", "7"),
        (r"\boxed{\fbox{5}}", "5"),
        (r"\boxed {x^{2^{3}}}", "x^{2^{3}}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{\left\{ x : x > 0 \right.}", r"\left\{ x : x > 0 \right."),
        (r"\boxed{a\\}", r"a\\"),
        (r"$\boxed 5$", "5"),
        (r"\boxed{12", None),
        (r"\boxed{7} and then \boxed{12", "7"),
        (r"\boxed{a\}", None),
        (r"\boxed{}", None),
        (r"\boxed{3} rather \boxed{ }", "3"),
        (r"put it into \boxed and go on", None),
        ("boxed{5} and a box", None),
        ("<answer> 42 </answer>", "42"),
        ("<answer>1</answer> <answer>2</answer>", "2"),
        ("<answer>1</answer> <answer>2", "1"),
        (r"<answer>It is \boxed{5} apples</answer>", "5"),
        ("<answer>So the answer is 9.</answer>", "9"),
        (r"\boxed{5} but <answer>6</answer>", "6"),
        (r"<answer>6</answer> but \boxed{5}", "5"),
        ("<answer></answer>", None),
        ("3 + 4 = 7\n#### 7", "7"),
        ("#### 1,000\n\nQuestion: next", "1,000"),
        ("#### -3/4", "-3/4"),
        ("#### 18 dollars\n", "18 dollars"),
        ("#### 18 dollars\nand more", None),
        ("#### Step 1: think", None),
        ("#### 1. First step\ntext", None),
        ("text\n#### 2. Second step", None),
        ("#### (B)", "(B)"),
        ("Conclusion\n#### Summary", None),
        (r"The final answer is $\frac12$. I hope it is correct.", r"\frac12"),
        ("Thus the answer is 3.5. Then we check.", "3.5"),
        ("**Answer:** B. Because it is.", "B"),
        ("**Answer**: Paris", "Paris"),
        ("Final Answer: **42**", "42"),
        ("ANSWER: 7", "7"),
        ("Answer:\n\n42\nDone", "42"),
        (r"answer is \(x = 2\), clearly", "x = 2"),
        ("Answer: $5 per hour. Not $6", "$5 per hour"),
        ("the answer is 4. No, the answer is 5.", "5"),
        (r"\boxed{5}. The final answer is written above", "5"),
        ("the answer is not 5", None),
        ("We look for the answer.", None),
        ("The answer isn't clear", None),
        ("The answer is " + "blah " * 40, None),
        ("", None),
        ("no statement at all", None),
    ],
)
def test_the_stated_answer(text: str, answer: str | None) -> None:
    assert stated_answer(text) == answer


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("19", "19"),
        (" 19.\n", "19"),
        ("**-1,000**", "**-1,000**"),
        ("x = 3", "x = 3"),
        (r"$\frac{\pi}{2}$", r"$\frac{\pi}{2}$"),
        ("(B)", "(B)"),
        ("50%", "50%"),
        ("(1, 2]", "(1, 2]"),
        ("6 * 7 = 42", "6 * 7 = 42"),
        ("<think>12 or 13?</think>\n\n13", "13"),
        (r"\boxed{5} and 6", "5"),
        ("The answer is 7.", "7"),
        ("x", None),
        ("19 apples", None),
        ("step 1", None),
        ("1\n2", None),
        ("7?", None),
        ("(1, 2", None),
        (r"\boxed{12", None),
        ("#1", None),
        ("...", None),
        ("1 + " * 40 + "1", None),
        ("", None),
    ],
)
def test_a_reply_that_is_nothing_but_an_answer_is_its_answer(reply: str, answer: str | None) -> None:
    assert final_answer(reply) == answer
    assert final_answer(reply, truncated=True) == stated_answer(reply)


def test_all_statements_in_order_each_once() -> None:
    text = r"the answer is 5. Wait. \boxed{6}? The answer is therefore \boxed{7}. <answer>7</answer>"
    assert [answer for _, answer in stated_answers(text)] == ["5", "6", "7", "7"]
    assert [
        text[place:].startswith(mark)
        for (place, _), mark in zip(stated_answers(text), ("answer", r"\boxed", r"\boxed", "<ans"), strict=True)
    ] == [True] * 4
    assert stated_answers(r"<answer>The answer is \boxed{5}, not 4</answer>") == [(22, "5")]
    assert stated_answers("<answer>the answer is 9.</answer>") == [(0, "9")]
    assert stated_answers(r"\boxed{\boxed{\boxed{1}}}") == [(14, "1")]
    assert stated_answers("") == []


pieces = st.sampled_from(
    [
        r"\boxed{",
        "}",
        "{",
        r"\fbox{",
        "<answer>",
        "</answer>",
        "#### ",
        "7",
        "x",
        "\n",
        "the answer is ",
        "Answer: ",
        "$",
        ". ",
        "\\",
        r"\}",
        "**",
        "A",
        " ",
    ]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(pieces, max_size=25).map("".join))
def test_the_final_statement_is_one_of_all_statements(text: str) -> None:
    everything = stated_answers(text)
    final = stated_answer(text)
    assert (final is None) == (not everything)
    if final is not None:
        assert final in [answer for _, answer in everything]
        assert final == final.strip() != ""
    assert everything == sorted(everything, key=lambda statement: statement[0])


@given(st.text(max_size=200))
def test_any_text_is_survived(text: str) -> None:
    assert stated_answer(text) is None or stated_answers(text)


@settings(max_examples=100)
@given(
    st.recursive(
        st.sampled_from(["1", "x", r"\{", r"\}", r"\pi "]),
        lambda inner: st.lists(inner, min_size=1, max_size=3).map(lambda parts: "{" + "".join(parts) + "}"),
    )
)
def test_a_box_returns_exactly_what_was_put_in(content: str) -> None:
    assert stated_answer(rf"so \boxed{{{content}}} }} and {{ more") == content.strip()


HOSTILE = [
    r"\boxed{",
    r"\boxed{}",
    r"\boxed{a",
    "\\boxed{\\",
    "{",
    "<answer>",
    "<answer></answer>",
    "</answer>",
    "####",
    "#### a\n",
    "#### 1. \n",
    "nswer",
]
HOSTILE += [
    "answer is ",
    "Answer: $",
    "Answer:" + " " * 9,
    "NSWERnswer",
    "answer is 5. ",
    r"\fbox\boxed",
    "box",
    r"answer is \(",
    "$",
    "\\",
    "#",
]


@pytest.mark.parametrize("piece", HOSTILE)
def test_hostile_text_takes_linear_time(piece: str) -> None:
    text = r"\boxed{" + piece * (300_000 // len(piece))
    began = time.process_time()
    stated_answer(text)
    stated_answers(text)
    # Linear work takes half a second here; anything quadratic takes minutes.
    assert time.process_time() - began < 5


def test_a_megabyte_of_prose_around_one_answer_takes_milliseconds() -> None:
    text = "We add the box to the sum; what is the answer? " * 21_000 + r"So \boxed{5}. " + "And so on. " * 1000
    began = time.process_time()
    assert stated_answer(text) == "5"
    assert time.process_time() - began < 10


def test_deeply_nested_boxes_take_linear_time() -> None:
    text = r"\boxed{" * 70_000 + "5" + "}" * 70_000
    began = time.process_time()
    assert stated_answer(text) == "5"
    assert [answer for _, answer in stated_answers(text)] == ["5"]
    assert time.process_time() - began < 10


@given(st.lists(pieces, max_size=25).map("".join))
def test_the_short_cut_for_plain_boxes_changes_no_answer(text: str) -> None:
    assert stated_answer(text) == answers.search_answer(text)


@pytest.mark.parametrize(
    ("key", "spellings"),
    [
        (
            "1000",
            [
                "1000",
                "1,000",
                "1000.0",
                "1000.",
                "1e3",
                "1E+3",
                "+1000",
                "01000",
                "$1,000.00",
                "10^3",
                "10^{3}",
                r"1 \times 10^3",
                "100e1",
            ],
        ),
        (
            "0.5",
            ["1/2", "0.5", ".5", "0.50", r"\frac{1}{2}", "2/4", "5e-1", "1 / 2", r"\frac{0.5}{1}", r"5\cdot 10^{-1}"],
        ),
        ("-0.5", ["-1/2", "-0.5", "-.5", r"-\frac{1}{2}", r"\frac{-1}{2}", "-$0.50", "$-0.5"]),
        ("1.5", ["3/2", "1.5", r"1\frac{1}{2}", "1 1/2", r"1 \frac{1}{2}"]),
        ("-1.5", ["-3/2", r"-1\frac{1}{2}", "-1 1/2"]),
        ("1/3", ["1/3", r"\frac{2}{6}", r"\frac{1}{3}"]),
        ("0", ["0", "-0", "0.00", ".0", "0/5", "00"]),
        ("90", ["90", "90°", r"90^\circ", r"90^{\circ}", "90 degrees"]),
        ("1234567.89", ["1,234,567.89", "1234567.89"]),
        ("12345678901234567890.1", ["12345678901234567890.1"]),  # a float would end in ...68.0
        ("0.1000000000000000055511151231257827", ["0.1000000000000000055511151231257827"]),  # a float would call it 0.1
    ],
)
def test_one_key_for_every_spelling(key: str, spellings: list[str]) -> None:
    assert {spelling: number_key(spelling) for spelling in spellings} == dict.fromkeys(spellings, key)


NOT_ONE_NUMBER = ["", "-", ".", "abc", "x", "e3", "1e", "1e9999", "--1", "1.2.3", "1-2", "(5)", "9" * 401, "٣"]
NOT_ONE_NUMBER += ["1,00", "12,34", "1,0000", "1 000", "1/0", "1/2/3", "2 3/2", "5 cm", "5%", "10^x", "2^3"]
NOT_ONE_NUMBER += [r"\frac{1}{0}", r"2\frac{3}{2}", r"1\frac{-1}{2}"]


@pytest.mark.parametrize("text", NOT_ONE_NUMBER)
def test_text_that_is_not_one_number(text: str) -> None:
    assert number_key(text) is None


@given(st.integers(-(10**20), 10**20), st.integers(1, 10**6))
def test_a_fraction_and_its_slash_form_share_one_key_that_reads_back_exactly(top: int, bottom: int) -> None:
    value = Fraction(top, bottom)
    key = number_key(f"{top}/{bottom}")
    assert key is not None
    assert Fraction(key) == value
    assert number_key(key) == key
    assert number_key(rf"\frac{{{top}}}{{{bottom}}}") == key


@given(
    st.decimals(allow_nan=False, allow_infinity=False, places=6, min_value=-(10**12), max_value=10**12),
    st.integers(0, 5),
)
def test_trailing_zeros_separators_and_exponents_change_nothing(number: object, zeros: int) -> None:
    plain = f"{number}"
    key = number_key(plain)
    assert key is not None
    assert Fraction(key) == Fraction(plain)
    assert number_key(f"{number:,}" + "0" * zeros) == key
    assert number_key(f"{number}e0") == key


def test_huge_exponents_are_read_without_harm() -> None:
    key = number_key("1e999")
    assert key == "1" + "0" * 999
    assert number_key("1e-999") == "0." + "0" * 998 + "1"


SAME = {
    "1000": [
        "1,000",
        "1000.0",
        "$1000$",
        r"\$1,000.00",
        "1{,}000",
        r"1\,000",
        "**1000**",
        r"\boxed{1000}",
        "1000.",
        " 1000 ",
        r"\(1000\)",
        "$$1e3$$",
        "`1000`",
    ],
    "0.5": [
        r"\frac{1}{2}",
        r"\dfrac12",
        r"\tfrac{1}{2}",
        r"\frac 1 2",
        "1/2",
        r"\boxed{\frac{1}{2}}",
        r"$\frac{1}{2}$.",
        r"\displaystyle \frac{1}{2}",
    ],
    "-3": ["\u22123", "-3.0", "-6/2", "$-3$"],
    "50%": ["50%", r"50\%", "50 percent", "50.0 %", r"$50\%$"],
    "A": [
        "A",
        "(A)",
        "A.",
        "A)",
        r"\text{A}",
        r"\textbf{(A)}",
        r"\mathrm{A}",
        "Option A",
        "option a",
        "Choice (A)",
        "(a)",
        "a)",
        "$A$",
        '"A"',
    ],
    "(1,2)": ["(1,2)", "(1, 2)", r"\left(1, 2\right)", r"(1.0, \frac{4}{2})", r"$(1,\ 2)$", r"\big(1, 2\big)"],
    "{1,2}": [r"\{1,2\}", r"\{2, 1\}", "{1, 2}", r"\left\{1, 2, 2.0\right\}"],
    "yes": ["Yes", "yes", "YES.", r"\text{yes}", "**Yes**", r"\text{Yes}."],
    "new york": ["New York", "new  york", "NEW YORK."],
    "x+1": ["x + 1", "$x+1$", r"x\, + 1"],
    r"\frac{\pi}{2}": [r"\frac{\pi}{2}", r"\dfrac{ \pi }{2}", r"\frac{\pi}2"],
    r"(-\infty,3]": [r"(-\infty, 3]", r"\left(-\infty, 3.0\right]"],
    "5cm": ["5 cm", r"5\text{ cm}", r"5 \mathrm{cm}"],
    "(1,2),(3,4)": ["(1,2), (3, 4)", "(1, 2),(3,4.0)"],
}


@pytest.mark.parametrize("key", SAME)
def test_spellings_of_one_answer_share_its_key(key: str) -> None:
    assert {spelling: answer_key(spelling) for spelling in SAME[key]} == dict.fromkeys(SAME[key], key)


APART = [
    "50%",
    "50",
    "0.5",
    "a",
    "A",
    "x",
    "X",
    "(1,2)",
    "[1,2]",
    "[1,2)",
    "(2,1)",
    r"\{1,2\}",
    "1,2",
    "2,1",
    "5 cm",
    "5 m",
    "5",
    "5!",
    "x+1",
    "X+1",
]
APART += [
    "0.333",
    "0.333...",
    "1/3",
    "x=2",
    "y=2",
    "2",
    r"\infty",
    "yes",
    "no",
    ">",
    "<",
    r"\{\}",
    "1/0",
    "4:30",
    "none of these",
    "(A) 5",
    "-1.8 billion",
    "-1.8",
]


def test_different_answers_have_different_keys() -> None:
    keys = [answer_key(answer) for answer in APART]
    assert None not in keys
    clashes = [
        (a, b) for (a, left), (b, right) in itertools.combinations(zip(APART, keys, strict=True), 2) if left == right
    ]
    assert clashes == []


@pytest.mark.parametrize(
    "nothing",
    [
        None,
        "",
        "  \n",
        "nan",
        "NaN",
        "None",
        "null",
        "N/A",
        "[INVALID]",
        "...",
        "-",
        "?",
        "$$",
        r"\text{}",
        r"\boxed{}",
        r"\boxed{12",
        float("nan"),
    ],
)
def test_what_is_no_answer_is_never_a_class(nothing: str | float | None) -> None:
    assert answer_key(nothing) is None
    assert answer_classes([nothing, "5", nothing]).tolist() == [-1, 0, -1]


def test_a_number_instead_of_text_is_refused() -> None:
    with pytest.raises(MeasureError, match=r"float 5\.0"):
        answer_key(5.0)


@settings(max_examples=300)
@given(st.text(max_size=40) | st.text(alphabet="()[]{},\\$.%/ 12aA^_-frctext", max_size=40))
def test_any_text_has_a_key_or_none_and_decoration_never_changes_it(answer: str) -> None:
    key = answer_key(answer)
    assert key is None or key
    assert answer_key(f"  {answer}\n") == key


@given(st.integers(-(10**15), 10**15))
def test_all_spellings_of_a_whole_number_agree(number: int) -> None:
    spellings = [
        f"{number}",
        f"{number:,}",
        f"{number}.0",
        f"${number}$",
        rf"\boxed{{{number}}}",
        f"{2 * number}/2",
        rf"\frac{{{3 * number}}}{{3}}",
    ]
    assert {answer_key(spelling) for spelling in spellings} == {str(number)}


@pytest.mark.parametrize(
    "piece",
    [
        "(",
        "((1,",
        "{",
        r"\{",
        r"\frac{",
        r"\text{",
        "1,",
        "$",
        "**",
        r"\boxed{",
        "1/",
        "9",
        "10^{",
        r"\ ",
        ".",
        r"\left",
        "[1,2],",
    ],
)
def test_hostile_answers_cost_little(piece: str) -> None:
    began = time.process_time()
    answer_key(piece * (1000 // len(piece)))
    answer_key(piece * (1_000_000 // len(piece)))
    assert time.process_time() - began < 5


def test_classes_are_numbered_by_first_appearance() -> None:
    assert answer_classes(["7", None, "1/2", "7.0", "0.5", "x", "nan"]).tolist() == [0, -1, 1, 0, 1, 2, -1]
    assert answer_classes([]).dtype == np.int64


def test_an_equivalence_is_asked_once_per_pair_of_keys_and_with_first_spellings() -> None:
    asked: list[tuple[str, str]] = []

    def equivalent(a: str, b: str) -> bool:
        asked.append((a, b))
        return {a, b} == {"sqrt(4)", "2"}

    labels = answer_classes(["2", "2.0", "x", "sqrt(4)", "sqrt(4)", "x", None], equivalent)
    assert labels.tolist() == [0, 0, 1, 0, 0, 1, -1]
    assert asked == [("2", "x"), ("2", "sqrt(4)")]


@settings(max_examples=50)
@given(st.lists(st.integers(0, 30).map(str) | st.none(), max_size=20), st.integers(2, 4))
def test_an_equivalence_relation_gives_its_own_classes(answers: list[str | None], modulus: int) -> None:
    labels = answer_classes(answers, lambda a, b: int(a) % modulus == int(b) % modulus)
    for (a, left), (b, right) in itertools.combinations(zip(answers, labels.tolist(), strict=True), 2):
        if a is None or b is None:
            assert (a is None) == (left == -1)
        else:
            assert (left == right) == (int(a) % modulus == int(b) % modulus)


def test_words_are_distinguished_from_formulas() -> None:
    assert [is_prose(answer) for answer in ("east", r"\text{east}", "New York", "no solution")] == [True] * 4
    assert [is_prose(answer) for answer in ("xy", "2x", r"\sqrt{2}", "x=5", "5 meters", "A", "sin(x)+1")] == [False] * 7


def test_extraction_is_offered_here_too() -> None:
    assert stated_answer(r"\boxed{5}") == "5"
    assert stated_answers(r"\boxed{5}") == [(0, "5")]


@pytest.mark.parametrize(
    ("answer", "key"),
    [
        ("6 * 7 = 42", "42"),
        ("12 + 7 + 3 = 19 + 3 = 22", "22"),
        ("(1 + 2) × 3 = 9.0", "9"),
        ("10 ÷ 4 = 5/2", "2.5"),
        ("x = 42", "x=42"),
        ("= 42", "=42"),
        ("2x = 42", "2x=42"),
        ("6 * 7 = 42 apples", "6*7=42apples"),
    ],
)
def test_a_worked_sum_counts_by_its_result(answer: str, key: str) -> None:
    assert answer_key(answer) == key


def test_a_reference_counts_by_the_answer_it_states() -> None:
    assert reference_key("He has 6 boxes of 7.\n#### 42") == reference_key("42.0") == "42"
    assert reference_key(None) is None


def test_digits_of_full_width_and_spaces_of_no_width_change_nothing() -> None:
    assert answer_key("\uff14\uff12") == answer_key("\u200b42\ufeff") == "42"
