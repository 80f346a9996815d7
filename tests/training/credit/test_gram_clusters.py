"""Clusters of phrases: by shared stems without chaining, by cosine in blocks as one by one."""

from __future__ import annotations

import time

import numpy as np
import pytest
from numpy.typing import NDArray

from breadth.base.errors import MechanismError
from breadth.training.credit import gram_clusters
from breadth.training.credit.gram_clusters import content_stems, vector_clusters, wording_clusters


@pytest.mark.parametrize(
    "words",
    ["try tries tried trying", "solve solves solved solving", "check checks checked checking", "add adds added adding", "step steps"],
)
def test_forms_of_one_word_share_a_stem(words: str) -> None:
    assert len(content_stems(words)) == 1


def test_function_words_carry_nothing_and_words_of_logic_do() -> None:
    assert content_stems("that it is") == frozenset()
    assert content_stems("but what if we") == {"but", "what", "if"}
    assert len(content_stems("process product")) == 2


def test_paraphrases_join_the_commonest_and_others_do_not() -> None:
    phrases = ["let us try another approach", "try another way", "we check the result", "checking the results", "add both sides"]
    # {try, another, approach} and {try, another, way} share 2 of 4 stems; {check, result} is the same set twice.
    assert wording_clusters(phrases).tolist() == [0, 0, 1, 1, 2]
    assert wording_clusters(phrases, alike=0.6).tolist() == [0, 1, 2, 2, 3]


def test_overlapping_windows_do_not_chain_into_one_cluster() -> None:
    words = ["alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel", "india", "juliett"]
    windows = [" ".join(words[start : start + 3]) for start in range(8)]
    # Each window shares 2 of 4 stems with its neighbour, so a chain would join them all; only neighbours of a leader join it.
    assert wording_clusters(windows).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


def test_the_most_similar_leader_wins_and_the_earlier_of_equals() -> None:
    phrases = ["alpha beta", "gamma delta epsilon", "alpha gamma delta epsilon", "zeta", "eta", "zeta eta", "iota", "kappa", "iota kappa"]
    assert wording_clusters(phrases).tolist() == [0, 1, 1, 2, 3, 2, 4, 5, 4]


def test_many_phrases_with_one_common_word_are_fast() -> None:
    dice = np.random.default_rng(0)
    phrases = [" ".join(["equation", *(f"w{number}" for number in dice.integers(20_000, size=3))]) for _ in range(10_000)]
    begun = time.process_time()
    wording_clusters(phrases)
    assert time.process_time() - begun < 10


def one_by_one(vectors: NDArray[np.float64], alike: float) -> list[int]:
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
    monkeypatch.setattr(gram_clusters, "_BLOCK", block)
    vectors = np.random.default_rng(1).normal(size=(60, 3))
    labels = vector_clusters(vectors, 0.8).tolist()
    assert labels == one_by_one(vectors, 0.8)
    assert 3 < len(set(labels)) < 60


def test_nothing_to_cluster_is_no_cluster() -> None:
    assert wording_clusters([]).tolist() == []
    assert vector_clusters(np.zeros((0, 4))).tolist() == []


@pytest.mark.parametrize("vectors", [np.zeros(3), np.zeros((2, 3)), np.array([[1.0, np.nan]])])
def test_vectors_without_direction_are_refused(vectors: NDArray[np.float64]) -> None:
    with pytest.raises(MechanismError, match="embedded"):
        vector_clusters(vectors)
