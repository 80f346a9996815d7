"""Draw until the sure ones agree, and end the unsure ones while they are being written."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, replace

from breadth.base.checks import require
from breadth.inference.confidence import ConfidenceGate, Gauge, decide_gate, keep_threshold
from breadth.inference.halting import LowConfidence
from breadth.inference.records import Answer, Ask, Candidate, Run, Task
from breadth.inference.strategies.adaptive_vote import AdaptiveVote
from breadth.inference.strategies.confidence_vote import WeightedPoll, missing_confidence_notes, plain_vote
from breadth.inference.strategy import Strategy
from breadth.inference.voting import Poll

_MIN_CONSENSUS_VOTES = 4  # votes that a consensus takes, as unanimity does under the Beta rule at 0.95


@dataclass(frozen=True)
class OnlineConfidenceVote(Strategy):
    """Learn from a warm-up how sure completions of this question are; end later ones that fall below; stop when the weight agrees.

    s = the percentile 100 (1 - keep) of the warm-up's lowest group confidences. A later completion is ended as soon as
    a full window's mean is below s; it is charged and never votes. Those at or above s, of the warm-up and later, vote
    with their confidence as weight, until the leader has the share ``consensus`` of it (DeepConf online, arXiv
    2508.15260). No more are in flight than could bring the leader there. The public code has no consensus stop, and its
    last word is the plain majority of those kept. Like it, and unlike the letter of the paper, we leave out a later
    completion below s that was too short to be ended, as those of the warm-up are; and fewer than four votes are no
    consensus here, for keep = 0.1 leaves two of the warm-up.
    Confidence is used only while ``gate`` is open for this gauge and model, or with ``trust``; otherwise this is
    `AdaptiveVote`, and a note says why. No gate is no evidence, and neither is the warm-up itself (see
    `breadth.inference.confidence.decide_gate`).

    Warm-up 16, consensus 0.95 and keeping 90 % (its cautious setting) are the paper's; 256 completions the public
    code's (paper: 512); eight in flight is our choice. The public code also rounds token confidences to three decimals;
    we do not. Harm: completions shorter than the window are never ended: set the window to a fraction of their length,
    and fit the gate with it. Keeping 10 % loses where the model is wrong with confidence.
    """

    warm_up: int = 16
    """Completions drawn in full before anything is ended."""
    most: int = 256
    """Completions at most, warm-up included."""
    width: int = 8
    """Completions in flight at once after the warm-up, at most."""
    keep: float = 0.9
    """Share of the warm-up that sets the bar; 1 ends nothing and leaves nothing out. The paper's eta is 100 times this:
    10 or 90.
    """
    consensus: float = 0.95
    """Share of the weight at which to stop; 1 draws all."""
    gauge: Gauge = Gauge()
    """How the confidence of a completion is read; only its lowest group can be watched as it is written."""
    trust: bool = False
    """Use confidence without evidence, as the paper does."""
    gate: ConfidenceGate | None = None
    """Evidence that confidence tells right from wrong; None is none."""

    def __post_init__(self) -> None:
        require(self, "warm_up", self.warm_up >= 2, "at least two completions")
        require(self, "most", self.most >= self.warm_up, "at least as many as the warm-up")
        require(self, "width", self.width >= 1, "at least one draw in flight")
        require(self, "keep", 0 < self.keep <= 1, "a share above 0 and at most 1")
        require(self, "consensus", 0.5 <= self.consensus <= 1, "a share from 0.5 to 1")
        require(self, "gauge", self.gauge.measure == "lowest", "the measure 'lowest'")
        require(self, "trust", not (self.trust and self.gate is not None), "false beside a gate, for the gate decides")

    @property
    def needs(self) -> frozenset[str]:  # type: ignore[override]  # by the settings: without an open gate nothing is needed
        """Token confidences, where it may use them."""
        return frozenset({"confidences"}) if self.trust or (self.gate is not None and self.gate.open) else frozenset()

    def __call__(self, task: Task) -> Run:
        """Warm up, set the bar, draw on."""
        ruling = decide_gate(self.gate, self.gauge, model=task.model, trust=self.trust)
        if not ruling.open:
            plain: Answer = yield from AdaptiveVote(self.most, self.width)(task)
            return replace(plain, notes=(*plain.notes, ruling.note))
        first: list[Candidate] = yield Ask(
            self.warm_up, sampling=self.gauge.with_logprobs(task.sampling), purpose="warm-up"
        )
        scores = [score for candidate in first if not math.isnan(score := self.gauge.confidence_of(candidate))]
        if first and all(candidate.key is None for candidate in first):
            return replace(plain_vote(task, first, 0), stopped="unread")
        if not scores or 2 * len(scores) < len(first):
            missing = sum(
                candidate.key is not None and math.isnan(self.gauge.confidence_of(candidate)) for candidate in first
            )
            return replace(plain_vote(task, first, missing), stopped="most" if len(first) >= self.warm_up else "budget")
        bar = keep_threshold(scores, self.keep)
        votes, seen = WeightedPoll(Poll(task)), list(first)
        self._take(votes, first, bar)
        stopped = yield from self._draw_on(task, votes, seen, bar)
        answer = self._answer(task, votes, seen)
        figures = {
            "threshold": bar,
            "kept": len(votes.poll.arrivals),
            "halted": sum(candidate.finish == "halt" for candidate in seen),
        }
        return replace(
            answer, candidates=tuple(seen), notes=(*answer.notes, ruling.note), figures=figures, stopped=stopped
        )

    def _draw_on(
        self, task: Task, votes: WeightedPoll, seen: list[Candidate], bar: float
    ) -> Generator[Ask, list[Candidate], str]:
        halt = LowConfidence(bar, self.gauge.window, self.gauge.top_logprobs) if self.keep < 1 else None
        asked = len(seen)
        while self.consensus == 1 or votes.share < self.consensus or len(votes.poll.arrivals) < _MIN_CONSENSUS_VOTES:
            if len(seen) >= self.most:
                return "most"
            missing = max(
                votes.samples_to_decide(self.consensus, self.width), _MIN_CONSENSUS_VOTES - len(votes.poll.arrivals)
            )
            wanted = min(missing, self.width, self.most - len(seen))
            more = max(0, min(wanted - (asked - len(seen)), self.most - asked))
            asked += more
            arrived = yield Ask(more, sampling=self.gauge.with_logprobs(task.sampling), halt=halt, wait=1)
            if not arrived:
                return "budget"
            seen += arrived
            self._take(votes, arrived, bar)
        return "agreed"

    def _take(self, votes: WeightedPoll, candidates: list[Candidate], bar: float) -> None:
        for candidate in candidates:
            score = self.gauge.confidence_of(candidate)
            if candidate.finish != "halt" and (score >= bar or (self.keep == 1 and not math.isnan(score))):
                votes.add(candidate, score)

    def _answer(self, task: Task, votes: WeightedPoll, seen: list[Candidate]) -> Answer:
        finished = [candidate for candidate in seen if candidate.finish != "halt"]
        missing = sum(
            candidate.key is not None and math.isnan(self.gauge.confidence_of(candidate)) for candidate in finished
        )
        if not votes.poll.arrivals:
            return plain_vote(task, finished, missing)
        answer = votes.answer()
        return replace(answer, notes=answer.notes + missing_confidence_notes(missing, seen))
