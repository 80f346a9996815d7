"""Try strategies on stored rollouts, without a server: accuracy, agreement, samples and tokens, over the same orders.

Votes and adaptive votes are counted in arrays, all paths of all questions at once; other strategies run draw by draw.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from breadth.base.errors import MeasureError, StrategyError
from breadth.inference.records import Answer, Ask, Candidate, Finish, Sampling, Task
from breadth.inference.stopping.rule import Never, StopRule, leading_answer
from breadth.inference.stored_votes import Paths, ReplayOrders, StoredVotes, unique_combinations
from breadth.inference.strategies.adaptive_vote import AdaptiveVote
from breadth.inference.strategies.vote import Vote
from breadth.inference.strategy import Strategy, SyncDriver
from breadth.measure.intervals import UNBOUNDED, Bounds, Interval, mean_interval
from breadth.measure.paired_tests import PairedComparison, paired_difference
from breadth.measure.validate import BoolArray, FloatArray, IntArray

Figure = Literal["accuracy", "agreement", "samples", "started", "tokens"]
"""Measurements of a replay."""


@dataclass(frozen=True, eq=False)
class ReplayOutcome:
    """Measurements of one strategy per question (means over the repeats); intervals resample questions."""

    by_question: Mapping[Figure, FloatArray]
    """Figure -> one value per question."""
    level: float
    """Level of the intervals."""
    repeats: int
    """Random orders behind each value."""

    @cached_property
    def accuracy(self) -> Interval | None:
        """How often the answer is right; None without grades."""
        known = not np.isnan(self.by_question["accuracy"]).any()
        return self._interval("accuracy", (0.0, 1.0)) if known else None

    @cached_property
    def agreement(self) -> Interval:
        """How often the answer is a mode of all the question's stored votes; a tied answer counts by its chance."""
        return self._interval("agreement", (0.0, 1.0))

    @cached_property
    def samples(self) -> Interval:
        """Candidates used."""
        return self._interval("samples", UNBOUNDED)

    @cached_property
    def samples_started(self) -> Interval:
        """Samples started: those used and those still in flight at the end, which a server charges in part."""
        return self._interval("started", UNBOUNDED)

    @cached_property
    def tokens(self) -> Interval:
        """Tokens of the candidates used."""
        return self._interval("tokens", UNBOUNDED)

    def _interval(self, figure: Figure, bounds: Bounds) -> Interval:
        return mean_interval(self.by_question[figure], bounds=bounds, level=self.level)


@dataclass(frozen=True, eq=False)
class Replay:
    """Outcomes of strategies on the same stored rollouts in the same orders."""

    outcomes: Mapping[str, ReplayOutcome]
    """Name of the strategy -> its outcome."""
    questions: tuple[str, ...]
    """Questions in the order of the arrays."""

    def difference(self, first: str, second: str, figure: Figure = "samples") -> PairedComparison:
        """Compare two strategies question by question: first minus second."""
        left, right = (self.outcomes[name].by_question[figure] for name in (first, second))
        return paired_difference(left, right, level=self.outcomes[first].level)


def replay(
    candidates: Mapping[str, Sequence[Candidate]] | StoredVotes,
    strategies: Mapping[str, Strategy],
    *,
    repeats: int = 20,
    truths: Mapping[str, str] | None = None,
    correct: Mapping[str, Sequence[bool]] | None = None,
    level: float = 0.95,
    seed: int = 0,
) -> Replay:
    """Run every strategy on stored candidates (question -> its rollouts) in random orders, the same for all strategies.

    Candidates are drawn without replacement and arrive in the order drawn. ``truths`` (question -> key of the right
    answer) or ``correct`` (question -> one flag per candidate) give accuracy. Agreement is with the vote over all the
    question's candidates, any of its modes. Votes and adaptive votes are counted in arrays, thousands of settings per
    minute; every other strategy runs draw by draw. A strategy that needs more than the store has is refused: at the
    start, token confidences or log-probs that were not kept and a judge without stored scores; at the first request,
    another prompt, prefix, model or other sampling parameters. A lower token cap and a halt on confidences are
    replayed: a candidate that they cut has no answer.

    Misleading where the store is small: near its end every order holds the same candidates, so differences vanish, and
    the agreement of a strategy that uses all of them is 1 by construction. There is no clock: samples in flight arrive
    in order, while a live server delivers short completions first.
    """
    if not strategies or repeats < 1:
        raise MeasureError(
            f"{repeats} repeats of {len(strategies)} strategies asked for.", "Give at least one of each."
        )
    stored = None if isinstance(candidates, StoredVotes) else candidates
    for name, strategy in strategies.items():
        refuse_unreplayable(name, strategy, stored)
    votes = (
        candidates if isinstance(candidates, StoredVotes) else StoredVotes.from_candidates(candidates, truths, correct)
    )
    orders = ReplayOrders(votes, votes.orders(repeats, seed))
    outcomes = {
        name: average_repeats(replay_strategy(strategy, stored or {}, orders), repeats, level)
        for name, strategy in strategies.items()
    }
    return Replay(outcomes, votes.questions)


def replay_strategy(
    strategy: Strategy, candidates: Mapping[str, Sequence[Candidate]], orders: ReplayOrders
) -> PathResults:
    """Replay one strategy, in arrays if it is a vote."""
    vote = as_adaptive_vote(strategy)
    return replay_draw_by_draw(strategy, candidates, orders) if vote is None else replay_vote(vote, orders)


def average_repeats(results: PathResults, repeats: int, level: float) -> ReplayOutcome:
    """Return the mean over the repeats of each question."""
    columns: dict[Figure, FloatArray] = {
        "accuracy": results.correct,
        "agreement": results.agreement,
        "samples": results.samples,
        "started": results.started,
        "tokens": results.tokens,
    }
    return ReplayOutcome(
        {name: column.reshape(-1, repeats).mean(axis=1) for name, column in columns.items()}, level, repeats
    )


_IS_STORED = {
    "logprobs": lambda candidate: candidate.logprobs is not None,
    "confidences": lambda candidate: candidate.confidences is not None,
    "judge": lambda candidate: candidate.score is not None,
}


def refuse_unreplayable(name: str, strategy: Strategy, candidates: Mapping[str, Sequence[Candidate]] | None) -> None:
    """Raise a StrategyError when a strategy needs more than the store has."""
    if candidates is None:
        if as_adaptive_vote(strategy) is None:
            raise StrategyError(
                f"The strategy '{name}' reads candidates, but only counts of votes are stored.",
                "Give the stored candidates.",
            )
        return
    for need in sorted(strategy.needs):
        test = _IS_STORED.get(need)
        everything = (candidate for drawn in candidates.values() for candidate in drawn)
        lacking = "all" if test is None else sum(not test(candidate) for candidate in everything)
        if lacking:
            raise StrategyError(
                f"The strategy '{name}' needs {need}, and {lacking} of the stored candidates come without.",
                (
                    f"Store rollouts with {need}, or run it live."
                    if test
                    else "Run it live: stored rollouts cannot be continued."
                ),
            )


def replay_draw_by_draw(
    strategy: Strategy, candidates: Mapping[str, Sequence[Candidate]], orders: ReplayOrders
) -> PathResults:
    """Run a strategy on every path, one draw at a time."""
    rows = []
    # No stored candidate is longer than the task allows, so a strategy's own lower cap is the only one that cuts.
    sampling = Sampling(
        max_tokens=max(1, Sampling().max_tokens, *(each.tokens for drawn in candidates.values() for each in drawn))
    )
    for place, drawn in enumerate(candidates.values()):
        grades = _AnswerGrades.from_candidates(drawn, orders, place)
        for repeat, order in enumerate(orders.orders[place].tolist()):
            task = Task("", name=orders.votes.questions[place], sampling=sampling, seed=repeat)
            store = _StoredDraws(task, iter([drawn[index] for index in order[: len(drawn)]]))
            driver = SyncDriver(store.draw, store.judge)
            answer = driver.run(strategy(task))
            tokens = sum(candidate.tokens for candidate in answer.candidates)
            rows.append((*grades(answer), len(answer.candidates), len(driver.drawn), tokens))
    return PathResults(*np.array(rows, dtype=np.float64).T)


@dataclass(frozen=True)
class _AnswerGrades:
    """Grades of the answers to one question."""

    right: Mapping[str, float]
    """Key -> whether it is right."""
    modal: Mapping[str, float]
    """Key -> whether it is a mode of all votes."""
    wrong: float
    """Grade of no answer: 0, NaN without grades."""

    @classmethod
    def from_candidates(cls, drawn: Sequence[Candidate], orders: ReplayOrders, place: int) -> _AnswerGrades:
        keys = [(candidate.key, index) for index, candidate in enumerate(drawn) if candidate.key is not None]
        right, modal = orders.votes.right[place], orders.votes.modal[place]
        known = not np.isnan(right[: len(drawn)]).any()
        table = {key: float(right[index]) for key, index in keys}
        return cls(table, {key: float(modal[index]) for key, index in keys}, 0.0 if known else np.nan)

    def __call__(self, answer: Answer) -> tuple[float, float]:
        """Return the chances that the answer is right and that it is a mode; a tie counts by its share."""
        keys = answer.tied or ((answer.key,) if answer.key is not None else ())
        if not keys:
            return self.wrong, float(not self.modal)
        right = sum(self.right.get(key, self.wrong) for key in keys) / len(keys)
        return right, sum(self.modal.get(key, 0.0) for key in keys) / len(keys)


@dataclass
class _StoredDraws:
    """The stored candidates of one question in one order, returned draw by draw."""

    task: Task
    candidates: Iterator[Candidate]

    def draw(self, ask: Ask, draw_id: str) -> Candidate | None:
        """Return the next candidate, if the request is for another sample of what is stored."""
        refuse_other_request(ask, self.task)
        stored = next(self.candidates, None)
        if stored is None:
            return None
        cap = (ask.sampling or self.task.sampling).max_tokens
        return replace(
            truncate_candidate(replay_halt(stored, ask) if ask.halt else stored, cap, "length"), draw_id=draw_id
        )

    def judge(self, candidate: Candidate, by: str) -> Candidate:
        """Return the candidate with its stored score."""
        if candidate.score is None:
            raise StrategyError(
                f"The judge '{by}' is asked for a score, and none is stored.", "Store scores with the rollouts."
            )
        return candidate


def replay_halt(candidate: Candidate, ask: Ask) -> Candidate:
    """Return the candidate as a halt rule would have left it: if cut, without an answer.

    The rule sees confidences, not texts.
    """
    if ask.halt is None or candidate.confidences is None:
        raise StrategyError(
            "A halt rule has to be replayed, and token confidences are not stored.", "Store them, or run it live."
        )
    watcher = ask.halt.watch()
    logprobs = candidate.logprobs if candidate.logprobs is not None else np.full(len(candidate.confidences), np.nan)
    for place, (logprob, confidence) in enumerate(zip(logprobs.tolist(), candidate.confidences.tolist(), strict=True)):
        if watcher.push("", logprob, confidence):
            return truncate_candidate(candidate, place + 1, "halt")
    return candidate


def truncate_candidate(candidate: Candidate, tokens: int, finish: Finish) -> Candidate:
    """Return the candidate after so many tokens, before it gave an answer; shorter ones stay unchanged."""
    if candidate.tokens <= tokens and finish == "length":
        return candidate
    return replace(
        candidate,
        text="",
        reasoning="",
        answer=None,
        key=None,
        finish=finish,
        tokens=tokens,
        logprobs=None if candidate.logprobs is None else candidate.logprobs[:tokens],
        confidences=None if candidate.confidences is None else candidate.confidences[:tokens],
    )


def refuse_other_request(ask: Ask, task: Task) -> None:
    """Raise a StrategyError for a request that differs from how the candidates were sampled."""
    sampling = ask.sampling or task.sampling
    same = replace(sampling, top_logprobs=task.sampling.top_logprobs, max_tokens=task.sampling.max_tokens)
    other = {
        "another prompt": ask.prompt is not None and ask.prompt != task.prompt,
        "a given beginning of the reply": bool(ask.prefix),
        "another model": bool(ask.model) and ask.model != task.model,
        "other sampling parameters": same != task.sampling or sampling.max_tokens > task.sampling.max_tokens,
    }
    for what, asked in other.items():
        if asked:
            raise StrategyError(
                f"The strategy asks for {what}; stored rollouts were sampled without.", "Run it live, not in a replay."
            )


@dataclass(frozen=True, eq=False)
class PathResults:
    """Results of one strategy, one number per path."""

    correct: FloatArray
    """Chance that the answer is right."""
    agreement: FloatArray
    """Chance that it is a mode of all stored votes."""
    samples: FloatArray
    """Candidates used."""
    started: FloatArray
    """Samples started."""
    tokens: FloatArray
    """Tokens of the candidates used."""


def as_adaptive_vote(strategy: Strategy) -> AdaptiveVote | None:
    """Return a vote or adaptive vote as an adaptive vote; None for any other strategy."""
    if type(strategy) is Vote:
        return AdaptiveVote(strategy.n, strategy.n, Never(), strategy.n)
    return strategy if type(strategy) is AdaptiveVote else None


def replay_vote(strategy: AdaptiveVote, orders: ReplayOrders) -> PathResults:
    """Replay a vote in arrays; a randomized rule is replayed in each of its variants for its own paths."""
    last, started = np.zeros((2, len(orders.sizes)), dtype=np.int64)
    for rule, own in rule_variants(strategy.stop, orders):
        ends = last_draws(rule, strategy.most, orders, strategy.unread)
        last[own] = ends[own]
        started[own] = draws_started(replace(strategy, stop=rule), orders, ends + 1)[own]
    rows = np.arange(len(last))
    counts = (last + 1).astype(np.float64)
    return PathResults(
        orders.correct[rows, last],
        orders.agreement[rows, last],
        counts,
        started.astype(np.float64),
        orders.cumulative_tokens[rows, last],
    )


def rule_variants(stop: StopRule, orders: ReplayOrders) -> Iterator[tuple[StopRule, BoolArray]]:
    """Yield each variant of a randomized rule with the paths that use it."""
    if type(stop).randomize is StopRule.randomize:
        yield stop, np.ones(len(orders.sizes), dtype=np.bool_)
        return
    places: dict[StopRule, list[int]] = {}
    for place, uniform in enumerate(orders.uniforms.tolist()):
        places.setdefault(stop.randomize(uniform), []).append(place)
    for rule, own in places.items():
        yield rule, np.isin(np.arange(len(orders.sizes)), own)


def last_draws(stop: StopRule, most: int, orders: ReplayOrders, unread: int) -> IntArray:
    """Return the index of the last draw of each path: the rule decides, no draws are left, or nothing is readable."""
    decided = stop.is_decided_along(orders.paths)
    if unread <= decided.shape[1]:
        decided[:, unread - 1] |= orders.paths.total[:, unread - 1] == 0
    limit = np.minimum(orders.sizes, most) - 1
    first = np.where(decided.any(axis=1), decided.argmax(axis=1), limit)
    return np.asarray(np.minimum(first, limit))


def draws_started(strategy: AdaptiveVote, orders: ReplayOrders, taken: IntArray) -> IntArray:
    """Return the samples started when ``taken`` have arrived: the most that were ever worth having in flight."""
    if strategy.width == 1:
        return taken
    limit = np.minimum(orders.sizes, strategy.most)
    rows, draws = np.nonzero(np.arange(int(taken.max())) < taken[:, None])
    ahead = draws + np.minimum(
        samples_to_decide_along(strategy.stop, orders.paths, rows, draws, strategy.width), strategy.most - draws
    )
    reached = np.zeros(len(taken), dtype=np.int64)
    np.maximum.at(reached, rows, ahead)
    return np.minimum(reached, limit)


def samples_to_decide_along(stop: StopRule, paths: Paths, rows: IntArray, draws: IntArray, width: int) -> IntArray:
    """Return the samples_to_decide on each of some paths before each of some draws: `samples_to_decide` in arrays."""
    if isinstance(stop, Never):
        return np.full(len(rows), width)
    if not stop.by_counts:
        return samples_to_decide_by_order(stop, paths, rows, draws, width)
    before = np.where(draws[:, None] > 0, paths.top_counts[rows, draws - 1], 0)
    states, place = unique_combinations(*before.T, np.where(draws > 0, paths.total[rows, draws - 1], 0))
    extra = np.arange(1, width)
    top_counts = np.repeat(states[:, None, :-1], width - 1, axis=1)
    top_counts[:, :, 0] += extra
    agreed = stop.is_decided_along(
        Paths.from_counts(top_counts.astype(np.int32), (states[:, -1:] + extra).astype(np.int32))
    )
    return first_decision(agreed, width)[place]


def samples_to_decide_by_order(stop: StopRule, paths: Paths, rows: IntArray, draws: IntArray, width: int) -> IntArray:
    """Do the same for a rule that uses the order of votes; each order that occurs is computed once."""
    known: dict[tuple[int, ...], int] = {}
    place = []
    for row, draw in zip(rows.tolist(), draws.tolist(), strict=True):
        names: dict[int, int] = {}
        arrivals = tuple(
            names.setdefault(label, len(names)) for label in paths.classes[row, :draw].tolist() if label >= 0
        )
        place.append(known.setdefault(arrivals, len(known)))
    longest = max(map(len, known))
    votes = np.full((len(known), longest + width - 1), -1, dtype=np.int32)
    for number, arrivals in enumerate(known):
        votes[number, longest - len(arrivals) : longest] = arrivals
        votes[number, longest:] = leading_answer(arrivals)
    return first_decision(stop.is_decided_along(Paths(votes))[:, longest:], width)[place]


def first_decision(agreed: BoolArray, width: int) -> IntArray:
    """Return the number of further votes that decide first, ``width`` when fewer do not."""
    return np.asarray(np.where(agreed.any(axis=1), agreed.argmax(axis=1) + 1, width), dtype=np.int64)
