"""The results of a demo: everything its page is made from, as records that round-trip through JSON."""

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
    """Accuracy with an exact number of thinking tokens, problem by problem."""

    tokens: int
    """Thinking tokens."""
    accuracy: tuple[float, ...]
    """Share of right replies per problem."""
    answer_entropy: tuple[float, ...]
    """Entropy of the answers per problem, in nats; a missing answer counts as one more answer."""

    @classmethod
    def from_evaluation(cls, tokens: int, found: Evaluation) -> ForcedThinking:
        """Summarize replies with forced thinking; answers are read as by a client that does not know the grammar."""
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
    """All results of a demo."""

    version: str
    """Version of breadth."""
    plan: DemoPlan
    """Its sizes."""
    base: PolicyEval
    """The base on held-out problems."""
    plain: PolicyEval
    """The plain arm on the same."""
    protected: PolicyEval
    """The protected arm on the same."""
    corners: Corners
    """The two-by-two table."""
    forced: tuple[ForcedThinking, ...]
    """Accuracy of the plain arm against forced thinking, by rising budget."""
    plain_training: TrainingLog
    """How the plain arm's training went."""
    protected_training: TrainingLog
    """How the protected arm's training went."""
    versions: Mapping[str, str]
    """Versions of the libraries used."""
    base_digest: str
    """Hash of the base's files."""
    seconds: float
    """Time taken, over all attempts."""

    def hump(self) -> HumpTest:
        """Test whether accuracy falls again as forced thinking grows longer."""
        table: FloatArray = np.array([point.accuracy for point in self.forced]).T
        return hump_test([point.tokens for point in self.forced], table)
