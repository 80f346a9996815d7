"""Clusters of phrases that say the same: by their wording, or by vectors somebody embedded them as."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from breadth.base.errors import MechanismError

_FUNCTION_WORDS = (
    "a an the of to in on at for from with by as into and or that this these those it its it's is are was were be been being am "
    "i we you he she they me us him her them my our your his their i'm we're you're let let's have has had do does did "
    "can could will would shall should may might must there here which who whom we'll i'll we've that's there's"
)
FUNCTION_WORDS = frozenset(_FUNCTION_WORDS.split())
"""Words without content of their own. Words of logic (but, if, not, so, then, instead, why) are content here: plans are made of them."""

_ENDINGS = ("ing", "ed", "es", "ly", "s")
_SHORTEST_STEM = 3
_BLOCK = 1024


def content_stems(phrase: str) -> frozenset[str]:
    """Return the stems of a phrase's content words: what two phrases of one meaning mostly share."""
    return frozenset(_stem(word) for word in phrase.split() if word not in FUNCTION_WORDS)


def wording_clusters(phrases: Sequence[str], alike: float = 0.5) -> NDArray[np.int64]:
    """Give each phrase the number of its cluster; phrases are alike when ``|A & B| / |A | B|`` of their content stems reaches ``alike``.

    Each phrase joins the most similar phrase that leads a cluster, the earlier of two, or leads one of its own; so put the commonest
    first. There is no chaining from phrase to phrase: with it, overlapping windows of one text would all end in one cluster. Every
    subset of a leader's few stems is looked up directly, so the work is linear in the phrases.
    """
    leaders: dict[tuple[frozenset[str], int], int] = {}
    known: dict[frozenset[str], int] = {}
    labels = np.empty(len(phrases), dtype=np.int64)
    clusters = 0
    for place, phrase in enumerate(phrases):
        stems = content_stems(phrase)
        if stems not in known:
            found = _leader(stems, leaders, alike)
            known[stems] = clusters if found is None else found
            if found is None:
                for part in _subsets(stems):
                    leaders.setdefault((part, len(stems)), clusters)
                clusters += 1
        labels[place] = known[stems]
    return labels


def vector_clusters(vectors: NDArray[np.floating], alike: float = 0.8) -> NDArray[np.int64]:
    """Give each vector the number of its cluster, by the same rule on the cosine; quadratic in the clusters, a block at a time."""
    unit = _unit(vectors)
    labels = np.empty(len(unit), dtype=np.int64)
    leaders: list[int] = []
    for start in range(0, len(unit), _BLOCK):
        block = unit[start : start + _BLOCK]
        closest, cosine = _nearest(block, unit[leaders])
        among = block @ block.T
        fresh: list[int] = []
        for place in range(len(block)):
            own = among[place, fresh]
            if fresh and own.max() > cosine[place]:
                closest[place], cosine[place] = len(leaders) + own.argmax(), own.max()
            if cosine[place] < alike:
                closest[place] = len(leaders) + len(fresh)
                fresh.append(place)
        labels[start : start + _BLOCK] = closest
        leaders += [start + place for place in fresh]
    return labels


def _leader(stems: frozenset[str], leaders: dict[tuple[frozenset[str], int], int], alike: float) -> int | None:
    """Return the cluster whose leader shares most with the stems, the earliest of equals; None when none shares enough."""
    best: tuple[float, int] | None = None
    for part in _subsets(stems):
        for size in range(len(part), int(len(part) / alike) + 1):
            likeness = len(part) / (len(stems) + size - len(part))
            cluster = leaders.get((part, size))
            if cluster is not None and likeness >= alike and (best is None or (likeness, -cluster) > best):
                best = (likeness, -cluster)
    return None if best is None else -best[1]


def _subsets(stems: frozenset[str]) -> Iterator[frozenset[str]]:
    for size in range(1, len(stems) + 1):
        yield from map(frozenset, combinations(sorted(stems), size))


def _stem(word: str) -> str:
    """Strip the commonest English endings: trying, tries, tried and try share one stem; so do solve, solves, solved, solving."""
    ending = next((one for one in _ENDINGS if word.endswith(one) and len(word) - len(one) >= _SHORTEST_STEM), "")
    stem = word.removesuffix(ending) if ending != "s" or not word.endswith("ss") else word
    stem = stem.removesuffix("e") if len(stem) > _SHORTEST_STEM else stem
    if len(stem) > _SHORTEST_STEM and stem[-1] == stem[-2]:
        stem = stem[:-1]
    return stem[:-1] + "i" if stem.endswith("y") else stem


def _unit(vectors: NDArray[np.floating]) -> NDArray[np.float64]:
    given = np.asarray(vectors, dtype=np.float64)
    lengths = np.linalg.norm(given, axis=-1, keepdims=True) if given.ndim == 2 else np.zeros(1)
    if given.ndim != 2 or not np.isfinite(given).all() or not (lengths > 0).all():
        raise MechanismError(
            f"The phrases were embedded as an array of shape {given.shape}, or with vectors that are zero or not finite.",
            "Return one finite vector, not zero, for each phrase: an array of shape (phrases, dimensions).",
        )
    return np.asarray(given / lengths, dtype=np.float64)


def _nearest(rows: NDArray[np.float64], leaders: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return for each row the place and the cosine of the nearest leader; -inf when there is none."""
    if not len(leaders):
        return np.zeros(len(rows), dtype=np.int64), np.full(len(rows), -np.inf)
    cosines = rows @ leaders.T
    closest = cosines.argmax(axis=1).astype(np.int64)
    return closest, cosines[np.arange(len(rows)), closest]
