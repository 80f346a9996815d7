"""The summary of a solve: what scripts and clients read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import orjson
import pytest

from breadth.base.errors import BreadthError, BrokenFileError, ServerError, SettingsError, StrategyError
from breadth.inference.allocation import Allocator, Elimination, Grant, Progress, Round, RoundRobin
from breadth.inference.records import Answer, Ask, Budget, Candidate, Fork, Judge, Prices, Run, Sampling, Task
from breadth.inference.strategies.adaptive_vote import AdaptiveVote
from breadth.inference.strategies.vote import Vote
from breadth.inference.strategy import Strategy
from breadth.inference.voting import Poll, best_scored, majority
from breadth.runtime.driver import Driver, Share, SolveResult, allocate, solve_all, strategy_name, summarize_result
from breadth.runtime.journal import JOURNAL_FILE, Journal
from breadth.runtime.ledger import Ledger
from breadth.runtime.sampler import Meter, SampleRequest
from breadth.runtime.samplers.scripted import ScriptedOutcome, ScriptedSampler
from breadth.runtime.solve_context import Judgement, JudgeSampler
from breadth.testing.fake_server import wait_until

T = TypeVar("T")
TASK = Task(({"role": "user", "content": "6 x 7?"},), sampling=Sampling(max_tokens=20))

UNLIMITED = Budget()


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, 20))


@dataclass
class Source:
    """Writes one token every ``pace`` seconds; what it writes is a function of how many draws there were before."""

    reply: Callable[[int], str | BreadthError] = lambda _: "The answer is 42."
    tokens: Callable[[int], int] = lambda _: 5
    pace: float = 0.0005
    draws: list[SampleRequest] = field(default_factory=list)
    open: int = 0
    most_open: int = 0
    offers: frozenset[str] = frozenset()

    async def sample(self, request: SampleRequest, meter: Meter) -> Candidate:
        number = len(self.draws)
        self.draws.append(request)
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        meter.calls, meter.prompt_tokens = 1, 10
        try:
            for _ in range(min(self.tokens(number), request.sampling.max_tokens)):
                await asyncio.sleep(self.pace)
                meter.tokens += 1
        finally:
            self.open -= 1
        said = self.reply(number)
        if isinstance(said, BreadthError):
            raise said
        cut = self.tokens(number) > request.sampling.max_tokens
        return Candidate(said, finish="length" if cut else "stop", tokens=meter.tokens, prompt_tokens=10)

    async def close(self) -> None:
        """Nothing to let go of."""


@dataclass(frozen=True)
class Asking(Strategy):
    """Sends a fixed list of requests and votes on everything that comes."""

    asks: tuple[tuple[int, int | None], ...] = ((4, None),)
    """Draws and arrivals to wait for, request by request."""

    def __call__(self, task: Task) -> Run:
        poll = Poll(task)
        got = []
        for n, wait in self.asks:
            drawn: list[Candidate] = yield Ask(n, wait=wait)
            got.append(len(drawn))
            poll.add(drawn)
        return replace(majority(poll), figures={f"got {place}": float(count) for place, count in enumerate(got)})


def solved(
    strategy: Strategy, source: Source, *, budget: Budget = UNLIMITED, task: Task = TASK, journal: Journal | None = None
) -> SolveResult:
    return run(Driver(source, journal=journal or Journal()).solve(strategy, task, budget=budget))


def test_an_easy_question_draws_four_and_wastes_none() -> None:
    source = Source()
    result = solved(AdaptiveVote(), source)
    assert result.answer.answer == "42"
    assert result.answer.confidence == pytest.approx(0.96875)
    assert (result.started, result.failed, result.discarded) == (4, 0, 0)
    assert result.spend.output_tokens == 20
    assert result.spend.input_tokens == 40


def test_a_run_that_records_nothing_is_not_hashed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hashed: list[object] = []

    def record(plan: object, task: Task) -> str:
        hashed.append(plan)
        return task.name

    monkeypatch.setattr(Driver, "fingerprint", staticmethod(record))
    for journal, count in ((Journal(), 0), (Journal(tmp_path), 1)):
        sampler = ScriptedSampler(lambda draw, number: Candidate("42"))
        run(Driver(sampler, journal=journal).solve(Vote(n=2), TASK))
        assert len(hashed) == count


def test_every_draw_has_its_own_seed_and_the_same_ones_again() -> None:
    one, two = Source(), Source()
    solved(AdaptiveVote(), one)
    solved(AdaptiveVote(), two)
    seeds = [draw.seed for draw in one.draws]
    assert len(set(seeds)) == 4
    assert seeds == [draw.seed for draw in two.draws]
    assert all(0 <= seed < 2**31 for seed in seeds)


@pytest.mark.parametrize(
    ("asks", "got"),
    [
        (((4, None),), (4,)),
        (((4, 1), (0, 1), (0, None)), (1, 1, 2)),
        (((2, 0), (2, None)), (0, 4)),
        (((3, 2), (0, 5)), (2, 1)),
        (((0, None),), (0,)),
        (((0, 1),), (0,)),
    ],
)
def test_as_many_are_delivered_as_were_waited_for(
    asks: tuple[tuple[int, int | None], ...], got: tuple[int, ...]
) -> None:
    answer = solved(Asking(asks), Source()).answer
    assert tuple(int(value) for value in answer.figures.values()) == got


def test_candidates_are_delivered_in_order_of_arrival() -> None:
    source = Source(
        reply=lambda number: f"The answer is {number}.", tokens=lambda number: (9, 1, 5)[number], pace=0.004
    )
    assert [candidate.key for candidate in solved(Asking(((3, None),)), source).answer.candidates] == ["1", "2", "0"]


def test_what_is_in_flight_when_the_run_returns_is_cancelled_awaited_and_charged() -> None:
    source = Source(tokens=lambda number: 2 if number == 0 else 1000, pace=0.001, reply=lambda _: "The answer is 1.")
    task = replace(TASK, sampling=Sampling(max_tokens=2000))
    result = solved(Asking(((4, 1),)), source, task=task)
    assert source.open == 0
    assert result.discarded == 3
    assert len(result.arrived) == 1
    assert 3 <= result.spend.output_tokens < 100
    assert result.spend.calls == 4


def test_a_failed_draw_is_replaced_and_counted() -> None:
    broken = ServerError("status 500", "try again")
    source = Source(reply=lambda number: broken if number % 3 == 0 else "The answer is 42.")
    result = solved(Asking(((4, None),)), source)
    assert len(result.arrived) == 4
    assert result.failed == 2
    assert result.errors == {"status 500": 2}
    assert result.spend.calls == 6


def test_a_dead_server_is_not_asked_for_ever() -> None:
    source = Source(reply=lambda _: ServerError("status 500", "try again"))
    result = solved(AdaptiveVote(), source)
    assert result.answer.chosen is None
    assert result.failed == len(source.draws) <= 7
    assert result.last_error is not None


def test_a_fatal_error_ends_it_at_once() -> None:
    source = Source(reply=lambda _: ServerError("no such model", "choose another", fatal=True))
    result = solved(Asking(((1, None), (1, None))), source)
    assert len(source.draws) == 1
    assert result.answer.chosen is None


def test_an_error_on_our_side_is_raised_and_leaves_nothing_running() -> None:
    source = Source(
        reply=lambda number: StrategyError("bug", "mend it") if number == 1 else "The answer is 1.",
        tokens=lambda n: 1 + 50 * (n != 1),
    )
    with pytest.raises(StrategyError, match="bug"):
        solved(Asking(((4, None),)), source)
    assert source.open == 0


@pytest.mark.parametrize("tokens", range(0, 130, 7))
def test_no_budget_of_tokens_is_ever_passed(tokens: int) -> None:
    source = Source(reply=lambda number: f"The answer is {number % 2}.", tokens=lambda number: 3 + 7 * number % 11)
    result = solved(AdaptiveVote(most=12), source, budget=Budget(output_tokens=tokens))
    assert result.spend.output_tokens <= tokens
    assert (result.answer.chosen is None) == (not result.arrived)


def test_time_that_is_up_ends_with_the_best_answer_so_far() -> None:
    source = Source(tokens=lambda number: 1 if number < 2 else 10_000, pace=0.01)
    result = solved(
        Asking(((4, None), (4, None))),
        source,
        budget=Budget(seconds=1.0),
        task=replace(TASK, sampling=Sampling(max_tokens=20_000)),
    )
    assert result.answer.answer == "42"
    assert result.seconds < 15
    assert result.budget_exhausted
    assert source.open == 0
    assert result.discarded == 2


def test_money_is_charged_by_the_prices() -> None:
    driver = Driver(Source(), Ledger(Budget(), Prices(input=1.0, output=10.0)))
    result = run(driver.solve(AdaptiveVote(), TASK))
    assert result.spend.money == pytest.approx((40 * 1.0 + 20 * 10.0) / 1e6)
    assert driver.ledger.spent == result.spend


def test_a_strategy_that_needs_more_than_the_source_offers_is_refused() -> None:
    @dataclass(frozen=True)
    class Sure(Asking):
        needs = frozenset({"confidences"})

    with pytest.raises(StrategyError, match="Sure needs confidences"):
        solved(Sure(), Source())


@dataclass(frozen=True)
class Forking(Strategy):
    """Runs votes side by side."""

    parts: int = 3
    """How many."""
    wait: int | None = None
    """How many to wait for."""

    def __call__(self, task: Task) -> Run:
        answers: list[Answer] = yield Fork(tuple(Asking(((2, None),))(task) for _ in range(self.parts)), self.wait)
        poll = Poll(task)
        for answer in answers:
            poll.add(answer.candidates)
        return replace(majority(poll), figures={"parts": float(len(answers))})


def test_a_fork_runs_its_parts_side_by_side() -> None:
    source = Source(pace=0.01, tokens=lambda _: 4)
    result = solved(Forking(), source)
    assert len(result.arrived) == 6
    assert source.most_open == 6
    assert len({candidate.draw_id for candidate in result.arrived}) == 6


def test_a_fork_that_waits_for_some_cancels_the_rest() -> None:
    source = Source(tokens=lambda number: 2 if number in (2, 3) else 900, pace=0.001)
    result = solved(Forking(wait=1), source, task=replace(TASK, sampling=Sampling(max_tokens=1000)))
    assert result.answer.figures == {"parts": 1.0}
    assert source.open == 0
    assert result.discarded == 4


@dataclass(frozen=True)
class Judging(Strategy):
    """Lets a judge choose among three."""

    needs = frozenset({"judge"})

    def __call__(self, task: Task) -> Run:
        drawn: list[Candidate] = yield Ask(3)
        judged: list[Candidate] = yield Judge(tuple(drawn))
        poll = Poll(task)
        poll.add(judged)
        return best_scored(poll)


def test_a_judge_scores_and_what_it_draws_is_charged_and_taken_up_again(tmp_path: Path) -> None:
    async def judge(task: Task, candidate: Candidate, draw: JudgeSampler) -> Judgement:
        asked = await draw(Ask(prompt=(*task.prompt, {"role": "user", "content": "Right?"})))
        assert asked is not None
        return Judgement(float(candidate.key or 0), "because", candidate.key == "2")

    source = Source(reply=lambda number: f"The answer is {number % 3}.")
    result = run(Driver(source, judges={"default": judge}, journal=Journal(tmp_path)).solve(Judging(), TASK))
    assert result.answer.key == "2"
    assert result.answer.chosen is not None
    assert (result.answer.chosen.feedback, result.answer.chosen.solved) == ("because", True)
    assert len(source.draws) == 6
    assert result.spend.calls == 6
    assert len(result.arrived) == 3
    idle = Source()
    again = run(Driver(idle, judges={"default": judge}, journal=Journal.open(tmp_path)).solve(Judging(), TASK))
    assert again.answer == result.answer
    assert again.spend.calls == 6
    assert idle.draws == []


def test_a_judge_that_fails_leaves_the_candidate_unscored() -> None:
    async def judge(task: Task, candidate: Candidate, draw: JudgeSampler) -> Judgement:
        if candidate.key == "1":
            raise ServerError("judge is down", "start it")
        return Judgement(0.5)

    source = Source(reply=lambda number: f"The answer is {number}.")
    result = run(Driver(source, judges={"default": judge}).solve(Judging(), TASK))
    assert result.answer.key in ("0", "2")
    assert result.errors == {"judge is down": 1}


def test_a_killed_run_goes_on_without_drawing_twice(tmp_path: Path) -> None:
    def reply(number: int) -> str:
        return f"The answer is {(1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 1)[number % 12]}."

    whole = solved(AdaptiveVote(most=12, width=3), Source(reply=reply), journal=Journal(tmp_path))
    text = (tmp_path / JOURNAL_FILE).read_bytes()
    lines = text.splitlines(keepends=True)
    for kept in range(1, len(lines) + 1):
        folder = tmp_path / str(kept)
        folder.mkdir()
        (folder / JOURNAL_FILE).write_bytes(b"".join(lines[:kept])[: None if kept == len(lines) else -3])
        before = len(Journal.open(folder).take_events("task", ""))
        source = Source(reply=lambda number, before=before: reply(number + before))  # type: ignore[misc] # the default is an int
        again = solved(AdaptiveVote(most=12, width=3), source, journal=Journal.open(folder))
        assert again.answer.votes == whole.answer.votes
        assert len(source.draws) + before >= whole.started - whole.discarded
        assert again.spend.output_tokens >= whole.spend.output_tokens - 15
        assert len(again.arrived) == len(whole.arrived)


def test_a_finished_run_taken_up_again_draws_nothing_and_costs_the_same(tmp_path: Path) -> None:
    for strategy in (AdaptiveVote(width=3), Forking(), Forking(wait=2), Asking(((3, 1), (2, None)))):
        folder = tmp_path / f"{type(strategy).__name__}{strategy}".replace("/", "")[:80]
        folder.mkdir()
        source = Source(
            reply=lambda number: (
                ServerError("status 500", "try again") if number == 2 else f"The answer is {number % 2}."
            ),
            tokens=lambda number: 1 + number % 4,
        )
        first = solved(strategy, source, journal=Journal(folder))
        idle = Source()
        again = solved(strategy, idle, journal=Journal.open(folder))
        assert idle.draws == []
        assert again.answer == first.answer
        assert again.spend.output_tokens == first.spend.output_tokens
        assert again.spend.calls == first.spend.calls
        assert (again.started, again.failed, again.discarded) == (first.started, first.failed, first.discarded)


def test_another_question_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    solved(Asking(), Source(), journal=Journal(tmp_path))
    with pytest.raises(BrokenFileError, match="another prompt"):
        solved(Asking(), Source(), journal=Journal.open(tmp_path), task=replace(TASK, seed=9))


def test_halves_of_characters_become_question_marks(tmp_path: Path) -> None:
    result = solved(Asking(((1, None),)), Source(reply=lambda _: "The answer is 4\ud83d."), journal=Journal(tmp_path))
    assert "?" in result.arrived[0].text


def tasks(count: int) -> list[Task]:
    return [Task(f"question {number}", f"q{number}", sampling=Sampling(max_tokens=50)) for number in range(count)]


def by_question(say: Callable[[int], str]) -> Callable[[SampleRequest, int], ScriptedOutcome]:
    return lambda draw, _: say(int(str(draw.prompt).split()[-1]))


async def gathered(driver: Driver, count: int, at_once: int) -> list[SolveResult]:
    return [solved async for solved in solve_all(driver, AdaptiveVote(width=2), tasks(count), concurrency=at_once)]


def test_every_task_gets_its_own_answer_and_few_run_at_once() -> None:
    sampler = ScriptedSampler(by_question(lambda number: f"The answer is {number}."), seconds=0.005)
    driver = Driver(sampler)
    done = run(gathered(driver, 6, 2))
    assert {solved.task.name: solved.answer.key for solved in done} == {
        f"q{number}": str(number) for number in range(6)
    }
    assert sampler.max_in_flight <= 4, "two tasks, two draws each"
    assert driver.ledger.spent.calls == sum(solved.spend.calls for solved in done) == 24


def test_leaving_early_cancels_the_rest() -> None:
    sampler = ScriptedSampler(
        by_question(lambda number: "The answer is 1."), seconds=lambda number: 3600.0 if number in (1, 2) else 0.0
    )  # the first sample of two of the three questions takes an hour

    async def first() -> SolveResult | None:
        everything = solve_all(Driver(sampler), AdaptiveVote(width=1), tasks(3), concurrency=3)
        try:
            async for solved in everything:
                return solved
        finally:
            await everything.aclose()  # type: ignore[attr-defined] # an async generator
        return None

    assert run(asyncio.wait_for(first(), 120)) is not None
    assert (sampler.cancelled, sampler.in_flight) == (2, 0)


def test_two_tasks_of_one_name_are_refused() -> None:
    with pytest.raises(StrategyError, match="called 'q0'"):
        run(allocate(Driver(ScriptedSampler([])), RoundRobin(), [*tasks(2), *tasks(1)]))


def test_elimination_spends_on_the_undecided() -> None:
    draws = {0: 0, 1: 0}

    def say(number: int) -> str:
        draws[number] += 1
        return "The answer is 1." if number == 0 else f"The answer is {draws[number]}."

    driver = Driver(ScriptedSampler(by_question(say)), Ledger(Budget(calls=40)))
    easy, hard = run(allocate(driver, Elimination(), tasks(2)))
    assert easy.started < hard.started
    assert easy.answer.key == "1"
    assert driver.ledger.spent.calls <= 40


@dataclass(frozen=True)
class Fixed(Allocator):
    """Grants given rounds and remembers what it was told."""

    rounds: tuple[tuple[tuple[str, int], ...], ...] = ()
    """Names and draws."""

    def __call__(self, tasks: Sequence[str]) -> Generator[Round, Mapping[str, Progress], None]:
        for each in self.rounds:
            told = yield tuple(Grant(task, draws) for task, draws in each)
            TOLD.append({name: (progress.draws, progress.vote_state.counts) for name, progress in told.items()})


TOLD: list[dict[str, tuple[int, tuple[int, ...]]]] = []


def test_an_allocator_is_told_what_came_of_its_grants() -> None:
    TOLD.clear()
    broken = ServerError("status 500", "try again")
    sampler = ScriptedSampler(lambda draw, number: broken if number == 1 else "The answer is 5.")
    rounds = ((("q0", 2), ("q1", 1)), (("q1", 3),))
    done = run(allocate(Driver(sampler), Fixed(rounds), tasks(2)))
    assert TOLD == [{"q0": (2, (1,)), "q1": (1, (1,))}, {"q0": (2, (1,)), "q1": (4, (4,))}]
    assert [solved.failed for solved in done] == [1, 0]


def test_a_spent_budget_ends_it_with_what_has_come() -> None:
    sampler = ScriptedSampler(by_question(lambda number: "The answer is 1."))
    done = run(allocate(Driver(sampler, Ledger(Budget(calls=3))), RoundRobin(), tasks(5)))
    assert sum(solved.answer.chosen is not None for solved in done) == 3
    assert len(sampler.requests) == 3


def test_a_judge_decides_when_a_task_is_done() -> None:
    async def judge(task: Task, candidate: Candidate, draw: JudgeSampler) -> Judgement:
        return Judgement(1.0 if candidate.key == "3" else 0.0, solved=candidate.key == "3")

    count = iter(range(100))
    sampler = ScriptedSampler(lambda draw, number: f"The answer is {next(count)}.")
    driver = Driver(sampler, Ledger(Budget(calls=20)), judges={"exact": judge})
    (solved,) = run(allocate(driver, RoundRobin(), tasks(1), judge="exact"))
    assert solved.answer.key == "3"
    assert len(sampler.requests) == 4


def test_a_killed_allocation_goes_on_from_its_records(tmp_path: Path) -> None:
    sampler = ScriptedSampler(by_question(lambda number: f"The answer is {number}."))
    first = run(allocate(Driver(sampler, Ledger(Budget(calls=30)), journal=Journal(tmp_path)), Elimination(), tasks(3)))
    idle = ScriptedSampler([])
    again = run(
        allocate(Driver(idle, Ledger(Budget(calls=30)), journal=Journal.open(tmp_path)), Elimination(), tasks(3))
    )
    assert idle.requests == []
    assert [solved.answer for solved in again] == [solved.answer for solved in first]
    assert [solved.spend.calls for solved in again] == [solved.spend.calls for solved in first]


def test_no_task_at_a_time_is_refused() -> None:
    with pytest.raises(SettingsError, match="at least one"):
        run(gathered(Driver(ScriptedSampler([])), 1, 0))


def test_what_is_whole_is_not_lost_to_what_broke() -> None:
    sampler = ScriptedSampler(
        lambda draw, number: RuntimeError("a bug") if "0" in str(draw.prompt) else "The answer is 1."
    )
    got: list[str] = []

    async def main() -> None:
        async for solved in solve_all(Driver(sampler), Vote(1), tasks(4)):
            got.append(solved.task.name)  # noqa: PERF401 - what came before the error counts

    with pytest.raises(RuntimeError, match="a bug"):
        run(main())
    assert sorted(got) == ["q1", "q2", "q3"]


def test_every_granted_draw_has_a_place_of_its_own() -> None:
    # A draw that fails once the budget has refused another does not count for the allocator; its place is taken all the
    # same.
    sampler = ScriptedSampler(
        lambda draw, number: ServerError("status 500", "try again") if number == 0 else "The answer is 5."
    )

    async def main() -> int:
        share = Share.begin(Driver(sampler), tasks(1)[0], Elimination(), None)
        share.context.budget_exhausted = True
        for _ in range(2):
            await share.sample(Grant("q0", 2))
        return share.ended

    assert run(main()) == 3
    assert len({draw.seed for draw in sampler.requests}) == 4


def test_an_allocation_that_was_interrupted_pays_for_what_it_threw_away(tmp_path: Path) -> None:
    slow = ScriptedSampler(by_question(lambda number: "one two three four five"), seconds=30)

    async def interrupted() -> None:
        work = asyncio.create_task(allocate(Driver(slow, journal=Journal(tmp_path)), Elimination(), tasks(2)))
        await wait_until(lambda: slow.in_flight == 2)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)

    run(interrupted())
    assert slow.in_flight == 0
    sampler = ScriptedSampler(by_question(lambda number: "The answer is 1."))
    done = run(allocate(Driver(sampler, journal=Journal.open(tmp_path)), Elimination(), tasks(2)))
    assert [solved.discarded for solved in done] == [1, 1]
    assert [solved.spend.calls for solved in done] == [5, 5]


def test_an_allocation_that_breaks_leaves_nothing_running() -> None:
    sampler = ScriptedSampler(
        lambda draw, number: RuntimeError("a bug") if "0" in str(draw.prompt) else "x",
        seconds=lambda number: 0.001 if number == 0 else 30,
    )

    async def main() -> int:
        with pytest.raises(RuntimeError, match="a bug"):
            await allocate(Driver(sampler), Elimination(), tasks(3))
        return sampler.in_flight

    assert run(main()) == 0


CHAT = ({"role": "user", "content": "6 x 7?"},)


def test_it_holds_votes_cost_and_failures_and_is_json() -> None:
    replies: list[ScriptedOutcome] = [
        "The answer is 42.",
        ServerError("status 500", "again"),
        "The answer is 41.",
        "The answer is 42.",
        "Hm.",
    ]
    strategy = AdaptiveVote(most=4, width=1)
    solved = asyncio.run(Driver(ScriptedSampler(replies)).solve(strategy, Task(CHAT)))
    said = orjson.loads(orjson.dumps(summarize_result(solved, strategy)))
    assert said["strategy"] == "adaptive-vote"
    assert said["answer"] == "42"
    assert said["votes"] == [
        {"answer": "42", "votes": 2.0, "share": 2 / 3},
        {"answer": "41", "votes": 1.0, "share": 1 / 3},
    ]
    assert (said["drawn"], said["arrived"], said["failed"], said["unread"]) == (5, 4, 1, 1)
    assert said["errors"] == [{"problem": "status 500", "times": 1}]
    assert said["cost"]["output_tokens"] == 3 * 4 + 1
    assert said["stopped"] == "most"


def test_a_strategy_of_a_third_party_goes_by_its_class() -> None:
    @dataclass(frozen=True)
    class Mine(Strategy):
        def __call__(self, task: Task) -> Run:
            yield Ask()
            return Answer()

    assert strategy_name(Mine()) == "Mine"


def test_a_server_that_does_not_keep_to_caps_is_named() -> None:
    strategy = AdaptiveVote(most=2)
    told = Candidate("The answer is 42.", message={"cap_ignored": {"tokens": 9, "cap": 4}})
    solved = asyncio.run(Driver(ScriptedSampler([told, "The answer is 42."])).solve(strategy, Task(CHAT)))
    (note,) = summarize_result(solved, strategy)["notes"]
    assert "in 1 of 2 completions" in note
