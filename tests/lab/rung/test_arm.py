"""An arm goes to JSON and back, and to the four corners."""

from __future__ import annotations

from breadth.lab import records
from breadth.lab.evaluation.extended_vs_parallel import BothWays, Replies
from breadth.lab.rung.arm import RungArm
from breadth.lab.rung.drawing import Reply
from breadth.lab.rung.measuring import breadth_of
from breadth.lab.rung.sums import Sum
from breadth.lab.rung.went import Went


def test_to_json_and_back_and_to_the_corners() -> None:
    import numpy as np

    said = Reply([5, 1], np.array([0.5, 0.0], np.float32), "6", ended=True)
    both = BothWays(
        9, Replies((("6",),), ((True,),), ((10,),), ((10,),)), Replies((("7",),), ((False,),), ((4,),), ((10,),))
    )
    arm = RungArm(
        breadth_of([Sum((1, 2, 3))], [[said, said]], (1, 2)), both, Went((1,), (0.5,), (0.25,), (0.0,), (1.0,))
    )
    again = records.loads(RungArm, records.dumps(arm))
    assert (again.both_ways, again.went, again.breadth.distinct) == (arm.both_ways, arm.went, arm.breadth.distinct)
    assert again.arm.measured.at(2).passed == (1.0,)
    assert again.arm.both_ways == both
