"""A vote in which some count for more: traces with weights as they arrive."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from breadth.inference.records import Answer, Candidate
from breadth.inference.stopping.beta_lead import beta_lead
from breadth.inference.voting import Poll, class_weights, majority

BASIS = "leader against runner-up among the completions kept, each counted once, uniform prior"
"""Where the confidence of a weighted vote comes from."""


@dataclass
class WeightedPoll:
    """The completions kept for a vote, each with its weight."""

    poll: Poll
    """Gathers them into classes."""
    weights: dict[int, float] = field(default_factory=dict)
    """Place in the poll -> weight."""
    totals: dict[int, float] = field(default_factory=dict)
    """Class of the poll -> weight, kept up to date as candidates come."""

    def add(self, candidate: Candidate, weight: float) -> None:
        """Take one in."""
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

    def shortfall(self, share: float, most: int) -> int:
        """Return how many further votes of mean weight could bring the leader to a share at the earliest; ``most`` if more than that."""
        everything = sum(self.totals.values())
        if not everything:
            return min(1, most)
        missing, mean = share * everything - max(self.totals.values()), everything / len(self.poll.arrivals)
        return min(most, max(1, math.ceil(missing / ((1 - share) * mean) - 1e-9))) if share < 1 else most

    def answer(self) -> Answer:
        """Return the answer with the most weight.

        Its confidence asks whether it is what the kept completions say most often; weights are no votes, so they are left out of it.
        """
        answer = majority(self.poll, weights=self.weights)
        if answer.key is None:
            return answer
        counts = class_weights(self.poll)
        rest = max((int(count) for key, count in counts.items() if key != answer.key), default=0)
        return replace(answer, confidence=beta_lead(int(counts[answer.key]), rest), basis=BASIS)
