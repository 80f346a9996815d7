"""Does a trace look around or dig: how many approaches it names early, returns to, checks, and how long it stays with one.

Multiple-choice training data makes breadth-first traces (several options compared early), free-form data depth-first
ones (long, sequential, much checking); format moves this profile far more than domain does (arXiv 2505.10185).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from breadth.measure.effects import cohens_d
from breadth.measure.intervals import Interval
from breadth.measure.ngrams import rough_token_starts

_NUMBER_WORDS = (("one", "first", "original", "initial"), ("two", "second"), ("three", "third"), ("four", "fourth"), ("five", "fifth"))
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
    \bwait\b | \bdouble[-\s]?check | \bsanity\s+check | \bverif(?:y|ying|ication)\b | \b(?:to|let\s+me|let['’]?s|i)\s+confirm\b
    | \b(?:let\s+me|let['’]?s|i\s+should|we\s+should|to)\s+(?:re-?)?check\b | \bchecking\b | \bplug(?:ging)?\s+(?:\w+\s+)?back\b
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
    ("alternatively", "another way", "let's try using"), which always counts as new. The four features are our proposal; no published
    formula was found. They read English signal words: a model that switches silently, or in another language, looks
    depth-first; compare models only on like prompts.
    """
    trace = text.strip()
    ends = [match.end() for match in _STEP_END.finditer(trace)]
    starts = rough_token_starts(trace)
    steps = len(ends) + 1 if starts else 0
    walk = _walk(_mentions(trace, ends), early_end=starts[int(_EARLY * len(starts))] if starts else 0)
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
    return {name: cohens_d([getattr(one, name) for one in left], [getattr(one, name) for one in right], level=level) for name in features}


@dataclass(frozen=True)
class _Walk:
    """The approaches of one trace in the order it names them."""

    named: int
    early: int
    revisits: int
    switches: tuple[int, ...]
    """The steps at which the approach changes."""


def _mentions(trace: str, ends: Sequence[int]) -> Iterator[tuple[int, int, str | None]]:
    """Yield place, step and label of each approach named; None for a turn to a new one.

    A label says what a turn in the same step turns to, and a step turns once however many words it says so with.
    """
    matches = list(_NAMED.finditer(trace))
    # One lone letter at a line's start ("A: 26") is no choice among several.
    choices = {match["choice"] for match in matches} - {None}
    named = [match for match in matches if match["choice"] is None or len(choices) > 1]
    found = [(match.start(), bisect_right(ends, match.start()), _label(match)) for match in named]
    told = {step for _, step, label in found if label is not None}
    for place, step, label in found:
        if label is not None:
            yield place, step, label
        elif step not in told:
            told.add(step)
            yield place, step, None


def _label(match: re.Match[str]) -> str | None:
    word = match["label"] or match["ordinal"] or match["choice"]
    return None if word is None else _LABELS.get(word.casefold(), word)


def _walk(mentions: Iterator[tuple[int, int, str | None]], early_end: int) -> _Walk:
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
