"""Wording repeated within and between samples, on counts done by hand."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st

from breadth.base.errors import MeasureError
from breadth.measure.ngrams import (
    ngram_repetition,
    ngrams,
    rough_tokens,
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
