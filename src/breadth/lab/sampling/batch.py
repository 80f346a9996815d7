"""Samples many completions of the reasoner together: jobs, the rows of a batch, and a plain loop over both.

Rows join and leave at any step, and no completion depends on the others in its batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from breadth.base.errors import ServerError, SettingsError, require
from breadth.inference.records import Sampling
from breadth.lab.reasoner import Reasoner
from breadth.lab.task.grammar import AGAIN, CLOSE, END, OPEN
from breadth.measure.validate import BoolArray, FloatArray, IntArray

NO_CAP = np.iinfo(np.int64).max
"""A cap that is never reached."""
ROW_FIELDS = np.dtype(
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
class CompletionJob:
    """One completion to be drawn."""

    ids: tuple[int, ...]
    """The prompt, and whatever of the reply is given."""
    sampling: Sampling
    """How to draw. At ``thinking_tokens`` the closing mark is forced; penalties are refused; ``stop`` is the caller's
    to heed.
    """
    seed: int = 0
    """Of its chance, token by token: a hash of seed and place in the completion."""
    min_thinking: int = 0
    """Before so many thinking tokens an end of thinking (its mark, or the end of the reply) is turned into one more
    attempt.
    """

    def __post_init__(self) -> None:
        require(self, "min_thinking", self.min_thinking >= 0, "0 or more tokens")


@dataclass(frozen=True)
class ThinkingMarks:
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
    def from_tokenizer(cls, tokenizer: Any) -> ThinkingMarks:
        """Look the tokens up in a tokenizer."""
        return cls(*(int(tokenizer.convert_tokens_to_ids(word)) for word in (OPEN, CLOSE, AGAIN, END)))

    def count_thinking(self, ids: tuple[int, ...]) -> int:
        """Count the thinking tokens after the last opening mark; -1 if there is none, or thinking is closed."""
        if self.open not in ids:
            return -1
        behind = ids[::-1].index(self.open)
        return -1 if self.close in ids[len(ids) - behind :] else behind


def check_job(job: CompletionJob, context: int, vocabulary: int) -> None:
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
    elif sampling.thinking_tokens is not None and job.min_thinking > sampling.thinking_tokens:
        problem = f"At least {job.min_thinking} thinking tokens are asked for, and at most {sampling.thinking_tokens}."
    if problem:
        raise ServerError(
            problem, "Change the request; no other of its kind can be drawn either.", status=400, fatal=True
        )


def initial_rows(jobs: Iterable[tuple[int, CompletionJob]], marks: ThinkingMarks, context: int) -> NDArray[Any]:
    """Return a row for each job, by its key, of which all but the last given token is taken to be read."""
    return np.array([initial_row(key, job, marks, context) for key, job in jobs], ROW_FIELDS)


def initial_row(key: int, job: CompletionJob, marks: ThinkingMarks, context: int) -> tuple[float, ...]:
    """Return the fields of one row, in the order of `ROW_FIELDS`."""
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
        NO_CAP if sampling.thinking_tokens is None else sampling.thinking_tokens,
        job.min_thinking,
        marks.count_thinking(job.ids),
    )


TokenEnding = Literal["", "stop", "length"]
TOKEN_ENDINGS: tuple[TokenEnding, ...] = ("", "stop", "length")
"""Why a completion ends with a token, by number: it does not, the model ended it, it is at its cap."""
MAX_PREFILL_TOKENS = 16384
"""Prompt tokens read in one pass, padding included: bounds the memory it takes."""
FREE_PARTS = 16
"""A full batch admits rows once a sixteenth of it is free: prefilling a few prompts costs nearly as much as many."""


@dataclass(frozen=True)
class BatchStep:
    """One token of every row, by column."""

    keys: IntArray
    """Whose tokens they are."""
    ids: IntArray
    """The tokens."""
    logprobs: FloatArray
    """Their raw log-probs."""
    entropies: FloatArray
    """Of the raw distributions, in nats."""
    forced: BoolArray
    """Which were imposed by a budget."""
    endings: IntArray
    """Why the row ends with it: place in `ENDINGS`."""
    broken: BoolArray
    """Rows whose logits were not finite: they end here, and their token is void."""
    top: tuple[IntArray, FloatArray] | None = None
    """The likeliest tokens and their log-probs, likeliest first; as many as the row with the greatest wish has asked
    for.
    """


@dataclass(frozen=True)
class Completion:
    """One completion."""

    ids: IntArray
    """Its tokens, the end of the reply included."""
    logprobs: NDArray[np.float32]
    """Their raw log-probs: before temperature and cuts."""
    entropies: NDArray[np.float32]
    """Of the raw distributions they were drawn from, in nats."""
    forced: BoolArray
    """Which tokens were imposed by a budget, not drawn."""
    finish: TokenEnding
    """Why it ended."""


class CompletionBatch:
    """The completions being drawn: one row each, all a token further with each step.

    Weights are those the model has when the batch is made. All of it must run under ``torch.inference_mode``.
    """

    def __init__(self, reasoner: Reasoner) -> None:
        from breadth.lab.sampling.network import ReasonerNetwork

        self.network = ReasonerNetwork(reasoner.model)
        """Forward pass."""
        self.marks = ThinkingMarks.from_tokenizer(reasoner.tokenizer)
        """Tokens that budgets know."""
        self.rows: NDArray[Any] = np.zeros(0, ROW_FIELDS)
        """What is known of each row; the cache has them in this order."""
        self._cache = self.network.cache()

    def check(self, job: CompletionJob) -> None:
        """Refuse a job that cannot be drawn."""
        check_job(job, self.network.context, len(self.network.embedding))

    def join(self, jobs: Sequence[tuple[int, CompletionJob]]) -> None:
        """Begin jobs, each under a key: their prompts are read together, one that several share only once."""
        import torch

        first = len(self.rows)
        self.rows = np.concatenate([self.rows, initial_rows(jobs, self.marks, self.network.context)])
        givens: dict[tuple[int, ...], list[int]] = {}
        for place, (_, job) in enumerate(jobs, first):
            givens.setdefault(job.ids[:-1], []).append(place)
        self._cache.reserve(len(self.rows), int(self.rows["length"].max(initial=0)) + 1)
        for group in prefill_groups(sorted(filter(None, givens), key=len)):
            block = self.network.prefill(torch.from_numpy(pad_right(group)))
            which = [number for number, given in enumerate(group) for _ in givens[given]]
            places = [place for given in group for place in givens[given]]
            self._cache.put(torch.tensor(places), block, torch.tensor(which))

    def step(self) -> BatchStep:
        """Draw a token for every row; those that end with it leave."""
        import torch

        from breadth.lab.sampling.network import choose_tokens

        rows = self.rows
        self._cache.reserve(len(rows), int(rows["length"].max()) + 1)
        logits = self.network.step(torch.tensor(rows["token"]), torch.tensor(rows["length"]), self._cache)
        broken = ~logits.isfinite().all(-1).numpy()
        if broken.any():
            logits = logits.masked_fill(torch.from_numpy(broken)[:, None], 0.0)
        choice = choose_tokens(logits, rows)
        ids, forced = self._force_budgets(choice.ids)
        logprobs = choice.raw.gather(-1, torch.from_numpy(ids)[:, None])[:, 0].numpy()
        top = self._top(choice.raw)
        endings = self._record_tokens(ids)
        step = BatchStep(rows["key"].copy(), ids, logprobs, choice.entropies, forced, endings, broken, top)
        self.drop((endings > 0) | broken, spoilt=bool(broken.any()))
        return step

    def drop(self, gone: BoolArray, *, spoilt: bool = False) -> None:
        """Remove rows; the last ones take their places. ``spoilt`` clears their cache as well."""
        import torch

        if not gone.any():
            return
        whole, kept = len(gone), int((~gone).sum())
        if kept == 0:
            self._cache.release()
        holes, movers = np.flatnonzero(gone[:kept]), kept + np.flatnonzero(~gone[kept:])
        if len(holes):
            self._cache.move(torch.from_numpy(holes), torch.from_numpy(movers), int(self.rows["length"].max()))
            self.rows[holes] = self.rows[movers]
        if spoilt and kept:
            self._cache.clear(slice(kept, whole))
        self.rows = self.rows[:kept].copy()

    def clear(self) -> None:
        """Let all rows leave."""
        self.drop(np.ones(len(self.rows), np.bool_))

    def _force_budgets(self, ids: IntArray) -> tuple[IntArray, BoolArray]:
        """Return the tokens as the thinking budgets will have them, and where these differ from what was drawn."""
        rows, marks = self.rows, self.marks
        thinking = rows["thought"] >= 0
        over = thinking & (rows["thought"] >= rows["cap"])
        early = thinking & ~over & (rows["thought"] < rows["least"]) & ((ids == marks.close) | (ids == marks.end))
        imposed = np.where(over, marks.close, np.where(early, marks.again, ids))
        return imposed, imposed != ids

    def _record_tokens(self, ids: IntArray) -> IntArray:
        """Record the tokens and return why each row ends, if it does; an opening mark in thinking is ordinary."""
        rows, marks = self.rows, self.marks
        thinking = rows["thought"] >= 0
        rows["thought"] = np.where(
            thinking, np.where(ids == marks.close, -1, rows["thought"] + 1), np.where(ids == marks.open, 0, -1)
        )
        rows["token"] = ids
        rows["length"] += 1
        rows["written"] += 1
        return np.where(ids == marks.end, 1, np.where(rows["written"] >= rows["limit"], 2, 0))

    def _top(self, raw: Any) -> tuple[IntArray, FloatArray] | None:
        most = min(int(self.rows["top"].max()), raw.shape[-1])
        if most == 0:
            return None
        found = raw.topk(most, -1)
        return found.indices.numpy(), found.values.numpy()


def sample_all(reasoner: Reasoner, jobs: Sequence[CompletionJob], max_running: int = 1024) -> list[Completion]:
    """Sample all jobs in this thread, at most ``max_running`` at once, and return them in order: the fastest way."""
    import torch

    if max_running < 1:
        raise SettingsError(
            f"At most {max_running} completions are to be drawn at once.", "Let it be 1 or more; 1024 is usual."
        )
    with torch.inference_mode():
        batch = CompletionBatch(reasoner)
        for job in jobs:
            batch.check(job)
        steps, waiting = list[BatchStep](), list(enumerate(jobs))[::-1]
        while waiting or len(batch.rows):
            fresh = count_admitted(len(batch.rows), len(waiting), max_running)
            if fresh:
                batch.join([waiting.pop() for _ in range(fresh)])
            steps.append(batch.step())
            if steps[-1].broken.any():
                raise non_finite_error()
    return split_completions(steps, len(jobs))


def count_admitted(running: int, waiting: int, max_running: int) -> int:
    """Return how many waiting jobs to admit: all that fit, but into a full batch only once a share of it is free."""
    free = max(0, max_running - running)
    return min(free, waiting) if waiting <= free or free * FREE_PARTS >= max_running else 0


def non_finite_error() -> ServerError:
    """Return the error of a row whose logits are not finite."""
    return ServerError(
        "The model's logits are not finite.",
        "Its weights are broken: load others, or lower the learning rate.",
        status=500,
    )


def split_completions(steps: Sequence[BatchStep], count: int) -> list[Completion]:
    """Return the columns of all steps as one record a job."""
    if not steps:
        return []
    keys = np.concatenate([step.keys for step in steps])
    order = np.argsort(keys, kind="stable")
    edges = np.cumsum(np.bincount(keys, minlength=count))[:-1]

    def column(name: str) -> list[NDArray[Any]]:
        return np.split(np.concatenate([getattr(step, name) for step in steps])[order], edges)

    columns = zip(*map(column, ("ids", "logprobs", "entropies", "forced", "endings")), strict=True)
    return [
        Completion(
            ids, logprobs.astype(np.float32), entropies.astype(np.float32), forced, TOKEN_ENDINGS[int(endings[-1])]
        )
        for ids, logprobs, entropies, forced, endings in columns
    ]


def prefill_groups(givens: Sequence[tuple[int, ...]]) -> Iterator[Sequence[tuple[int, ...]]]:
    """Cut texts, shortest first, into groups that can be read together."""
    start = 0
    for place, given in enumerate(givens):
        if (place - start + 1) * len(given) > MAX_PREFILL_TOKENS and place > start:
            yield givens[start:place]
            start = place
    if givens:
        yield givens[start:]


def pad_right(texts: Sequence[tuple[int, ...]]) -> IntArray:
    """Return texts, shortest first, as one table; each is padded with its own last token."""
    ids = np.zeros((len(texts), len(texts[-1])), np.int64)
    for row, text in enumerate(texts):
        ids[row, : len(text)] = text
        ids[row, len(text) :] = text[-1]
    return ids
