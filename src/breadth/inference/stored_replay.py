"""Try strategies on stored rollouts, without a server: accuracy, agreement, samples and tokens of each, over the same random orders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from breadth.base.errors import MeasureError, StrategyError
from breadth.inference.records import Answer, Ask, Candidate, Finish, Sampling, Task
from breadth.inference.stopping.never import Never
from breadth.inference.stopping.rule import StopRule, leading_answer
from breadth.inference.stored_votes import Paths, ReplayOrders, StoredVotes, unique_combinations
from breadth.inference.strategies.adaptive_vote import AdaptiveVote
from breadth.inference.strategies.vote import Vote
from breadth.inference.strategy import Strategy
from breadth.inference.sync_driver import SyncDriver
from breadth.measure.intervals import UNBOUNDED, Bounds, Interval, mean_interval
from breadth.measure.paired_tests import PairedComparison, paired_difference
from breadth.measure.validate import BoolArray, FloatArray, IntArray

Figure = Literal["accuracy", "agreement", "samples", "started", "tokens"]
"""What a replay measures."""


@dataclass(frozen=True, eq=False)
class ReplayOutcome:
    """What one strategy gave, question by question (means over the repeats); intervals resample questions."""

    by_question: Mapping[Figure, FloatArray]
    """Figure -> one value a question."""
    level: float
    """Level of the intervals."""
    repeats: int
    """Random orders behind each value."""

    @cached_property
    def accuracy(self) -> Interval | None:
        """How often the answer is right; None where nothing says what is right."""
        known = not np.isnan(self.by_question["accuracy"]).any()
        return self._interval("accuracy", (0.0, 1.0)) if known else None

    @cached_property
    def agreement(self) -> Interval:
        """How often the answer is a mode of all the question's stored votes; an answer drawn from a tie counts by its chance."""
        return self._interval("agreement", (0.0, 1.0))

    @cached_property
    def samples(self) -> Interval:
        """Candidates taken in."""
        return self._interval("samples", UNBOUNDED)

    @cached_property
    def started(self) -> Interval:
        """Draws started: those taken in and those still in flight at the end, which a server charges in part."""
        return self._interval("started", UNBOUNDED)

    @cached_property
    def tokens(self) -> Interval:
        """Tokens of the candidates taken in."""
        return self._interval("tokens", UNBOUNDED)

    def _interval(self, figure: Figure, bounds: Bounds) -> Interval:
        return mean_interval(self.by_question[figure], bounds=bounds, level=self.level)


@dataclass(frozen=True, eq=False)
class Replay:
    """What strategies gave on the same stored rollouts in the same orders."""

    outcomes: Mapping[str, ReplayOutcome]
    """Name of the strategy -> what it gave."""
    questions: tuple[str, ...]
    """The questions, in the order of the arrays."""

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
    """Run every strategy on stored candidates (question -> its rollouts) drawn in random orders, the same for all strategies.

    Candidates are drawn without replacement and arrive in the order drawn. ``truths`` (question -> key of the right
    answer) or ``correct`` (question -> one flag a candidate) make accuracy known. Agreement is with the vote over all
    the question's candidates, any of its modes. Votes and adaptive votes are counted in arrays, thousands of settings a
    minute; every other strategy runs draw by draw. What the store cannot give is refused at the start: token
    confidences or log-probs that were not kept, a judge without stored scores, and at the first request another prompt,
    prefix, model or way to draw. A lower cap on tokens and a halt on confidences are replayed: a candidate that they
    cut has no answer.

    Misleads where the store is small: near its end every order holds the same candidates, so differences fade, and
    agreement of a strategy that draws all of them is 1 by construction. Draws in flight have no clock here: they arrive
    in order, while a live server delivers short completions first.
    """
    if not strategies or repeats < 1:
        raise MeasureError(
            f"{repeats} repeats of {len(strategies)} strategies asked for.", "Give at least one of each."
        )
    held = None if isinstance(candidates, StoredVotes) else candidates
    for name, strategy in strategies.items():
        refuse_unreplayable(name, strategy, held)
    votes = (
        candidates if isinstance(candidates, StoredVotes) else StoredVotes.from_candidates(candidates, truths, correct)
    )
    reels = ReplayOrders(votes, votes.orders(repeats, seed))
    outcomes = {
        name: _outcome(replay_strategy(strategy, held or {}, reels), repeats, level)
        for name, strategy in strategies.items()
    }
    return Replay(outcomes, votes.questions)


def replay_strategy(
    strategy: Strategy, candidates: Mapping[str, Sequence[Candidate]], reels: ReplayOrders
) -> PathResults:
    """Replay one strategy, in arrays where it is a vote."""
    vote = as_adaptive_vote(strategy)
    return replay_draw_by_draw(strategy, candidates, reels) if vote is None else replay_vote(vote, reels)


def _outcome(played: PathResults, repeats: int, level: float) -> ReplayOutcome:
    columns: dict[Figure, FloatArray] = {
        "accuracy": played.correct,
        "agreement": played.agreement,
        "samples": played.samples,
        "started": played.started,
        "tokens": played.tokens,
    }
    return ReplayOutcome(
        {name: column.reshape(-1, repeats).mean(axis=1) for name, column in columns.items()}, level, repeats
    )


_KEPT = {
    "logprobs": lambda one: one.logprobs is not None,
    "confidences": lambda one: one.confidences is not None,
    "judge": lambda one: one.score is not None,
}


def refuse_unreplayable(name: str, strategy: Strategy, candidates: Mapping[str, Sequence[Candidate]] | None) -> None:
    """Raise a StrategyError when a strategy needs what the store does not hold."""
    if candidates is None:
        if as_adaptive_vote(strategy) is None:
            raise StrategyError(
                f"The strategy '{name}' reads candidates, and only counts of votes are stored.",
                "Give the stored candidates.",
            )
        return
    for need in sorted(strategy.needs):
        test = _KEPT.get(need)
        lacking = "all" if test is None else sum(not test(one) for drawn in candidates.values() for one in drawn)
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
    strategy: Strategy, candidates: Mapping[str, Sequence[Candidate]], reels: ReplayOrders
) -> PathResults:
    """Run a strategy on every path."""
    rows = []
    # No stored candidate is longer than the task allows, so a strategy's own lower cap is the only one that cuts.
    sampling = Sampling(
        max_tokens=max(1, Sampling().max_tokens, *(one.tokens for drawn in candidates.values() for one in drawn))
    )
    for place, drawn in enumerate(candidates.values()):
        worth = _Worth.of(drawn, reels, place)
        for repeat, order in enumerate(reels.orders[place].tolist()):
            task = Task("", name=reels.votes.questions[place], sampling=sampling, seed=repeat)
            reel = _Reel(task, iter([drawn[index] for index in order[: len(drawn)]]))
            pump = SyncDriver(reel.draw, reel.judge)
            answer = pump.run(strategy(task))
            rows.append(
                (*worth(answer), len(answer.candidates), len(pump.drawn), sum(one.tokens for one in answer.candidates))
            )
    return PathResults(*np.array(rows, dtype=np.float64).T)


@dataclass(frozen=True)
class _Worth:
    """What an answer of one question is worth."""

    right: Mapping[str, float]
    """Key -> whether it is right."""
    modal: Mapping[str, float]
    """Key -> whether it is a mode of all votes."""
    wrong: float
    """What no answer is worth: 0, NaN when nothing is known to be right."""

    @classmethod
    def of(cls, drawn: Sequence[Candidate], reels: ReplayOrders, place: int) -> _Worth:
        keys = [(one.key, index) for index, one in enumerate(drawn) if one.key is not None]
        right, modal = reels.votes.right[place], reels.votes.modal[place]
        known = not np.isnan(right[: len(drawn)]).any()
        table = {key: float(right[index]) for key, index in keys}
        return cls(table, {key: float(modal[index]) for key, index in keys}, 0.0 if known else np.nan)

    def __call__(self, answer: Answer) -> tuple[float, float]:
        """Return the chance that the answer is right and that it is a mode: a tie counts by its share."""
        keys = answer.tied or ((answer.key,) if answer.key is not None else ())
        if not keys:
            return self.wrong, float(not self.modal)
        right = sum(self.right.get(key, self.wrong) for key in keys) / len(keys)
        return right, sum(self.modal.get(key, 0.0) for key in keys) / len(keys)


@dataclass
class _Reel:
    """The stored candidates of one question in one order, handed out draw by draw."""

    task: Task
    candidates: Iterator[Candidate]

    def draw(self, ask: Ask, place: str) -> Candidate | None:
        """Hand out the next candidate, if the request is for another draw of what is stored."""
        _refuse_other(ask, self.task)
        stored = next(self.candidates, None)
        if stored is None:
            return None
        cap = (ask.sampling or self.task.sampling).max_tokens
        return replace(truncate_candidate(apply_halt(stored, ask) if ask.halt else stored, cap, "length"), place=place)

    def judge(self, candidate: Candidate, by: str) -> Candidate:
        """Give the stored score."""
        if candidate.score is None:
            raise StrategyError(
                f"The judge '{by}' is asked for a score, and none is stored.", "Store scores with the rollouts."
            )
        return candidate


def apply_halt(candidate: Candidate, ask: Ask) -> Candidate:
    """Return the candidate as a halt rule would have left it: cut, and then without an answer.

    It sees confidences, not texts.
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
    """Return the candidate as it was after so many tokens: its answer not written yet.

    Shorter ones stay as they are.
    """
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


def _refuse_other(ask: Ask, task: Task) -> None:
    """Refuse what would not have been the stored draw."""
    sampling = ask.sampling or task.sampling
    same = replace(sampling, top_logprobs=task.sampling.top_logprobs, max_tokens=task.sampling.max_tokens)
    other = {
        "another prompt": ask.prompt is not None and ask.prompt != task.prompt,
        "a given beginning of the reply": bool(ask.prefix),
        "another model": bool(ask.model) and ask.model != task.model,
        "another way to draw": same != task.sampling or sampling.max_tokens > task.sampling.max_tokens,
    }
    for what, asked in other.items():
        if asked:
            raise StrategyError(
                f"The strategy asks for {what}; stored rollouts were drawn without.", "Run it live, not in a replay."
            )


@dataclass(frozen=True, eq=False)
class PathResults:
    """What came of one strategy, one number a path."""

    correct: FloatArray
    """Chance that the answer is right."""
    agreement: FloatArray
    """Chance that it is a mode of all stored votes."""
    samples: FloatArray
    """Candidates taken in."""
    started: FloatArray
    """Draws started."""
    tokens: FloatArray
    """Tokens of the candidates taken in."""


def as_adaptive_vote(strategy: Strategy) -> AdaptiveVote | None:
    """Return the adaptive vote that a strategy amounts to, None when it is no plain vote."""
    if type(strategy) is Vote:
        return AdaptiveVote(strategy.n, strategy.n, Never(), strategy.n)
    return strategy if type(strategy) is AdaptiveVote else None


def replay_vote(strategy: AdaptiveVote, reels: ReplayOrders) -> PathResults:
    """Replay a vote in arrays; a rule that tosses a coin is replayed on each side for its own paths."""
    last, started = np.zeros((2, len(reels.sizes)), dtype=np.int64)
    for rule, own in _rules(strategy.stop, reels):
        ends = last_draws(rule, strategy.most, reels, strategy.unread)
        last[own] = ends[own]
        started[own] = draws_started(replace(strategy, stop=rule), reels, ends + 1)[own]
    rows = np.arange(len(last))
    counts = (last + 1).astype(np.float64)
    return PathResults(
        reels.correct[rows, last],
        reels.agreement[rows, last],
        counts,
        started.astype(np.float64),
        reels.cumulative_tokens[rows, last],
    )


def _rules(stop: StopRule, reels: ReplayOrders) -> Iterator[tuple[StopRule, BoolArray]]:
    """Yield the rules that the paths' coins give, each with the paths it is for."""
    if type(stop).randomize is StopRule.randomize:
        yield stop, np.ones(len(reels.sizes), dtype=np.bool_)
        return
    places: dict[StopRule, list[int]] = {}
    for place, coin in enumerate(reels.uniforms.tolist()):
        places.setdefault(stop.randomize(coin), []).append(place)
    for rule, own in places.items():
        yield rule, np.isin(np.arange(len(reels.sizes)), own)


def last_draws(stop: StopRule, most: int, reels: ReplayOrders, unread: int) -> IntArray:
    """Return the place of the draw after which each path stops: the rule's first yes, the last draw there is, or nothing to vote on."""
    decided = stop.is_decided_along(reels.paths)
    if unread <= decided.shape[1]:
        decided[:, unread - 1] |= reels.paths.total[:, unread - 1] == 0
    limit = np.minimum(reels.sizes, most) - 1
    first = np.where(decided.any(axis=1), decided.argmax(axis=1), limit)
    return np.asarray(np.minimum(first, limit))


def draws_started(strategy: AdaptiveVote, reels: ReplayOrders, taken: IntArray) -> IntArray:
    """Return the draws that were started when ``taken`` had arrived: the most that were ever worth having in flight."""
    if strategy.width == 1:
        return taken
    limit = np.minimum(reels.sizes, strategy.most)
    rows, draws = np.nonzero(np.arange(int(taken.max())) < taken[:, None])
    ahead = draws + np.minimum(
        _shortfalls(strategy.stop, reels.paths, rows, draws, strategy.width), strategy.most - draws
    )
    reached = np.zeros(len(taken), dtype=np.int64)
    np.maximum.at(reached, rows, ahead)
    return np.minimum(reached, limit)


def _shortfalls(stop: StopRule, paths: Paths, rows: IntArray, draws: IntArray, width: int) -> IntArray:
    """Return the samples_to_decide on each of some paths before each of some draws: `samples_to_decide` in arrays."""
    if isinstance(stop, Never):
        return np.full(len(rows), width)
    if not stop.by_counts:
        return _shortfalls_by_order(stop, paths, rows, draws, width)
    before = np.where(draws[:, None] > 0, paths.top_counts[rows, draws - 1], 0)
    standings, place = unique_combinations(*before.T, np.where(draws > 0, paths.total[rows, draws - 1], 0))
    extra = np.arange(1, width)
    ranked = np.repeat(standings[:, None, :-1], width - 1, axis=1)
    ranked[:, :, 0] += extra
    agreed = stop.is_decided_along(
        Paths.from_counts(ranked.astype(np.int32), (standings[:, -1:] + extra).astype(np.int32))
    )
    return _first(agreed, width)[place]


def _shortfalls_by_order(stop: StopRule, paths: Paths, rows: IntArray, draws: IntArray, width: int) -> IntArray:
    """Do the same for a rule that looks at the order of votes: each order that occurs is worked out once."""
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
    return _first(stop.is_decided_along(Paths(votes))[:, longest:], width)[place]


def _first(agreed: BoolArray, width: int) -> IntArray:
    """Return how many further votes decide at the earliest, ``width`` when fewer do not."""
    return np.asarray(np.where(agreed.any(axis=1), agreed.argmax(axis=1) + 1, width), dtype=np.int64)
