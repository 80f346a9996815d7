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
    """Draw until the strategy's own limit, whatever the votes say."""

    by_counts: ClassVar[bool] = True

    def is_decided(self, standing: VoteState) -> bool:
        """Say no."""
        del standing
        return False

    def is_decided_along(self, paths: Paths) -> BoolArray:
        """Say no everywhere."""
        return np.zeros(paths.classes.shape, dtype=np.bool_)
