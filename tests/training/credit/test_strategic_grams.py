"""Strategic grams: found in many solutions, found again by words, mapped to tokens by characters."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import pytest

from breadth.base import settings
from breadth.base.errors import MechanismError, SettingsError
from breadth.measure.validate import FloatArray
from breadth.training.credit.strategic_grams import (
    StrategicGrams,
    _windows,
    cluster_phrases,
    cluster_vectors,
    content_stems,
    find_strategic_grams,
)


@pytest.mark.parametrize(
    "words",
    [
        "try tries tried trying",
        "solve solves solved solving",
        "check checks checked checking",
        "add adds added adding",
        "step steps",
    ],
)
def test_forms_of_one_word_share_a_stem(words: str) -> None:
    assert len(content_stems(words)) == 1


def test_function_words_carry_nothing_and_words_of_logic_do() -> None:
    assert content_stems("that it is") == frozenset()
    assert content_stems("but what if we") == {"but", "what", "if"}
    assert len(content_stems("process product")) == 2


def test_paraphrases_join_the_commonest_and_others_do_not() -> None:
    phrases = [
        "let us try another approach",
        "try another way",
        "we check the result",
        "checking the results",
        "add both sides",
    ]
    # {try, another, approach} and {try, another, way} share 2 of 4 stems; {check, result} is the same set twice.
    assert cluster_phrases(phrases).tolist() == [0, 0, 1, 1, 2]
    assert cluster_phrases(phrases, min_similarity=0.6).tolist() == [0, 1, 2, 2, 3]


def test_overlapping_windows_do_not_chain_into_one_cluster() -> None:
    words = ["alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel", "india", "juliett"]
    windows = [" ".join(words[start : start + 3]) for start in range(8)]
    # Each window shares 2 of 4 stems with its neighbour, so a chain would join them all; only neighbours of a leader
    # join it.
    assert cluster_phrases(windows).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


def test_the_most_similar_leader_wins_and_the_earlier_of_equals() -> None:
    phrases = [
        "alpha beta",
        "gamma delta epsilon",
        "alpha gamma delta epsilon",
        "zeta",
        "eta",
        "zeta eta",
        "iota",
        "kappa",
        "iota kappa",
    ]
    assert cluster_phrases(phrases).tolist() == [0, 1, 1, 2, 3, 2, 4, 5, 4]


def test_many_phrases_with_one_common_word_are_fast() -> None:
    dice = np.random.default_rng(0)
    phrases = [
        " ".join(["equation", *(f"w{number}" for number in dice.integers(20_000, size=3))]) for _ in range(10_000)
    ]
    begun = time.process_time()
    cluster_phrases(phrases)
    assert time.process_time() - begun < 10


def one_by_one(vectors: FloatArray, alike: float) -> list[int]:
    """Cluster by the rule as it is written."""
    leaders: list[int] = []
    labels = []
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    for place, row in enumerate(unit):
        cosines = [float(row @ unit[leader]) for leader in leaders]
        best = int(np.argmax(cosines)) if cosines and max(cosines) >= alike else len(leaders)
        if best == len(leaders):
            leaders.append(place)
        labels.append(best)
    return labels


@pytest.mark.parametrize("block", [1, 7, 1024])
def test_vectors_in_blocks_give_what_one_by_one_gives(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr("breadth.training.credit.strategic_grams._BLOCK", block)
    vectors = np.random.default_rng(1).normal(size=(60, 3))
    labels = cluster_vectors(vectors, 0.8).tolist()
    assert labels == one_by_one(vectors, 0.8)
    assert 3 < len(set(labels)) < 60


def test_a_vector_exactly_as_similar_as_asked_joins_and_the_earlier_of_equals_wins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The cosine of (1, 1, 1, 1) with (1, 0, 0, 0) is 1/2.
    corner, middle = [1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]
    assert cluster_vectors(np.array([corner, middle]), 0.5).tolist() == [0, 0]
    assert cluster_vectors(np.array([corner, middle]), 0.51).tolist() == [0, 1]
    # The last is as similar to the leader of an earlier block as to the one of its own.
    monkeypatch.setattr("breadth.training.credit.strategic_grams._BLOCK", 2)
    assert cluster_vectors(np.array([corner, corner, corner[::-1], middle]), 0.5).tolist() == [0, 0, 1, 0]


def test_without_a_wish_vectors_need_a_cosine_of_four_fifths() -> None:
    # 0.9^2 + 0.4359^2 = 1; 0.7^2 + 0.7141^2 = 1
    assert cluster_vectors(np.array([[1.0, 0.0], [0.9, 0.4359]])).tolist() == [0, 0]
    assert cluster_vectors(np.array([[1.0, 0.0], [0.7, 0.7141]])).tolist() == [0, 1]


def test_nothing_to_cluster_is_no_cluster() -> None:
    assert cluster_phrases([]).tolist() == []
    assert cluster_vectors(np.zeros((0, 4))).tolist() == []


@pytest.mark.parametrize(
    "vectors", [np.array(1.0), np.ones(3), np.zeros((2, 3)), np.ones((1, 2, 2)), np.array([[1.0, np.nan]])]
)
def test_vectors_without_direction_are_refused(vectors: FloatArray) -> None:
    with pytest.raises(MechanismError, match="embedded"):
        cluster_vectors(vectors)


SOLUTIONS = [
    "First factor 12. Let us try another approach: draw a circle around town. The answer is 4.",
    "Buy seven red apples; let us try another approach! Then sell them.",
    "A train leaves Rome. We try another way, and wait.",
    "Every train leaves Rome late. We try another way.",
    "Nothing here is shared by anybody else today.",
]


def test_the_widest_spread_cluster_is_kept() -> None:
    found = find_strategic_grams(SOLUTIONS)
    # {try, another, approach} holds "try another way" too (2 of 4 stems) and so spans four solutions; "train leaves
    # rome" spans two.
    assert {"let us try another approach", "us try another", "we try another way"} <= set(found.grams)
    assert not any("rome" in gram or "nothing" in gram for gram in found.grams)


def test_a_larger_share_takes_more_and_singles_never_count() -> None:
    everything = find_strategic_grams(SOLUTIONS, share=1.0).grams
    assert "train leaves rome" in everything
    assert not any("circle" in gram or "shared" in gram for gram in everything)
    assert all(3 <= len(gram.split()) <= 5 for gram in everything)


def test_document_frequency_counts_solutions_not_occurrences() -> None:
    often = "we count the apples. " * 50
    solutions = [often, often, "so what if we try", "so what if we go", "so what if we stop"]
    found = find_strategic_grams(solutions, share=0.01)
    assert "what if we" in found.grams
    assert not any("apples" in gram for gram in found.grams)


def test_grams_stay_within_clauses_and_words() -> None:
    text = "We add 5 and then, finally we x go. Look \\frac here now. Some three words. foo_bar goes there well"
    assert find_strategic_grams([text, text], share=1.0).grams == ("goes there well", "some three words")


def test_the_order_of_solutions_does_not_matter() -> None:
    assert find_strategic_grams(SOLUTIONS) == find_strategic_grams(SOLUTIONS[::-1])


def test_an_embedding_may_decide_what_is_alike() -> None:
    solutions = [
        "let us try another way",
        "let us try another way",
        "go about it differently",
        "go about it differently",
    ]
    asked: list[str] = []

    def embed(phrases: Sequence[str]) -> FloatArray:
        asked.extend(phrases)
        return np.array(
            [[1.0, 0.0] if "let" in one or "another" in one or "different" in one else [0.0, 1.0] for one in phrases]
        )

    found = find_strategic_grams(solutions, share=0.5, embed=embed)
    # One cluster holds both wordings and spans four solutions; the other ("go about it") spans two.
    assert {"let us try another way", "go about it differently"} <= set(found.grams)
    assert "go about it" not in found.grams
    assert "go about it" in asked
    by_wording = find_strategic_grams(solutions, share=0.5)
    assert {"let us try another way", "go about it differently"} - set(by_wording.grams)


def test_the_commonest_phrase_leads_and_of_those_the_longest() -> None:
    solutions = ["so what if we"] * 3 + ["let us try another way today"] * 2
    asked: list[str] = []

    def embed(phrases: Sequence[str]) -> FloatArray:
        asked.extend(phrases)
        return np.array([[1.0, 0.0] if "what" in phrase else [0.9, 0.4359] for phrase in phrases])

    # Embedded at a cosine of 0.9 all are one cluster; asked for more they are two, of three and of two solutions.
    assert set(find_strategic_grams(solutions, share=0.01, embed=embed).grams) == set(asked)
    strict = find_strategic_grams(solutions, share=0.01, embed=embed, min_similarity=1.0).grams
    assert set(strict) == {"so what if we", "so what if", "what if we"}
    assert asked[:12] == [
        "so what if we",
        "so what if",
        "what if we",
        "let us try another way",
        "us try another way today",
        "let us try another",
        "try another way today",
        "us try another way",
        "another way today",
        "let us try",
        "try another way",
        "us try another",
    ]


def test_bad_input_is_refused() -> None:
    for solutions in ([], ["only one solution with words"], ["a b c", "1 2 3"], ["", ""]):
        with pytest.raises(MechanismError, match="in common"):
            find_strategic_grams(solutions)
    for share, alike in ((0.0, None), (1.01, None), (0.2, 0.0), (0.2, 1.01), (0.2, float("nan"))):
        with pytest.raises(SettingsError, match="share"):
            find_strategic_grams(SOLUTIONS, share=share, min_similarity=alike)
    with pytest.raises(MechanismError, match="1 vectors"):
        find_strategic_grams(SOLUTIONS, embed=lambda _: np.ones((1, 2)))
    for gram in ("", "x = 2", "let us,", "42 is it"):
        with pytest.raises(SettingsError, match="words"):
            StrategicGrams((gram,))


def test_the_record_survives_toml_and_forgets_case() -> None:
    grams = StrategicGrams(("Let’s  try another", "what if we", "WHAT IF WE"))
    assert grams.grams == ("let's try another", "what if we")
    assert settings.loads(StrategicGrams, settings.dumps(grams)) == grams
    assert StrategicGrams().find_spans("what if we") == []


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
    assert StrategicGrams(("what if we", "let's try what if we")).find_spans(text) == spans


def test_tokens_are_marked_by_overlap_not_by_identity() -> None:
    text = "So what if we add"
    #          So      " wh"    "at"    " if"    " w"      "e a"     "dd"     special
    offsets = [(0, 2), (2, 5), (5, 7), (7, 10), (10, 12), (12, 15), (15, 17), (0, 0)]
    marks = StrategicGrams(("what if we",)).mark_tokens(text, offsets)
    assert marks == [False, True, True, True, True, True, False, False]


def test_a_blank_token_before_a_gram_is_not_part_of_it() -> None:
    assert StrategicGrams(("what if we",)).mark_tokens(" what if we ", [(0, 1), (1, 5), (5, 8), (8, 11), (11, 12)]) == [
        False,
        True,
        True,
        True,
        False,
    ]


def test_offsets_of_another_text_are_refused() -> None:
    for offsets in ([(0, 99)], [(-1, 2)], [(3, 2)]):
        with pytest.raises(MechanismError, match="offsets"):
            StrategicGrams(("what if we",)).mark_tokens("what if we", offsets)


@pytest.mark.parametrize("piece", ["a-", "ab'", "what if ", "we ", "\\", "aa1 ", "-", "é"])
def test_hostile_text_takes_linear_time(piece: str) -> None:
    text = piece * (400_000 // len(piece))
    begun = time.process_time()
    StrategicGrams(("what if we",)).find_spans(text)
    assert time.process_time() - begun < 3


def test_each_gram_of_a_run_is_taken_once() -> None:
    words = ["we", "try", "again", "now"]
    assert list(_windows(words, 2, {"we", "try", "again"})) == ["we try", "try again", "again now"]
    assert list(_windows(words, 3, {"we try", "try again"})) == ["we try again"]
    assert list(_windows(words, 3, {"we try", "again now"})) == []


def test_an_ending_is_taken_off_only_where_three_letters_are_left() -> None:
    assert content_stems("king red") == {"king", "red"}
    assert content_stems("trying adds") == content_stems("try add") == {"tri", "add"}


def test_a_doubled_letter_at_the_end_and_a_last_e_are_taken_off() -> None:
    assert content_stems("stopped stops") == {"stop"}
    assert content_stems("process processes classes") == {"proces", "clas"}
    assert content_stems("solve see") == {"solv", "see"}
