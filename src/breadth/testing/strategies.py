"""The contract of strategies, for authors of their own: drive one by hand, and check what every strategy must hold."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from breadth.base.settings import dumps, loads
from breadth.inference.records import Answer, Ask, Candidate, Request, Run, Sampling, Task, text_of
from breadth.inference.strategy import Strategy
from breadth.inference.sync_driver import SyncDriver
from breadth.runtime.sampler import Meter, SampleRequest

MAX_REQUESTS = 20_000
"""A run that asks more often than this does not end."""
TASK = Task(({"role": "user", "content": "What is 6 times 7?"},), "check", sampling=Sampling(max_tokens=64), seed=7)
"""The task a strategy is checked on unless another is given."""

Replies = Callable[[Ask, int], Candidate | None]
"""Gives the candidate for a draw, told the request and how many draws there were before; None when it fails."""


@dataclass(frozen=True)
class DriveResult:
    """What came of driving a strategy."""

    answer: Answer
    """What it answered."""
    requests: tuple[Request, ...]
    """What it asked for, in order."""
    drawn: tuple[Candidate, ...]
    """Everything drawn for it, delivered or not."""
    delivered: tuple[Candidate, ...]
    """Of that, what it was sent."""

    @property
    def total_tokens(self) -> int:
        """Tokens written for it, delivered or not."""
        return sum(candidate.tokens for candidate in self.drawn)


def drive(
    strategy: Strategy,
    task: Task,
    replies: Replies | Sequence[Candidate],
    *,
    budget: int | None = None,
    judge: Callable[[Candidate], Candidate] | None = None,
) -> DriveResult:
    """Run a strategy on replies from a function or a list, at most ``budget`` draws; every draw arrives at once, in order."""
    count = 0
    given = replies if callable(replies) else _in_order(replies)

    def draw(ask: Ask, place: str) -> Candidate | None:
        nonlocal count
        if budget is not None and count >= budget:
            return None
        candidate = given(ask, count)
        count += 1
        return None if candidate is None else replace(candidate, place=place, prefix=ask.prefix)

    pump = SyncDriver(draw, (lambda candidate, _: judge(candidate)) if judge else None)
    answer = pump.run(_bounded(strategy, task))
    return DriveResult(answer, tuple(pump.requests), tuple(pump.drawn), tuple(pump.delivered))


def check_strategy(
    strategy: Strategy, *, task: Task = TASK, judge: Callable[[Candidate], Candidate] | None = None
) -> None:
    """Hold a strategy to the contract of the family; an AssertionError says what it broke.

    - Whenever the budget dies, it ends, and answers from what has arrived: some candidate once any had a readable
      answer.
    - The same replies give the same answer.
    - It ends on nothing, on empty texts, on answers that cannot be read, on completions cut at their cap.
    - It answers when every second draw fails, when log-probs have gaps, and with one token a completion.
    - Without log-probs it works, or says so in its notes.
    - Its answer keeps every candidate it was sent, so that its cost is whole.
    - It survives TOML and pickle.
    """
    _settings_survive(strategy)
    full = drive(strategy, task, _varied, judge=judge)
    hold(full.answer.chosen is not None, "It drew candidates with readable answers, and answered none of them.")
    hold(drive(strategy, task, _varied, judge=judge).answer == full.answer, "The same replies gave another answer.")
    for budget in _budgets(len(full.drawn)):
        cut = drive(strategy, task, _varied, budget=budget, judge=judge)
        hold(
            (cut.answer.chosen is not None) == (budget > 0),
            f"With a budget of {budget} draws it answered {cut.answer.chosen}.",
        )
        _keeps_all(cut)
    for kind, replies in HARD_REPLIES.items():
        hard = drive(strategy, task, replies, judge=judge)
        hold(hard.answer.key is None, f"It voted on {kind}.")
        _keeps_all(hard)
    for kind, replies in POOR_REPLIES.items():
        hold(drive(strategy, task, replies, judge=judge).answer.chosen is not None, f"It answered nothing with {kind}.")
    tiny = replace(task, sampling=replace(task.sampling, max_tokens=1))
    hold(
        drive(strategy, tiny, _varied, judge=judge).answer.chosen is not None,
        "It answered nothing with one token a completion.",
    )
    bare = drive(strategy, task, _without_logprobs, judge=judge).answer
    hold(bare.chosen is not None, "Without log-probs it answered nothing.")
    if strategy.needs & {"logprobs", "confidences"}:
        hold(bool(bare.notes), "It needs log-probs, had none, and does not say so.")


def hold(held: bool, broken: str) -> None:
    """Raise an AssertionError that says what was broken, also where assertions are switched off."""
    if not held:
        raise AssertionError(broken)


def _keeps_all(driven: DriveResult) -> None:
    kept, sent = ({candidate.draw_id for candidate in some} for some in (driven.answer.candidates, driven.delivered))
    hold(kept <= sent, "It keeps candidates that were never drawn.")
    hold(sent <= kept, f"It keeps {len(kept & sent)} of the {len(sent)} candidates it was sent: its cost is not whole.")


def _settings_survive(strategy: Strategy) -> None:
    hold(loads(type(strategy), dumps(strategy)) == strategy, "It does not survive TOML.")
    hold(pickle.loads(pickle.dumps(strategy)) == strategy, "It does not survive pickle.")


def _bounded(strategy: Strategy, task: Task) -> Run:
    run = strategy(task)
    sent = None
    for _ in range(MAX_REQUESTS):
        try:
            sent = yield run.send(sent)
        except StopIteration as end:
            answer: Answer = end.value
            return answer
    raise AssertionError(f"It asked {MAX_REQUESTS:,} times and did not end.")


def _budgets(draws: int) -> list[int]:
    return sorted({*range(min(draws, 12)), *np.linspace(0, draws, 12, dtype=int).tolist()})


def _in_order(replies: Sequence[Candidate]) -> Replies:
    return lambda _, number: replies[number] if number < len(replies) else None


def _varied(ask: Ask, number: int) -> Candidate:
    """Give answers of which 42 is the commonest, with texts, lengths and confidences that differ."""
    rng = np.random.default_rng(number)
    answer = ("42", "42", "41", "42", "43")[number % 5]
    tokens = int(rng.integers(5, 40))
    cap = (ask.sampling or TASK.sampling).max_tokens
    cut = tokens > cap
    return Candidate(
        f"Step {number}. The answer is {answer}.",
        answer,
        answer,
        finish="length" if cut else "stop",
        prompt_tokens=10,
        tokens=min(tokens, cap),
        logprobs=rng.uniform(-1, -0.01, min(tokens, cap)).astype(np.float32),
        confidences=rng.uniform(1, 20, min(tokens, cap)).astype(np.float32),
    )


def _without_logprobs(ask: Ask, number: int) -> Candidate:
    return replace(_varied(ask, number), logprobs=None, confidences=None)


def _patchy(ask: Ask, number: int) -> Candidate:
    drawn = _varied(ask, number)
    if drawn.logprobs is None or drawn.confidences is None:
        return drawn
    gap = np.where(np.arange(len(drawn.logprobs)) % 3 == 1, np.nan, 0).astype(np.float32)
    return replace(drawn, logprobs=drawn.logprobs + gap, confidences=drawn.confidences + gap)


def _every_second(ask: Ask, number: int) -> Candidate | None:
    return None if number % 2 else _varied(ask, number)


def _nothing(ask: Ask, number: int) -> None:
    del ask, number


def _empty(ask: Ask, number: int) -> Candidate:
    del ask, number
    return Candidate("", tokens=0, prompt_tokens=10)


def _unreadable(ask: Ask, number: int) -> Candidate:
    return replace(_varied(ask, number), text="I could not say.", answer=None, key=None)


def _cut(ask: Ask, number: int) -> Candidate:
    cap = (ask.sampling or TASK.sampling).max_tokens
    return replace(_varied(ask, number), text="and so on and", answer=None, key=None, finish="length", tokens=cap)


HARD_REPLIES: dict[str, Replies] = {
    "no reply at all": _nothing,
    "empty texts": _empty,
    "texts without an answer": _unreadable,
    "completions cut at their cap": _cut,
}
"""What a strategy must end on, without an answer to vote for."""
POOR_REPLIES: dict[str, Replies] = {"every second draw failing": _every_second, "gaps in the log-probs": _patchy}
"""What a strategy must answer from."""


THINKING_WORD = "hmm "
"""What one token of thinking looks like."""
ANSWER_CUE = "Final Answer:"
"""What a prefix ends with when thinking was cut and the answer is wanted."""
HUMP_ANSWER_TOKENS = 4


@dataclass
class HumpModel:
    """A sampler that thinks word by word and is right with a probability that you choose.

    Left alone it thinks ``natural`` words and states its answer; told to go on it thinks as long again; cut, it answers
    at once. How long it has thought is counted in what stands before the answer, so whoever forces its thinking sees
    the accuracy of that length.
    """

    accuracy: Callable[[int], float]
    """Words of thinking -> chance that an answer is right."""
    truths: Mapping[str, str]
    """Question -> right answer."""
    natural: int = 32
    """Words it thinks by itself."""
    misled: float = 1.0
    """Share of wrong answers that are the same one: 1 makes voting useless where it is wrong more often than not, 0
    spreads them.
    """
    surer: float = 0.0
    """How much higher the confidence of right answers is than that of wrong ones, whose standard deviation is 1; only where log-probs are
    asked for."""
    offers: frozenset[str] = frozenset({"prefix", "seed", "confidences", "logprobs"})
    """What it can do."""
    limit: int | None = None
    """Draws after which it hangs, as if the process were about to be killed; None for no limit."""
    drawn: list[SampleRequest] = field(default_factory=list)
    """Everything asked of it."""

    async def sample(self, request: SampleRequest, meter: Meter) -> Candidate:
        """Think, and answer when there is room to."""
        meter.calls += 1
        if self.limit is not None and len(self.drawn) >= self.limit:
            await asyncio.Event().wait()
        self.drawn.append(request)
        rng = np.random.default_rng(request.seed)
        words = 0 if request.prefix.endswith(ANSWER_CUE) else self.natural
        room = request.sampling.max_tokens
        if words + HUMP_ANSWER_TOKENS > room:
            words, text, finish = room, THINKING_WORD * room, "length"
        else:
            text, finish = THINKING_WORD * words + self._answer(request, rng, words), "stop"
        tokens = words + (HUMP_ANSWER_TOKENS if finish == "stop" else 0)
        meter.prompt_tokens, meter.tokens = 10 + request.prefix.count(THINKING_WORD), tokens
        confidences = self._confidences(request, rng, text) if request.sampling.top_logprobs else None
        return Candidate(
            text,
            finish="stop" if finish == "stop" else "length",
            prompt_tokens=meter.prompt_tokens,
            tokens=tokens,
            confidences=confidences,
            logprobs=confidences,
        )

    async def close(self) -> None:
        """Do nothing."""

    def _answer(self, draw: SampleRequest, rng: np.random.Generator, words: int) -> str:
        truth = self.truths[_question(draw)]
        thought = draw.prefix.count(THINKING_WORD) + words
        said = " " if draw.prefix.endswith(ANSWER_CUE) else "The answer is "
        if rng.random() < self.accuracy(thought):
            return f"{said}{truth}."
        wrong = 1 if rng.random() < self.misled else int(rng.integers(2, 1000))
        return f"{said}{int(truth) + wrong}."

    def _confidences(
        self, draw: SampleRequest, rng: np.random.Generator, text: str
    ) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
        right = text.endswith(f" {self.truths[_question(draw)]}.")
        return np.array([10 + rng.normal() + self.surer * right], dtype=np.float32)


def _question(draw: SampleRequest) -> str:
    if isinstance(draw.prompt, str):
        return draw.prompt
    return text_of(draw.prompt[-1].get("content"))
