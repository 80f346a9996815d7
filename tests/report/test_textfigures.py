"""Figures in the terminal."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from breadth.report.sections import Axis, Curve, Event, Group, Groups, Outcome, Series, Token, Trace
from breadth.report.style import SHOWN_EVENTS, SHOWN_GROUPS, SHOWN_TOKENS


def lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines()]


def test_a_curve_says_its_numbers(printed: Callable[..., str]) -> None:
    series = [Series("this run", [0, 300], [0.62, 0.41], [0.58, 0.38], [0.66, 0.47]), Series("other", [0, 300], [0.5, 0.5])]
    curve = Curve("C", series, Axis("step"), Axis("entropy", "nats"), events=[Event(150, "change point")], band="95% band", note="Note.")
    found = lines(printed(curve, 100))
    assert "entropy (nats)" in found
    assert "● this run  0.62 nats (0.58 to 0.66) at 0, 0.41 nats (0.38 to 0.47) at 300" in found
    assert "■ other     0.5 nats at 0, 0.5 nats at 300" in found
    assert "░ band      95% band" in found
    assert "a step 150  change point" in found
    assert "Note." in found


def test_many_events_fold(printed: Callable[..., str]) -> None:
    events = [Event(place, f"event {place}") for place in range(SHOWN_EVENTS + 30)]
    text = printed(Curve("C", [Series("s", [0, 60], [0, 1])], Axis("step"), Axis("y"), events=events))
    assert "… 30 more events" in text
    assert all(len(line) <= 100 for line in lines(text))


def test_groups_in_a_row(printed: Callable[..., str]) -> None:
    kinds = [*Outcome, *[Outcome.CORRECT] * 5]
    found = lines(printed(Groups("G", [Group("p1", kinds), Group("problem 2", [Outcome.WRONG])], note="Sorted.")))
    assert "● correct   ○ wrong   × unparsable   – truncated" in found
    assert "p1         ●○×–●●●● ●  6/9" in found
    assert "problem 2  ○  0/1" in found
    assert "Sorted." in found


def test_long_groups_wrap(printed: Callable[..., str]) -> None:
    found = lines(printed(Groups("G", [Group("a very long name of a problem indeed", [Outcome.CORRECT] * 64)]), 60))
    assert all(len(line) <= 60 for line in found)
    assert sum(line.count("●") for line in found) == 64 + 1
    assert [line for line in found if line.endswith("64/64")]


def test_many_groups_fold(printed: Callable[..., str]) -> None:
    text = printed(Groups("G", [Group(f"p{index}", [Outcome.CORRECT]) for index in range(SHOWN_GROUPS + 9)]))
    assert "… 9 more problems" in text
    assert "No samples." in printed(Groups("G", []))


def test_marks_stand_under_their_tokens(printed: Callable[..., str]) -> None:
    trace = Trace("T", [Token("Let ", 0.0), Token("me ", 6.0), Token("check", 3.0), Token(" it", 0.0)], unit="nats")
    found = lines(printed(trace))
    start = found.index("Let me check it")
    assert found[start + 1] == "    ██ ▃▃▃▃▃"
    assert "▁ from 1 nats   ▂ from 2 nats   ▃ from 3 nats   ▅ from 4 nats   █ from 5 nats" in found


def test_marks_of_wide_letters_line_breaks_and_kinds(printed: Callable[..., str]) -> None:
    tokens = [Token("日本", 6.0), Token("\n", 6.0), Token("so "), Token("42", 0.0, "answer"), Token(".")]
    found = lines(printed(Trace("T", tokens)))
    start = found.index("日本↵")
    assert found[start + 1 : start + 3] == ["█████", "so [answer: 42]."]


def test_a_trace_in_ascii_uses_digits(printed: Callable[..., str]) -> None:
    found = lines(printed(Trace("T", [Token("a ", 0.0), Token("b", 6.0)]), encoding="ascii"))
    assert found[found.index("a b") + 1] == "  5"


@pytest.mark.parametrize("width", [20, 60, 160])
def test_a_long_trace_wraps_and_folds(width: int, printed: Callable[..., str]) -> None:
    found = lines(printed(Trace("T", [Token(f"word{index} ", index % 7) for index in range(SHOWN_TOKENS + 7)]), width))
    joined = " ".join(found)
    assert f"word{SHOWN_TOKENS - 1}" in joined
    assert f"word{SHOWN_TOKENS}" not in joined
    assert "7 more tokens" in joined
    assert all(len(line) <= width for line in found)
