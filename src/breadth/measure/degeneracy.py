"""Degenerate responses: loops, answers repeated or given too early, computation skipped.

Over-hard training items teach such shortcuts before accuracy moves (arXiv 2605.28388): there one item with a lax
checker took the mean length from 510.7 to 45.7 tokens in 58 steps. No published formula was found for any of these
detectors: definitions and gates are our proposal. Each alone has honest causes, so a response counts as degenerate only
when two fire. Some degeneration shows only across prompts: one answer for many problems.

A sample is a sequence of tokens (ids, words, anything hashable), or text, which is then cut into rough tokens.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from numpy.typing import ArrayLike

from breadth.base.errors import MeasureError
from breadth.measure.answers import answer_key, stated_answers, stated_key
from breadth.measure.diversity import count_answers

# At most four letters or digits at a time, about the length of a subword: gates given in tokens keep their scale.
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


_MAX_PERIOD = 200
_MIN_REPEATS = 4
_MIN_LENGTH = 64
_LEAD_IN = re.compile(
    r"(?:\b(?:so|thus|hence|therefore|the|my|our|final|answer|result|is|be|must)\b|[\s,:*$(]|\\\(|\\\[)+\Z",
    re.IGNORECASE,
)
_MAX_LEAD_IN_CHARS = 80
_COMPUTATION = re.compile(
    r"""
    \d+(?:[.,]\d+)* | [+*/=<>^×÷·−±≤≥≈≠√] | (?<=[\s\d)])-(?=[\s\d(])
    | \\(?:[dt]?frac|sqrt|times|cdot|div|pm|leq?|geq?|neq|approx|equiv|sum|prod|int|implies|Rightarrow)(?![A-Za-z])
    | \b(?:because|since|hence|thus|therefore|implies|add(?:ing)?)\b
    | \b(?:subtract|multipl|divid|substitut|simplif|solv)\w{0,5}\b
    """,
    re.VERBOSE | re.IGNORECASE,
)


@dataclass(frozen=True)
class TailLoop:
    """A response that ends by repeating itself."""

    period: int
    """Tokens in one turn of the loop."""
    length: int
    """Tokens from where the loop sets in to the end."""

    @property
    def repeats(self) -> float:
        """How many turns, the last perhaps cut short."""
        return self.length / self.period


@dataclass(frozen=True)
class Gates:
    """Where each detector fires."""

    repetition: float = 0.5
    """Fires above this share of repeated 4-grams."""
    statements: int = 3
    """Fires above this many answer statements."""
    early: float = 0.1
    """Fires when the answer comes within this share of the response."""
    computation: float = 0.2
    """Fires below this share of the reference computation."""
    needed: int = 2
    """Detectors that must fire before a response counts as degenerate."""


@dataclass(frozen=True)
class Degeneracy:
    """What the detectors read in one response, and which of them fire."""

    repetition: float
    """Share of its 4-grams that it had used before."""
    loop: TailLoop | None
    """The loop it ends in."""
    statements: int
    """How often it states an answer."""
    early: float
    """Share of the response before its answer is first stated; NaN without one."""
    computation: float
    """Computation before the answer, relative to the reference; NaN without an answer or a reference."""
    overused: bool
    """Whether its answer is one that the policy gives to too many different problems."""
    gates: Gates
    """The gates applied."""

    @property
    def detections(self) -> tuple[str, ...]:
        """Names of the detectors that fire."""
        firing = {
            "n-gram repetition": self.repetition > self.gates.repetition,
            "tail loop": self.loop is not None,
            "answer repetition": self.statements > self.gates.statements,
            "overused answer": self.overused,
            "early answer": self.early < self.gates.early,
            "computation skipping": self.computation < self.gates.computation,
        }
        return tuple(name for name, fires in firing.items() if fires)

    @property
    def is_degenerate(self) -> bool:
        """Whether enough detectors fire.

        Use it to withhold reward from a success or to look at its problem, never to add reward.
        """
        return len(self.detections) >= self.gates.needed


def response_degeneracy(
    text: str,
    *,
    tokens: Sequence[Hashable] | None = None,
    reference: float | None = None,
    overused: Collection[str] = (),
    gates: Gates | None = None,
) -> Degeneracy:
    """Run every detector on one response.

    ``tokens`` are the model's own, without the end mark; by default rough ones. ``reference`` is the computation that
    the problem takes (see ``reference_computation``), ``overused`` the answer keys found by ``overused_answers``;
    without them those two detectors stay silent.
    """
    pieces = rough_tokens(text) if tokens is None else tokens
    statements = stated_answers(text)
    final = stated_key(text) if statements else None
    place = _first_position(statements, final)
    return Degeneracy(
        repetition=ngram_repetition(pieces),
        loop=tail_loop(pieces),
        statements=len(statements),
        early=_share_before(text, place),
        computation=math.nan
        if place is None or not reference
        else count_computation(text[:place]) / _check_reference(reference),
        overused=final in overused,
        gates=gates or Gates(),
    )


def tail_loop(tokens: str | Sequence[Hashable]) -> TailLoop | None:
    """Find the longest end of a response that repeats with a period of at most 200 tokens, at least 4 times.

    Linear in the tokens: reversed, a period p that holds for the last L tokens is a match of length L - p between the
    sequence and itself moved by p, which the Z algorithm finds for every p in one pass. Text is cut into
    rough tokens first. A row of dots or dashes at the end is a loop too: one reason why one detector alone decides
    nothing.
    """
    backwards = as_tokens(tokens)[::-1]
    matches = self_matches(backwards, min(_MAX_PERIOD, len(backwards) - 1))
    loops = [TailLoop(period, period + match) for period, match in matches if period + match >= _MIN_REPEATS * period]
    return max(loops, key=lambda loop: (loop.length, -loop.period), default=None)


def early_answer(text: str) -> float:
    """Return how much of the response comes before its final answer is first stated; NaN when it states none.

    Measured in rough tokens, without the statement's lead-in ("So the final answer is"), over the length of the
    response or 64, whichever is larger. The floor joins two demands that conflict as written, that short responses be
    left alone and that a bare "The answer is 40" be caught: below 64 tokens a share of the length means nothing, but an
    answer within the first six tokens is early whatever follows.
    """
    return _share_before(text, answer_position(text))


def computation_tokens(text: str) -> int:
    """Count numbers, operators and words of derivation before the final answer is first stated (or in all the text)."""
    return count_computation(text[: answer_position(text)])


def computation_share(text: str, reference: float) -> float:
    """Return the computation before the answer over what the problem takes; NaN without an answer: none was skipped."""
    place, needed = answer_position(text), _check_reference(reference)
    return math.nan if place is None else count_computation(text[:place]) / needed


def reference_computation(responses: Sequence[str]) -> float:
    """Return the computation a problem takes: the median over the base model's responses to it.

    0 means that the base model answers without computing: there is nothing to skip.
    """
    if not responses:
        raise MeasureError(
            "There are no responses to take the median of.", "Give the base model's responses to the problem."
        )
    return float(median(computation_tokens(response) for response in responses))


def answer_position(text: str) -> int | None:
    """Return where the answer that is finally given is first stated."""
    statements = stated_answers(text)
    return _first_position(statements, stated_key(text) if statements else None)


def _first_position(statements: Sequence[tuple[int, str]], final: str | None) -> int | None:
    return None if final is None else next((place for place, answer in statements if answer_key(answer) == final), None)


def _share_before(text: str, place: int | None) -> float:
    if place is None:
        return math.nan
    lead_in = _LEAD_IN.search(text[max(place - _MAX_LEAD_IN_CHARS, 0) : place])
    start = place - len(lead_in[0]) if lead_in else place
    return len(rough_tokens(text[:start])) / max(len(rough_tokens(text)), _MIN_LENGTH)


def count_computation(text: str) -> int:
    """Count numbers, operators and words of derivation in a text."""
    return sum(1 for _ in _COMPUTATION.finditer(text))


def _check_reference(reference: float) -> float:
    if not 0 < reference < math.inf:
        raise MeasureError(
            f"The reference computation is {reference}; it must be a positive number.",
            "Leave out problems without computation.",
        )
    return reference


def self_matches(sequence: Sequence[Hashable], longest: int) -> list[tuple[int, int]]:
    """Return, for each shift up to ``longest``, how far the shifted sequence agrees with itself (Z algorithm)."""
    matches = [0] * (max(longest, 0) + 1)
    left = right = 0
    for shift in range(1, longest + 1):
        reach = min(matches[shift - left], right - shift) if shift < right else 0
        while shift + reach < len(sequence) and sequence[reach] == sequence[shift + reach]:
            reach += 1
        if shift + reach > right:
            left, right = shift, shift + reach
        matches[shift] = reach
    return list(enumerate(matches))[1:]


@dataclass(frozen=True)
class ModalAnswers:
    """Which answers are the commonest one of how many problems."""

    shares: Mapping[str, float]
    """Answer key -> share of the problems whose commonest answer it is; equally common answers split the problem."""
    problems: int
    """How many problems."""


def modal_answers(problems: ArrayLike, answers: Sequence[str | None]) -> ModalAnswers:
    """Find each problem's commonest answer in a window of samples, and how many problems share it: one row a sample."""
    names: dict[str, int] = {}
    keys = [answer_key(answer) for answer in answers]
    classes = np.array([-1 if key is None else names.setdefault(key, len(names)) for key in keys], dtype=np.int64)
    counted = count_answers(problems, classes)
    most = np.zeros(len(counted.groups), dtype=np.int64)
    np.maximum.at(most, counted.owners, counted.counts)
    modal = counted.counts == most[counted.owners]
    weights = modal / np.maximum(counted.sums(modal), 1)[counted.owners]
    totals = np.bincount(counted.answers, weights, len(names))
    shares = {name: float(totals[label]) / len(counted.groups) for name, label in names.items() if totals[label] > 0}
    return ModalAnswers(shares, len(counted.groups))


def find_overused_answers(window: ModalAnswers, base: ModalAnswers, *, ratio: float = 3.0) -> dict[str, float]:
    """Return the answers commonest on more than ``ratio`` times as large a share of problems as with the base model.

    With how many times as large. An answer that the base model never favours counts as favoured once; so a rare
    answer on one or two problems is no finding. Both windows should hold the same problems.
    """
    times = {
        answer: share / max(base.shares.get(answer, 0.0), 1 / base.problems) for answer, share in window.shares.items()
    }
    return {answer: value for answer, value in times.items() if value > ratio}
