"""Runs the reasoner in its own thread with continuous batching, and delivers completions token by token."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from breadth.base.errors import ServerError, require
from breadth.lab.reasoner import Reasoner
from breadth.lab.sampling.batch import (
    TOKEN_ENDINGS,
    BatchStep,
    CompletionBatch,
    CompletionJob,
    TokenEnding,
    count_admitted,
    non_finite_error,
)


@dataclass(frozen=True, slots=True)
class SampledToken:
    """One token of a completion."""

    id: int
    """Its number in the vocabulary."""
    logprob: float
    """Raw: before temperature and cuts."""
    entropy: float
    """Of the raw distribution, in nats."""
    top: tuple[tuple[int, float], ...]
    """The likeliest tokens with their log-probs, likeliest first, as many as were asked for."""
    forced: bool = False
    """Forced by a budget, not sampled."""
    last: TokenEnding = ""
    """Why the completion ends with this token, if it does; with ``stop`` the token is the end of the reply."""


@dataclass(eq=False)
class Ticket:
    """A submitted job."""

    job: CompletionJob
    """The job."""
    on_token: Callable[[SampledToken], None] = field(repr=False)
    """Called with every token."""
    on_failure: Callable[[Exception], None] = field(repr=False)
    """Called with the error when the completion fails."""
    open: bool = True
    """Whether callbacks are still wanted."""
    lock: threading.RLock = field(default_factory=threading.RLock, repr=False)
    """Held while a callback runs."""

    def cancel(self) -> None:
        """Draw no further.

        Once this returns, no callback of the job runs any more. Callable from any thread, also from ``on_token``.
        """
        with self.lock:
            self.open = False

    def deliver(self, token: SampledToken) -> None:
        """Deliver a token. If the callback raises, the job fails with that error and gets nothing more."""
        with self.lock:
            if not self.open:
                return
            self.open = not token.last
            try:
                self.on_token(token)
            except Exception as error:  # noqa: BLE001 - whatever a listener does, the others' completions go on
                self.open = True
                self.fail(error)

    def fail(self, error: Exception) -> None:
        """Report that the completion has failed."""
        with self.lock:
            if self.open:
                self.open = False
                with suppress(Exception):
                    self.on_failure(error)


class Engine:
    """Samples completions of one reasoner in its own thread, all open ones together, with continuous batching.

    A completion depends on its job alone, not on the others in the batch. The engine uses the weights that the model
    has when the engine is made.
    """

    def __init__(self, reasoner: Reasoner, *, max_running: int = 512, threads: int = 1) -> None:
        self.max_running = max_running
        """Most completions drawn at once; the others wait in order."""
        self.threads = threads
        """Threads that torch may use for it."""
        require(self, "max_running", max_running >= 1, "1 or more")
        require(self, "threads", threads >= 1, "1 or more")
        self._batch = CompletionBatch(reasoner)
        self._tickets: dict[int, Ticket] = {}
        self._waiting: deque[Ticket] = deque()
        self._wake = threading.Condition()
        self._closing = False
        self._keys = 0
        self._thread = threading.Thread(target=self._run, name="breadth-reasoner", daemon=True)
        self._thread.start()

    @property
    def open(self) -> int:
        """Completions being drawn or waiting; cancelled ones count until the step at hand has ended."""
        return len(self._tickets) + len(self._waiting)

    def submit(
        self, job: CompletionJob, on_token: Callable[[SampledToken], None], on_failure: Callable[[Exception], None]
    ) -> Ticket:
        """Submit a job.

        Both callbacks run in the engine's thread and hold it up; none runs once the job is cancelled.

        Raises ServerError for a job that cannot be drawn, or when the engine is closed.
        """
        self._batch.check(job)
        ticket = Ticket(job, on_token, on_failure)
        with self._wake:
            if self._closing:
                raise closed_error()
            self._waiting.append(ticket)
            self._wake.notify()
        return ticket

    def close(self) -> None:
        """End the thread; jobs that are still open fail."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        import torch

        torch.set_num_threads(self.threads)
        with torch.inference_mode():
            while self._wait_for_work():
                try:
                    self._advance()
                except Exception as error:  # noqa: BLE001 - whatever a listener does, the others' completions go on
                    self._fail_all(error)
        self._fail_all(closed_error())

    def _wait_for_work(self) -> bool:
        """Wait for work; False when the engine is closing."""
        with self._wake:
            self._wake.wait_for(lambda: self._closing or self._waiting or self._tickets)
            return not self._closing

    def _advance(self) -> None:
        """Drop cancelled jobs, admit waiting ones, then sample one token each and deliver it."""
        import numpy as np

        keys = self._batch.rows["key"].tolist()
        gone = [not self._tickets[key].open for key in keys]
        self._batch.drop(np.array(gone, np.bool_))
        for key, left in zip(keys, gone, strict=True):
            if left:
                del self._tickets[key]
        fresh = self._admit()
        if fresh:
            self._tickets |= fresh
            self._batch.join([(key, ticket.job) for key, ticket in fresh.items()])
        if self._tickets:
            self._deliver(self._batch.step())

    def _admit(self) -> dict[int, Ticket]:
        """Take the jobs to admit now out of the queue, each under a new key."""
        found: dict[int, Ticket] = {}
        with self._wake:
            while self._waiting and not self._waiting[0].open:
                self._waiting.popleft()
            for _ in range(count_admitted(len(self._tickets), len(self._waiting), self.max_running)):
                ticket = self._waiting.popleft()
                if ticket.open:
                    found[self._keys] = ticket
                    self._keys += 1
        return found

    def _deliver(self, step: BatchStep) -> None:
        columns = zip(
            step.keys.tolist(),
            step.ids.tolist(),
            step.logprobs.tolist(),
            step.entropies.tolist(),
            step.forced.tolist(),
            step.endings.tolist(),
            step.broken.tolist(),
            strict=True,
        )
        tops = None if step.top is None else (step.top[0].tolist(), step.top[1].tolist())
        for place, (key, token, logprob, entropy, forced, ending, broken) in enumerate(columns):
            ticket = self._tickets.pop(key) if ending or broken else self._tickets[key]
            if broken:
                ticket.fail(non_finite_error())
                continue
            wish = ticket.job.sampling.top_logprobs
            top = (
                ()
                if tops is None or not wish
                else tuple(zip(tops[0][place][:wish], tops[1][place][:wish], strict=True))
            )
            ticket.deliver(SampledToken(token, logprob, entropy, top, forced, TOKEN_ENDINGS[ending]))

    def _fail_all(self, error: Exception) -> None:
        self._batch.clear()
        with self._wake:
            tickets = [*self._tickets.values(), *(self._waiting if self._closing else ())]
            if self._closing:
                self._waiting.clear()
        self._tickets.clear()
        failure = error
        if not isinstance(error, ServerError):
            failure = ServerError(
                f"Sampling failed: {error}",
                "See its cause; later jobs are not affected.",
                status=500,
            )
            failure.__cause__ = error
        for ticket in tickets:
            ticket.fail(failure)


def closed_error() -> ServerError:
    """Return the error of jobs given to a closed engine."""
    return ServerError("The engine is closed.", "Start another one.", status=503)
