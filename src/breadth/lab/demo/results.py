"""What a demo has found: everything its table, its sentences and its page are made of; goes to JSON and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from breadth.lab.demo.plan import DemoPlan
from breadth.lab.evaluation.corners import Corners
from breadth.lab.evaluation.evaluate import Evaluation, PolicyEval
from breadth.lab.evaluation.training_log import TrainingLog
from breadth.measure.diversity import answer_entropy
from breadth.measure.intervals import Interval, mean_interval
from breadth.measure.paired_tests import HumpTest, hump_test
from breadth.measure.validate import FloatArray


@dataclass(frozen=True)
class ForcedThinking:
    """What exactly so many thinking tokens are worth, problem by problem."""

    tokens: int
    """Thinking tokens."""
    accuracy: tuple[float, ...]
    """Share of right replies of each problem."""
    answer_entropy: tuple[float, ...]
    """Entropy of the answers to each problem, in nats; no answer is an answer of its own."""

    @classmethod
    def from_evaluation(cls, tokens: int, found: Evaluation) -> ForcedThinking:
        """Sum up replies whose thinking was forced; answers are read as a client reads them, who does not know the grammar."""
        answers = found.stated_answers()
        gold = np.array([problem.answer(found.prime) for problem in found.problems])
        right = (answers == gold[:, None]).mean(1)
        return cls(
            tokens,
            tuple(map(float, right)),
            tuple(answer_entropy(np.unique(row, return_inverse=True)[1]) for row in answers),
        )

    @property
    def accuracy_rate(self) -> Interval:
        """Mean accuracy, with an interval over problems."""
        return mean_interval(self.accuracy, bounds=(0.0, 1.0))

    @property
    def entropy_rate(self) -> Interval:
        """Mean entropy of answers, with an interval over problems."""
        return mean_interval(self.answer_entropy)


@dataclass(frozen=True)
class DemoResults:
    """Everything."""

    version: str
    """Of breadth."""
    plan: DemoPlan
    """What was asked for."""
    base: PolicyEval
    """The base on held-out problems."""
    plain: PolicyEval
    """The plain arm on the same."""
    protected: PolicyEval
    """The protected arm on the same."""
    corners: Corners
    """The two by two table."""
    forced: tuple[ForcedThinking, ...]
    """Accuracy of the plain arm against forced thinking, by rising budget."""
    plain_training: TrainingLog
    """How the plain arm's training went."""
    protected_training: TrainingLog
    """How the protected arm's training went."""
    versions: Mapping[str, str]
    """Of what it was made with."""
    base_digest: str
    """Hash of the base's files."""
    seconds: float
    """From start to end, over all attempts as far as they were measured."""

    def hump(self) -> HumpTest:
        """Test whether accuracy falls again as thinking is forced to be longer."""
        table: FloatArray = np.array([point.accuracy for point in self.forced]).T
        return hump_test([point.tokens for point in self.forced], table)
