"""The stated answer in every form completions use, in forms that only look like it, and in hostile text."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from breadth.measure import answer_extraction
from breadth.measure.answer_extraction import stated_answer, stated_answers


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
    assert stated_answer(text) == answer_extraction._last_statement(text)
