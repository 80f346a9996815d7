"""Votes over equivalence classes of answers: which leads, by how much, and the answer that follows.

A candidate whose answer cannot be read is never a vote. Ties are broken uniformly by the task's seed, independent of
the order of arrival, and recorded.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from breadth.inference.records import Answer, Candidate, Judge, Request, Task


@dataclass(frozen=True)
class VoteState:
    """The state of a vote: everything that a stop rule may use."""

    counts: tuple[int, ...] = ()
    """Votes of each answer, most first."""
    arrivals: tuple[int, ...] = ()
    """Class of each vote's answer, in order of arrival."""
    unread: int = 0
    """Candidates without a readable answer: not votes."""

    @property
    def total(self) -> int:
        """All votes."""
        return len(self.arrivals)

    @property
    def leader(self) -> int:
        """Votes of the leading answer."""
        return self.counts[0] if self.counts else 0

    @property
    def runner_up(self) -> int:
        """Votes of the second answer."""
        return self.counts[1] if len(self.counts) > 1 else 0

    @property
    def rest(self) -> int:
        """Votes of all other answers together."""
        return self.total - self.leader - self.runner_up


@dataclass
class Poll:
    """Votes as they arrive for one task, grouped into equivalence classes."""

    task: Task
    """Task whose seed breaks ties and whose test decides which answers are equivalent."""
    seen: list[Candidate] = field(default_factory=list)
    """All candidates added, in order."""
    members: list[list[Candidate]] = field(default_factory=list)
    """Candidates of each class, in order of first appearance."""
    arrivals: list[int] = field(default_factory=list)
    """Class of each vote, in order of arrival."""
    _of_key: dict[str, int] = field(default_factory=dict)

    def add(self, candidates: Iterable[Candidate]) -> None:
        """Add candidates."""
        for candidate in candidates:
            self.seen.append(candidate)
            if candidate.key is not None:
                label = self._class_of(candidate)
                self.members[label].append(candidate)
                self.arrivals.append(label)

    @property
    def state(self) -> VoteState:
        """The current state of the vote."""
        counts = sorted(map(len, self.members), reverse=True)
        return VoteState(tuple(counts), tuple(self.arrivals), len(self.seen) - len(self.arrivals))

    @property
    def keys(self) -> list[str]:
        """The key of each class: its most frequent, of equals the smallest, independent of the order of arrival."""
        counts = [Counter(candidate.key or "" for candidate in group) for group in self.members]
        return [min(count, key=lambda key: (-count[key], key)) for count in counts]

    def class_keys(self, candidates: Iterable[Candidate]) -> list[str]:
        """Return the class key of each candidate that was added; empty for one without a readable answer."""
        keys = self.keys
        return ["" if candidate.key is None else keys[self._of_key[candidate.key]] for candidate in candidates]

    def _class_of(self, candidate: Candidate) -> int:
        key = candidate.key or ""
        if key not in self._of_key:
            # Without a test of equivalence a new key is a new class.
            groups = self.members if self.task.equivalent is not None else []
            joined = (
                label
                for label, group in enumerate(groups)
                if self.are_equivalent(group[0].answer or "", candidate.answer or "")
            )
            label = next(joined, len(self.members))
            if label == len(self.members):
                self.members.append([])
            self._of_key[key] = label
        return self._of_key[key]

    def are_equivalent(self, first: str, second: str) -> bool:
        """Return whether the task's test calls two answers equal, in either order."""
        # Tests of equivalence need not be symmetric (math-verify's is not): for a vote either order will do.
        test = self.task.equivalent
        return test is not None and (test(first, second) or test(second, first))


def majority(poll: Poll, *, weights: Mapping[int, float] | None = None) -> Answer:
    """Return the answer with the most votes, or with the most weight.

    ``weights`` maps an index in ``poll.seen`` to a weight from 0 up; absent ones weigh nothing. The chosen candidate is
    the heaviest, of equals the first, among those with the winning class's key. When nothing has any weight, votes
    count equally, and a note says so. The confidence is left empty: a stop rule knows its posterior.
    """
    ranked = sorted(class_weights(poll, weights).items(), key=lambda item: (-item[1], item[0]))
    if not ranked:
        return answer_unread(poll)
    if ranked[0][1] <= 0:
        plain = majority(poll)
        return replace(plain, notes=(*plain.notes, "No vote had any weight: each counted the same."))
    best = [key for key, weight in ranked if weight == ranked[0][1]]
    winner = break_tie(best, poll.task.seed)
    holders = [place for place, candidate in enumerate(poll.seen) if candidate.key == winner]
    chosen = poll.seen[max(holders, key=lambda place: (weights or {}).get(place, 0.0))]
    return Answer(chosen, votes=dict(ranked), tied=tuple(best) if len(best) > 1 else (), candidates=tuple(poll.seen))


def class_weights(poll: Poll, weights: Mapping[int, float] | None = None) -> dict[str, float]:
    """Return each class key with its votes, or its weight, independent of the order of arrival."""
    shares: list[list[float]] = [[] for _ in poll.members]
    voters = (place for place, candidate in enumerate(poll.seen) if candidate.key is not None)
    for place, label in zip(voters, poll.arrivals, strict=True):
        shares[label].append(1.0 if weights is None else weights.get(place, 0.0))
    return dict(zip(poll.keys, map(math.fsum, shares), strict=True))


def best_scored(poll: Poll, score: Callable[[Candidate], float | None] = lambda candidate: candidate.score) -> Answer:
    """Return the candidate with the highest score (best-of-N); the seed breaks ties.

    Unscored candidates cannot win, and unreadable ones only if none is readable. Without any score the plain vote
    decides, and a note says so.
    """
    scored = [
        (value, place)
        for place, candidate in enumerate(poll.seen)
        if (value := score(candidate)) is not None and value == value
    ]
    readable = [(value, place) for value, place in scored if poll.seen[place].key is not None or not poll.arrivals]
    if not readable:
        plain = majority(poll)
        return (
            replace(plain, notes=(*plain.notes, "No candidate was scored: the plain vote decided."))
            if plain.votes
            else plain
        )
    top = max(value for value, _ in readable)
    tied = [place for value, place in readable if value == top]
    key_of = dict(zip(tied, poll.class_keys(poll.seen[place] for place in tied), strict=True))
    keys = sorted(set(key_of.values()))
    winner = break_tie(keys, poll.task.seed)
    chosen = next(poll.seen[place] for place in tied if key_of[place] == winner)
    return Answer(
        chosen, votes=class_weights(poll), tied=tuple(keys) if len(keys) > 1 else (), candidates=tuple(poll.seen)
    )


def weighted_best(poll: Poll, score: Callable[[Candidate], float | None] = lambda candidate: candidate.score) -> Answer:
    """Return the answer whose candidates have the highest summed score (weighted best-of-N, arXiv 2408.03314).

    Scores must not be negative, because more votes would then count against an answer; if one is, the best candidate
    wins instead, and a note says so. Unscored candidates add nothing.
    """
    scores = {
        place: value
        for place, candidate in enumerate(poll.seen)
        if (value := score(candidate)) is not None and value == value
    }
    if any(value < 0 for value in scores.values()):
        best = best_scored(poll, score)
        note = "Scores below 0 cannot be summed over votes: the candidate with the best score was taken."
        return replace(best, notes=(*best.notes, note))
    return majority(poll, weights=scores)


def answer_unread(poll: Poll) -> Answer:
    """Return the answer when no candidate is readable: the first that ended by itself, no votes, no confidence."""
    ended = [candidate for candidate in poll.seen if candidate.finish in ("stop", "tool_calls")]
    chosen = next(iter([*ended, *poll.seen]), None)
    notes = ("No answer could be read in any candidate: nothing was voted on.",) if poll.seen else ()
    return Answer(chosen, candidates=tuple(poll.seen), notes=notes)


def break_tie(choices: Sequence[str], seed: int) -> str:
    """Pick one of several keys uniformly by the seed; the same keys in any order give the same pick."""
    ordered = sorted(choices)
    if len(ordered) == 1:
        return ordered[0]
    digest = hashlib.blake2b("\0".join([str(seed), *ordered]).encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return ordered[int.from_bytes(digest, "big") % len(ordered)]


def request_scores(candidates: Sequence[Candidate], by: str) -> Generator[Request, Any, list[Candidate]]:
    """Request a judge's scores; return the candidates unchanged where ``by`` is empty or there are none."""
    if not by or not candidates:
        return list(candidates)
    verdicts: list[Candidate] = yield Judge(tuple(candidates), by)
    return verdicts or list(candidates)


def judge_score(candidate: Candidate) -> float | None:
    """Return a judge's score, or 1 or 0 from one that only reports solved or not; None without a judge."""
    if candidate.score is not None or candidate.solved is None:
        return candidate.score
    return float(candidate.solved)


def select_best(poll: Poll, *, by: str = "", weighted: bool = False) -> Answer:
    """Return the best by the judge's scores, of candidates or summed over equal answers; without scores, by vote.

    A judge that scored nothing is named in the notes.
    """
    if by and any(judge_score(candidate) is not None for candidate in poll.seen):
        return (weighted_best if weighted and poll.arrivals else best_scored)(poll, judge_score)
    answer = majority(poll)
    note = (f"The judge '{by}' scored nothing: the plain vote decided.",) if by and poll.seen else ()
    return replace(answer, notes=(*answer.notes, *note))
