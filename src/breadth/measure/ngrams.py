"""Runs of tokens that come back: how varied the wording of samples is, within one sample and between samples.

A sample is a sequence of tokens (ids, words, anything hashable), or text, which is then cut into rough tokens.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence

import numpy as np

from breadth.base.errors import MeasureError
from breadth.measure.validate import IntArray

# At most four letters or digits at a time: about the length of a subword, so that gates given in tokens keep their
# scale.
_ROUGH_TOKEN = re.compile(r"[^\W_]{1,4}|[^\w\s]|_")


def rough_tokens(text: str) -> list[str]:
    """Cut text into pieces of about the size a model's tokenizer makes, when its own tokens are not at hand.

    A piece is up to four letters or digits of one word, or one mark; white space only separates. Equal sentences give
    equal pieces, and text without spaces (Chinese, or ``ababab``) is cut too. Counts differ from a real tokenizer's by
    some tens of per cent, so compare only counts made the same way.
    """
    return _ROUGH_TOKEN.findall(text)


def rough_token_starts(text: str) -> list[int]:
    """Return the place in the text where each rough token starts."""
    return [match.start() for match in _ROUGH_TOKEN.finditer(text)]


def as_tokens(sample: str | Sequence[Hashable]) -> Sequence[Hashable]:
    """Return the tokens of a sample given as tokens or as text; text is cut into rough tokens."""
    return rough_tokens(sample) if isinstance(sample, str) else sample


def ngrams(sample: str | Sequence[Hashable], size: int) -> Iterable[tuple[Hashable, ...]]:
    """Return every run of ``size`` neighbouring tokens, in order."""
    if size < 1:
        raise MeasureError(
            f"n-grams of {size} tokens were asked for; the size must be 1 or more.", "Use 4, or 2 for short texts."
        )
    tokens = as_tokens(sample)
    return zip(*(tokens[start:] for start in range(size)), strict=False)


def ngram_repetition(sample: str | Sequence[Hashable], size: int = 4) -> float:
    """Return the share of a sample's n-grams that it had used before: ``1 - distinct / total``.

    0 is no repetition, near 1 is a loop; a sample too short for one n-gram repeats nothing and gives 0. Long honest
    derivations repeat notation, so compare samples of like length. Size 4 follows common practice
    for loops of a few words; a one-token loop shows at any size.
    """
    counts = Counter(ngrams(sample, size))
    return 1 - len(counts) / counts.total() if counts else 0.0


def distinct_ngrams(samples: Sequence[str | Sequence[Hashable]], size: int = 2) -> float:
    """Return distinct-n over samples of one problem: different n-grams over all n-grams (arXiv 1510.03055).

    1 means that no n-gram occurs twice, in the same or in another sample. It falls as samples grow longer whatever
    their diversity (Heaps' law), so compare only at like total length. NaN when no sample is long enough.
    """
    counts: Counter[tuple[Hashable, ...]] = Counter()
    for sample in samples:
        counts.update(ngrams(sample, size))
    return len(counts) / counts.total() if counts else math.nan


def self_overlap(samples: Sequence[str | Sequence[Hashable]], size: int = 4) -> float:
    """Return how much of a sample's wording also occurs in another sample, on average over samples.

    For each sample: the share of its different n-grams found in at least one other sample; then the mean over samples
    long enough to have any. 0 is no shared wording, 1 says every n-gram is somebody else's too. It grows with the
    number of samples, so compare only like numbers; ``mean_pairwise_jaccard`` does not have this fault. One pass
    over the text. NaN when fewer than two samples have an n-gram.
    """
    bags = _bags(samples, size)
    if len(bags) < 2:
        return math.nan
    holders = Counter(gram for bag in bags for gram in bag)
    return sum(sum(holders[gram] > 1 for gram in bag) / len(bag) for bag in bags) / len(bags)


def mean_pairwise_jaccard(samples: Sequence[str | Sequence[Hashable]], size: int = 4) -> float:
    """Return the mean over pairs of samples of shared n-grams over all n-grams of the pair.

    ``|A & B| / |A | B|`` on sets of n-grams: 1 for equal samples, 0 for samples with no common wording. Its expected
    value does not depend on the number of samples. One pass over the text, then one sparse product. NaN when fewer
    than two samples have an n-gram.
    """
    bags = _bags(samples, size)
    if len(bags) < 2:
        return math.nan
    shared = _shared_counts(bags)
    sizes = shared.diagonal()
    first, second = np.triu_indices(len(bags), k=1)
    common = shared[first, second]
    return float(np.mean(common / (sizes[first] + sizes[second] - common)))


def _bags(samples: Sequence[str | Sequence[Hashable]], size: int) -> list[set[tuple[Hashable, ...]]]:
    bags = [set(ngrams(sample, size)) for sample in samples]
    return [bag for bag in bags if bag]


def _shared_counts(bags: Sequence[set[tuple[Hashable, ...]]]) -> IntArray:
    """Return the matrix of how many n-grams each two bags share (on the diagonal: how many each holds)."""
    from scipy.sparse import csr_array

    numbers: dict[tuple[Hashable, ...], int] = {}
    columns = np.array([numbers.setdefault(gram, len(numbers)) for bag in bags for gram in bag], dtype=np.int64)
    starts = np.concatenate(([0], np.cumsum([len(bag) for bag in bags])))
    held = csr_array((np.ones(len(columns), dtype=np.int64), columns, starts), shape=(len(bags), len(numbers)))
    return np.asarray((held @ held.T).todense(), dtype=np.int64)
