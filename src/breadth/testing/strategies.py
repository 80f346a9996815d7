"""The contract of strategies: drive one by hand, check what every strategy must hold, try it on a scripted model.

``HumpModel`` is that model: its accuracy is a known function of how long it thinks, so a test can see whether the
optimum is found blind.
"""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from breadth.base.errors import SettingsError
from breadth.base.settings import dumps, loads
from breadth.inference.records import Answer, Ask, Candidate, Request, Run, Sampling, Task, text_of
from breadth.inference.strategy import Strategy, SyncDriver
from breadth.runtime.sampler import Meter, SampleRequest
from breadth.testing import expect

MAX_REQUESTS = 20_000
"""Requests after which a run counts as endless."""
TASK = Task(({"role": "user", "content": "What is 6 times 7?"},), "check", sampling=Sampling(max_tokens=64), seed=7)
"""The task a strategy is checked on unless another is given."""

Replies = Callable[[Ask, int], Candidate | None]
"""Returns the candidate for a request and the number of samples drawn before it; None when the sample fails."""


@dataclass(frozen=True)
class DriveResult:
    """What a driven strategy asked for, was sent and answered."""

    answer: Answer
    """What it answered."""
    requests: tuple[Request, ...]
    """What it asked for, in order."""
    drawn: tuple[Candidate, ...]
    """All candidates drawn for it, delivered or not."""
    delivered: tuple[Candidate, ...]
    """The candidates it was sent."""

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
    """Run a strategy on replies from a function or a list, at most ``budget`` samples; each arrives at once."""
    count = 0

    def reply(ask: Ask, number: int) -> Candidate | None:
        if callable(replies):
            return replies(ask, number)
        return replies[number] if number < len(replies) else None

    def draw(ask: Ask, place: str) -> Candidate | None:
        nonlocal count
        if budget is not None and count >= budget:
            return None
        candidate = reply(ask, count)
        count += 1
        return None if candidate is None else replace(candidate, draw_id=place, prefix=ask.prefix)

    driver = SyncDriver(draw, (lambda candidate, _: judge(candidate)) if judge else None)
    answer = driver.run(limit_requests(strategy, task))
    return DriveResult(answer, tuple(driver.requests), tuple(driver.drawn), tuple(driver.delivered))


def check_strategy(
    strategy: Strategy, *, task: Task = TASK, judge: Callable[[Candidate], Candidate] | None = None
) -> None:
    """Hold a strategy to the contract of the family; an AssertionError says what it broke.

    - When the budget runs out, it ends and answers from what has arrived: some candidate, if any answer was readable.
    - The same replies give the same answer.
    - It ends when it gets no replies, empty texts, unreadable answers, or completions truncated at the token limit.
    - It answers when every second sample fails, when log-probs have gaps, and with one token per completion.
    - Without log-probs it works, or its notes say that it does not.
    - Its answer keeps every candidate it was sent, so its cost is complete, and says why it stopped.
    - It and the example of its class survive TOML and pickle.
    """
    try:
        example = type(strategy).make_example()
    except SettingsError as error:
        raise AssertionError(f"Its class variable 'example' lacks a setting: {error}") from error
    expect(loads(type(strategy), dumps(example)) == example, "Its example does not survive TOML.")
    expect(loads(type(strategy), dumps(strategy)) == strategy, "It does not survive TOML.")
    expect(pickle.loads(pickle.dumps(strategy)) == strategy, "It does not survive pickle.")  # noqa: S301 - our own bytes
    full = drive(strategy, task, answer_reply, judge=judge)
    expect(full.answer.chosen is not None, "It drew candidates with readable answers, and answered none of them.")
    expect(
        drive(strategy, task, answer_reply, judge=judge).answer == full.answer, "The same replies gave another answer."
    )
    count = len(full.drawn)
    for budget in sorted({*range(min(count, 12)), *np.linspace(0, count, 12, dtype=int).tolist()}):
        cut = drive(strategy, task, answer_reply, budget=budget, judge=judge)
        expect(
            (cut.answer.chosen is not None) == (budget > 0),
            f"With a budget of {budget} samples it answered {cut.answer.chosen}.",
        )
        check_keeps_all(cut)
    for kind, replies in HARD_REPLIES.items():
        hard = drive(strategy, task, replies, judge=judge)
        expect(hard.answer.key is None, f"It voted on {kind}.")
        check_keeps_all(hard)
    for kind, replies in POOR_REPLIES.items():
        expect(
            drive(strategy, task, replies, judge=judge).answer.chosen is not None, f"It answered nothing with {kind}."
        )
    tiny = replace(task, sampling=replace(task.sampling, max_tokens=1))
    expect(
        drive(strategy, tiny, answer_reply, judge=judge).answer.chosen is not None,
        "It answered nothing with one token per completion.",
    )
    bare = drive(strategy, task, reply_without_logprobs, judge=judge).answer
    expect(bare.chosen is not None, "Without log-probs it answered nothing.")
    if strategy.needs & {"logprobs", "confidences"}:
        expect(bool(bare.notes), "It needs log-probs, had none, and does not say so.")
    expect(full.answer.stopped, "Its answer does not say why it stopped: set 'stopped'.")


def check_keeps_all(driven: DriveResult) -> None:
    """Check that an answer keeps exactly the candidates that the strategy was sent."""
    kept, sent = ({candidate.draw_id for candidate in some} for some in (driven.answer.candidates, driven.delivered))
    expect(kept <= sent, "It keeps candidates that were never drawn.")
    expect(
        sent <= kept,
        f"It keeps {len(kept & sent)} of the {len(sent)} candidates it was sent: its cost is not complete.",
    )


def limit_requests(strategy: Strategy, task: Task) -> Run:
    """Run a strategy; AssertionError if it makes more than ``MAX_REQUESTS`` requests."""
    run = strategy(task)
    sent = None
    for _ in range(MAX_REQUESTS):
        try:
            sent = yield run.send(sent)
        except StopIteration as end:
            answer: Answer = end.value
            return answer
    raise AssertionError(f"It asked {MAX_REQUESTS:,} times and did not end.")


def answer_reply(ask: Ask, number: int) -> Candidate:
    """Return answers of which 42 is the most common, with texts, lengths and confidences that differ."""
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


def reply_without_logprobs(ask: Ask, number: int) -> Candidate:
    """Return a varied reply without log-probs."""
    return replace(answer_reply(ask, number), logprobs=None, confidences=None)


def reply_with_gaps(ask: Ask, number: int) -> Candidate:
    """Return a varied reply in which every third log-prob is missing."""
    drawn = answer_reply(ask, number)
    if drawn.logprobs is None or drawn.confidences is None:
        return drawn
    gap = np.where(np.arange(len(drawn.logprobs)) % 3 == 1, np.nan, 0).astype(np.float32)
    return replace(drawn, logprobs=drawn.logprobs + gap, confidences=drawn.confidences + gap)


def every_second_reply(ask: Ask, number: int) -> Candidate | None:
    """Fail every second sample."""
    return None if number % 2 else answer_reply(ask, number)


def no_reply(ask: Ask, number: int) -> None:
    """Fail every sample."""
    del ask, number


def empty_reply(ask: Ask, number: int) -> Candidate:
    """Return an empty text."""
    del ask, number
    return Candidate("", tokens=0, prompt_tokens=10)


def unreadable_reply(ask: Ask, number: int) -> Candidate:
    """Return a text without an answer."""
    return replace(answer_reply(ask, number), text="I could not say.", answer=None, key=None)


def truncated_reply(ask: Ask, number: int) -> Candidate:
    """Return a text truncated at the token limit."""
    cap = (ask.sampling or TASK.sampling).max_tokens
    return replace(answer_reply(ask, number), text="and so on and", answer=None, key=None, finish="length", tokens=cap)


HARD_REPLIES: dict[str, Replies] = {
    "no reply at all": no_reply,
    "empty texts": empty_reply,
    "texts without an answer": unreadable_reply,
    "completions truncated at the token limit": truncated_reply,
}
"""Replies on which a strategy must end without an answer."""
POOR_REPLIES: dict[str, Replies] = {
    "every second sample failing": every_second_reply,
    "gaps in the log-probs": reply_with_gaps,
}
"""Replies from which a strategy must still answer."""


THINKING_WORD = "hmm "
"""One token of thinking."""
ANSWER_CUE = "Final Answer:"
"""The end of a prefix that cuts thinking off and asks for the answer."""
HUMP_ANSWER_TOKENS = 4


@dataclass
class HumpModel:
    """A sampler that thinks word by word and is right with a probability that you choose.

    It thinks ``natural_length`` words and then states its answer. Asked to continue it thinks as long again; cut off,
    it answers at once. The length of its thinking is counted in the text before the answer, so forced thinking gets the
    accuracy of that length.
    """

    accuracy: Callable[[int], float]
    """Words of thinking -> probability that an answer is right."""
    truths: Mapping[str, str]
    """Question -> right answer."""
    natural_length: int = 32
    """Words it thinks by itself."""
    common_error_share: float = 1.0
    """Share of wrong answers that agree: at 1 voting cannot help where most are wrong, 0 spreads them."""
    confidence_gap: float = 0.0
    """Mean confidence of right answers minus that of wrong ones (standard deviation 1), if log-probs are requested."""
    offers: frozenset[str] = frozenset({"prefix", "seed", "confidences", "logprobs"})
    """What it can do."""
    limit: int | None = None
    """Samples after which it hangs, as if the process were about to be killed; None for no limit."""
    drawn: list[SampleRequest] = field(default_factory=list)
    """All requests it got."""

    async def sample(self, request: SampleRequest, meter: Meter) -> Candidate:
        """Think, and answer if the token limit allows."""
        meter.calls += 1
        if self.limit is not None and len(self.drawn) >= self.limit:
            await asyncio.Event().wait()
        self.drawn.append(request)
        rng = np.random.default_rng(request.seed)
        words = 0 if request.prefix.endswith(ANSWER_CUE) else self.natural_length
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
        lead = " " if draw.prefix.endswith(ANSWER_CUE) else "The answer is "
        if rng.random() < self.accuracy(thought):
            return f"{lead}{truth}."
        wrong = 1 if rng.random() < self.common_error_share else int(rng.integers(2, 1000))
        return f"{lead}{int(truth) + wrong}."

    def _confidences(
        self, draw: SampleRequest, rng: np.random.Generator, text: str
    ) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
        right = text.endswith(f" {self.truths[_question(draw)]}.")
        return np.array([10 + rng.normal() + self.confidence_gap * right], dtype=np.float32)


def _question(draw: SampleRequest) -> str:
    if isinstance(draw.prompt, str):
        return draw.prompt
    return text_of(draw.prompt[-1].get("content"))
