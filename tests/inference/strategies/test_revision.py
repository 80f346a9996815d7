"""Sequential revision: what is shown, what is chosen, what is counted."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from breadth.base.errors import MeasureError, SettingsError
from breadth.inference.records import Ask, Candidate, Task
from breadth.inference.strategies.revision import REVISION_INSTRUCTION, FlipMatrix, Revision, count_changes, count_flips
from breadth.testing.strategies import check_strategy, drive


def test_flips_by_hand() -> None:
    # Right R, wrong W: W R R W | R None R | (one answer, no step) | (none)
    chains: list[list[str | None]] = [["1", "4", "4", "5"], ["4", None, "4"], ["4"], []]
    flips = count_flips(chains, ["4"] * 4)
    assert flips == FlipMatrix(right_to_wrong=2, wrong_to_right=2, stayed_right=1, stayed_wrong=0)
    assert (flips.steps, flips.net) == (5, 0)
    assert count_flips([["1", "2", "2"]], ["4"]) == FlipMatrix(stayed_wrong=2)
    assert count_flips([], []) == FlipMatrix()


@given(st.lists(st.lists(st.sampled_from(["4", "5", None]), min_size=1, max_size=6), max_size=4))
def test_the_counts_sum_to_the_steps_and_the_net_is_the_gain(chains: list[list[str | None]]) -> None:
    flips = count_flips(chains, ["4"] * len(chains))
    assert flips.steps == sum(len(chain) - 1 for chain in chains)
    assert flips.net == sum((chain[-1] == "4") - (chain[0] == "4") for chain in chains)


def test_changes_and_returns() -> None:
    assert count_changes(["4", "5", "4", "4", None, "4", "6"]) == (3, 1)
    assert count_changes(["4", None, "4"]) == (0, 0)
    assert count_changes([]) == (0, 0)


def test_each_chain_needs_its_truth() -> None:
    with pytest.raises(MeasureError, match="1 chains and 2 truths"):
        count_flips([["4"]], ["4", "5"])


TASK = Task(({"role": "user", "content": "6 * 7?"},))


def said(*keys: str | None) -> list[Candidate]:
    return [Candidate(f"I say {key}.", key, key, tokens=3) for key in keys]


def oracle(candidate: Candidate) -> Candidate:
    right = candidate.key == "42"
    return replace(candidate, score=float(right), solved=right, feedback="Right." if right else f"Not {candidate.key}.")


def test_the_last_is_not_the_best() -> None:
    answer = drive(Revision(), TASK, said("42", "42", "42", "41")).answer
    assert answer.key == "42"
    assert answer.votes == {"42": 3, "41": 1}
    assert answer.confidence is None
    assert "saw one another" in answer.notes[0]
    assert [candidate.independent for candidate in answer.candidates] == [True, False, False, False]


def test_changes_and_returns_are_counted() -> None:
    answer = drive(Revision(rounds=5), TASK, said("1", "2", None, "1", "1")).answer
    assert answer.figures == {"rounds": 5, "changes": 2, "returns": 1}


def test_each_round_shows_the_last_replies_with_the_instruction() -> None:
    result = drive(Revision(rounds=4, keep=2), TASK, said("1", "2", "3", "4"))
    last = result.requests[-1]
    assert isinstance(last, Ask)
    assert last.prompt == (
        *TASK.prompt,
        {"role": "assistant", "content": "I say 2."},
        {"role": "user", "content": REVISION_INSTRUCTION},
        {"role": "assistant", "content": "I say 3."},
        {"role": "user", "content": REVISION_INSTRUCTION},
    )
    assert result.requests[0] == Ask(1)


def test_a_judges_words_are_shown_and_its_verdict_ends_the_chain() -> None:
    result = drive(Revision(judge="oracle"), TASK, said("1", "42", "3", "4"), judge=oracle)
    assert (result.answer.key, result.answer.stopped, len(result.answer.candidates)) == ("42", "solved", 2)
    revision = next(ask for ask in result.requests if isinstance(ask, Ask) and ask.prompt is not None)
    assert revision.prompt is not None
    assert revision.prompt[-1] == {"role": "user", "content": f"Not 1.\n\n{REVISION_INSTRUCTION}"}


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(["42", "1", "2", None]), min_size=4, max_size=4))
def test_an_oracle_over_the_chain_is_at_least_any_position(keys: list[str | None]) -> None:
    def scores(candidate: Candidate) -> Candidate:
        return replace(candidate, score=float(candidate.key == "42"))

    answer = drive(Revision(judge="oracle"), TASK, said(*keys), judge=scores).answer
    assert (answer.key == "42") == ("42" in keys)


def test_scores_of_equal_answers_may_add_up() -> None:
    worth = {"1": 0.4, "2": 0.6}

    def scores(candidate: Candidate) -> Candidate:
        return replace(candidate, score=worth[candidate.key or ""])

    replies = said("1", "2", "1", "1")
    assert drive(Revision(judge="j"), TASK, replies, judge=scores).answer.key == "2"
    assert drive(Revision(judge="j", weighted=True), TASK, replies, judge=scores).answer.key == "1"


def test_a_text_to_continue_is_revised_as_text() -> None:
    result = drive(Revision(rounds=2, instruction="Again:"), Task("Q\nA:"), said("1", "2"))
    last = result.requests[-1]
    assert isinstance(last, Ask)
    assert last.prompt == "Q\nA:I say 1.\n\nAgain:\n\n"


def test_a_tool_call_ends_the_chain() -> None:
    answer = drive(Revision(), TASK, [Candidate("", finish="tool_calls"), *said("1")]).answer
    assert (len(answer.candidates), answer.stopped) == (1, "answered")


@pytest.mark.parametrize("strategy", [Revision(), Revision(judge="j"), Revision(rounds=1), Revision(rounds=9, keep=1)])
def test_the_contract(strategy: Revision) -> None:
    check_strategy(strategy)
    check_strategy(strategy, judge=lambda candidate: replace(candidate, score=float(candidate.key == "41")))


@pytest.mark.parametrize("bad", [{"rounds": 0}, {"keep": 0}, {"instruction": " "}])
def test_bad_settings_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(SettingsError, match=next(iter(bad))):
        Revision(**bad)  # type: ignore[arg-type]  # wrong on purpose
