"""What a strategy is, and a driver without a server: every sample arrives at once, in the order of the requests."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

from breadth.base.catalogue import Catalogue, Paper
from breadth.base.settings import from_table
from breadth.inference.catalogue import STRATEGIES
from breadth.inference.records import Answer, Ask, Candidate, Fork, Judge, Request, Run, Task


class Strategy(ABC):
    """A frozen dataclass whose fields are the settings; calling it on a task gives the run.

    A run does no I/O and all its randomness comes from ``task.seed``. Its generator yields `Ask`, `Fork` or `Judge`, is
    sent the results and returns an `Answer`; when it is sent an empty list it returns the best answer so far.
    """

    catalogue: ClassVar[Catalogue] = STRATEGIES
    paper: ClassVar[Paper | None] = None
    """Where it comes from."""
    example: ClassVar[Mapping[str, Any]] = {}
    """Settings of a small example, as a policy file holds them: a few samples of short replies."""
    needs: ClassVar[frozenset[str]] = frozenset()
    """Requirements: logprobs, confidences, prefix, judge. A sampler or store that lacks one is refused at the start."""

    @classmethod
    def make_example(cls) -> Self:
        """Return the strategy with the settings of its example."""
        made: Self = from_table(cls, cls.example, "the example")
        return made

    def prepare(self) -> None:  # noqa: B027 - most have nothing to prepare
        """Compute in advance what would block an event loop at the first task, such as a stop table. Optional."""

    @abstractmethod
    def __call__(self, task: Task) -> Run:
        """Return the run of this strategy on a task."""


@dataclass
class SyncDriver:
    """Answers the requests of runs by calling functions; keeps requests and candidates."""

    draw: Callable[[Ask, str], Candidate | None]
    """Returns the candidate for a request and a draw id; None when nothing can be sampled."""
    judge: Callable[[Candidate, str], Candidate] | None = None
    """Scores a candidate, given the name of the judge; None leaves candidates unchanged."""
    requests: list[Request] = field(default_factory=list)
    """All requests, in order."""
    drawn: list[Candidate] = field(default_factory=list)
    """All candidates, delivered or not."""
    delivered: list[Candidate] = field(default_factory=list)
    """Candidates that the runs were sent."""

    def run(self, run: Run, path: str = "") -> Answer:
        """Drive a run to its end and return its answer."""
        queue: deque[Candidate] = deque()
        reply: list[Candidate] | list[Answer] | None = None
        for number in itertools.count():
            try:
                request = run.send(reply)
            except StopIteration as end:
                answer: Answer = end.value
                return answer
            self.requests.append(request)
            reply = self.answer_request(request, f"{path}{number}", queue)
        raise AssertionError("unreachable: counting has no end")

    def answer_request(self, request: Request, place: str, queue: deque[Candidate]) -> list[Candidate] | list[Answer]:
        """Return the reply to one request; ``queue`` holds candidates that are not delivered yet."""
        if isinstance(request, Fork):
            return [self.run(part, f"{place}.{branch}/") for branch, part in enumerate(request.runs[: request.wait])]
        if isinstance(request, Judge):
            return [self.judge(candidate, request.by) if self.judge else candidate for candidate in request.candidates]
        for number in range(request.n):
            candidate = self.draw(request, f"{place}.{number}")
            if candidate is not None:
                queue.append(replace(candidate, independent=candidate.independent and request.independent))
                self.drawn.append(queue[-1])
        wanted = len(queue) if request.wait is None else min(request.wait, len(queue))
        sent = [queue.popleft() for _ in range(wanted)]
        self.delivered += sent
        return sent
