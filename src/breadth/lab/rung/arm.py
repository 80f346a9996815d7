"""What is kept of one trained policy of the second rung; goes to JSON and back."""

from __future__ import annotations

from dataclasses import dataclass

from breadth.lab.evaluation.corners import Arm
from breadth.lab.evaluation.extended_vs_parallel import BothWays
from breadth.lab.rung.measuring import Breadth
from breadth.lab.rung.went import Went


@dataclass(frozen=True)
class RungArm:
    """One policy, trained and measured."""

    breadth: Breadth
    """Its replies to held-out problems."""
    both_ways: BothWays
    """Its answers by one long thought and by vote."""
    went: Went
    """How its training went."""

    @property
    def arm(self) -> Arm:
        """The same as an arm of the four corners."""
        return Arm(self.breadth.measured, self.both_ways)
