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
from breadth.runtime.journal import Journal, JournalEvent
from breadth.runtime.ledger import Ledger
from breadth.runtime.sampler import Meter, Sampler, SampleRequest

T = TypeVar("T")
JUDGE_PATH = "judge"
"""Path of the draws that judges make."""
MAX_EXTRA_FAILURES = 2
"""A failed draw is replaced as long as no more than this many more have failed than arrived."""


@dataclass(frozen=True)
class Judgement:
    """What a judge says about one candidate."""

    score: float | None = None
    """Higher is better."""
    feedback: str = ""
    """Why, in words."""
    solved: bool | None = None
    """Whether it is right, where the judge can tell."""


JudgeSampler: TypeAlias = Callable[[Ask], Awaitable[Candidate | None]]
"""Draws one candidate for a judge, charged to the task; None when that failed."""
JudgeFunction: TypeAlias = Callable[[Task, Candidate, JudgeSampler], Awaitable[Judgement]]
"""Judges one candidate of a task; a judge that asks a model draws through the third argument, so that it is charged."""


@dataclass
class SolveContext:
    """What the runs of one task share: where draws come from, the account they are charged to, and the count of what became of them."""

    task: Task
    """What is being solved."""
    sampler: Sampler
    """Where draws come from."""
    ledger: Ledger
    """What they are charged to."""
    judges: Mapping[str, JudgeFunction] = field(default_factory=dict)
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
    budget_exhausted: bool = False
    """Whether the budget refused a draw."""
    refused_kinds: set[tuple[str, str]] = field(default_factory=set)
    """Model and purpose of the draws of which the server said that none can succeed."""
    pending_replays: int = 0
    """Outcomes recorded by earlier attempts and not taken up yet."""
    judge_events: dict[str, JournalEvent] | None = None
    """What judges drew in an earlier attempt, by place; None until a judge is asked."""
    judge_counts: Counter[str] = field(default_factory=Counter)
    """Draws of each judge for each candidate."""

    def __post_init__(self) -> None:
        # All that earlier attempts used is charged before the first draw, else a draw could be granted what is gone
        # already.
        recorded = list(self.journal.pending_events(self.task.name))
        for event in recorded:
            self.ledger.settle(None, event.spend, whole=event.candidate is not None)
            self.discarded += event.kind == "discarded"
            self.started += event.kind == "discarded"
        self.pending_replays = sum(event.kind in ("arrived", "failed") for event in recorded)
        if not any(event.kind == "arrived" for event in recorded):  # the server was not there: perhaps it is now
            self.abandon_events(list(self.journal.take_subtree(self.task.name, "")))

    def request_kind(self, ask: Ask) -> tuple[str, str]:
        """Return what draws have in common that the server refuses together: the model, and what they are for."""
        return self.task.model if ask.model is None else ask.model, ask.purpose

    def is_hopeless(self, ask: Ask) -> bool:
        """Say whether another draw would fail like the last one."""
        return self.request_kind(ask) in self.refused_kinds or self.failed > len(self.arrived) + MAX_EXTRA_FAILURES

    async def sample(self, ask: Ask, place: str, path: str) -> Candidate | None:
        """Draw one candidate within the budget; None when it failed or the budget is spent.

        All is charged and written down.
        """
        sampling = ask.sampling or self.task.sampling
        prompt = self.task.prompt if ask.prompt is None else ask.prompt
        if self.request_kind(ask) in self.refused_kinds:
            return None
        reservation = await self.ledger.reserve(estimate_prompt_tokens(prompt, ask.prefix), sampling.max_tokens)
        if reservation is None:
            self.budget_exhausted = True
            return None
        self.started += 1
        meter, begun = Meter(), time.monotonic()
        draw = SampleRequest(
            prompt,
            replace(sampling, max_tokens=reservation.output_tokens),
            ask.prefix,
            self.request_kind(ask)[0],
            self.task.halt if ask.halt is None else ask.halt,
            sample_seed(self.task, place),
            self.task.options,
            self.ledger.time_left,
        )
        outcome: Candidate | ServerError | None = None
        try:
            outcome = await self.sampler.sample(draw, meter)
        except ServerError as error:
            outcome = error
        finally:
            seconds = time.monotonic() - begun
            used = Spend(max(meter.calls, 1), meter.prompt_tokens, meter.cached_tokens, meter.tokens, seconds)
            whole = isinstance(outcome, Candidate) and outcome.finish != "halt"
            used = self.ledger.settle(reservation, used, whole=whole)
            if outcome is None:
                self.discarded += 1
                self.journal.append(JournalEvent(self.task.name, path, place, "discarded", used))
        return self.record_outcome(outcome, draw, ask, JournalEvent(self.task.name, path, place, "arrived", used))

    def record_outcome(
        self, outcome: Candidate | ServerError, draw: SampleRequest, ask: Ask, event: JournalEvent
    ) -> Candidate | None:
        if isinstance(outcome, ServerError):
            self.journal.append(replace(event, kind="failed", reason=outcome.problem, fatal=outcome.fatal))
            self.count_failure(outcome, ask)
            return None
        text = replace_surrogates(outcome.text)
        answer, key = self.task.reading.read_with_key(
            draw.prefix + text, ended=outcome.finish in ("stop", "tool_calls")
        )
        candidate = replace(
            outcome,
            text=text,
            reasoning=replace_surrogates(outcome.reasoning),
            answer=answer,
            key=key,
            prefix=draw.prefix,
            seed=draw.seed,
            place=event.draw_id,
            independent=ask.independent,
            seconds=event.spend.seconds,
        )
        self.journal.append(replace(event, candidate=candidate))
        if event.path != JUDGE_PATH:
            self.arrived.append(candidate)
        return candidate

    def count_failure(self, error: ServerError, ask: Ask | None = None) -> None:
        """Count a failed draw; where the server says that it can never succeed, others of its kind are not tried."""
        if error.fatal and ask is not None:
            self.refused_kinds.add(self.request_kind(ask))
        self.failed += 1
        self.errors[error.problem] = self.errors.get(error.problem, 0) + 1
        self.last_error = error

    def replay_event(self, event: JournalEvent, ask: Ask | None = None) -> Candidate | None:
        """Take a recorded outcome as if it had just come: counted, not written down again, and charged already."""
        self.started += 1
        self.pending_replays -= 1
        if event.candidate is None:
            self.count_failure(ServerError(event.reason, "It failed in an earlier attempt.", fatal=event.fatal), ask)
            return None
        if event.path != JUDGE_PATH:
            self.arrived.append(event.candidate)
        return event.candidate

    def discard_events(self, events: Iterable[JournalEvent]) -> None:
        """Count recorded outcomes that nobody will be sent."""
        for event in events:
            if event.kind in ("arrived", "failed"):
                self.replay_event(event)

    def finish(self) -> None:
        """Count what earlier attempts recorded and nobody has asked for."""
        self.discard_events([*self.journal.take_subtree(self.task.name, ""), *(self.judge_events or {}).values()])

    def abandon_events(self, events: Iterable[JournalEvent]) -> None:
        """Write recorded outcomes off for good: what is drawn now takes their place."""
        for event in events:
            self.discard_events([event])
            if event.kind != "discarded":
                self.journal.append(JournalEvent(event.task, event.path, event.draw_id, "abandoned"))

    async def judge(self, candidate: Candidate, by: str) -> Candidate:
        """Have one candidate judged; a judge that fails leaves it as it was, and counts as a failed draw."""
        if by not in self.judges:
            raise StrategyError(
                f"Candidates are to be judged by '{by}', but there is no such judge.",
                "Give the driver one under that name.",
            )
        name = f"{candidate.draw_id}:{by}"

        async def ask(request: Ask) -> Candidate | None:
            place = f"{name}:{self.judge_counts[name]}"
            self.judge_counts[name] += 1
            if self.judge_events is None:
                self.judge_events = {
                    event.draw_id: event
                    for event in self.journal.take_events(self.task.name, JUDGE_PATH)
                    if event.kind != "discarded"
                }
            known = self.judge_events.pop(place, None)
            return await self.sample(request, place, JUDGE_PATH) if known is None else self.replay_event(known, request)

        try:
            async with asyncio.timeout(self.ledger.time_left):
                verdict = await self.judges[by](self.task, candidate, ask)
        except TimeoutError:  # the deadline, or a limit of the judge's own
            left = self.ledger.time_left
            self.budget_exhausted = self.budget_exhausted or (left is not None and left <= 0)
            return candidate
        except ServerError as error:
            self.count_failure(error)
            return candidate
        return replace(candidate, score=verdict.score, feedback=verdict.feedback, solved=verdict.solved)


def replace_surrogates(text: str) -> str:
    """Return text without halves of characters (lone surrogates), which no file can hold: each becomes a question mark."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def new_trace_id() -> str:
    """Return a fresh id for one solve."""
    return uuid.uuid4().hex[:16]


def sample_seed(task: Task, place: str) -> int:
    """Return the seed of one draw: a hash of the task's seed, its name and the draw's place, positive and of 31 bits."""
    digest = hashlib.blake2b(
        f"{task.seed}\0{task.name}\0{place}".encode("utf-8", "surrogatepass"), digest_size=4
    ).digest()
    return int.from_bytes(digest, "big") >> 1


def estimate_prompt_tokens(prompt: str | tuple[Mapping[str, object], ...], prefix: str) -> int:
    """Return a generous guess of a prompt's tokens, for the reservation: one for three bytes, and some for each message's frame."""
    if isinstance(prompt, str):
        return (len(prompt.encode("utf-8", "replace")) + len(prefix)) // 3 + 1
    text = sum(len(text_of(message.get("content")).encode("utf-8", "replace")) for message in prompt)
    return (text + len(prefix)) // 3 + 8 * (len(prompt) + 1)


async def gather_or_cancel(works: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Do things side by side; when one breaks, or we are cancelled, the others are cancelled and awaited."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        return await asyncio.gather(*tasks)
    finally:
        await cancel_all(tasks)


async def cancel_all(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait until every one of them has ended."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.gather(*tasks, return_exceptions=True)


JUDGE_PROMPT = """Here is a question and a proposed solution. Judge whether the solution is right.

Question:
{question}

Proposed solution:
{solution}

Say briefly what is wrong, if anything. Then end with one line: Score: N, where N is a whole number from 0 (certainly wrong) \
to 10 (certainly right)."""
_SCORE = re.compile(r"score\W{0,10}(\d{1,2}(?:\.\d+)?)", re.IGNORECASE)
MAX_SOLUTION_CHARACTERS = 8000
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

    async def __call__(self, task: Task, candidate: Candidate, draw: JudgeSampler) -> Judgement:
        """Return the score as a share of 10; no score when none could be read."""
        said = JUDGE_PROMPT.format(question=task.question, solution=candidate.full_text[-MAX_SOLUTION_CHARACTERS:])
        sampling = Sampling(temperature=0.0, top_p=1.0, max_tokens=self.max_tokens)
        prompt = ({"role": "user", "content": said},)
        reply = await draw(
            Ask(prompt=prompt, model=self.model, sampling=sampling, independent=False, purpose="judgement")
        )
        if reply is None:
            return Judgement()
        scores = _SCORE.findall(reply.text)
        value = float(scores[-1]) / 10 if scores else None
        return Judgement(value if value is not None and value <= 1 else None, reply.text.strip())
