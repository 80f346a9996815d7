"""Marks of thinking, the answer behind them, and traces drawn piece by piece."""

from __future__ import annotations

import pytest

from breadth.base.errors import SettingsError
from breadth.base.settings import dumps, loads
from breadth.inference.records import Candidate, Finish, Reading, Sampling, Task
from breadth.inference.thinking import UNMARKED_THINKING, Thinking, ThinkingTrace, on_new_line

MARKED = Thinking()


def read(thinking: Thinking, prefix: str, text: str, how: str = "stated", finish: Finish = "stop") -> str | None:
    reading = Reading(how)  # type: ignore[arg-type]  # one of the three, from the tests below
    answer, key = reading.read_with_key(prefix + text, ended=finish != "length")
    return thinking.read_answer(reading, Candidate(text, answer, key, finish, prefix=prefix)).key


def test_closing_and_cutting() -> None:
    assert MARKED.close_thinking("so") == "so\n</think>\n\n"
    assert MARKED.close_thinking("so\n") == "so\n</think>\n\n"
    assert MARKED.cut_thinking("so") == "so\n</think>\nFinal Answer:"
    assert UNMARKED_THINKING.close_thinking("so") == "so"
    assert UNMARKED_THINKING.cut_thinking("so") == "so\nFinal Answer:"
    assert on_new_line("") == ""


def test_what_is_said_while_thinking_is_no_answer() -> None:
    thought = "<think>\nFirst \\boxed{5}.\n</think>\n"
    assert read(MARKED, thought + "Final Answer:", " 7") == "7"
    assert read(MARKED, thought, "The answer is 8.") == "8"
    assert read(MARKED, thought, "I do not know.") is None
    assert read(MARKED, "", thought + "The answer is 9.") == "9"


def test_a_forced_answer_of_a_plain_model_comes_before_what_it_said_earlier() -> None:
    assert read(UNMARKED_THINKING, "First \\boxed{5}.\nFinal Answer:", " 7") == "7"
    assert read(UNMARKED_THINKING, "First \\boxed{5}.\nFinal Answer:", "") == "5"
    assert read(UNMARKED_THINKING, "", "First \\boxed{5}.") == "5"


def test_where_the_whole_reply_is_the_answer_the_marker_is_not() -> None:
    assert read(MARKED, "<think>\nhm\n</think>\nFinal Answer:", " 7", "whole") == "7"
    assert read(MARKED, "<think>\nhm\n</think>\n\n", "7", "whole") == "7"


def test_a_cut_answer_counts_only_when_stated() -> None:
    assert read(MARKED, "<think>\n\\boxed{5}\n</think>\n\n", "It is 7 and", "number", "length") is None
    assert read(MARKED, "<think>\n\\boxed{5}\n</think>\n\n", "It is \\boxed{7} and", "number", "length") == "7"
    assert read(MARKED, "<think>\n\\boxed{5}\n</think>\n\n", "It is 7", "number", "content_filter") is None


def test_thinking_is_told_from_an_answer_that_came_with_it() -> None:
    assert MARKED.thinking_text(Candidate("hm</think>\n\n4")) == "hm"
    assert MARKED.thinking_text(Candidate("4", reasoning="hm")) == "hm"
    assert UNMARKED_THINKING.thinking_text(Candidate("4")) == "4"


def test_thinking_set_apart_is_put_together_with_its_mark() -> None:
    assert MARKED.generated_text(Candidate("4", reasoning="hm")) == "hm\n</think>\n\n4"
    assert MARKED.generated_text(Candidate("", reasoning="hm")) == "hm"
    assert MARKED.generated_text(Candidate("hm")) == "hm"
    assert UNMARKED_THINKING.generated_text(Candidate("4", reasoning="hm")) == "hm4"


def test_thinking_is_drawn_up_to_its_mark() -> None:
    sampling = Sampling(stop=("Q:",), thinking_tokens=9)
    assert MARKED.limit_sampling(sampling, 5) == Sampling(stop=("</think>",), max_tokens=5)
    assert UNMARKED_THINKING.limit_sampling(sampling, 5) == Sampling(stop=("Q:",), max_tokens=5)


def test_an_incomplete_trace_answers_by_the_last_piece_that_can_be_read() -> None:
    trace = ThinkingTrace(Task("q"), UNMARKED_THINKING)
    assert trace.answer(False).chosen is None
    pieces = [Candidate("a", "1", "1", tokens=3), Candidate("b", "2", "2", tokens=4), Candidate("c", tokens=5)]
    for piece in pieces:
        trace.append(piece)
    assert (trace.text, trace.tokens) == ("abc", 12)
    answer = trace.answer(False)
    assert (answer.key, answer.stopped, answer.candidates) == ("2", "budget", tuple(pieces))
    assert "before the reply was complete" in answer.notes[0]


def test_a_complete_trace_without_an_answer_says_so() -> None:
    trace = ThinkingTrace(Task("q"), MARKED)
    trace.append(Candidate("I do not know.", tokens=3))
    assert trace.answer(True).notes == ("No answer could be read in the reply.",)
    trace.append(Candidate("The answer is 4.", "4", "4", tokens=3))
    assert trace.answer(True).notes == ()


def test_marks_survive_toml_and_bad_ones_are_refused() -> None:
    assert loads(Thinking, dumps(UNMARKED_THINKING)) == UNMARKED_THINKING
    with pytest.raises(SettingsError, match="close"):
        Thinking(close="")
    with pytest.raises(SettingsError, match="cue"):
        Thinking(cue="")
