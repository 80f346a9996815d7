"""What the runs of one task share: its draws, their cost, and the judges that score candidates."""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, TypeVar

from breadth.base.errors import ServerError, StrategyError
from breadth.inference.budget import Spend
from breadth.inference.records import Ask, Candidate, Sampling, Task, text_of
from breadth.runtime.journal import Event, Journal
from breadth.runtime.ledger import Ledger
from breadth.runtime.sampler import Draw, Meter, Sampler

T = TypeVar("T")
JUDGES = "judge"
"""Path of the draws that judges make."""
PATIENCE = 2
"""A failed draw is replaced as long as no more than this many more have failed than arrived."""


@dataclass(frozen=True)
class Verdict:
    """What a judge says about one candidate."""

    score: float | None = None
    """Higher is better."""
    feedback: str = ""
    """Why, in words."""
    solved: bool | None = None
    """Whether it is right, where the judge can tell."""


Drawing: TypeAlias = Callable[[Ask], Awaitable[Candidate | None]]
"""Draws one candidate for a judge, charged to the task; None when that failed."""
JudgeOf: TypeAlias = Callable[[Task, Candidate, Drawing], Awaitable[Verdict]]
"""Judges one candidate of a task; a judge that asks a model draws through the third argument, so that it is charged."""


@dataclass
class Solving:
    """What the runs of one task share: where draws come from, the account they are charged to, and the count of what became of them."""

    task: Task
    """What is being solved."""
    sampler: Sampler
    """Where draws come from."""
    ledger: Ledger
    """What they are charged to."""
    judges: Mapping[str, JudgeOf] = field(default_factory=dict)
    """Judges by name."""
    journal: Journal = field(default_factory=Journal)
    """Where what comes back is written down."""
    arrived: list[Candidate] = field(default_factory=list)
    """Every candidate, delivered or not, in order of arrival."""
    started: int = 0
    """Draws begun."""
    failed: int = 0
    """Draws that failed for good."""
    discarded: int = 0
    """Draws cancelled in flight."""
    errors: dict[str, int] = field(default_factory=dict)
    """Why draws failed -> how often."""
    last_error: ServerError | None = None
    """The latest failure."""
    spent: bool = False
    """Whether the budget refused a draw."""
    refused: set[tuple[str, str]] = field(default_factory=set)
    """Model and purpose of the draws of which the server said that none can succeed."""
    to_come: int = 0
    """Outcomes recorded by earlier attempts and not taken up yet."""
    judged: dict[str, Event] | None = None
    """What judges drew in an earlier attempt, by place; None until a judge is asked."""
    judgements: Counter[str] = field(default_factory=Counter)
    """Draws of each judge for each candidate."""

    def __post_init__(self) -> None:
        # All that earlier attempts used is charged before the first draw, else a draw could be granted what is gone
        # already.
        recorded = list(self.journal.of(self.task.name))
        for event in recorded:
            self.ledger.settle(None, event.spend, whole=event.candidate is not None)
            self.discarded += event.kind == "discarded"
            self.started += event.kind == "discarded"
        self.to_come = sum(event.kind in ("arrived", "failed") for event in recorded)
        if not any(event.kind == "arrived" for event in recorded):  # the server was not there: perhaps it is now
            self.abandon(list(self.journal.below(self.task.name, "")))

    def kind(self, ask: Ask) -> tuple[str, str]:
        """Return what draws have in common that the server refuses together: the model, and what they are for."""
        return self.task.model if ask.model is None else ask.model, ask.purpose

    def hopeless(self, ask: Ask) -> bool:
        """Say whether another draw would fail like the last one."""
        return self.kind(ask) in self.refused or self.failed > len(self.arrived) + PATIENCE

    async def draw(self, ask: Ask, place: str, path: str) -> Candidate | None:
        """Draw one candidate within the budget; None when it failed or the budget is spent.

        All is charged and written down.
        """
        sampling = ask.sampling or self.task.sampling
        prompt = self.task.prompt if ask.prompt is None else ask.prompt
        if self.kind(ask) in self.refused:
            return None
        reservation = await self.ledger.reserve(likely_tokens(prompt, ask.prefix), sampling.max_tokens)
        if reservation is None:
            self.spent = True
            return None
        self.started += 1
        meter, begun = Meter(), time.monotonic()
        draw = Draw(
            prompt,
            replace(sampling, max_tokens=reservation.output_tokens),
            ask.prefix,
            self.kind(ask)[0],
            self.task.halt if ask.halt is None else ask.halt,
            draw_seed(self.task, place),
            self.task.options,
            self.ledger.time_left,
        )
        outcome: Candidate | ServerError | None = None
        try:
            outcome = await self.sampler.draw(draw, meter)
        except ServerError as error:
            outcome = error
        finally:
            seconds = time.monotonic() - begun
            used = Spend(max(meter.calls, 1), meter.prompt_tokens, meter.cached_tokens, meter.tokens, seconds)
            whole = isinstance(outcome, Candidate) and outcome.finish != "halt"
            used = self.ledger.settle(reservation, used, whole=whole)
            if outcome is None:
                self.discarded += 1
                self.journal.append(Event(self.task.name, path, place, "discarded", used))
        return self._end(outcome, draw, ask, Event(self.task.name, path, place, "arrived", used))

    def _end(self, outcome: Candidate | ServerError, draw: Draw, ask: Ask, event: Event) -> Candidate | None:
        if isinstance(outcome, ServerError):
            self.journal.append(replace(event, kind="failed", reason=outcome.problem, fatal=outcome.fatal))
            self.fail(outcome, ask)
            return None
        text = whole_text(outcome.text)
        answer, key = self.task.reading.read_with_key(
            draw.prefix + text, ended=outcome.finish in ("stop", "tool_calls")
        )
        candidate = replace(
            outcome,
            text=text,
            reasoning=whole_text(outcome.reasoning),
            answer=answer,
            key=key,
            prefix=draw.prefix,
            seed=draw.seed,
            place=event.place,
            independent=ask.independent,
            seconds=event.spend.seconds,
        )
        self.journal.append(replace(event, candidate=candidate))
        if event.path != JUDGES:
            self.arrived.append(candidate)
        return candidate

    def fail(self, error: ServerError, ask: Ask | None = None) -> None:
        """Count a failed draw; where the server says that it can never succeed, others of its kind are not tried."""
        if error.fatal and ask is not None:
            self.refused.add(self.kind(ask))
        self.failed += 1
        self.errors[error.problem] = self.errors.get(error.problem, 0) + 1
        self.last_error = error

    def take_up(self, event: Event, ask: Ask | None = None) -> Candidate | None:
        """Take a recorded outcome as if it had just come: counted, not written down again, and charged already."""
        self.started += 1
        self.to_come -= 1
        if event.candidate is None:
            self.fail(ServerError(event.reason, "It failed in an earlier attempt.", fatal=event.fatal), ask)
            return None
        if event.path != JUDGES:
            self.arrived.append(event.candidate)
        return event.candidate

    def write_off(self, events: Iterable[Event]) -> None:
        """Count recorded outcomes that nobody will be sent."""
        for event in events:
            if event.kind in ("arrived", "failed"):
                self.take_up(event)

    def finish(self) -> None:
        """Count what earlier attempts recorded and nobody has asked for."""
        self.write_off([*self.journal.below(self.task.name, ""), *(self.judged or {}).values()])

    def abandon(self, events: Iterable[Event]) -> None:
        """Write recorded outcomes off for good: what is drawn now takes their place."""
        for event in events:
            self.write_off([event])
            if event.kind != "discarded":
                self.journal.append(Event(event.task, event.path, event.place, "abandoned"))

    async def judge(self, candidate: Candidate, by: str) -> Candidate:
        """Have one candidate judged; a judge that fails leaves it as it was, and counts as a failed draw."""
        if by not in self.judges:
            raise StrategyError(
                f"Candidates are to be judged by '{by}', but there is no such judge.",
                "Give the driver one under that name.",
            )
        name = f"{candidate.place}:{by}"

        async def ask(request: Ask) -> Candidate | None:
            place = f"{name}:{self.judgements[name]}"
            self.judgements[name] += 1
            if self.judged is None:
                self.judged = {
                    event.place: event
                    for event in self.journal.events(self.task.name, JUDGES)
                    if event.kind != "discarded"
                }
            known = self.judged.pop(place, None)
            return await self.draw(request, place, JUDGES) if known is None else self.take_up(known, request)

        try:
            async with asyncio.timeout(self.ledger.time_left):
                verdict = await self.judges[by](self.task, candidate, ask)
        except TimeoutError:  # the deadline, or a limit of the judge's own
            left = self.ledger.time_left
            self.spent = self.spent or (left is not None and left <= 0)
            return candidate
        except ServerError as error:
            self.fail(error)
            return candidate
        return replace(candidate, score=verdict.score, feedback=verdict.feedback, solved=verdict.solved)


def whole_text(text: str) -> str:
    """Return text without halves of characters (lone surrogates), which no file can hold: each becomes a question mark."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def trace_id() -> str:
    """Return a fresh id for one solve."""
    return uuid.uuid4().hex[:16]


def draw_seed(task: Task, place: str) -> int:
    """Return the seed of one draw: a hash of the task's seed, its name and the draw's place, positive and of 31 bits."""
    digest = hashlib.blake2b(
        f"{task.seed}\0{task.name}\0{place}".encode("utf-8", "surrogatepass"), digest_size=4
    ).digest()
    return int.from_bytes(digest, "big") >> 1


def likely_tokens(prompt: str | tuple[Mapping[str, object], ...], prefix: str) -> int:
    """Return a generous guess of a prompt's tokens, for the reservation: one for three bytes, and some for each message's frame."""
    if isinstance(prompt, str):
        return (len(prompt.encode("utf-8", "replace")) + len(prefix)) // 3 + 1
    text = sum(len(text_of(message.get("content")).encode("utf-8", "replace")) for message in prompt)
    return (text + len(prefix)) // 3 + 8 * (len(prompt) + 1)


async def together(works: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Do things side by side; when one breaks, or we are cancelled, the others are cancelled and awaited."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        return await asyncio.gather(*tasks)
    finally:
        await cancelled(tasks)


async def cancelled(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait until every one of them has ended."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.gather(*tasks, return_exceptions=True)


ASKED = """Here is a question and a proposed solution. Judge whether the solution is right.

Question:
{question}

Proposed solution:
{solution}

Say briefly what is wrong, if anything. Then end with one line: Score: N, where N is a whole number from 0 (certainly wrong) \
to 10 (certainly right)."""
_SCORE = re.compile(r"score\W{0,10}(\d{1,2}(?:\.\d+)?)", re.IGNORECASE)
LONGEST = 8000
"""Characters of a solution that a judge is shown, from its end: that is where the answer is."""


@dataclass(frozen=True)
class ModelJudge:
    """Asks a model for a score from 0 to 10, greedily, and charges what that costs to the task.

    Harm: a model judges its own mistakes kindly, a small one judges hardly at all, and a solution may contain words
    that are meant for the judge. Where the answer can be checked by a program, give the driver a judge that does.
    """

    model: str | None = None
    """Model that judges; None for the task's own."""
    max_tokens: int = 256
    """Most tokens of a judgement."""

    async def __call__(self, task: Task, candidate: Candidate, draw: Drawing) -> Verdict:
        """Return the score as a share of 10; no score when none could be read."""
        said = ASKED.format(question=task.question, solution=candidate.whole[-LONGEST:])
        sampling = Sampling(temperature=0.0, top_p=1.0, max_tokens=self.max_tokens)
        prompt = ({"role": "user", "content": said},)
        reply = await draw(
            Ask(prompt=prompt, model=self.model, sampling=sampling, independent=False, purpose="judgement")
        )
        if reply is None:
            return Verdict()
        scores = _SCORE.findall(reply.text)
        value = float(scores[-1]) / 10 if scores else None
        return Verdict(value if value is not None and value <= 1 else None, reply.text.strip())
