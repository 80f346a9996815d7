"""The engine: the same completions in any batch, in order; cancelling, failing callbacks, broken weights, closing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest

from breadth.base.errors import ServerError, SettingsError
from breadth.inference.records import Sampling
from breadth.lab.reasoner import Reasoner, ReasonerShape, build_reasoner
from breadth.lab.sampling.batch import CompletionJob, ThinkingMarks, sample_all
from breadth.lab.sampling.engine import Engine, SampledToken
from breadth.lab.task.teacher import ArithmeticFacts, Teacher

torch = pytest.importorskip("torch", reason="the extra 'train' is not installed")

LONG = Sampling(temperature=0.0, max_tokens=2000)
WAIT = 20.0


@pytest.fixture(scope="module")
def lively(enlivened: Callable[[int, int], Reasoner]) -> Reasoner:
    return enlivened(1, 2048)


@pytest.fixture(scope="module")
def endless() -> Reasoner:
    """A reasoner that goes on for ever: greedily, a constant stream prefers the same word each time."""
    reasoner = build_reasoner(
        Teacher(ArithmeticFacts(prime=7)), ReasonerShape(hidden=32, layers=1, heads=2, inner=32, context=2048)
    )
    with torch.no_grad():
        reasoner.model.model.embed_tokens.weight[:] = 1.0
        reasoner.model.model.embed_tokens.weight[12] = 9.0
    return reasoner


@pytest.fixture
def engine(lively: Reasoner) -> Iterator[Engine]:
    engine = Engine(lively)
    yield engine
    engine.close()


@dataclass
class Ear:
    """Keeps what it hears."""

    tokens: list[SampledToken] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)
    begun: threading.Event = field(default_factory=threading.Event)

    def hear(self, token: SampledToken) -> None:
        self.tokens.append(token)
        self.begun.set()
        if token.last:
            self.over.set()

    def fail(self, error: Exception) -> None:
        self.errors.append(error)
        self.over.set()

    @property
    def ids(self) -> list[int]:
        return [token.id for token in self.tokens]


def jobs(count: int) -> list[CompletionJob]:
    rng = np.random.default_rng(1)
    rules = [
        Sampling(temperature=1.0, top_p=1.0, max_tokens=25),
        Sampling(max_tokens=12),
        Sampling(temperature=0.0, max_tokens=8, top_logprobs=5),
    ]
    return [
        CompletionJob(tuple(rng.integers(4, 20, rng.integers(1, 20)).tolist()), rules[place % 3], seed=place)
        for place in range(count)
    ]


def greedy(tokens: int) -> Sampling:
    return Sampling(temperature=0.0, max_tokens=tokens)


def idle(engine: Engine) -> bool:
    """Wait until nothing is open any more."""
    deadline = time.monotonic() + WAIT
    while engine.open and time.monotonic() < deadline:
        time.sleep(0.002)
    return engine.open == 0


@pytest.mark.parametrize("most", [512, 5])
def test_jobs_that_come_in_waves_from_many_threads_are_drawn_as_if_alone(lively: Reasoner, most: int) -> None:
    # As in the test of sample_all, these are seeds for which no rounding of the company's flips a token.
    asked = jobs(60)
    ears = [Ear() for _ in asked]
    engine = Engine(lively, max_running=most)

    def ask(part: slice) -> None:
        for job, ear in zip(asked[part], ears[part], strict=True):
            engine.submit(job, ear.hear, ear.fail)
            time.sleep(0.001)

    threads = [threading.Thread(target=ask, args=(slice(start, start + 20),)) for start in (0, 20, 40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(ear.over.wait(WAIT) for ear in ears)
    engine.close()
    for ear, drawn in zip(ears, sample_all(lively, asked), strict=True):
        assert ear.ids == drawn.ids.tolist()
        assert [token.logprob for token in ear.tokens] == pytest.approx(drawn.logprobs.tolist(), abs=1e-4)
        assert [token.entropy for token in ear.tokens] == pytest.approx(drawn.entropies.tolist(), abs=1e-4)
        assert [token.last for token in ear.tokens] == [""] * (len(ear.tokens) - 1) + [drawn.finish]
        assert not ear.errors


def test_the_likeliest_are_told_to_those_who_ask(lively: Reasoner, engine: Engine) -> None:
    many, few, none = Ear(), Ear(), Ear()
    for ear, wish in ((many, 99), (few, 3), (none, 0)):
        engine.submit(
            CompletionJob((2, 12), Sampling(temperature=0.0, max_tokens=4, top_logprobs=wish)), ear.hear, ear.fail
        )
    assert all(ear.over.wait(WAIT) for ear in (many, few, none))
    for place, token in enumerate(few.tokens):
        assert token.top == many.tokens[place].top[:3]
        assert token.top[0] == (token.id, token.logprob)  # greedy
    assert sum(np.exp([logprob for _, logprob in many.tokens[0].top])) == pytest.approx(1.0)  # all words there are
    assert len({word for word, _ in many.tokens[0].top}) == len(lively.tokenizer)
    assert all(token.top == () for token in none.tokens)


def test_budgets_are_told_as_forced(lively: Reasoner, engine: Engine) -> None:
    marks, ear = ThinkingMarks.from_tokenizer(lively.tokenizer), Ear()
    engine.submit(
        CompletionJob((2, marks.open), Sampling(temperature=0.0, max_tokens=3, thinking_tokens=0)), ear.hear, ear.fail
    )
    assert ear.over.wait(WAIT)
    assert (ear.tokens[0].id, ear.tokens[0].forced) == (marks.close, True)


def test_a_cancelled_job_is_heard_of_no_more(endless: Reasoner) -> None:
    engine = Engine(endless, max_running=2)
    ears = [Ear() for _ in range(4)]
    tickets = [engine.submit(CompletionJob((2, 12), LONG, seed), ear.hear, ear.fail) for seed, ear in enumerate(ears)]
    assert ears[0].begun.wait(WAIT)
    tickets[2].cancel()  # it waits in the queue
    tickets[0].cancel()
    heard = len(ears[0].tokens)
    assert ears[3].begun.wait(WAIT), "its place is taken by the next in order that is still wanted"
    assert len(ears[0].tokens) == heard
    assert not ears[2].tokens
    for ticket in tickets:
        ticket.cancel()
    assert idle(engine)
    engine.close()
    assert not any(ear.errors for ear in ears)


def test_a_listener_may_cancel_its_own_job(endless: Reasoner) -> None:
    engine = Engine(endless)
    heard: list[int] = []
    ready = threading.Event()

    def hear(token: SampledToken) -> None:
        ready.wait(WAIT)
        heard.append(token.id)
        if len(heard) == 3:
            ticket.cancel()

    ticket = engine.submit(CompletionJob((2, 12), LONG), hear, lambda error: None)
    ready.set()
    assert idle(engine)
    assert len(heard) == 3
    engine.close()


def test_a_broken_listener_takes_down_its_own_job_only(engine: Engine) -> None:
    broken, whole = Ear(), Ear()

    def hear(token: SampledToken) -> None:
        raise ValueError("no")

    engine.submit(CompletionJob((2, 12), greedy(9)), hear, broken.fail)
    engine.submit(CompletionJob((2, 13), greedy(9)), whole.hear, whole.fail)
    assert whole.over.wait(WAIT)
    assert [str(error) for error in broken.errors] == ["no"]
    assert whole.tokens[-1].last

    def worse(error: Exception) -> None:
        raise KeyError

    engine.submit(CompletionJob((2, 12), greedy(9)), hear, worse)
    after = Ear()
    engine.submit(CompletionJob((2, 13), greedy(9)), after.hear, after.fail)
    assert after.over.wait(WAIT)
    assert after.ids == whole.ids


def test_numbers_that_are_not_finite_fail_the_job_and_no_other(engine: Engine) -> None:
    whole, ear, again = Ear(), Ear(), Ear()
    engine.submit(CompletionJob((2, 12), greedy(3)), whole.hear, whole.fail)
    assert whole.over.wait(WAIT)
    bad = next(token for token in range(4, 20) if token not in [2, 12, *whole.ids])
    with torch.inference_mode():
        engine._batch.network.embedding[bad] = float("nan")
    engine.submit(CompletionJob((2, bad), greedy(3)), ear.hear, ear.fail)
    engine.submit(CompletionJob((2, 12), greedy(3)), again.hear, again.fail)
    assert ear.over.wait(WAIT)
    assert again.over.wait(WAIT)
    assert "not finite" in str(ear.errors[0])
    assert (ear.tokens, again.ids) == ([], whole.ids)


def test_a_step_that_breaks_fails_what_is_open_and_the_next_is_drawn(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    ear, after = Ear(), Ear()
    with monkeypatch.context() as patched:
        patched.setattr(engine._batch, "step", lambda: 1 / 0)
        engine.submit(CompletionJob((2, 12), greedy(3)), ear.hear, ear.fail)
        assert ear.over.wait(WAIT)
    assert isinstance(ear.errors[0], ServerError)
    assert isinstance(ear.errors[0].__cause__, ZeroDivisionError)
    engine.submit(CompletionJob((2, 12), greedy(3)), after.hear, after.fail)
    assert after.over.wait(WAIT)
    assert after.tokens


def test_what_cannot_be_drawn_is_refused_at_once(engine: Engine, lively: Reasoner) -> None:
    ear = Ear()
    with pytest.raises(ServerError, match="context holds 2048") as caught:
        engine.submit(CompletionJob((1,) * 2048, LONG), ear.hear, ear.fail)
    assert caught.value.fatal
    with pytest.raises(ServerError, match="penalty"):
        engine.submit(CompletionJob((1,), Sampling(presence_penalty=1.0)), ear.hear, ear.fail)
    with pytest.raises(SettingsError, match="max_running"):
        Engine(lively, max_running=0)


def test_closing_fails_what_is_open(endless: Reasoner) -> None:
    engine = Engine(endless, max_running=1)
    running, waiting = Ear(), Ear()
    engine.submit(CompletionJob((2, 12), LONG), running.hear, running.fail)
    engine.submit(CompletionJob((2, 12), LONG), waiting.hear, waiting.fail)
    assert running.begun.wait(WAIT)
    engine.close()
    engine.close()
    assert ["closed" in str(ear.errors[0]) for ear in (running, waiting)] == [True, True]
    assert engine.open == 0
    with pytest.raises(ServerError, match="closed"):
        engine.submit(CompletionJob((2, 12), LONG), running.hear, running.fail)
    assert not any(thread.name == "breadth-reasoner" and thread is engine._thread for thread in threading.enumerate())
