"""The style of responses: how a trace explores, and which surface formats a policy writes in.

Exploration: how many approaches a trace names early, returns to, checks, and how long it stays with one.
Multiple-choice training data makes breadth-first traces (several options compared early), free-form data depth-first
ones (long, sequential, much checking); format moves this profile far more than domain does (arXiv 2505.10185).

Formats: RL on a model pre-trained on several formats tends to keep one of them within the first epoch, at the time of
its largest gain in accuracy (arXiv 2504.07912).
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise

import numpy as np
from numpy.typing import ArrayLike

from breadth.base.errors import MeasureError
from breadth.measure.degeneracy import rough_token_starts
from breadth.measure.intervals import Interval, normal_quantile, quotient
from breadth.measure.validate import FloatArray, IntArray, as_booleans, as_finite, check_same_length


def cohens_d(left: ArrayLike, right: ArrayLike, *, level: float = 0.95) -> Interval:
    """Return the difference of means (left less right) over the pooled standard deviation, with its interval.

    ``d = (mean_l - mean_r) / sqrt(((n_l - 1) var_l + (n_r - 1) var_r) / (n_l + n_r - 2))``; the interval is the
    large-sample normal one of Hedges and Olkin, variance ``(n_l + n_r) / (n_l n_r) + d^2 / (2 (n_l + n_r))``. 0.2 is
    called small and 0.8 large. It assumes independent values: give one per problem, not one per sample. With no spread
    on either side it has no scale: 0 for equal means, else infinite without ends.
    """
    first, second = as_finite(left, "left"), as_finite(right, "right")
    if min(len(first), len(second)) < 2:
        raise MeasureError(
            f"Got {len(first)} and {len(second)} values; a spread needs two on each side.",
            "Give more traces of each kind.",
        )
    total = len(first) + len(second)
    gap = float(first.mean() - second.mean())
    pooled = math.sqrt((((first - first.mean()) ** 2).sum() + ((second - second.mean()) ** 2).sum()) / (total - 2))
    if pooled <= 1e-12 * float(np.abs(np.concatenate([first, second])).max(initial=0.0)):
        return Interval(0.0 if gap == 0 else math.copysign(math.inf, gap), math.nan, math.nan, level, "no spread")
    value = gap / pooled
    reach = normal_quantile(level) * math.sqrt(total / (len(first) * len(second)) + value**2 / (2 * total))
    return Interval(value, value - reach, value + reach, level, "large-sample normal")


_NUMBER_WORDS = (
    ("one", "first", "original", "initial"),
    ("two", "second"),
    ("three", "third"),
    ("four", "fourth"),
    ("five", "fifth"),
)
_NOUN = r"(?i:approach|method|strategy|idea|option|plan|candidate|route)"
_NAMED = re.compile(
    rf"""
    \b{_NOUN}\s+\#?(?P<label>[A-H]\b|\d{{1,2}}\b|(?i:one|two|three|four|five)\b)
    | \b(?P<ordinal>(?i:first|second|third|fourth|fifth|original|initial|previous|earlier))\s+{_NOUN}\b
    | ^[ \t]*\(?(?P<choice>[A-H])[).:](?=\s)
    | \b(?P<fresh>(?i:alternatively|another\s+(?:{_NOUN}|way|possibility)|(?:different|other)\s+(?:{_NOUN}|way)
        |let(?:['’]?s|\s+me)\s+(?:instead\s+)?try\s+(?:an?|another|using|instead)|we\s+could\s+(?:also|instead)))\b
    """,
    re.VERBOSE | re.MULTILINE,
)
_CHECK = re.compile(
    r"""
    \bwait\b | \bdouble[-\s]?check | \bsanity\s+check | \bverif(?:y|ying|ication)\b
    | \b(?:to|let\s+me|let['’]?s|i)\s+confirm\b
    | \b(?:let\s+me|let['’]?s|i\s+should|we\s+should|to)\s+(?:re-?)?check\b | \bchecking\b
    | \bplug(?:ging)?\s+(?:\w+\s+)?back\b
    | \bis\s+(?:this|that)\s+(?:right|correct)\b
    """,
    re.VERBOSE | re.IGNORECASE,
)
_STEP_END = re.compile(r"(?<=[.!?])\s+|\n\s*")
_LABELS = {word: str(number) for number, words in enumerate(_NUMBER_WORDS, start=1) for word in words}
_EARLY = 0.25


@dataclass(frozen=True)
class ExplorationProfile:
    """How one trace explores."""

    tokens: int
    """Length in rough tokens (see ``rough_tokens``)."""
    steps: int
    """Sentences and lines."""
    early_approaches: int
    """Different approaches named in the first quarter of the tokens: high for breadth-first traces."""
    approaches: int
    """Different approaches named in the whole trace."""
    revisits: int
    """Times it came back to an approach it had left."""
    checks_per_1k: float
    """Verification markers ("wait", "let me check", "verify") per 1,000 tokens."""
    depth: int
    """Longest run of steps without switching approach: high for depth-first traces."""


def exploration_profile(text: str) -> ExplorationProfile:
    """Describe how a trace explores, from the words it signals its approaches with.

    An approach is named by a label ("Method 2", "the first approach", "Option B", a line starting "(C)") or by a turn
    ("alternatively", "another way", "let's try using"), which always counts as new. The four features are our proposal;
    no published formula was found. They read English signal words: a model that switches silently, or in another
    language, looks depth-first; compare models only on like prompts.
    """
    trace = text.strip()
    ends = [match.end() for match in _STEP_END.finditer(trace)]
    starts = rough_token_starts(trace)
    steps = len(ends) + 1 if starts else 0
    walk = _follow_approaches(find_mentions(trace, ends), early_end=starts[int(_EARLY * len(starts))] if starts else 0)
    turns = [0, *walk.switches, steps]
    return ExplorationProfile(
        tokens=len(starts),
        steps=steps,
        early_approaches=walk.early,
        approaches=walk.named,
        revisits=walk.revisits,
        checks_per_1k=1000 * sum(1 for _ in _CHECK.finditer(trace)) / len(starts) if starts else 0.0,
        depth=max(after - before for before, after in pairwise(turns)),
    )


def profile_differences(
    left: Sequence[ExplorationProfile], right: Sequence[ExplorationProfile], *, level: float = 0.95
) -> dict[str, Interval]:
    """Return Cohen's d between two corpora for each feature (left less right, pooled spread).

    Published effect sizes for scale: up to 1.5 for training format, below 0.2 for domain (arXiv 2505.10185).
    """
    features = ("early_approaches", "revisits", "checks_per_1k", "depth")
    return {
        name: cohens_d(
            [getattr(profile, name) for profile in left], [getattr(profile, name) for profile in right], level=level
        )
        for name in features
    }


@dataclass(frozen=True)
class _Walk:
    """The approaches of one trace in the order it names them."""

    named: int
    early: int
    revisits: int
    switches: tuple[int, ...]
    """The steps at which the approach changes."""


def find_mentions(trace: str, ends: Sequence[int]) -> Iterator[tuple[int, int, str | None]]:
    """Yield place, step and label of each approach named; None for a turn to a new one.

    A label says what a turn in the same step turns to, and a step turns once however many words it says so with.
    """
    matches = list(_NAMED.finditer(trace))
    # One lone letter at a line's start ("A: 26") is no choice among several.
    choices = {match["choice"] for match in matches} - {None}
    named = [match for match in matches if match["choice"] is None or len(choices) > 1]
    found = [(match.start(), bisect_right(ends, match.start()), approach_label(match)) for match in named]
    labelled = {step for _, step, label in found if label is not None}
    for place, step, label in found:
        if label is not None:
            yield place, step, label
        elif step not in labelled:
            labelled.add(step)
            yield place, step, None


def approach_label(match: re.Match[str]) -> str | None:
    """Return the label of a named approach; None for a turn to a new one."""
    word = match["label"] or match["ordinal"] or match["choice"]
    return None if word is None else _LABELS.get(word.casefold(), word)


def _follow_approaches(mentions: Iterator[tuple[int, int, str | None]], early_end: int) -> _Walk:
    # A trace is at its first approach before it names any, so "back to the first approach" has somewhere to go.
    current = before = "1"
    seen, named, early = {current}, set(), set()
    revisits, switches = 0, []
    for place, step, label in mentions:
        approach = f"turn {len(seen)}" if label is None else before if label in ("previous", "earlier") else label
        named.add(approach)
        if place < early_end:
            early.add(approach)
        if approach != current:
            revisits += approach in seen
            seen.add(approach)
            switches.append(step)
            before, current = current, approach
    return _Walk(len(named), len(early), revisits, tuple(switches))


# Every rule is tied to a line's start: a word in running text ("define", "undefined", "for each") never makes it code.
_TAGGED = re.compile(r"\s*<(?:think|thinking|reasoning|answer)>", re.IGNORECASE)
_FENCE = re.compile(r"^ {0,3}(?:```|~~~)", re.MULTILINE)
_CODE_HEAD = re.compile(
    r"^[ \t]*(?:(?:async )?def \w+\(|class \w+[(:]|from [\w.]+ import \w|import \w+(?: as \w+)?[ \t]*$|#include <)",
    re.MULTILINE,
)
_CODE_LINE = re.compile(
    r"^[ \t]*(?:print\(|return [\w(\[]|\w+ [-+*/]= \S|for \w+ in [^\n]{1,200}:[ \t]*$|(?:el)?if"
    r" [^\n]{0,100}[<>=!(][^\n]{0,100}:[ \t]*$)",
    re.MULTILINE,
)
_LATEX = re.compile(r"^[ \t]*(?:\\begin\{|\\\[|\$\$|\\(?:sub)*section|\\item\b)", re.MULTILINE)
_NUMBERED = re.compile(r"^[ \t#*_]{0,8}(?:step[ \t]+)?\(?\d{1,3}[.):](?=[\s*_]|$)", re.MULTILINE | re.IGNORECASE)
_BULLET = re.compile(r"^[ \t]*[-*+•‣▪][ \t]+\S", re.MULTILINE)

_COMMAND = re.compile(r"\\[A-Za-z]+")
_WORD = re.compile(r"[^\W\d_]{2,}")
_LEAD_IN = frozenset(
    {
        "an",
        "and",
        "answer",
        "correct",
        "final",
        "hence",
        "is",
        "it",
        "our",
        "so",
        "the",
        "therefore",
        "thus",
        "to",
        "we",
        "result",
    }
)
_ANSWER_PIECES = 12
_ANSWER_WORDS = 3
# "So the final answer is therefore \\boxed{40 square metres}." has fewer pieces than this, and no more words of its
# own.

FORMATS = ("empty", "tagged", "code", "latex", "numbered", "bullets", "answer only", "prose")
"""Every format that ``surface_format`` distinguishes."""


@dataclass(frozen=True, eq=False)
class FormatHistory:
    """Shares of each format and how often each was right, one row a checkpoint."""

    steps: FloatArray
    """Training steps, rising."""
    formats: tuple[str, ...]
    """Names of the formats: the columns."""
    samples: IntArray
    """Samples per checkpoint."""
    shares: FloatArray
    """Share of each format at each step."""
    accuracies: FloatArray | None
    """Share of right samples of each format at each step, NaN where there are none; None when outcomes were not given.
    """
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


def effective_format_count(shares: ArrayLike) -> float:
    """Return how many equally common formats would have the same entropy: ``exp(-sum s log s)``.

    Shares are scaled to sum to 1, so counts do too. (.40, .35, .25) gives 2.946234, (.95, .04, .01) gives 1.250490.
    """
    return float(_effective_numbers(as_finite(shares, "shares")[None, :])[0])


def surface_format(text: str) -> str:
    """Name the format of a maths completion by what its lines start with; the first rule that fits decides.

    ``tagged``: opens with a think or answer tag. ``code``: a fenced block, a definition or an import at a line's start,
    or two statements. ``latex``: two displayed formulas or environments. ``numbered``: two numbered lines. ``bullets``:
    two of them. ``answer only``: an answer with no more than its lead-in. ``prose``: the rest. ``empty``: nothing.

    A published classifier calls any text with the letters "def" Python, "define" and "undefined" included; these rules
    look at whole line starts. They know English and Markdown conventions only: for another corpus bring your own.
    """
    if not text.strip():
        return "empty"
    return next((name for name, fits in _RULES if fits(text)), "prose")


def format_history(
    steps: ArrayLike,
    texts: Sequence[str],
    correct: ArrayLike | None = None,
    *,
    classify: Callable[[str], str] = surface_format,
) -> FormatHistory:
    """Tell formats apart in every sample and follow their shares over training steps.

    One row a sample: its step, its text and, if known, whether it was right. ``classify`` names the format of a text.
    Accuracy next to share shows whether the format that took over was the better one.
    Checkpoints on a log-spaced grid within the first epoch show the change; one per epoch comes too late.
    """
    at = as_finite(steps, "steps")
    names = np.array([classify(text) for text in texts])
    check_same_length(steps=at, texts=names)
    step_ids, row = np.unique(at, return_inverse=True)
    formats, column = np.unique(names, return_inverse=True)
    counts = _cross_tabulate(row, column, np.ones(len(at)), (len(step_ids), len(formats)))
    accuracies = None
    if correct is not None:
        right = as_booleans(correct, "correct")
        check_same_length(steps=at, correct=right)
        accuracies = quotient(_cross_tabulate(row, column, right.astype(np.float64), counts.shape), counts)
    samples = counts.sum(axis=1)
    return FormatHistory(
        steps=step_ids,
        formats=tuple(str(name) for name in formats),
        samples=samples.astype(np.int64),
        shares=counts / samples[:, None],
        accuracies=accuracies,
        effective=_effective_numbers(counts),
    )


def has_lines(pattern: re.Pattern[str], lines: int, text: str) -> bool:
    """Say whether a pattern matches at least so many times."""
    return sum(1 for _ in islice(pattern.finditer(text), lines)) == lines


def is_code(text: str) -> bool:
    """Say whether a text is code: a fenced block, a definition or an import at a line's start, or two statements."""
    return has_lines(_FENCE, 1, text) or has_lines(_CODE_HEAD, 1, text) or has_lines(_CODE_LINE, 2, text)


def is_answer_only(text: str) -> bool:
    """Say whether a text holds an answer and no more than its lead-in."""
    if len(text.split(maxsplit=_ANSWER_PIECES)) >= _ANSWER_PIECES:
        return False
    words = _WORD.findall(_COMMAND.sub(" ", text))
    return sum(word.casefold() not in _LEAD_IN for word in words) <= _ANSWER_WORDS


_RULES: tuple[tuple[str, Callable[[str], bool]], ...] = (
    ("tagged", lambda text: _TAGGED.match(text) is not None),
    ("code", is_code),
    ("latex", lambda text: has_lines(_LATEX, 2, text)),
    ("numbered", lambda text: has_lines(_NUMBERED, 2, text)),
    ("bullets", lambda text: has_lines(_BULLET, 2, text)),
    ("answer only", is_answer_only),
)


def _cross_tabulate(row: IntArray, column: IntArray, weights: FloatArray, shape: tuple[int, ...]) -> FloatArray:
    return np.bincount(row * shape[1] + column, weights, shape[0] * shape[1]).reshape(shape).astype(np.float64)


def _effective_numbers(counts: FloatArray) -> FloatArray:
    totals = counts.sum(axis=1, keepdims=True)
    if (counts < 0).any() or (totals <= 0).any():
        raise MeasureError(
            "Shares must not be negative and must not all be 0.", "Give the share or the count of each format."
        )
    shares = counts / totals
    entropy: FloatArray = -np.sum(shares * np.log(np.where(shares > 0, shares, 1.0)), axis=1)
    return np.exp(entropy)
