"""Wording repeated within and between samples, on counts done by hand."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from breadth.base.errors import MeasureError
from breadth.measure.answers import answer_key
from breadth.measure.degeneracy import (
    Gates,
    ModalAnswers,
    TailLoop,
    computation_share,
    computation_tokens,
    early_answer,
    find_overused_answers,
    modal_answers,
    ngram_repetition,
    ngrams,
    reference_computation,
    response_degeneracy,
    rough_tokens,
    tail_loop,
)

TOKENS = st.lists(st.integers(0, 3), max_size=12)


def test_rough_tokens_cut_words_in_fours_and_keep_every_mark() -> None:
    assert rough_tokens("The answer is \\boxed{40}.") == [
        "The",
        "answ",
        "er",
        "is",
        "\\",
        "boxe",
        "d",
        "{",
        "40",
        "}",
        ".",
    ]
    assert rough_tokens("x_1 = 3") == ["x", "_", "1", "=", "3"]
    assert rough_tokens("abababab") == ["abab", "abab"]
    assert rough_tokens("答案是四十二") == ["答案是四", "十二"]
    assert rough_tokens(" \n\t ") == []


def test_rough_tokens_stay_near_a_subword_count_in_english() -> None:
    # A subword tokenizer spends about four characters a token on English prose; ours must be within a half of that.
    sentence = "We know that the train leaves at noon and travels for three hours before it stops at the next station."
    assert len(sentence) / 4 / 1.5 < len(rough_tokens(sentence)) < len(sentence) / 4 * 1.5


def test_ngrams_are_all_neighbouring_runs() -> None:
    assert list(ngrams([1, 2, 3, 4], 3)) == [(1, 2, 3), (2, 3, 4)]
    assert list(ngrams([1, 2], 3)) == []
    with pytest.raises(MeasureError, match="must be 1 or more"):
        ngrams([1, 2], 0)


def test_repetition_by_hand() -> None:
    # a b a b a b a: 4-grams abab baba abab baba -> 2 different of 4.
    assert ngram_repetition(list("abababa")) == 0.5
    # 10 equal tokens: 7 4-grams, one different.
    assert ngram_repetition([1] * 10) == pytest.approx(6 / 7)
    assert ngram_repetition(list("abcdefgh")) == 0
    assert ngram_repetition([]) == 0
    assert ngram_repetition(list("abc")) == 0


WORKED = """Janet's ducks lay 16 eggs per day. She eats 3 for breakfast and bakes muffins with 4, so 3 + 4 = 7 \
eggs are used.
That leaves 16 - 7 = 9 eggs. She sells each of them for $2, so she earns 9 * 2 = 18 dollars every day at the market.
The question asks for the money of a day, which we now know.
The answer is \\boxed{18}."""
LONG = """We look for all whole x with x^2 - 5x + 6 = 0. First we factor: two numbers with product 6 and sum 5 \
are 2 and 3.
So (x - 2)(x - 3) = 0, which means x = 2 or x = 3. To be sure, put 2 in: 4 - 10 + 6 = 0, which holds.
Put 3 in: 9 - 15 + 6 = 0, which holds too. There can be no third root, because a quadratic has at most two.
Adding them gives 2 + 3 = 5, as the sum of the roots must be. Therefore the larger root is 3.

Final answer: \\boxed{3}"""
BARE = "The answer is \\boxed{40}"


def test_abab_fires_the_tail_loop() -> None:
    assert tail_loop("ab" * 100) == TailLoop(period=1, length=50)
    assert tail_loop(list("ab" * 100)) == TailLoop(period=2, length=200)
    assert "tail loop" in response_degeneracy("We have " + "ab" * 100).detections


@pytest.mark.parametrize(
    ("tokens", "loop"),
    [
        ([9, 8, *[1, 2, 3] * 4], TailLoop(3, 12)),
        ([9, 8, *[1, 2, 3] * 4, 1, 2], TailLoop(3, 14)),  # cut in the middle of a turn
        ([9, 8, *[1, 2, 3] * 3, 1, 2], None),  # not four turns
        ([*[1, 2, 3] * 8, 7], None),  # the loop was left
        ([5, 5, 5, 5], TailLoop(1, 4)),
        ([*range(200)] * 4, TailLoop(200, 800)),
        ([*range(201)] * 4, None),  # longer than the longest period
        ([], None),
        ([1], None),
    ],
)
def test_tail_loops_by_hand(tokens: list[int], loop: TailLoop | None) -> None:
    assert tail_loop(tokens) == loop


def test_the_longest_loop_wins_over_a_shorter_one_inside() -> None:
    # Each turn ends in four 0s, a loop of its own of length 4; the loop of turns has 6 x 8 tokens.
    loop = tail_loop([1, 2, 3, 4, 0, 0, 0, 0] * 6)
    assert loop == TailLoop(8, 48)
    assert loop.repeats == 6


def slow_tail_loop(tokens: list[int]) -> TailLoop | None:
    loops = []
    for period in range(1, min(200, len(tokens)) + 1):
        length = period
        while length < len(tokens) and tokens[-length - 1] == tokens[-length - 1 + period]:
            length += 1
        if length >= 4 * period:
            loops.append(TailLoop(period, length))
    return max(loops, key=lambda loop: (loop.length, -loop.period), default=None)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(0, 2), max_size=10), st.lists(st.integers(0, 2), min_size=1, max_size=6), st.integers(0, 8))
def test_tail_loop_agrees_with_the_definition(head: list[int], turn: list[int], turns: int) -> None:
    tokens = head + turn * turns
    assert tail_loop(tokens) == slow_tail_loop(tokens)


def test_bare_answer_to_a_multi_step_item_fires_early_answer_and_computation_skipping() -> None:
    found = response_degeneracy(BARE, reference=reference_computation([WORKED, LONG, WORKED]))
    assert found.detections == ("early answer", "computation skipping")
    assert found.is_degenerate
    assert found.early == 0
    assert found.computation == 0


@pytest.mark.parametrize(
    "reply",
    ["So the final answer is \\boxed{40}.", "**Answer:** $40$", "<answer>40</answer>", "#### 40", "\\boxed{40}"],
)
def test_other_wordings_of_a_bare_answer(reply: str) -> None:
    assert response_degeneracy(reply, reference=20).detections == ("early answer", "computation skipping")


@pytest.mark.parametrize("solution", [WORKED, LONG])
def test_a_normal_worked_solution_fires_none(solution: str) -> None:
    found = response_degeneracy(solution, reference=reference_computation([WORKED, LONG]))
    assert found.detections == ()
    assert not found.is_degenerate


def test_a_bare_answer_to_an_easy_item_is_not_degenerate() -> None:
    # Where the base model computes as little, nothing was skipped; one detector alone decides nothing.
    assert response_degeneracy(BARE, reference=reference_computation([BARE, BARE]) or None).detections == (
        "early answer",
    )
    assert not response_degeneracy(BARE).is_degenerate


def test_early_answer_by_hand() -> None:
    # Four rough tokens ("We", "try", "it", ".") come before the lead-in; the whole has fewer than 64, so 4 / 64.
    assert early_answer("We try it. The answer is \\boxed{40}") == 4 / 64
    # 90 one-token words before and 11 behind (lead-in, box): 90 over all tokens.
    text = "word " * 90 + "The answer is \\boxed{40}."
    assert early_answer(text) == 90 / len(rough_tokens(text))
    # The first statement of the final answer counts, not that of another one.
    text = "I guess \\boxed{7}. " + "word " * 100 + "The answer is \\boxed{8}."
    assert early_answer(text) > 0.8
    text = "I guess \\boxed{0.5}. " + "word " * 100 + "The answer is \\boxed{\\frac{1}{2}}."
    assert early_answer(text) < 0.1
    assert math.isnan(early_answer("I do not know."))


def test_an_answer_given_away_and_then_padded_fires_early_answer() -> None:
    padded = BARE + ". " + " ".join(f"Now consider item {place} of the list." for place in range(40))
    assert {"early answer", "computation skipping"} <= set(response_degeneracy(padded, reference=20).detections)


def test_computation_by_hand() -> None:
    # 6 * 7 = 42: five. "so" is no derivation word, "therefore" is.
    assert computation_tokens("6 * 7 = 42, so it is 42. \\boxed{42}") == 6
    assert computation_tokens("Therefore \\frac{1}{2} + x") == 5
    assert computation_tokens("A step-by-step plan") == 0
    assert computation_tokens("10 - 3") == 3
    assert computation_tokens("1,234.5 apples") == 1
    # What follows the answer does not count.
    assert computation_tokens("\\boxed{42} because 6 * 7 = 42") == 0
    assert computation_share("6 * 7 = 42 \\boxed{42}", 20) == 5 / 20
    assert math.isnan(computation_share("I do not know.", 20))
    assert reference_computation(["1", "1 2", "1 2 3 4"]) == 2


@pytest.mark.parametrize("reference", [0.0, -1.0, math.nan, math.inf])
def test_a_reference_that_is_none_is_refused(reference: float) -> None:
    with pytest.raises(MeasureError, match="must be a positive number"):
        computation_share(BARE, reference)
    with pytest.raises(MeasureError, match="no responses"):
        reference_computation([])


def test_repeated_statements_fire_above_three() -> None:
    three = response_degeneracy(f"{BARE}. " * 3)
    assert three.statements == 3
    assert "answer repetition" not in three.detections
    repeated = response_degeneracy(f"{BARE}. " * 8)
    assert repeated.statements == 8
    assert repeated.detections == ("n-gram repetition", "tail loop", "answer repetition", "early answer")


def test_overused_answers_fire_by_key() -> None:
    common = {str(answer_key("1/2"))}
    assert response_degeneracy("The answer is \\boxed{0.5}", overused=common).overused
    assert "overused answer" in response_degeneracy("The answer is \\boxed{0.5}", overused=common).detections
    assert not response_degeneracy("The answer is \\boxed{3}", overused=common).overused
    assert not response_degeneracy("I do not know.", overused=common).overused


def test_own_tokens_and_own_gates() -> None:
    found = response_degeneracy(WORKED, tokens=[1, 2] * 40)
    assert found.detections == ("n-gram repetition", "tail loop")
    strict = response_degeneracy(WORKED, tokens=[1, 2] * 40, gates=Gates(needed=3))
    assert not strict.is_degenerate


def test_empty_text_and_other_scripts() -> None:
    assert response_degeneracy("", reference=20).detections == ()
    assert response_degeneracy("答案是四十二。" * 30).loop is not None
    assert response_degeneracy("\ud83e\udd86" * 3 + "é\u0301").detections == ()


@pytest.mark.parametrize(
    "unit",
    [
        "a",
        " ",
        "\n",
        "\\",
        "\\boxed{",
        "\\boxed{1}",
        "{",
        "1",
        "The answer is ",
        "####",
        "<answer>",
        "- ",
        "🦆",
        "ab c ",
    ],
)
def test_hostile_text_is_read_in_linear_time(unit: str) -> None:
    text = unit * (1_000_000 // len(unit))
    started = time.process_time()
    response_degeneracy(text, reference=20)
    assert time.process_time() - started < 15


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=120))
def test_any_text_can_be_read(text: str) -> None:
    found = response_degeneracy(text, reference=5)
    assert 0 <= found.repetition < 1
    assert math.isnan(found.early) or 0 <= found.early <= 1
    assert found.statements >= 0


def test_modal_answers_by_hand() -> None:
    # a: 1/2 twice (in two forms); b: 3 and 4 tie; c: nothing parsed; d: 3.
    problems = ["a", "a", "a", "b", "b", "c", "d"]
    answers = ["1/2", "0.5", "7", "3", "4", None, "3.0"]
    found = modal_answers(problems, answers)
    assert found.problems == 4
    assert found.shares == {answer_key("1/2"): 0.25, "3": pytest.approx(0.375), "4": pytest.approx(0.125)}


def test_overused_answers_by_hand() -> None:
    base = ModalAnswers({"0": 0.02, "1": 0.10, "2": 0.05}, problems=100)
    window = ModalAnswers({"0": 0.08, "1": 0.25, "5": 0.03, "6": 0.04}, problems=100)
    # 0: 4 times; 1: 2.5 times; 5 and 6 are never the base model's, so against one problem of 100: 3 and 4 times.
    assert find_overused_answers(window, base) == {"0": pytest.approx(4), "6": pytest.approx(4)}
    assert set(find_overused_answers(window, base, ratio=2)) == {"0", "1", "5", "6"}


def test_one_answer_for_everything_is_found_and_honest_spread_is_not() -> None:
    problems = np.repeat(np.arange(50), 4)
    honest = [str(problem) for problem in problems]
    zeros = ["0" if problem % 2 else str(problem) for problem in problems]
    base = modal_answers(problems, honest)
    assert find_overused_answers(modal_answers(problems, honest), base) == {}
    # 25 odd problems and problem 0 itself: 26 of 50 against 1 of 50.
    assert find_overused_answers(modal_answers(problems, zeros), base) == {"0": pytest.approx(26)}


def test_groups_and_answers_of_unequal_length_are_refused() -> None:
    with pytest.raises(MeasureError, match="equal length"):
        modal_answers(["a"], ["1", "2"])
