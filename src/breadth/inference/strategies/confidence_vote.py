"""Sample a fixed number and let the confident ones vote."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from breadth.base.catalogue import Paper
from breadth.base.errors import require
from breadth.inference.confidence import ConfidenceGate, Gauge, borda_weights, decide_gate, keep_threshold
from breadth.inference.records import Answer, Ask, Candidate, Run, Task
from breadth.inference.stopping.posterior import beta_lead
from breadth.inference.stopping.rule import Never
from breadth.inference.strategies.adaptive_vote import majority_with_confidence
from breadth.inference.strategies.vote import Vote
from breadth.inference.strategy import Strategy
from breadth.inference.voting import Poll, class_weights, majority

WEIGHTED_VOTE_BASIS = "leader against runner-up among the completions kept, each counted once, uniform prior"
"""Description of the posterior of a weighted vote."""


@dataclass
class WeightedPoll:
    """The completions kept for a vote, each with its weight."""

    poll: Poll
    """Groups them into classes."""
    weights: dict[int, float] = field(default_factory=dict)
    """Index in the poll -> weight."""
    totals: dict[int, float] = field(default_factory=dict)
    """Class of the poll -> total weight, updated as candidates arrive."""

    def add(self, candidate: Candidate, weight: float) -> None:
        """Add a candidate with its weight."""
        self.weights[len(self.poll.seen)] = weight
        self.poll.add([candidate])
        if candidate.key is not None:
            label = self.poll.arrivals[-1]
            self.totals[label] = self.totals.get(label, 0.0) + weight

    @property
    def share(self) -> float:
        """The leading answer's share of all weight; 0 without any."""
        everything = sum(self.totals.values())
        return max(self.totals.values()) / everything if everything else 0.0

    def samples_to_reach(self, share: float, most: int) -> int:
        """Return the fewest votes of mean weight that could bring the leader to a share; at most ``most``."""
        everything = sum(self.totals.values())
        if not everything:
            return min(1, most)
        missing, mean = share * everything - max(self.totals.values()), everything / len(self.poll.arrivals)
        return min(most, max(1, math.ceil(missing / ((1 - share) * mean) - 1e-9))) if share < 1 else most

    def answer(self) -> Answer:
        """Return the answer with the most weight.

        Its confidence is the chance that it is the most frequent answer of the kept completions; weights are no votes,
        so they do not enter it.
        """
        answer = majority(self.poll, weights=self.weights)
        if answer.key is None:
            return answer
        counts = class_weights(self.poll)
        rest = max((int(count) for key, count in counts.items() if key != answer.key), default=0)
        return replace(answer, confidence=beta_lead(int(counts[answer.key]), rest), basis=WEIGHTED_VOTE_BASIS)


WEIGHT_KINDS = ("confidence", "rank", "equal")


@dataclass(frozen=True)
class ConfidenceVote(Strategy):
    """Sample n completions, drop the least confident, let the others vote weighted by confidence (DeepConf offline).

    Of the completions with a readable answer those are kept whose confidence reaches the percentile 100 (1 - keep); an
    answer's weight is the sum of its confidences (arXiv 2508.15260). The public code returns the plain majority of
    those kept, as with ``weights = "equal"``. Confidence is used only while ``gate`` is open for this gauge and model,
    or with ``trust``; otherwise this is `Vote`, and a note says why. No gate is no evidence.

    Keeping 90 % is the paper's cautious setting, within -0.21 to +0.73 points of the plain vote; 32 completions are
    ours, the paper samples 512.
    Harm: keeping 10 % drops nine votes of ten, and loses where the model is wrong with confidence.
    """

    paper = Paper(
        "arXiv 2508.15260",
        "DeepConf, offline",
        "over any API that streams log-probs; only while a gate has shown that confidence predicts correctness within a"
        " question",
    )
    example: ClassVar[Mapping[str, Any]] = {"n": 4, "trust": True}

    n: int = 32
    """Completions to sample."""
    keep: float = 0.9
    """Share that votes, the most confident; 1 keeps all. The paper's eta is 100 times this: 10 or 90."""
    weights: Literal["confidence", "rank", "equal"] = "confidence"
    """Weight of a vote: its confidence; (N - rank) ** 0.5, which uses only the order of confidences; or 1."""
    gauge: Gauge = Gauge()
    """How the confidence of a completion is computed."""
    trust: bool = False
    """Use confidence without evidence, as the paper does."""
    gate: ConfidenceGate | None = None
    """Evidence that confidence tells right from wrong; None is none."""

    def __post_init__(self) -> None:
        require(self, "n", self.n >= 1, "at least one sample")
        require(self, "keep", 0 < self.keep <= 1, "a share above 0 and at most 1")
        require(self, "weights", self.weights in WEIGHT_KINDS, "one of " + ", ".join(WEIGHT_KINDS))
        require(
            self, "trust", not (self.trust and self.gate is not None), "false with a gate, because the gate decides"
        )

    @property
    def needs(self) -> frozenset[str]:  # type: ignore[override]  # by the settings: without an open gate nothing is needed
        """Token confidences, if it may use them."""
        return frozenset({"confidences"}) if self.trust or (self.gate is not None and self.gate.open) else frozenset()

    def __call__(self, task: Task) -> Run:
        """Sample, filter and count."""
        decision = decide_gate(self.gate, self.gauge, model=task.model, trust=self.trust)
        if not decision.open:
            plain: Answer = yield from Vote(self.n)(task)
            return replace(plain, notes=(*plain.notes, decision.note))
        drawn: list[Candidate] = yield Ask(self.n, sampling=self.gauge.with_logprobs(task.sampling))
        answer = self.vote_by_confidence(task, drawn)
        notes = (*answer.notes, decision.note) if answer.figures else answer.notes
        return replace(
            answer, notes=notes, candidates=tuple(drawn), stopped="most" if len(drawn) >= self.n else "budget"
        )

    def vote_by_confidence(self, task: Task, drawn: list[Candidate]) -> Answer:
        """Return the weighted vote of the confident completions; the plain vote when most confidences are missing."""
        voters = [candidate for candidate in drawn if candidate.key is not None]
        confident = {
            place: score
            for place, candidate in enumerate(voters)
            if not math.isnan(score := self.gauge.confidence_of(candidate))
        }
        if not confident or 2 * len(confident) < len(voters):
            return plain_vote(task, drawn, len(voters) - len(confident))
        threshold = keep_threshold(list(confident.values()), self.keep)
        kept = {place: score for place, score in confident.items() if score >= threshold}
        votes = WeightedPoll(Poll(task))
        for place, weight in zip(kept, self.vote_weights(list(kept.values())), strict=True):
            votes.add(voters[place], weight)
        answer = votes.answer()
        notes = answer.notes + missing_confidence_notes(len(voters) - len(confident), drawn)
        return replace(answer, notes=notes, figures={"threshold": threshold, "kept": len(kept)})

    def vote_weights(self, scores: list[float]) -> list[float]:
        """Return the weight of each vote from the confidences."""
        if self.weights == "rank":
            return [float(weight) for weight in borda_weights(scores)]
        return scores if self.weights == "confidence" else [1.0] * len(scores)


def plain_vote(task: Task, drawn: list[Candidate], missing: int) -> Answer:
    """Return the plain vote of completions without confidences, with a note."""
    poll = Poll(task)
    poll.add(drawn)
    answer = majority_with_confidence(poll, Never(), "")
    note = f"{missing} completions with an answer came without token confidences: the plain vote decided."
    return replace(answer, notes=(*answer.notes, note) if missing else answer.notes)


def missing_confidence_notes(missing: int, drawn: Sequence[Candidate]) -> tuple[str, ...]:
    """Return notes on completions that could not vote without a confidence, or had a tenth of their tokens clipped."""
    few = f"{missing} completions with an answer came without token confidences and did not vote."
    clipped = sum(candidate.message.get("clipped_logprobs", 0) * 10 > candidate.tokens for candidate in drawn)
    masked = (
        f"{clipped} completions came with log-probs masked or fewer than asked for: their confidence is not that of the"
        " model itself."
    )
    return (few,) * bool(missing) + (masked,) * bool(clipped)
