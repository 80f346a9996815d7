"""Try strategies on stored rollouts, without a server: accuracy, agreement, samples and tokens of each, over the same random orders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from breadth.base.errors import MeasureError
from breadth.inference.records import Candidate
from breadth.inference.replay_paths import Played, counted, played_by_counts
from breadth.inference.replay_runs import played_by_run, refuse_unfit
from breadth.inference.stored_votes import Reels, StoredVotes
from breadth.inference.strategy import Strategy
from breadth.measure.intervals import ANYTHING, Bounds, Interval, mean_interval
from breadth.measure.paired import PairedComparison, paired_difference

Figure = Literal["accuracy", "agreement", "samples", "started", "tokens"]
"""What a replay measures."""


@dataclass(frozen=True, eq=False)
class Outcome:
    """What one strategy gave, question by question (means over the repeats); intervals resample questions."""

    by_question: Mapping[Figure, NDArray[np.float64]]
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
        return self._interval("samples", ANYTHING)

    @cached_property
    def started(self) -> Interval:
        """Draws started: those taken in and those still in flight at the end, which a server charges in part."""
        return self._interval("started", ANYTHING)

    @cached_property
    def tokens(self) -> Interval:
        """Tokens of the candidates taken in."""
        return self._interval("tokens", ANYTHING)

    def _interval(self, figure: Figure, bounds: Bounds) -> Interval:
        return mean_interval(self.by_question[figure], bounds=bounds, level=self.level)


@dataclass(frozen=True, eq=False)
class Replay:
    """What strategies gave on the same stored rollouts in the same orders."""

    outcomes: Mapping[str, Outcome]
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

    Candidates are drawn without replacement and arrive in the order drawn. ``truths`` (question -> key of the right answer) or
    ``correct`` (question -> one flag a candidate) make accuracy known. Agreement is with the vote over all the question's candidates,
    any of its modes. Votes and adaptive votes are counted in arrays, thousands of settings a minute; every other
    strategy runs draw by draw. What the store cannot give is refused at the start: token confidences or log-probs that were
    not kept, a judge without stored scores, and at the first request another prompt, prefix, model or way to draw. A lower cap on
    tokens and a halt on confidences are replayed: a candidate that they cut has no answer.

    Misleads where the store is small: near its end every order holds the same candidates, so differences fade, and agreement of a
    strategy that draws all of them is 1 by construction. Draws in flight have no clock here: they arrive in order,
    while a live server delivers short completions first.
    """
    if not strategies or repeats < 1:
        raise MeasureError(f"{repeats} repeats of {len(strategies)} strategies asked for.", "Give at least one of each.")
    held = None if isinstance(candidates, StoredVotes) else candidates
    for name, strategy in strategies.items():
        refuse_unfit(name, strategy, held)
    votes = candidates if isinstance(candidates, StoredVotes) else StoredVotes.of_candidates(candidates, truths, correct)
    reels = Reels(votes, votes.orders(repeats, seed))
    outcomes = {name: _outcome(played(strategy, held or {}, reels), repeats, level) for name, strategy in strategies.items()}
    return Replay(outcomes, votes.questions)


def played(strategy: Strategy, candidates: Mapping[str, Sequence[Candidate]], reels: Reels) -> Played:
    """Replay one strategy, in arrays where it is a vote."""
    vote = counted(strategy)
    return played_by_run(strategy, candidates, reels) if vote is None else played_by_counts(vote, reels)


def _outcome(played: Played, repeats: int, level: float) -> Outcome:
    columns: dict[Figure, NDArray[np.float64]] = {
        "accuracy": played.correct,
        "agreement": played.agreeing,
        "samples": played.samples,
        "started": played.started,
        "tokens": played.tokens,
    }
    return Outcome({name: column.reshape(-1, repeats).mean(axis=1) for name, column in columns.items()}, level, repeats)
