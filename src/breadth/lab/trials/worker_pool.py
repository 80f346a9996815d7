"""A pool of worker processes, one thread each, that report events while they work; none outlives its parent."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from types import TracebackType
from typing import Any, Literal

from breadth.base.errors import BreadthError

WORKER_ENVIRONMENT = {
    **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_VERBOSITY": "error",
}
"""Environment of a worker: the cores are shared out by us, and what libraries print has no place in our terminal."""
WORKER_EXIT_SECONDS = 5.0
"""Seconds a worker gets to end before it is killed."""
OnEvent = Callable[[Any], None]
"""Given to every call as its first argument: passes on what happens."""
OnCallEvent = Callable[[int, Any], None]
"""Called with the number of a call and its event."""
MessageKind = Literal["event", "done", "failed"]


@dataclass(frozen=True)
class WorkerCall:
    """Something to be done by a worker."""

    work: Callable[..., Any]
    """A function of a module, not a lambda; its first argument is a `Tell`."""
    arguments: tuple[Any, ...]
    """The others; they and what is returned are pickled."""


class WorkerPool:
    """A few processes, begun when they are needed first; a context manager that ends them."""

    def __init__(self, count: int) -> None:
        self.count = count
        """How many."""
        self._free: list[_Worker] = []
        self._all: list[_Worker] = []

    def run(self, calls: Sequence[WorkerCall], on_event: OnCallEvent) -> list[Any]:
        """Do all calls, as many at once as there are workers, and return what they return, in order.

        What a call raises is raised here, and the others are dropped. A worker that dies raises an error too.
        """
        waiting, busy, results = deque(enumerate(calls)), dict[Connection, tuple[int, _Worker]](), [None] * len(calls)
        while waiting or busy:
            while waiting and len(busy) < self.count:
                place, call = waiting.popleft()
                worker = self._free.pop() if self._free else self._start_worker()
                worker.pipe.send(call)
                busy[worker.pipe] = place, worker
            for pipe in wait(list(busy)):
                place, worker = busy[pipe]  # type: ignore[index]  # what is waited for is what is given
                kind, payload = worker.receive()
                if kind == "event":
                    on_event(place, payload)
                    continue
                if kind == "failed":
                    raise payload
                results[place] = payload
                del busy[worker.pipe]
                self._free.append(worker)
        return results

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._all:
            worker.process.terminate()
        for worker in self._all:
            worker.process.join(WORKER_EXIT_SECONDS)
            worker.process.kill()
            worker.process.join()
        self._all, self._free = [], []

    def _start_worker(self) -> _Worker:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve_calls, args=(theirs,), daemon=True)
        process.start()
        theirs.close()
        worker = _Worker(process, ours)
        self._all.append(worker)
        return worker


@dataclass(frozen=True)
class _Worker:
    process: SpawnProcess
    pipe: Connection

    def receive(self) -> tuple[MessageKind, Any]:
        """Return its next message."""
        try:
            kind, payload = self.pipe.recv()
        except (EOFError, ConnectionError) as error:
            self.process.join(WORKER_EXIT_SECONDS)
            raise BreadthError(
                f"A worker process ended before its work was done (exit status {self.process.exitcode}).",
                "Run the same command again: it resumes. If it was killed, there may be too little memory:"
                " close something.",
            ) from error
        return kind, payload


def _serve_calls(pipe: Connection) -> None:
    """Do calls until there are no more to come."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started us: it ends us in order
    os.environ.update(WORKER_ENVIRONMENT)
    with suppress(EOFError, ConnectionError):  # the parent is gone
        while True:
            call: WorkerCall = pipe.recv()
            try:
                done = call.work(lambda payload: pipe.send(("event", payload)), *call.arguments)
            except (EOFError, ConnectionError):
                raise
            except Exception as error:  # noqa: BLE001 - whatever went wrong is the trial's result, for the parent to tell
                pipe.send(("failed", make_portable(error)))
            else:
                pipe.send(("done", done))


def make_portable(error: Exception) -> Exception:
    """Return an error that survives the way between processes, with where it was raised as a note."""
    trace = "".join(traceback.format_exception(error))
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    except Exception:  # noqa: BLE001 - whatever a parser dislikes is a text
        error = RuntimeError(f"{type(error).__name__}: {error}")
    error.__cause__ = None
    error.add_note(f"In a worker process:\n{trace}")
    return error
