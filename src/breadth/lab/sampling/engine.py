"""The reasoner at work in a thread of its own: completions asked for by anyone, at any time, drawn together, told token by token."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from breadth.base.checks import require
from breadth.base.errors import ServerError
from breadth.lab.model.reasoner import Reasoner
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
    """Which."""
    logprob: float
    """Raw: before temperature and cuts."""
    entropy: float
    """Of the raw distribution, in nats."""
    top: tuple[tuple[int, float], ...]
    """The likeliest tokens with their log-probs, likeliest first, as many as were asked for."""
    forced: bool = False
    """Imposed by a budget, not drawn."""
    last: TokenEnding = ""
    """Why the completion ends with this token, if it does; with ``stop`` the token is the end of the reply."""


@dataclass(eq=False)
class Ticket:
    """A job that was handed in."""

    job: CompletionJob
    """What is drawn."""
    on_token: Callable[[SampledToken], None] = field(repr=False)
    """Told of every token."""
    on_failure: Callable[[Exception], None] = field(repr=False)
    """Told when there will be no more, though there should be."""
    open: bool = True
    """Whether somebody still listens."""
    lock: threading.RLock = field(default_factory=threading.RLock, repr=False)
    """Held while the listener is told something."""

    def cancel(self) -> None:
        """Draw no further.

        Once this returns, nothing more is heard of the job; may be called from any thread, and from ``heard``.
        """
        with self.lock:
            self.open = False

    def deliver(self, token: SampledToken) -> None:
        """Hand a token on. A listener that breaks is told so, and of nothing more."""
        with self.lock:
            if not self.open:
                return
            self.open = not token.last
            try:
                self.on_token(token)
            except Exception as error:  # noqa: BLE001 - whatever went wrong is the trial's result, for the parent to tell
                self.open = True
                self.fail(error)

    def fail(self, error: Exception) -> None:
        """Say that there will be no more."""
        with self.lock:
            if self.open:
                self.open = False
                with suppress(Exception):
                    self.on_failure(error)


class Engine:
    """Draws completions of one reasoner in a thread of its own, all that are open together, with continuous batching.

    What a job draws depends on the job alone, not on what else is drawn. Weights are those the model has when the
    engine is made.
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
        """Hand a job in.

        Both callbacks are called in the engine's thread, which they hold up; nothing is called once it is cancelled.

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
                except Exception as error:  # noqa: BLE001 - whatever went wrong is the trial's result, for the parent to tell
                    self._fail_all(error)
        self._fail_all(closed_error())

    def _wait_for_work(self) -> bool:
        """Wait for work; False when the engine is closing."""
        with self._wake:
            self._wake.wait_for(lambda: self._closing or self._waiting or self._tickets)
            return not self._closing

    def _advance(self) -> None:
        """Let the cancelled leave and the waiting join, then draw a token for each and tell of it."""
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
        """Take those out of the queue that join now, each under a new key."""
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
                f"Drawing broke: {error}",
                "Look at what caused it; the jobs behind it are drawn all the same.",
                status=500,
            )
            failure.__cause__ = error
        for ticket in tickets:
            ticket.fail(failure)


def closed_error() -> ServerError:
    return ServerError("The engine is closed.", "Start another one.", status=503)
