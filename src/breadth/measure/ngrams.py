"""Runs of tokens that come back: how varied the wording of samples is, within one sample and between samples.

A sample is a sequence of tokens (ids, words, anything hashable), or text, which is then cut into rough tokens.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence

from breadth.base.errors import MeasureError

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
