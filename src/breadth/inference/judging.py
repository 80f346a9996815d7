"""Have candidates judged, if there is a judge, and choose among them by what it says or by vote."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any

from breadth.inference.records import Answer, Candidate, Judge, Request
from breadth.inference.voting import Poll, best_scored, majority, weighted_best


def judged(candidates: Sequence[Candidate], by: str) -> Generator[Request, Any, list[Candidate]]:
    """Return the candidates as a judge gives them back; as they are where ``by`` is empty or there are none."""
    if not by or not candidates:
        return list(candidates)
    verdicts: list[Candidate] = yield Judge(tuple(candidates), by)
    return verdicts or list(candidates)


def worth(candidate: Candidate) -> float | None:
    """Return a judge's score, or 1 or 0 from one that says no more than solved or not; None from no judge."""
    if candidate.score is not None or candidate.solved is None:
        return candidate.score
    return float(candidate.solved)


def selected(poll: Poll, *, by: str = "", weighted: bool = False) -> Answer:
    """Return the best by the judge's scores, of single candidates or summed over equal answers; without scores, by vote.

    A judge that was asked and scored nothing is named in the notes.
    """
    if by and any(worth(candidate) is not None for candidate in poll.seen):
        return (weighted_best if weighted and poll.arrivals else best_scored)(poll, worth)
    answer = majority(poll)
    note = (f"The judge '{by}' scored nothing: the plain vote decided.",) if by and poll.seen else ()
    return replace(answer, notes=(*answer.notes, *note))
