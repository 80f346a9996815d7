"""What the runs of one task share: its samples, their cost, and the judges that score candidates."""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias, TypeVar

from breadth.base.errors import ServerError, StrategyError
from breadth.inference.records import Ask, Candidate, Sampling, Spend, Task
from breadth.runtime.journal import Journal, JournalEvent
from breadth.runtime.ledger import Ledger
from breadth.runtime.sampler import Meter, Sampler, SampleRequest

T = TypeVar("T")
JUDGE_PATH = "judge"
"""Path of the samples that judges request."""
MAX_EXTRA_FAILURES = 2
"""A failed sample is replaced until this many more have failed than arrived."""


@dataclass(frozen=True)
class Judgement:
    """A judge's result for one candidate."""

    score: float | None = None
    """Higher is better."""
    feedback: str = ""
    """The reason, in words."""
    solved: bool | None = None
    """Whether the candidate is right, where the judge knows."""


JudgeSampler: TypeAlias = Callable[[Ask], Awaitable[Candidate | None]]
"""Samples one candidate for a judge, charged to the task; None when that failed."""
JudgeFunction: TypeAlias = Callable[[Task, Candidate, JudgeSampler], Awaitable[Judgement]]
"""Judges one candidate of a task; a judge that asks a model samples through the third argument, which charges it."""


@dataclass
class SolveContext:
    """What the runs of one task share: the sampler, the ledger, and the count of samples by outcome."""

    task: Task
    """The task being solved."""
    sampler: Sampler
    """Where samples come from."""
    ledger: Ledger
    """The account they are charged to."""
    judges: Mapping[str, JudgeFunction] = field(default_factory=dict)
    """Judges by name."""
    journal: Journal = field(default_factory=Journal)
    """Records every outcome."""
    arrived: list[Candidate] = field(default_factory=list)
    """Every candidate, delivered or not, in order of arrival."""
    started: int = 0
    """Samples started."""
    failed: int = 0
    """Samples that failed for good."""
    discarded: int = 0
    """Samples cancelled in flight."""
    errors: dict[str, int] = field(default_factory=dict)
    """Reason of a failure -> how often."""
    last_error: ServerError | None = None
    """The latest failure."""
    budget_exhausted: bool = False
    """Whether the budget refused a sample."""
    refused_kinds: set[tuple[str, str]] = field(default_factory=set)
    """Model and purpose of samples that can never succeed, by the server's own reply."""
    pending_replays: int = 0
    """Outcomes recorded by earlier attempts and not replayed yet."""
    judge_events: dict[str, JournalEvent] | None = None
    """Samples of judges in an earlier attempt, by id; None until a judge is asked."""
    judge_counts: Counter[str] = field(default_factory=Counter)
    """Samples of each judge for each candidate."""

    def __post_init__(self) -> None:
        # What earlier attempts used is charged before the first sample, or it could be granted twice.
        recorded = list(self.journal.peek_events(self.task.name))
        for event in recorded:
            self.ledger.settle(None, event.spend, whole=event.candidate is not None)
            self.discarded += event.kind == "discarded"
            self.started += event.kind == "discarded"
        self.pending_replays = sum(event.kind in ("arrived", "failed") for event in recorded)
        if not any(event.kind == "arrived" for event in recorded):  # the server was not there: perhaps it is now
            self.abandon_events(list(self.journal.take_subtree(self.task.name, "")))

    def request_kind(self, ask: Ask) -> tuple[str, str]:
        """Return model and purpose: samples that share both are refused together."""
        return self.task.model if ask.model is None else ask.model, ask.purpose

    @cached_property
    def prompt_tokens(self) -> int:
        """Tokens of the task's own prompt, estimated once for all its samples."""
        return estimate_prompt_tokens(self.task.prompt)

    @cached_property
    def option_tokens(self) -> int:
        """Tokens of the task's further fields, estimated: tools, documents and formats become part of the prompt."""
        return count_bytes(self.task.options) // PROMPT_TOKEN_BYTES

    def is_hopeless(self, ask: Ask) -> bool:
        """Say whether another sample would fail like the last one."""
        return self.request_kind(ask) in self.refused_kinds or self.failed > len(self.arrived) + MAX_EXTRA_FAILURES

    async def sample(self, ask: Ask, draw_id: str, path: str) -> Candidate | None:
        """Sample one candidate within the budget; None when it failed or the budget is exhausted.

        Every outcome is charged and recorded.
        """
        sampling = ask.sampling or self.task.sampling
        prompt = self.task.prompt if ask.prompt is None else ask.prompt
        if self.request_kind(ask) in self.refused_kinds:
            return None
        known = ask.prompt is None and not ask.prefix
        tokens = self.option_tokens + (self.prompt_tokens if known else estimate_prompt_tokens(prompt, ask.prefix))
        cap = sampling.max_tokens if path == JUDGE_PATH else min(sampling.max_tokens, self.task.sampling.max_tokens)
        reservation = await self.ledger.reserve(tokens, cap)
        if reservation is None:
            self.budget_exhausted = True
            return None
        self.started += 1
        meter, started_at = Meter(), time.monotonic()
        request = SampleRequest(
            prompt,
            replace(sampling, max_tokens=reservation.output_tokens),
            ask.prefix,
            self.request_kind(ask)[0],
            self.task.halt if ask.halt is None else ask.halt,
            sample_seed(self.task, draw_id),
            self.task.options,
            self.ledger.time_left,
        )
        outcome: Candidate | ServerError | None = None
        try:
            outcome = await self.sampler.sample(request, meter)
        except ServerError as error:
            outcome = error.with_traceback(None)  # it would hold this frame, which holds it
        finally:
            seconds = time.monotonic() - started_at
            used = Spend(max(meter.calls, 1), meter.prompt_tokens, meter.cached_tokens, meter.tokens, seconds)
            whole = isinstance(outcome, Candidate) and outcome.finish != "halt"
            used = self.ledger.settle(reservation, used, whole=whole)
            if outcome is None:
                self.discarded += 1
                self.journal.append(JournalEvent(self.task.name, path, draw_id, "discarded", used))
        return self.record_outcome(outcome, request, ask, JournalEvent(self.task.name, path, draw_id, "arrived", used))

    def record_outcome(
        self, outcome: Candidate | ServerError, request: SampleRequest, ask: Ask, event: JournalEvent
    ) -> Candidate | None:
        """Record the outcome of a sample and count it; a completion becomes a candidate with its answer read."""
        if isinstance(outcome, ServerError):
            self.journal.append(replace(event, kind="failed", reason=outcome.problem, fatal=outcome.fatal))
            self.count_failure(outcome, ask)
            return None
        text = clean_surrogates(outcome.text)
        answer, key = self.task.reading.read_with_key(
            request.prefix + text, ended=outcome.finish in ("stop", "tool_calls")
        )
        candidate = replace(
            outcome,
            text=text,
            reasoning=clean_surrogates(outcome.reasoning),
            answer=answer,
            key=key,
            prefix=request.prefix,
            seed=request.seed,
            draw_id=event.draw_id,
            independent=ask.independent,
            seconds=event.spend.seconds,
        )
        self.journal.append(replace(event, candidate=candidate))
        if event.path != JUDGE_PATH:
            self.arrived.append(candidate)
        return candidate

    def count_failure(self, error: ServerError, ask: Ask | None = None) -> None:
        """Count a failed sample; where it can never succeed, others of its kind are not tried."""
        if error.fatal and ask is not None:
            self.refused_kinds.add(self.request_kind(ask))
        self.failed += 1
        self.errors[error.problem] = self.errors.get(error.problem, 0) + 1
        self.last_error = error

    def replay_event(self, event: JournalEvent, ask: Ask | None = None) -> Candidate | None:
        """Use a recorded outcome as if it had just arrived: counted, but neither recorded nor charged again."""
        self.started += 1
        self.pending_replays -= 1
        if event.candidate is None:
            self.count_failure(ServerError(event.reason, "It failed in an earlier attempt.", fatal=event.fatal), ask)
            return None
        if event.path != JUDGE_PATH:
            self.arrived.append(event.candidate)
        return event.candidate

    def discard_events(self, events: Iterable[JournalEvent]) -> None:
        """Count recorded outcomes that no run will be sent."""
        for event in events:
            if event.kind in ("arrived", "failed"):
                self.replay_event(event)

    def finish(self) -> None:
        """Count what earlier attempts recorded and no run has requested."""
        self.discard_events([*self.journal.take_subtree(self.task.name, ""), *(self.judge_events or {}).values()])

    def abandon_events(self, events: Iterable[JournalEvent]) -> None:
        """Discard recorded outcomes for good: new samples replace them."""
        for event in events:
            self.discard_events([event])
            if event.kind != "discarded":
                self.journal.append(JournalEvent(event.task, event.path, event.draw_id, "abandoned"))

    async def judge(self, candidate: Candidate, by: str) -> Candidate:
        """Let a judge score one candidate; a judge that fails leaves it unchanged and counts as a failed sample."""
        if by not in self.judges:
            raise StrategyError(
                f"Candidates need the judge '{by}', but there is no such judge.",
                "Give the driver one under that name.",
            )
        name = f"{candidate.draw_id}:{by}"

        async def ask(request: Ask) -> Candidate | None:
            draw_id = f"{name}:{self.judge_counts[name]}"
            self.judge_counts[name] += 1
            if self.judge_events is None:
                self.judge_events = {
                    event.draw_id: event
                    for event in self.journal.take_events(self.task.name, JUDGE_PATH)
                    if event.kind != "discarded"
                }
            known = self.judge_events.pop(draw_id, None)
            return (
                await self.sample(request, draw_id, JUDGE_PATH) if known is None else self.replay_event(known, request)
            )

        try:
            async with asyncio.timeout(self.ledger.time_left):
                verdict = await self.judges[by](self.task, candidate, ask)
        except TimeoutError:  # the deadline, or the judge's own limit
            self.budget_exhausted = self.budget_exhausted or self.ledger.is_out_of_time
            return candidate
        except ServerError as error:
            self.count_failure(error)
            return candidate
        return replace(candidate, score=verdict.score, feedback=verdict.feedback, solved=verdict.solved)


def clean_surrogates(text: str) -> str:
    """Replace lone surrogates (halves of characters), which no file can hold, by question marks."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def new_trace_id() -> str:
    """Return a fresh id for one solve."""
    return uuid.uuid4().hex[:16]


def sample_seed(task: Task, draw_id: str) -> int:
    """Return the seed of one sample: a positive 31-bit hash of the task's seed, its name and the draw id."""
    digest = hashlib.blake2b(
        f"{task.seed}\0{task.name}\0{draw_id}".encode("utf-8", "surrogatepass"), digest_size=4
    ).digest()
    return int.from_bytes(digest, "big") >> 1


PROMPT_TOKEN_BYTES = 3
"""Bytes of text that are counted as a token before a server has counted; most texts have four or more."""
MAX_MEDIA_BYTES = 4096 * PROMPT_TOKEN_BYTES
"""Bytes counted of a picture, a sound or a file at most: how many tokens it becomes is the model's choice."""
MEDIA_FIELDS = frozenset({"url", "data", "file_data"})
"""Fields of a message's parts that hold one, or its address."""
_NUMBERS = frozenset({int, float, bool, type(None)})
"""What may stand among token ids."""


def count_bytes(value: Any) -> int:
    """Return the bytes of every text in a value, names of fields included; a number in a list counts as a token id."""
    if isinstance(value, str):
        return len(value.encode("utf-8", "replace"))
    if isinstance(value, Mapping):
        return sum(
            len(name) + (min(count_bytes(part), MAX_MEDIA_BYTES) if name in MEDIA_FIELDS else count_bytes(part))
            for name, part in value.items()
        )
    if isinstance(value, (list, tuple)):
        if set(map(type, value)) <= _NUMBERS:  # there can be millions of them
            return PROMPT_TOKEN_BYTES * len(value)
        return sum(PROMPT_TOKEN_BYTES if type(part) in _NUMBERS else count_bytes(part) for part in value)
    return 0


def estimate_prompt_tokens(prompt: Any, prefix: str = "") -> int:
    """Return a generous estimate of a prompt's tokens: one per three bytes, and some for each message's frame.

    The prompt is a chat, a text, or a list of texts or token ids. Every field of a message counts, not its content
    alone: a template may show the model names, thinking and tool calls.
    """
    if not isinstance(prompt, tuple):
        return (count_bytes(prompt) + count_bytes(prefix)) // PROMPT_TOKEN_BYTES + 1
    fields = (value for message in prompt for name, value in message.items() if name != "role")
    return (sum(map(count_bytes, fields)) + count_bytes(prefix)) // PROMPT_TOKEN_BYTES + 8 * (len(prompt) + 1)


async def gather_or_cancel(coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run coroutines in parallel; when one raises, or we are cancelled, the others are cancelled and awaited."""
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
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

Say briefly what is wrong, if anything. Then end with one line: Score: N, where N is a whole number from 0 \
(certainly wrong) to 10 (certainly right)."""
_SCORE_LINE = re.compile(r"score\W{0,10}(\d{1,2}(?:\.\d+)?)", re.IGNORECASE)
MAX_SOLUTION_CHARACTERS = 8000
"""Characters of a solution that a judge sees, from its end: that is where the answer is."""


@dataclass(frozen=True)
class ModelJudge:
    """Asks a model for a score from 0 to 10, greedily, and charges the cost to the task.

    Harm: a model overrates its own mistakes, a small one hardly discriminates, and a solution may contain text aimed
    at the judge. Where a program can check the answer, give the driver a judge that does.
    """

    model: str | None = None
    """Model to ask; None for the task's own."""
    max_tokens: int = 256
    """Most tokens of a judgement."""

    async def __call__(self, task: Task, candidate: Candidate, sample: JudgeSampler) -> Judgement:
        """Return the score as a share of 10; no score when none could be read."""
        question = JUDGE_PROMPT.format(question=task.question, solution=candidate.full_text[-MAX_SOLUTION_CHARACTERS:])
        sampling = Sampling(temperature=0.0, top_p=1.0, max_tokens=self.max_tokens)
        prompt = ({"role": "user", "content": question},)
        reply = await sample(
            Ask(prompt=prompt, model=self.model, sampling=sampling, independent=False, purpose="judgement")
        )
        if reply is None:
            return Judgement()
        scores = _SCORE_LINE.findall(reply.text)
        value = float(scores[-1]) / 10 if scores else None
        return Judgement(value if value is not None and value <= 1 else None, reply.text.strip())
