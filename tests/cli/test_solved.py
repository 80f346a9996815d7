"""How answers look: escape codes of a model never reach the terminal, the numbers are there."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from breadth.cli.solved import show_many, show_one, sums_of, vote_lines
from breadth.runtime.driver import MOST_VOTES


def row(**changes: Any) -> dict[str, Any]:
    cost = {"calls": 5, "input_tokens": 50, "cached_tokens": 10, "output_tokens": 1234, "seconds": 1.5, "money": 0.0}
    base: dict[str, Any] = {
        "question": "q",
        "text": "It is 42.",
        "answer": "42",
        "confidence": 0.96875,
        "basis": "leader against runner-up",
        "votes": [{"answer": "42", "votes": 4.0, "share": 0.8}, {"answer": "41", "votes": 1.0, "share": 0.2}],
        "tied": [],
        "stopped": "agreed",
        "drawn": 5,
        "arrived": 5,
        "failed": 0,
        "discarded": 0,
        "unread": 0,
        "cost": cost,
        "notes": [],
        "errors": [],
    }
    return base | changes


def printed(**changes: Any) -> str:
    console = Console(width=100, record=True, force_terminal=False, file=None, quiet=False)
    with console.capture() as captured:
        show_one(row(**changes), console)
    return captured.get()


def test_the_reply_comes_first_and_the_cost_last() -> None:
    lines = printed().splitlines()
    assert lines[0].strip() == "It is 42."
    assert "0.969 that the model gives this answer most often" in "\n".join(lines)
    assert "1,234 tokens written, 50 read (10 cached), 1.50 s" in lines[-1]
    assert "█████" in "\n".join(lines)


def test_failures_ties_and_notes_are_said() -> None:
    said = printed(
        failed=2, errors=[{"problem": "status 500", "times": 2}], tied=["1", "2"], notes=["Confidence was not used."]
    )
    assert "2 failed" in said
    assert "2 x status 500" in said
    assert "2 answers had as many votes" in said
    assert "Confidence was not used." in said


def test_escape_codes_and_markup_of_a_model_do_nothing() -> None:
    said = printed(text="\x1b]0;owned\x07[red]x[/red]\x1b[2J", answer="\x1b[31m", notes=["[bold]n"])
    assert "\x1b" not in said
    assert "[red]x[/red]" in said


def test_a_long_tail_of_answers_is_summed_up() -> None:
    votes = [{"answer": f"{'long ' * 20}{number}", "votes": 1.0, "share": 0.1} for number in range(10)]
    lines = [line.plain for line in vote_lines(votes)]
    assert len(lines) == 7
    assert lines[-1] == "and 4 more answers with 4"
    assert max(map(len, lines)) < 70


def test_a_tail_that_was_cut_is_not_counted_as_all() -> None:
    votes = [{"answer": str(number), "votes": 1.0, "share": 0.02} for number in range(MOST_VOTES)]
    assert vote_lines(votes)[-1].plain == "and at least 14 more answers with at least 14"


def test_a_file_ends_with_its_sums() -> None:
    rows = [row(correct=True), row(correct=False, answer=None, confidence=None)]
    # Wilson at 1 of 2: (0.09, 0.91).
    assert (
        sums_of(rows)
        == "2 questions, 10 draws (0 failed), 2,468 tokens written; right: 1 of 2 (0.09 to 0.91), 2,468 tokens for each"
    )
    console = Console(width=100)
    with console.capture() as captured:
        show_many(rows, console)
    assert "yes" in captured.get()
