"""Which surface formats a policy writes in, and when training narrows them to one.

RL on a model pre-trained on several formats tends to keep one of them within the first epoch, at the time of its
largest gain in accuracy (arXiv 2504.07912).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import ArrayLike, NDArray

from breadth.base.errors import MeasureError
from breadth.measure.clustered import quotient
from breadth.measure.finite import FloatArray, finite, same_length, yes_or_no

# Every rule is tied to a line's start, so that a word in running text ("define", "undefined", "for each") never makes it code.
_TAGGED = re.compile(r"\s*<(?:think|thinking|reasoning|answer)>", re.IGNORECASE)
_FENCE = re.compile(r"^ {0,3}(?:```|~~~)", re.MULTILINE)
_CODE_HEAD = re.compile(
    r"^[ \t]*(?:(?:async )?def \w+\(|class \w+[(:]|from [\w.]+ import \w|import \w+(?: as \w+)?[ \t]*$|#include <)", re.MULTILINE
)
_CODE_LINE = re.compile(
    r"^[ \t]*(?:print\(|return [\w(\[]|\w+ [-+*/]= \S|for \w+ in [^\n]{1,200}:[ \t]*$|(?:el)?if [^\n]{0,100}[<>=!(][^\n]{0,100}:[ \t]*$)",
    re.MULTILINE,
)
_LATEX = re.compile(r"^[ \t]*(?:\\begin\{|\\\[|\$\$|\\(?:sub)*section|\\item\b)", re.MULTILINE)
_NUMBERED = re.compile(r"^[ \t#*_]{0,8}(?:step[ \t]+)?\(?\d{1,3}[.):](?=[\s*_]|$)", re.MULTILINE | re.IGNORECASE)
_BULLET = re.compile(r"^[ \t]*[-*+•‣▪][ \t]+\S", re.MULTILINE)

_COMMAND = re.compile(r"\\[A-Za-z]+")
_WORD = re.compile(r"[^\W\d_]{2,}")
_LEAD_IN = frozenset(
    {"an", "and", "answer", "correct", "final", "hence", "is", "it", "our", "so", "the", "therefore", "thus", "to", "we", "result"}
)
_ANSWER_PIECES = 12
_ANSWER_WORDS = 3
# "So the final answer is therefore \\boxed{40 square metres}." has fewer pieces than this, and no more words of its own.

FORMATS = ("empty", "tagged", "code", "latex", "numbered", "bullets", "answer only", "prose")
"""Every format that ``surface_format`` tells apart."""


@dataclass(frozen=True, eq=False)
class FormatHistory:
    """Shares of each format and how often each was right, one row a checkpoint."""

    steps: FloatArray
    """Training steps, rising."""
    formats: tuple[str, ...]
    """Names of the formats: the columns."""
    samples: NDArray[np.int64]
    """Samples per checkpoint."""
    shares: FloatArray
    """Share of each format at each step."""
    accuracies: FloatArray | None
    """Share of right samples of each format at each step, NaN where there are none; None when outcomes were not given."""
    effective: FloatArray
    """Effective number of formats at each step."""

    def takeover(self, share: float = 0.9) -> tuple[float, str] | None:
        """Return the first step at which one format holds at least ``share`` of the samples, and that format.

        None if it never does. A run that starts there had collapsed before: look at the first row. 0.9 is our proposal;
        no published value was found.
        """
        held = self.shares.max(axis=1) >= share
        if not held.any():
            return None
        first = int(held.argmax())
        return float(self.steps[first]), self.formats[int(self.shares[first].argmax())]


def effective_formats(shares: ArrayLike) -> float:
    """Return how many equally common formats would have the same entropy: ``exp(-sum s log s)``.

    Shares are scaled to sum to 1, so counts do too. (.40, .35, .25) gives 2.946234, (.95, .04, .01) gives 1.250490.
    """
    return float(_effective(finite(shares, "shares")[None, :])[0])


def surface_format(text: str) -> str:
    """Name the format of a maths completion by what its lines start with; the first rule that fits decides.

    ``tagged``: opens with a think or answer tag. ``code``: a fenced block, a definition or an import at a line's start, or two
    statements. ``latex``: two displayed formulas or environments. ``numbered``: two numbered lines. ``bullets``: two of them.
    ``answer only``: an answer with no more than its lead-in. ``prose``: the rest. ``empty``: nothing.

    A published classifier calls any text with the letters "def" Python, "define" and "undefined" included; these rules
    look at whole line starts. They know English and Markdown conventions only: for another corpus bring your own.
    """
    if not text.strip():
        return "empty"
    return next((name for name, fits in _RULES if fits(text)), "prose")


def format_history(
    steps: ArrayLike, texts: Sequence[str], correct: ArrayLike | None = None, *, classify: Callable[[str], str] = surface_format
) -> FormatHistory:
    """Tell formats apart in every sample and follow their shares over training steps.

    One row a sample: its step, its text and, if known, whether it was right. ``classify`` names the format of a text.
    Accuracy beside share shows whether the format that took over was the better one.
    Checkpoints on a log-spaced grid within the first epoch show the change; one per epoch comes too late.
    """
    at = finite(steps, "steps")
    names = np.array([classify(text) for text in texts])
    same_length(steps=at, texts=names)
    step_ids, row = np.unique(at, return_inverse=True)
    formats, column = np.unique(names, return_inverse=True)
    counts = _crossed(row, column, np.ones(len(at)), (len(step_ids), len(formats)))
    accuracies = None
    if correct is not None:
        right = yes_or_no(correct, "correct")
        same_length(steps=at, correct=right)
        accuracies = quotient(_crossed(row, column, right.astype(np.float64), counts.shape), counts)
    samples = counts.sum(axis=1)
    return FormatHistory(
        steps=step_ids,
        formats=tuple(str(name) for name in formats),
        samples=samples.astype(np.int64),
        shares=counts / samples[:, None],
        accuracies=accuracies,
        effective=_effective(counts),
    )


def _has(pattern: re.Pattern[str], lines: int, text: str) -> bool:
    return sum(1 for _ in islice(pattern.finditer(text), lines)) == lines


def _is_code(text: str) -> bool:
    return _has(_FENCE, 1, text) or _has(_CODE_HEAD, 1, text) or _has(_CODE_LINE, 2, text)


def _is_answer_only(text: str) -> bool:
    if len(text.split(maxsplit=_ANSWER_PIECES)) >= _ANSWER_PIECES:
        return False
    words = _WORD.findall(_COMMAND.sub(" ", text))
    return sum(word.casefold() not in _LEAD_IN for word in words) <= _ANSWER_WORDS


_RULES: tuple[tuple[str, Callable[[str], bool]], ...] = (
    ("tagged", lambda text: _TAGGED.match(text) is not None),
    ("code", _is_code),
    ("latex", lambda text: _has(_LATEX, 2, text)),
    ("numbered", lambda text: _has(_NUMBERED, 2, text)),
    ("bullets", lambda text: _has(_BULLET, 2, text)),
    ("answer only", _is_answer_only),
)


def _crossed(row: NDArray[np.int64], column: NDArray[np.int64], weights: FloatArray, shape: tuple[int, ...]) -> FloatArray:
    return np.bincount(row * shape[1] + column, weights, shape[0] * shape[1]).reshape(shape).astype(np.float64)


def _effective(counts: FloatArray) -> FloatArray:
    totals = counts.sum(axis=1, keepdims=True)
    if (counts < 0).any() or (totals <= 0).any():
        raise MeasureError("Shares must not be negative and must not all be 0.", "Give the share or the count of each format.")
    shares = counts / totals
    entropy: FloatArray = -np.sum(shares * np.log(np.where(shares > 0, shares, 1.0)), axis=1)
    return np.exp(entropy)
