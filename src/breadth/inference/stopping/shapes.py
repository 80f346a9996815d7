"""Stop by the exact posterior over a library of answer shapes (the optimal Bayesian rule that keeps two counts and the rest)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from breadth.base.checks import require
from breadth.inference.stopping.beta_lead import BetaLead
from breadth.inference.stopping.paths import Paths, looked_up
from breadth.inference.stopping.rule import StopRule
from breadth.inference.stopping.shape_library import ShapeLibrary
from breadth.inference.stopping.shape_posterior import leader_posterior
from breadth.inference.voting import Standing


@dataclass(frozen=True)
class Shapes(StopRule):
    """Stop when the leader is a question's most frequent answer with posterior probability 1 - ``delta``, given past questions' shapes.

    The prior is a library of shapes p1 >= p2 >= ... with weights; the evidence the largest count, the second largest and the rest. The
    posterior is exact: which answer has which count is summed over all assignments (arXiv 2602.05395, form L = 3, which is as
    good as all counts when delta is small and takes far fewer votes than the Beta rule). An answer that shares the largest
    share of its shape counts as most frequent. The paper weighs 40-vote shapes of past questions equally; here the library's weights
    are fitted, see `ShapeLibrary.fit`. Without a library, or at a standing that no shape can give, it is `BetaLead` with
    threshold 1 - delta. The default is the 0.95 of Adaptive-Consistency.
    Harm: only as good as the library is like the questions. It bounds each question's chance, not the average, and knows no last
    vote; to state an average risk against a full vote use `Risk`.
    """

    delta: float = 0.05
    """Chance that the leader is not the most frequent answer, at most, when it stops."""
    library: ShapeLibrary = ShapeLibrary()
    """What past questions looked like; fitted from stored votes, kept in a file."""

    by_counts: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require(self, "delta", 0 < self.delta <= 0.5, "a probability above 0 and at most 0.5")

    def decided(self, standing: Standing) -> bool:
        """Compare the posterior with its bound."""
        return standing.total > 0 and self._chance(standing.leader, standing.runner_up, standing.rest) >= 1 - self.delta

    def posterior(self, standing: Standing) -> float | None:
        """Return the chance that the leader is the most frequent answer; None without votes."""
        return self._chance(standing.leader, standing.runner_up, standing.rest) if standing.total else None

    @property
    def basis(self) -> str:
        """Say where the posterior comes from."""
        if self.library.empty:
            return f"no library of past questions: {self._without.basis}"
        return f"answer shapes of {self.library.questions or len(self.library.shapes)} past questions"

    def decided_along(self, paths: Paths) -> NDArray[np.bool_]:
        """Work each standing out once."""
        chances = looked_up(self._chance, paths.leader, paths.runner_up, paths.rest)
        return np.asarray((chances >= 1 - self.delta) & (paths.total > 0))

    def _chance(self, leader: int, runner_up: int, rest: int) -> float:
        known = None if self.library.empty or not leader else leader_posterior(self.library, leader, runner_up, rest)
        if known is not None:
            return known
        # The votes of the rest tell the Beta rule nothing.
        return self._without.posterior(Standing((leader, runner_up), (0,) * (leader + runner_up))) or 0.0

    @property
    def _without(self) -> BetaLead:
        return BetaLead(1 - self.delta)
