"""Strategic grams: phrases in which correct solutions plan, and the tokens of a response that contain them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, pairwise
from sys import intern

import numpy as np
from numpy.typing import NDArray

from breadth.base.errors import MechanismError, SettingsError
from breadth.measure.validate import FloatArray, IntArray

_FUNCTION_WORDS = (
    "a an the of to in on at for from with by as into and or that this these those it its it's is are was were be been"
    " being am i we you he she they me us him her them my our your his their i'm we're you're let let's have has had do"
    " does did can could will would shall should may might must there here which who whom we'll i'll we've that's"
    " there's"
)
FUNCTION_WORDS = frozenset(_FUNCTION_WORDS.split())
"""Words without content. Words of logic (but, if, not, so, then, instead, why) are content: plans consist of them."""

_ENDINGS = ("ing", "ed", "es", "ly", "s")
_MIN_STEM_LENGTH = 3
_BLOCK = 1024


def content_stems(phrase: str) -> frozenset[str]:
    """Return the stems of a phrase's content words, which two phrases of one meaning mostly share."""
    return frozenset(stem(word) for word in phrase.split() if word not in FUNCTION_WORDS)


def cluster_phrases(phrases: Sequence[str], min_similarity: float = 0.5) -> IntArray:
    """Return the cluster of each phrase, by the Jaccard similarity ``|A & B| / |A | B|`` of their content stems.

    Each phrase joins the cluster whose leader is most similar (the earlier of two), or leads a new one; so put the most
    common first. There is no chaining: with it, overlapping windows of one text would all end in one cluster. Every
    subset of a leader's few stems is looked up directly, so the time is linear in the phrases.
    """
    leaders: dict[frozenset[str], dict[int, int]] = {}
    known: dict[frozenset[str], int] = {}
    labels = np.empty(len(phrases), dtype=np.int64)
    clusters = 0
    for place, phrase in enumerate(phrases):
        stems = content_stems(phrase)
        if stems not in known:
            leader = _find_leader(stems, leaders, min_similarity)
            known[stems] = clusters if leader is None else leader
            if leader is None:
                for part in _subsets(stems):
                    leaders.setdefault(part, {}).setdefault(len(stems), clusters)
                clusters += 1
        labels[place] = known[stems]
    return labels


def cluster_vectors(vectors: NDArray[np.floating], min_similarity: float = 0.8) -> IntArray:
    """Return the cluster of each vector, by the same rule on the cosine; quadratic in the clusters, in blocks."""
    unit = _normalise_rows(vectors)
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
            if cosine[place] < min_similarity:
                closest[place] = len(leaders) + len(fresh)
                fresh.append(place)
        labels[start : start + _BLOCK] = closest
        leaders += [start + place for place in fresh]
    return labels


def _find_leader(
    stems: frozenset[str], leaders: dict[frozenset[str], dict[int, int]], min_similarity: float
) -> int | None:
    """Return the cluster whose leader is most similar to the stems, the earliest of equals; None if none is enough.

    ``leaders`` has the earliest cluster for each subset of a leader's stems and number of them.
    """
    similarities = (
        (len(part) / (len(stems) + size - len(part)), -cluster)
        for part in _subsets(stems)
        for size, cluster in leaders.get(part, {}).items()
    )
    best = max(similarities, default=None)
    return -best[1] if best is not None and best[0] >= min_similarity else None


def _subsets(stems: frozenset[str]) -> Iterator[frozenset[str]]:
    for size in range(len(stems)):
        yield from map(frozenset, combinations(sorted(stems), size + 1))


def stem(word: str) -> str:
    """Strip common English endings: trying, tries, tried and try share one stem; so do solve, solves, solving."""
    ending = next(
        (suffix for suffix in _ENDINGS if word.endswith(suffix) and len(word) - len(suffix) >= _MIN_STEM_LENGTH), ""
    )
    stem = word.removesuffix(ending)
    stem = stem.removesuffix("e") if len(stem) > _MIN_STEM_LENGTH else stem
    if len(stem) > _MIN_STEM_LENGTH and stem[-1] == stem[-2]:
        stem = stem[:-1]
    return stem[:-1] + "i" if stem.endswith("y") else stem


def _normalise_rows(vectors: NDArray[np.floating]) -> FloatArray:
    given = np.asarray(vectors, dtype=np.float64)
    lengths = np.linalg.norm(np.atleast_1d(given), axis=-1, keepdims=True)
    if given.ndim != 2 or not np.isfinite(given).all() or not (lengths > 0).all():
        raise MechanismError(
            f"The phrases were embedded as an array of shape {given.shape}, or with vectors that are zero or not"
            " finite.",
            "Return one finite vector, not zero, for each phrase: an array of shape (phrases, dimensions).",
        )
    return np.asarray(given / lengths, dtype=np.float64)


def _nearest(rows: FloatArray, leaders: FloatArray) -> tuple[IntArray, FloatArray]:
    """Return for each row the index and the cosine of the nearest leader; -inf if there is none."""
    if not len(leaders):
        return np.zeros(len(rows), dtype=np.int64), np.full(len(rows), -np.inf)
    cosines = rows @ leaders.T
    closest = cosines.argmax(axis=1).astype(np.int64)
    return closest, cosines[np.arange(len(rows)), closest]


SIZES = range(3, 6)
"""Words in a gram; 3 to 5 in the paper."""
_MIN_SOLUTIONS = 2
"""Solutions a gram must occur in: a phrase of a single solution is not a strategy."""
_WORD = re.compile(r"(?<![\w\\])(?:[^\W\d_]{2,}|[aAiI])(?:['’-][^\W\d_]+)*(?!\w)")


@dataclass(frozen=True)
class StrategicGrams:
    """Phrases that guide reasoning ("let us try another", "what if we").

    Written and read as TOML by `breadth.base.settings`.
    """

    grams: tuple[str, ...] = ()
    """Phrases of words with blanks between; case does not matter."""

    def __post_init__(self) -> None:
        grams = tuple(" ".join(_plain(gram).split()) for gram in self.grams)
        for gram in grams:
            if not _is_words(gram):
                raise SettingsError(
                    f"StrategicGrams got {gram!r}, which is not made of words.",
                    "Write words with blanks between, without numbers or marks.",
                )
        object.__setattr__(self, "grams", tuple(dict.fromkeys(grams)))

    @cached_property
    def _grams_by_size(self) -> dict[int, frozenset[tuple[str, ...]]]:
        sizes: dict[int, set[tuple[str, ...]]] = defaultdict(set)
        for gram in self.grams:
            words = tuple(gram.split())
            sizes[len(words)].add(words)
        return {size: frozenset(words) for size, words in sizes.items()}

    def find_spans(self, text: str) -> list[tuple[int, int]]:
        """Return the (start, end) characters of the grams in a text; they may overlap.

        Matches whole words in any case, with only white space between them. The time is linear in the text, independent
        of the number of grams.
        """
        spans = []
        for run in _runs(text):
            words = tuple(_plain(word[0]) for word in run)
            for size, grams in self._grams_by_size.items():
                starts = (start for start in range(len(words)) if words[start : start + size] in grams)
                spans += [(run[start].start(), run[start + size - 1].end()) for start in starts]
        return sorted(spans)

    def mark_tokens(self, text: str, offsets: Sequence[tuple[int, int]]) -> list[bool]:
        """Return for each token whether it overlaps a gram, as in `Rollouts.planning`.

        ``text`` is the decoded response, ``offsets`` are the (start, end) characters of each token in it, as fast
        tokenizers return them. Do not match on token ids: the text before a word changes its tokens. A token without
        characters is not marked.
        """
        covered = bytearray(len(text))
        for start, end in self.find_spans(text):
            covered[start:end] = b"\x01" * (end - start)
        for start, end in offsets:
            if not 0 <= start <= end <= len(text):
                raise MechanismError(
                    f"A token has the offsets ({start}, {end}), but the text has {len(text)} characters.",
                    "Pass the text that the offsets belong to: the response alone, decoded or encoded in one piece.",
                )
        return [1 in covered[start:end] for start, end in offsets]


def find_strategic_grams(
    solutions: Sequence[str],
    *,
    share: float = 0.2,
    embed: Callable[[Sequence[str]], NDArray[np.floating]] | None = None,
    min_similarity: float | None = None,
) -> StrategicGrams:
    """Find phrases that correct solutions have in common: clusters of word n-grams in the most solutions.

    Word n-grams of 3 to 5 words are clustered by meaning. A cluster's document frequency is the number of solutions
    that contain one of its grams. The grams of the ``share`` of clusters with the largest frequency are strategic
    (2509.03646; 0.2 there).

    Differences from the paper: (1) The paper clusters sentence-transformer embeddings; we do not know its model,
    algorithm and threshold. Without ``embed`` we cluster by the stems of content words. That needs no model, joins "let
    us try another way" with "try another approach" but not with "go about it differently", and knows only English
    endings. With ``embed`` (phrases in, one vector for each out) vectors are clustered by their cosine.
    ``min_similarity`` is by default 0.5 for stems and 0.8 for the cosine, both our choice. (2) We exclude grams of a
    single solution, grams without a content word ("that it is"), and grams across punctuation, numbers, formulas or
    one-letter names. So the share refers to fewer clusters.

    Pass solutions to many different problems, or their common subject becomes the strategy. Read the result before you
    train on it: 86 % of the paper's grams were rated as guiding reasoning, and random grams lose the gain. Text must
    have blanks between words.
    """
    if not 0 < share <= 1 or (min_similarity is not None and not 0 < min_similarity <= 1):
        raise SettingsError(
            f"find_strategic_grams got share = {share} and min_similarity = {min_similarity};"
            " both must be above 0, at most 1.",
            "Keep the defaults.",
        )
    holders = shared_grams(solutions)
    if not holders:
        raise MechanismError(
            f"{len(solutions)} solutions have no phrase of 3 to 5 words in common.",
            "Give more correct solutions, written in words with blanks between.",
        )
    phrases = sorted(holders, key=lambda gram: (-len(holders[gram]), -len(gram.split()), gram))
    labels = (
        cluster_phrases(phrases, min_similarity or 0.5)
        if embed is None
        else cluster_embeddings(phrases, embed, min_similarity or 0.8)
    )
    return StrategicGrams(most_frequent_grams(phrases, labels, holders, share))


def shared_grams(solutions: Sequence[str]) -> dict[str, list[int]]:
    """Return gram -> the solutions that contain it, for grams of several solutions with a content word.

    Works size by size: a gram is shared only if both of its grams that are one word shorter are. So most are never
    stored.
    """
    texts = [[[intern(_plain(word[0])) for word in run] for run in _runs(solution)] for solution in solutions]
    shared: dict[str, list[int]] = {}
    kept: dict[str, list[int]] = {}
    for size in (2, *SIZES):
        holders: dict[str, list[int]] = defaultdict(list)
        for number, runs in enumerate(texts):
            for gram in {gram for words in runs for gram in _windows(words, size, shared)}:
                holders[gram].append(number)
        shared = {gram: held for gram, held in holders.items() if len(held) >= _MIN_SOLUTIONS}
        kept |= {
            gram: held for gram, held in shared.items() if size in SIZES and content_stems(gram) and _is_words(gram)
        }
    return kept


def cluster_embeddings(
    phrases: Sequence[str], embed: Callable[[Sequence[str]], NDArray[np.floating]], min_similarity: float
) -> IntArray:
    """Embed the phrases and return the cluster of each."""
    vectors = np.asarray(embed(phrases))
    if len(vectors) != len(phrases):
        raise MechanismError(
            f"embed returned {len(vectors)} vectors for {len(phrases)} phrases.",
            "Return one vector for each phrase, in order.",
        )
    return cluster_vectors(vectors, min_similarity)


def most_frequent_grams(
    phrases: Sequence[str], labels: IntArray, holders: dict[str, list[int]], share: float
) -> tuple[str, ...]:
    """Return the grams of the clusters that occur in the most solutions; of equal clusters the earlier one first."""
    solutions: dict[int, set[int]] = defaultdict(set)
    for phrase, label in zip(phrases, labels.tolist(), strict=True):
        solutions[label].update(holders[phrase])
    ranked = sorted(solutions, key=lambda label: (-len(solutions[label]), label))
    chosen = set(ranked[: max(1, int(share * len(ranked)))])
    return tuple(sorted(phrase for phrase, label in zip(phrases, labels.tolist(), strict=True) if label in chosen))


def _runs(text: str) -> Iterator[list[re.Match[str]]]:
    """Yield the longest runs of words with only white space between them."""
    run: list[re.Match[str]] = []
    for word in _WORD.finditer(text):
        if run and text[run[-1].end() : word.start()].strip():
            yield run
            run = []
        run.append(word)
    if run:
        yield run


def _windows(words: Sequence[str], size: int, shared: Container[str]) -> Iterator[str]:
    """Yield the grams of a run whose two shorter grams are shared; pairs are the shortest considered."""
    if size == 2:
        yield from map(" ".join, pairwise(words))
        return
    before = False
    for start in range(len(words)):
        now = " ".join(words[start : start + size - 1]) in shared
        if before and now:
            yield " ".join(words[start - 1 : start + size - 1])
        before = now


def _is_words(gram: str) -> bool:
    return bool(gram) and all(_WORD.fullmatch(word) for word in gram.split())


def _plain(words: str) -> str:
    return words.casefold().replace("’", "'")
