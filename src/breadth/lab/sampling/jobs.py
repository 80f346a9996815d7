"""What is to be drawn from the reasoner: one completion a job, checked before it is begun, and held as a row while it is drawn."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from breadth.base.checks import require
from breadth.base.errors import ServerError
from breadth.inference.records import Sampling
from breadth.lab.task.grammar import AGAIN, CLOSE, END, OPEN

ENDLESS = np.iinfo(np.int64).max
"""A cap that is never reached."""
ROW = np.dtype(
    [
        ("key", "i8"),  # whose row it is
        ("token", "i8"),  # read next
        ("length", "i8"),  # tokens read, which is the position of the next
        ("written", "i8"),  # tokens of the completion
        ("limit", "i8"),  # most of them
        ("seed", "u8"),
        ("temperature", "f8"),
        ("top_p", "f8"),
        ("top_k", "i8"),
        ("min_p", "f8"),
        ("top", "i8"),  # likeliest tokens to tell of
        ("cap", "i8"),  # most thinking tokens
        ("least", "i8"),  # fewest thinking tokens
        ("thought", "i8"),  # thinking tokens so far; -1 outside thinking
    ]
)
"""What is known of a completion while it is drawn."""


@dataclass(frozen=True)
class Job:
    """One completion to be drawn."""

    ids: tuple[int, ...]
    """The prompt, and whatever of the reply is given."""
    sampling: Sampling
    """How to draw. At ``thinking_tokens`` the closing mark is forced; penalties are refused; ``stop`` is the caller's
    to heed.
    """
    seed: int = 0
    """Of its chance, token by token: a hash of seed and place in the completion."""
    least_thinking: int = 0
    """Before so many thinking tokens an end of thinking (its mark, or the end of the reply) is turned into one more
    attempt.
    """

    def __post_init__(self) -> None:
        require(self, "least_thinking", self.least_thinking >= 0, "0 or more tokens")


@dataclass(frozen=True)
class Marks:
    """The tokens that budgets know."""

    open: int
    """Thinking begins."""
    close: int
    """Thinking ends."""
    again: int
    """One more attempt."""
    end: int
    """The reply ends."""

    @classmethod
    def of(cls, tokenizer: Any) -> Marks:
        """Look them up."""
        return cls(*(int(tokenizer.convert_tokens_to_ids(word)) for word in (OPEN, CLOSE, AGAIN, END)))

    def thought(self, ids: tuple[int, ...]) -> int:
        """Return how many thinking tokens stand behind the last opening mark; -1 when there is none, or the thinking is closed."""
        if self.open not in ids:
            return -1
        behind = ids[::-1].index(self.open)
        return -1 if self.close in ids[len(ids) - behind :] else behind


def check(job: Job, context: int, vocabulary: int) -> None:
    """Refuse a job that cannot be drawn."""
    sampling, problem = job.sampling, ""
    if not job.ids:
        problem = "The prompt has no tokens."
    elif len(job.ids) >= context:
        problem = f"The prompt has {len(job.ids)} tokens; the model's context holds {context}."
    elif min(job.ids) < 0 or max(job.ids) >= vocabulary:
        problem = f"The prompt has tokens from {min(job.ids)} to {max(job.ids)}; the model knows 0 to {vocabulary - 1}."
    elif (sampling.repetition_penalty, sampling.presence_penalty, sampling.frequency_penalty) != (1, 0, 0):
        problem = "The reasoner is drawn from without penalties, and a penalty is set."
    elif sampling.thinking_tokens is not None and job.least_thinking > sampling.thinking_tokens:
        problem = (
            f"At least {job.least_thinking} thinking tokens are asked for, and at most {sampling.thinking_tokens}."
        )
    if problem:
        raise ServerError(
            problem, "Change the request; no other of its kind can be drawn either.", status=400, fatal=True
        )


def begun(jobs: Iterable[tuple[int, Job]], marks: Marks, context: int) -> NDArray[Any]:
    """Return a row for each job, by its key, of which all but the last given token is taken to be read."""
    return np.array([_row(key, job, marks, context) for key, job in jobs], ROW)


def _row(key: int, job: Job, marks: Marks, context: int) -> tuple[float, ...]:
    sampling = job.sampling
    return (
        key,
        job.ids[-1],
        len(job.ids) - 1,
        0,
        min(sampling.max_tokens, context - len(job.ids)),
        job.seed & 0xFFFF_FFFF_FFFF_FFFF,
        sampling.temperature,
        sampling.top_p,
        sampling.top_k,
        sampling.min_p,
        sampling.top_logprobs,
        ENDLESS if sampling.thinking_tokens is None else sampling.thinking_tokens,
        job.least_thinking,
        marks.thought(job.ids),
    )
