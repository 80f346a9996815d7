"""Budget forcing with a scripted model that closes its thinking after ten tokens."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from breadth.base.errors import SettingsError
from breadth.inference.records import Ask, Candidate, Sampling, Task
from breadth.inference.strategies.budget_forcing import BudgetForcing
from breadth.inference.thinking import UNMARKED_THINKING
from breadth.testing.strategies import DriveResult, check_strategy, drive

TASK = Task(({"role": "user", "content": "6 * 7?"},), sampling=Sampling(max_tokens=1000))


def ten_tokens(ask: Ask, number: int) -> Candidate:
    """Think for ten tokens, or until cut; answer in five."""
    cap = (ask.sampling or TASK.sampling).max_tokens
    if ask.purpose == "thinking":
        written = min(10, cap)
        return Candidate("t" * written, tokens=written, finish="length" if cap < 10 else "stop")
    return Candidate(" The answer is 42.", "42", "42", tokens=min(5, cap))


def driven(strategy: BudgetForcing, task: Task = TASK) -> DriveResult:
    return drive(strategy, task, ten_tokens)


def test_two_cues_make_three_segments() -> None:
    result = driven(BudgetForcing(cues=2))
    assert result.answer.text == "<think>\nttttttttttWaitttttttttttWaittttttttttt\n</think>\n\n The answer is 42."
    assert result.answer.figures == {"cues": 2, "thinking_tokens": 30, "forced": 0}
    assert [ask.purpose for ask in result.requests if isinstance(ask, Ask)] == ["thinking"] * 3 + ["answer"]
    assert result.answer.key == "42"
    assert len(result.answer.candidates) == 4


def test_a_cap_of_seven_forces_the_answer_once_and_gives_no_cue() -> None:
    result = driven(BudgetForcing(cues=2, maximum=7))
    assert result.answer.text == "<think>\nttttttt\n</think>\nFinal Answer: The answer is 42."
    assert result.answer.figures == {"cues": 0, "thinking_tokens": 7, "forced": 1}


def test_every_continuation_gets_only_what_is_left() -> None:
    result = driven(BudgetForcing(cues=5, maximum=25))
    caps = [ask.sampling.max_tokens for ask in result.requests if isinstance(ask, Ask) and ask.sampling]
    assert caps == [25, 15, 5, 975]
    assert result.answer.figures == {"cues": 2, "thinking_tokens": 25, "forced": 1}


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 400))
def test_exactly_so_many_tokens(tokens: int) -> None:
    result = driven(BudgetForcing(cues=0, minimum=tokens, maximum=tokens))
    assert result.answer.figures["thinking_tokens"] == tokens
    assert result.answer.figures["forced"] == (tokens % 10 > 0)
    assert result.answer.figures["cues"] == (tokens - 1) // 10
    assert result.answer.notes == ()


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 300))
def test_at_least_so_many_tokens_and_then_as_the_model_likes(tokens: int) -> None:
    figures = driven(BudgetForcing(cues=0, minimum=tokens)).answer.figures
    assert figures["thinking_tokens"] == -(-tokens // 10) * 10
    assert figures["forced"] == 0


@pytest.mark.parametrize("most", [1, 2, 3, 64, 150, 1000])
def test_the_completion_never_exceeds_its_cap(most: int) -> None:
    task = replace(TASK, sampling=Sampling(max_tokens=most))
    for strategy in (BudgetForcing(cues=500), BudgetForcing(minimum=2000), BudgetForcing(maximum=5000, cues=500)):
        result = driven(strategy, task)
        assert result.total_tokens <= most
        assert result.answer.key == "42"


def test_a_hundred_tokens_are_kept_for_the_answer_or_half() -> None:
    assert driven(BudgetForcing(cues=500)).answer.figures["thinking_tokens"] == 900
    short = replace(TASK, sampling=Sampling(max_tokens=64))
    assert driven(BudgetForcing(cues=500), short).answer.figures["thinking_tokens"] == 32


def test_a_model_that_will_not_think_on_is_left_alone() -> None:
    result = drive(BudgetForcing(minimum=50), TASK, lambda ask, _: replace(ten_tokens(ask, 0), tokens=0))
    assert result.answer.figures["cues"] == 3
    assert "fewer than the 50" in result.answer.notes[0]
    assert result.answer.key == "42"


def plain(ask: Ask, number: int) -> Candidate:
    """Answer one number higher with each piece."""
    cap = (ask.sampling or TASK.sampling).max_tokens
    answer = str(40 + number)
    return Candidate(
        f" The answer is {answer}.", answer, answer, tokens=min(10, cap), finish="length" if cap < 10 else "stop"
    )


def test_a_plain_model_answers_in_its_last_piece() -> None:
    result = drive(BudgetForcing(cues=2, thinking=UNMARKED_THINKING), TASK, plain)
    assert result.answer.text == " The answer is 40.\nWait The answer is 41.\nWait The answer is 42."
    assert (result.answer.key, len(result.answer.candidates)) == ("42", 3)


def test_a_plain_model_that_is_cut_answers_apart() -> None:
    result = drive(BudgetForcing(maximum=5, thinking=UNMARKED_THINKING), TASK, plain)
    assert result.answer.text == " The answer is 40.\nFinal Answer: The answer is 41."
    assert result.answer.key == "41"


def test_only_the_answer_counts_as_a_draw_of_the_task() -> None:
    assert [candidate.independent for candidate in driven(BudgetForcing(cues=2)).answer.candidates] == [False] * 3 + [
        True
    ]


def test_the_servers_own_cap_on_thinking_is_not_asked_for() -> None:
    task = replace(TASK, sampling=Sampling(max_tokens=1000, thinking_tokens=50))
    result = driven(BudgetForcing(), task)
    assert [ask.sampling.thinking_tokens for ask in result.requests if isinstance(ask, Ask) and ask.sampling] == [
        None
    ] * 3


def test_a_model_that_closes_its_thinking_at_once_or_never() -> None:
    def at_once(ask: Ask, number: int) -> Candidate:
        return Candidate("", tokens=1) if ask.purpose == "thinking" else ten_tokens(ask, number)

    def never(ask: Ask, number: int) -> Candidate:
        cap = (ask.sampling or TASK.sampling).max_tokens
        return (
            Candidate("t" * cap, tokens=cap, finish="length") if ask.purpose == "thinking" else ten_tokens(ask, number)
        )

    quick, long = (drive(BudgetForcing(cues=2), TASK, reply).answer for reply in (at_once, never))
    assert quick.text == "<think>\nWaitWait\n</think>\n\n The answer is 42."
    assert quick.figures == {"cues": 2, "thinking_tokens": 3, "forced": 0}
    assert long.figures == {"cues": 0, "thinking_tokens": 900, "forced": 1}
    assert quick.key == long.key == "42"


def test_a_server_that_sets_thinking_apart_and_answers_at_once() -> None:
    def apart(ask: Ask, number: int) -> Candidate:
        return (
            Candidate("4", "4", "4", reasoning="hm ", tokens=10)
            if ask.purpose == "thinking"
            else ten_tokens(ask, number)
        )

    result = drive(BudgetForcing(cues=1), TASK, apart)
    assert result.answer.text == "<think>\nhm Waithm \n</think>\n\n The answer is 42."


def test_a_tool_call_is_a_reply() -> None:
    call = Candidate("", finish="tool_calls", tool_calls=({"name": "add"},), tokens=4)
    result = drive(BudgetForcing(cues=3), TASK, lambda *_: call)
    assert result.answer.chosen is not None
    assert result.answer.chosen.tool_calls == call.tool_calls
    assert len(result.requests) == 1


def test_a_budget_that_dies_leaves_the_last_piece_and_says_so() -> None:
    answer = drive(BudgetForcing(cues=2), TASK, ten_tokens, budget=3).answer
    assert (answer.stopped, answer.key, len(answer.candidates)) == ("budget", None, 3)
    assert "before the reply was complete" in answer.notes[-1]


@pytest.mark.parametrize(
    "strategy",
    [
        BudgetForcing(),
        BudgetForcing(0, 30, 30),
        BudgetForcing(thinking=UNMARKED_THINKING),
        BudgetForcing(minimum=10**6),
    ],
)
def test_the_contract(strategy: BudgetForcing) -> None:
    check_strategy(strategy)


@pytest.mark.parametrize("bad", [{"cues": -1}, {"minimum": -1}, {"maximum": 0}, {"minimum": 9, "maximum": 8}])
def test_bad_settings_are_refused(bad: dict[str, int]) -> None:
    with pytest.raises(SettingsError, match=list(bad)[-1]):
        BudgetForcing(**bad)  # type: ignore[arg-type]  # wrong on purpose
