"""Never stop early: the plain vote."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from breadth.inference.stopping.rule import StopRule
from breadth.inference.stored_votes import Paths
from breadth.inference.voting import VoteState
from breadth.measure.validate import BoolArray


@dataclass(frozen=True)
class Never(StopRule):
    """Sample up to the strategy's own limit, regardless of the votes."""

    by_counts: ClassVar[bool] = True

    def is_decided(self, state: VoteState) -> bool:
        """Return False."""
        del state
        return False

    def is_decided_along(self, paths: Paths) -> BoolArray:
        """Return False everywhere."""
        return np.zeros(paths.classes.shape, dtype=np.bool_)
