"""Strategic grams: found in many solutions, found again by words, mapped to tokens by characters."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from breadth.base import settings
from breadth.base.errors import MechanismError, SettingsError
from breadth.training.credit.strategic_grams import StrategicGrams, strategic_grams

SOLUTIONS = [
    "First factor 12. Let us try another approach: draw a circle around town. The answer is 4.",
    "Buy seven red apples; let us try another approach! Then sell them.",
    "A train leaves Rome. We try another way, and wait.",
    "Every train leaves Rome late. We try another way.",
    "Nothing here is shared by anybody else today.",
]


def test_the_widest_spread_cluster_is_kept() -> None:
    found = strategic_grams(SOLUTIONS)
    # {try, another, approach} holds "try another way" too (2 of 4 stems) and so spans four solutions; "train leaves rome" spans two.
    assert {"let us try another approach", "us try another", "we try another way"} <= set(found.grams)
    assert not any("rome" in gram or "nothing" in gram for gram in found.grams)


def test_a_larger_share_takes_more_and_singles_never_count() -> None:
    everything = strategic_grams(SOLUTIONS, share=1.0).grams
    assert "train leaves rome" in everything
    assert not any("circle" in gram or "shared" in gram for gram in everything)
    assert all(3 <= len(gram.split()) <= 5 for gram in everything)


def test_document_frequency_counts_solutions_not_occurrences() -> None:
    often = "we count the apples. " * 50
    solutions = [often, often, "so what if we try", "so what if we go", "so what if we stop"]
    found = strategic_grams(solutions, share=0.01)
    assert "what if we" in found.grams
    assert not any("apples" in gram for gram in found.grams)


def test_grams_stay_within_clauses_and_words() -> None:
    text = "We add 5 and then, finally we x go. Look \\frac here now. Some three words. foo_bar goes there well"
    assert strategic_grams([text, text], share=1.0).grams == ("goes there well", "some three words")


def test_the_order_of_solutions_does_not_matter() -> None:
    assert strategic_grams(SOLUTIONS) == strategic_grams(SOLUTIONS[::-1])


def test_an_embedding_may_decide_what_is_alike() -> None:
    solutions = ["let us try another way", "let us try another way", "go about it differently", "go about it differently"]
    asked: list[str] = []

    def embed(phrases: Sequence[str]) -> NDArray[np.float64]:
        asked.extend(phrases)
        return np.array([[1.0, 0.0] if "let" in one or "another" in one or "different" in one else [0.0, 1.0] for one in phrases])

    found = strategic_grams(solutions, share=0.5, embed=embed)
    # One cluster holds both wordings and spans four solutions; the other ("go about it") spans two.
    assert {"let us try another way", "go about it differently"} <= set(found.grams)
    assert "go about it" not in found.grams
    assert "go about it" in asked
    by_wording = strategic_grams(solutions, share=0.5)
    assert {"let us try another way", "go about it differently"} - set(by_wording.grams)


def test_bad_input_is_refused() -> None:
    for solutions in ([], ["only one solution with words"], ["a b c", "1 2 3"], ["", ""]):
        with pytest.raises(MechanismError, match="in common"):
            strategic_grams(solutions)
    with pytest.raises(SettingsError, match="share"):
        strategic_grams(SOLUTIONS, share=0.0)
    with pytest.raises(MechanismError, match="1 vectors"):
        strategic_grams(SOLUTIONS, embed=lambda _: np.ones((1, 2)))
    for gram in ("", "x = 2", "let us,", "42 is it"):
        with pytest.raises(SettingsError, match="words"):
            StrategicGrams((gram,))


def test_the_record_survives_toml_and_forgets_case() -> None:
    grams = StrategicGrams(("Let’s  try another", "what if we", "WHAT IF WE"))
    assert grams.grams == ("let's try another", "what if we")
    assert settings.loads(StrategicGrams, settings.dumps(grams)) == grams
    assert StrategicGrams().spans("what if we") == []


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("But WHAT if\n we go?", [(4, 15)]),
        ("what if we; what if we", [(0, 10), (12, 22)]),
        ("what if weak", []),
        ("somewhat if we", []),
        ("what, if we", []),
        ("what if 2 we", []),
        ("Let's try what if we", [(0, 20), (10, 20)]),
        ("Let’s try what if we", [(0, 20), (10, 20)]),
        ("what_if we", []),
        ("", []),
    ],
)
def test_grams_are_found_as_whole_words(text: str, spans: list[tuple[int, int]]) -> None:
    assert StrategicGrams(("what if we", "let's try what if we")).spans(text) == spans


def test_tokens_are_marked_by_overlap_not_by_identity() -> None:
    text = "So what if we add"
    #          So      " wh"    "at"    " if"    " w"      "e a"     "dd"     special
    offsets = [(0, 2), (2, 5), (5, 7), (7, 10), (10, 12), (12, 15), (15, 17), (0, 0)]
    marks = StrategicGrams(("what if we",)).marks(text, offsets)
    assert marks == [False, True, True, True, True, True, False, False]


def test_a_blank_token_before_a_gram_is_not_part_of_it() -> None:
    assert StrategicGrams(("what if we",)).marks(" what if we ", [(0, 1), (1, 5), (5, 8), (8, 11), (11, 12)]) == [
        False,
        True,
        True,
        True,
        False,
    ]


def test_offsets_of_another_text_are_refused() -> None:
    for offsets in ([(0, 99)], [(-1, 2)], [(3, 2)]):
        with pytest.raises(MechanismError, match="offsets"):
            StrategicGrams(("what if we",)).marks("what if we", offsets)


@pytest.mark.parametrize("piece", ["a-", "ab'", "what if ", "we ", "\\", "aa1 ", "-", "é"])
def test_hostile_text_takes_linear_time(piece: str) -> None:
    text = piece * (400_000 // len(piece))
    begun = time.process_time()
    StrategicGrams(("what if we",)).spans(text)
    assert time.process_time() - begun < 3
