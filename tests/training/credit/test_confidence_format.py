"""The reader of stated confidences: the format and nothing else, in linear time."""

from __future__ import annotations

import time

import pytest

from breadth.training.credit.confidence_format import INSTRUCTION, stated_confidence


def response(confidence: str, *, think: str = "<think>2 + 2 = 4</think>", answer: str = "4", after: str = "") -> str:
    return f"{think}\n<answer>{answer}</answer>\n<analysis>sure</analysis>\n<confidence>{confidence}</confidence>{after}"


@pytest.mark.parametrize(
    ("written", "confidence"),
    [("0.9", 0.9), ("0", 0.0), ("1", 1.0), ("1.0", 1.0), ("1.", 1.0), (".25", 0.25), (" 0.75\n", 0.75), ("0.30", 0.3)],
)
def test_plain_decimals_are_read(written: str, confidence: float) -> None:
    assert stated_confidence(response(written)) == confidence


@pytest.mark.parametrize(
    "written",
    [
        "",
        " ",
        "80%",
        "4/5",
        "1.2",
        "-0.1",
        "2",
        "nan",
        "inf",
        "1e-3",
        "0,8",
        "high",
        "0.9 or so",
        "0_1",
        "٠.٥",
        "0.5.5",
        "True",
        "__import__('os')",
    ],
)
def test_everything_else_is_no_confidence(written: str) -> None:
    assert stated_confidence(response(written)) is None


def test_white_space_around_and_a_missing_opening_tag_are_fine() -> None:
    assert stated_confidence("\n " + response("0.5", after=" \n")) == 0.5
    assert stated_confidence(response("0.5", think="2 + 2 = 4</think>")) == 0.5


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0.9",
        "<confidence>0.9</confidence>",
        response("0.9", think=""),
        response("0.9", think="<think>a"),
        response("0.9", think="<think>a<think>b</think>"),
        response("0.9", think="Well. <think>a</think>"),
        response("0.9", think="<think>a</think></think>"),
        response("0.9", answer=" "),
        response("0.9", after=" I am sure."),
        response("0.9") + "<confidence>0.1</confidence>",
        response("0.9", think="<think>is it <answer>5</answer>?</think>"),  # a checker might read the other answer
        response("0.9", answer="4</answer><answer>5"),
        response("0.9").replace("<analysis>sure</analysis>", ""),
        response("0.9").replace("</answer>", "</answer> so"),
        response("0.9").replace("</confidence>", ""),
        "<think>a</think><confidence>0.9</confidence><answer>4</answer><analysis>b</analysis>",
        "<think>a</think><answer>4<analysis>b</analysis></answer><confidence>0.9</confidence>",
    ],
)
def test_a_broken_format_states_no_confidence(text: str) -> None:
    assert stated_confidence(text) is None


def test_the_instruction_shows_the_format_it_asks_for() -> None:
    shown = INSTRUCTION[INSTRUCTION.index("<think>") : INSTRUCTION.rindex(">") + 1]
    head, _, _ = shown.partition("<confidence>")
    assert stated_confidence(f"{head}<confidence>0.75</confidence>") == 0.75


@pytest.mark.parametrize(
    "piece", ["<think>", "</think>", "<answer>", "<answer></answer>", "<confidence>0", "<", " ", "0", "</confidence> "]
)
def test_hostile_text_takes_linear_time(piece: str) -> None:
    hostile = piece * (1_000_000 // len(piece))
    begun = time.process_time()
    assert stated_confidence(hostile) is None
    assert stated_confidence(response(hostile)) is None
    assert stated_confidence(response("0.5", think=f"<think>{hostile}</think>")) in (None, 0.5)
    assert time.process_time() - begun < 1.0
