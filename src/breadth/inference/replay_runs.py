"""Replays of any strategy, draw by draw, from stored candidates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from breadth.base.errors import StrategyError
from breadth.inference.pump import Pump
from breadth.inference.records import Answer, Ask, Candidate, Finish, Sampling, Task
from breadth.inference.replay_paths import Played, counted
from breadth.inference.stored_votes import Reels
from breadth.inference.strategy import Strategy

_KEPT = {
    "logprobs": lambda one: one.logprobs is not None,
    "confidences": lambda one: one.confidences is not None,
    "judge": lambda one: one.score is not None,
}


def refuse_unfit(name: str, strategy: Strategy, candidates: Mapping[str, Sequence[Candidate]] | None) -> None:
    """Raise a StrategyError when a strategy needs what the store does not hold."""
    if candidates is None:
        if counted(strategy) is None:
            raise StrategyError(
                f"The strategy '{name}' reads candidates, and only counts of votes are stored.", "Give the stored candidates."
            )
        return
    for need in sorted(strategy.needs):
        test = _KEPT.get(need)
        lacking = "all" if test is None else sum(not test(one) for drawn in candidates.values() for one in drawn)
        if lacking:
            raise StrategyError(
                f"The strategy '{name}' needs {need}, and {lacking} of the stored candidates come without.",
                f"Store rollouts with {need}, or run it live." if test else "Run it live: stored rollouts cannot be continued.",
            )


def played_by_run(strategy: Strategy, candidates: Mapping[str, Sequence[Candidate]], reels: Reels) -> Played:
    """Run a strategy on every path."""
    rows = []
    # No stored candidate is longer than the task allows, so a strategy's own lower cap is the only one that cuts.
    sampling = Sampling(max_tokens=max(1, Sampling().max_tokens, *(one.tokens for drawn in candidates.values() for one in drawn)))
    for place, drawn in enumerate(candidates.values()):
        worth = _Worth.of(drawn, reels, place)
        for repeat, order in enumerate(reels.orders[place].tolist()):
            task = Task("", name=reels.votes.questions[place], sampling=sampling, seed=repeat)
            reel = _Reel(task, iter([drawn[index] for index in order[: len(drawn)]]))
            pump = Pump(reel.draw, reel.judge)
            answer = pump.run(strategy(task))
            rows.append((*worth(answer), len(answer.candidates), len(pump.drawn), sum(one.tokens for one in answer.candidates)))
    return Played(*np.array(rows, dtype=np.float64).T)


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
    def of(cls, drawn: Sequence[Candidate], reels: Reels, place: int) -> _Worth:
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
        return replace(cut(halted(stored, ask) if ask.halt else stored, cap, "length"), place=place)

    def judge(self, candidate: Candidate, by: str) -> Candidate:
        """Give the stored score."""
        if candidate.score is None:
            raise StrategyError(f"The judge '{by}' is asked for a score, and none is stored.", "Store scores with the rollouts.")
        return candidate


def halted(candidate: Candidate, ask: Ask) -> Candidate:
    """Return the candidate as a halt rule would have left it: cut, and then without an answer. It sees confidences, not texts."""
    if ask.halt is None or candidate.confidences is None:
        raise StrategyError("A halt rule has to be replayed, and token confidences are not stored.", "Store them, or run it live.")
    watcher = ask.halt.watch()
    logprobs = candidate.logprobs if candidate.logprobs is not None else np.full(len(candidate.confidences), np.nan)
    for place, (logprob, confidence) in enumerate(zip(logprobs.tolist(), candidate.confidences.tolist(), strict=True)):
        if watcher.push("", logprob, confidence):
            return cut(candidate, place + 1, "halt")
    return candidate


def cut(candidate: Candidate, tokens: int, finish: Finish) -> Candidate:
    """Return the candidate as it was after so many tokens: its answer not written yet. Shorter ones stay as they are."""
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
            raise StrategyError(f"The strategy asks for {what}; stored rollouts were drawn without.", "Run it live, not in a replay.")
