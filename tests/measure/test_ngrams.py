"""Wording repeated within and between samples, on counts done by hand."""

from __future__ import annotations

import math
import time
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from breadth.base.errors import MeasureError
from breadth.measure.ngrams import (
    distinct_ngrams,
    mean_pairwise_jaccard,
    ngram_repetition,
    ngrams,
    rough_tokens,
    self_overlap,
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


def test_distinct_ngrams_by_hand() -> None:
    # bigrams ab bc | ab bd: 3 different of 4.
    assert distinct_ngrams([list("abc"), list("abd")]) == 0.75
    # unigrams a b c | a b d: 4 different of 6.
    assert distinct_ngrams([list("abc"), list("abd")], size=1) == pytest.approx(4 / 6)
    assert math.isnan(distinct_ngrams([["a"], []]))


def test_overlap_between_samples_by_hand() -> None:
    # bigrams {ab, bc}, {ab, bd}, {xy}: shares in another sample 1/2, 1/2, 0.
    samples = [list("abc"), list("abd"), list("xy")]
    assert self_overlap(samples, size=2) == pytest.approx(1 / 3)
    # pairs: |{ab}| / |{ab, bc, bd}| = 1/3, 0, 0.
    assert mean_pairwise_jaccard(samples, size=2) == pytest.approx(1 / 9)
    # a sample too short for a bigram is left out of both.
    assert mean_pairwise_jaccard([*samples, ["z"]], size=2) == pytest.approx(1 / 9)
    assert math.isnan(self_overlap([list("abc")], size=2))
    assert math.isnan(mean_pairwise_jaccard([list("abc"), []], size=2))


def test_equal_samples_overlap_fully_and_foreign_ones_not_at_all() -> None:
    assert mean_pairwise_jaccard([list("abcdef")] * 5) == 1
    assert self_overlap([list("abcdef")] * 5) == 1
    assert mean_pairwise_jaccard([list("abcdef"), list("uvwxyz")]) == 0
    assert self_overlap([list("abcdef"), list("uvwxyz")]) == 0


@settings(max_examples=60, deadline=None)
@given(st.lists(TOKENS, min_size=2, max_size=6), st.integers(1, 3))
def test_jaccard_agrees_with_pairwise_sets(samples: list[list[int]], size: int) -> None:
    bags = [bag for bag in (set(ngrams(tokens, size)) for tokens in samples) if bag]
    pairs = [len(a & b) / len(a | b) for a, b in combinations(bags, 2)]
    expected = sum(pairs) / len(pairs) if pairs else math.nan
    assert mean_pairwise_jaccard(samples, size) == pytest.approx(expected, nan_ok=True)


@settings(max_examples=60, deadline=None)
@given(TOKENS, st.integers(1, 4))
def test_one_sample_alone_has_the_same_repetition_and_distinctness(tokens: list[int], size: int) -> None:
    if len(tokens) >= size:
        assert distinct_ngrams([tokens], size) == pytest.approx(1 - ngram_repetition(tokens, size))


def test_many_copies_cost_no_more_than_a_moment() -> None:
    copies = [[f"{word}" for word in range(3000)]] * 64
    started = time.process_time()
    assert mean_pairwise_jaccard(copies) == 1
    assert time.process_time() - started < 15
