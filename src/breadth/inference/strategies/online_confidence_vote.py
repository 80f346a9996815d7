"""Sample until the confident completions agree, and end unconfident ones while they are being written."""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from breadth.base.catalogue import Paper
from breadth.base.errors import require
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
    """Learn from a warm-up how confident completions are; end later ones below that; stop when the weight agrees.

    s = the percentile 100 (1 - keep) of the warm-up's lowest group confidences. A later completion is ended as soon as
    a full window's mean is below s; it is charged and never votes. Those at or above s, of the warm-up and later, vote
    with their confidence as weight, until the leader has the share ``consensus`` of it (DeepConf online, arXiv
    2508.15260). No more are in flight than could bring the leader there. The public code has no consensus stop, and
    returns the plain majority of those kept. Like it, and unlike the text of the paper, we leave out a later completion
    below s that was too short to be ended, as those of the warm-up are. Fewer than four votes are no consensus here,
    because keep = 0.1 leaves two of the warm-up.
    Confidence is used only while ``gate`` is open for this gauge and model, or with ``trust``; otherwise this is
    `AdaptiveVote`, and a note says why. No gate is no evidence, and neither is the warm-up itself (see
    `breadth.inference.confidence.decide_gate`).

    Warm-up 16, consensus 0.95 and keeping 90 % (its cautious setting) are the paper's; 256 completions the public
    code's (paper: 512); eight in flight is our choice. The public code also rounds token confidences to three decimals;
    we do not. Harm: completions shorter than the window are never ended: set the window to a fraction of their length,
    and fit the gate with it. Keeping 10 % loses where the model is wrong with confidence.
    """

    paper = Paper("arXiv 2508.15260", "DeepConf, online", "as offline; completions are halted by `inference.halting`")
    example: ClassVar[Mapping[str, Any]] = {"warm_up": 3, "most": 6, "width": 2, "trust": True, "gauge": {"window": 4}}

    warm_up: int = 16
    """Completions sampled in full before any is ended."""
    most: int = 256
    """Most completions, warm-up included."""
    width: int = 8
    """Most completions in flight after the warm-up."""
    keep: float = 0.9
    """Share of the warm-up above the threshold; 1 ends and drops none. The paper's eta is 100 times this: 10 or 90."""
    consensus: float = 0.95
    """Share of the weight at which to stop; 1 samples all."""
    gauge: Gauge = Gauge()
    """How the confidence of a completion is computed; only its lowest group can be watched as it is written."""
    trust: bool = False
    """Use confidence without evidence, as the paper does."""
    gate: ConfidenceGate | None = None
    """Evidence that confidence tells right from wrong; None is none."""

    def __post_init__(self) -> None:
        require(self, "warm_up", self.warm_up >= 2, "at least two completions")
        require(self, "most", self.most >= self.warm_up, "at least as many as the warm-up")
        require(self, "width", self.width >= 1, "at least one sample in flight")
        require(self, "keep", 0 < self.keep <= 1, "a share above 0 and at most 1")
        require(self, "consensus", 0.5 <= self.consensus <= 1, "a share from 0.5 to 1")
        require(self, "gauge", self.gauge.measure == "lowest", "the measure 'lowest'")
        require(
            self, "trust", not (self.trust and self.gate is not None), "false with a gate, because the gate decides"
        )

    @property
    def needs(self) -> frozenset[str]:  # type: ignore[override]  # by the settings: without an open gate nothing is needed
        """Token confidences, if it may use them."""
        return frozenset({"confidences"}) if self.trust or (self.gate is not None and self.gate.open) else frozenset()

    def __call__(self, task: Task) -> Run:
        """Warm up, set the threshold, sample until consensus."""
        decision = decide_gate(self.gate, self.gauge, model=task.model, trust=self.trust)
        if not decision.open:
            plain: Answer = yield from AdaptiveVote(self.most, self.width)(task)
            return replace(plain, notes=(*plain.notes, decision.note))
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
        threshold = keep_threshold(scores, self.keep)
        votes, seen = WeightedPoll(Poll(task)), list(first)
        self.add_votes(votes, first, threshold)
        stopped = yield from self.sample_until_consensus(task, votes, seen, threshold)
        answer = self.final_vote(task, votes, seen)
        figures = {
            "threshold": threshold,
            "kept": len(votes.poll.arrivals),
            "halted": sum(candidate.finish == "halt" for candidate in seen),
        }
        return replace(
            answer, candidates=tuple(seen), notes=(*answer.notes, decision.note), figures=figures, stopped=stopped
        )

    def sample_until_consensus(
        self, task: Task, votes: WeightedPoll, seen: list[Candidate], threshold: float
    ) -> Generator[Ask, list[Candidate], str]:
        """Sample with the halt rule until the weight agrees; return why it stopped."""
        halt = LowConfidence(threshold, self.gauge.window, self.gauge.top_logprobs) if self.keep < 1 else None
        asked = len(seen)
        while self.consensus == 1 or votes.share < self.consensus or len(votes.poll.arrivals) < _MIN_CONSENSUS_VOTES:
            if len(seen) >= self.most:
                return "most"
            missing = max(
                votes.samples_to_reach(self.consensus, self.width), _MIN_CONSENSUS_VOTES - len(votes.poll.arrivals)
            )
            wanted = min(missing, self.width, self.most - len(seen))
            more = max(0, min(wanted - (asked - len(seen)), self.most - asked))
            asked += more
            arrived = yield Ask(more, sampling=self.gauge.with_logprobs(task.sampling), halt=halt, wait=1)
            if not arrived:
                return "budget"
            seen += arrived
            self.add_votes(votes, arrived, threshold)
        return "agreed"

    def add_votes(self, votes: WeightedPoll, candidates: list[Candidate], threshold: float) -> None:
        """Add the candidates at or above the threshold that were not halted."""
        for candidate in candidates:
            score = self.gauge.confidence_of(candidate)
            if candidate.finish != "halt" and (score >= threshold or (self.keep == 1 and not math.isnan(score))):
                votes.add(candidate, score)

    def final_vote(self, task: Task, votes: WeightedPoll, seen: list[Candidate]) -> Answer:
        """Return the weighted vote, or the plain one where no candidate could be weighted."""
        finished = [candidate for candidate in seen if candidate.finish != "halt"]
        missing = sum(
            candidate.key is not None and math.isnan(self.gauge.confidence_of(candidate)) for candidate in finished
        )
        if not votes.poll.arrivals:
            return plain_vote(task, finished, missing)
        answer = votes.answer()
        return replace(answer, notes=answer.notes + missing_confidence_notes(missing, seen))
