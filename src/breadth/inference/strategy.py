"""What a strategy is, how it changes what a run asks, and a driver without a server."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

from breadth.base.catalogue import Catalogue, Paper
from breadth.base.settings import from_table
from breadth.inference.catalogue import STRATEGIES
from breadth.inference.records import Answer, Ask, Candidate, Fork, Judge, Message, Prompt, Request, Run, Task


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


def with_turns(prompt: Prompt, turns: Sequence[tuple[str, str]]) -> Prompt:
    """Return a prompt followed by turns of (reply, user message); a text to continue gets them as text."""
    if isinstance(prompt, str):
        return prompt + "".join(f"{reply}\n\n{message}\n\n" for reply, message in turns)
    added: list[Message] = []
    for reply, message in turns:
        # Servers refuse an empty message.
        added += [{"role": "assistant", "content": reply or "(no reply)"}, {"role": "user", "content": message}]
    return (*prompt, *added)


def with_suffix(prompt: Prompt, suffix: str) -> Prompt:
    """Return a prompt whose last user message ends with the suffix; a text to continue begins with it."""
    if not suffix:
        return prompt
    if isinstance(prompt, str):
        return f"{suffix}\n\n{prompt}"
    last = max((place for place, message in enumerate(prompt) if message.get("role") == "user"), default=None)
    if last is None:
        return (*prompt, {"role": "user", "content": suffix})
    message = {**prompt[last], "content": append_text(prompt[last].get("content"), suffix)}
    return (*prompt[:last], message, *prompt[last + 1 :])


def with_system(prompt: Prompt, system: str) -> Prompt:
    """Return a prompt whose system message ends with, or is, the given line; a text to continue begins with it."""
    if not system:
        return prompt
    if isinstance(prompt, str):
        return f"{system}\n\n{prompt}"
    if prompt and prompt[0].get("role") == "system":
        return ({**prompt[0], "content": append_text(prompt[0].get("content"), system)}, *prompt[1:])
    return ({"role": "system", "content": system}, *prompt)


def append_text(content: Any, text: str) -> Any:
    """Return a message's content, a text or a list of parts, with a text behind it."""
    if isinstance(content, (list, tuple)):
        return [*content, {"type": "text", "text": text}]
    return f"{content}\n\n{text}" if content else text


def rewrite_asks(run: Run, change: Callable[[Ask], Ask]) -> Run:
    """Run a strategy and change every `Ask` of it and of the runs it forks."""
    reply: Any = None
    try:
        while True:
            try:
                request = run.send(reply)
            except StopIteration as end:
                answer: Answer = end.value
                return answer
            if isinstance(request, Ask):
                request = change(request)
            elif isinstance(request, Fork):
                request = replace(request, runs=tuple(rewrite_asks(part, change) for part in request.runs))
            reply = yield request
    finally:
        run.close()


def with_model(run: Run, model: str) -> Run:
    """Run a strategy with another model; requests that name a model keep it, an empty name changes nothing."""
    return rewrite_asks(run, lambda ask: replace(ask, model=model) if ask.model is None else ask) if model else run
