"""What samples look like: spread, answers that change within a trace, what cannot be read."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from breadth.tuning.evidence import Evidence
from breadth.tuning.traits import arm_traits

Made = Callable[..., Evidence]


def test_entropy_is_taken_at_the_same_number_of_samples_everywhere(made: Made) -> None:
    # Forced arms have one sample here, so no arm has an entropy.
    assert all(traits.entropy is None for traits in arm_traits(made([[0, 1], [0, 0]], {8: [[0], [1]]})))
    (plain,) = arm_traits(made([[0, 1], [0, 0]]))
    # One question of two different answers in two samples: ln 2 + 1/4 (Miller-Madow); the other 0.
    assert plain.entropy is not None
    assert plain.entropy.value == pytest.approx((math.log(2) + 0.25) / 2)
    assert plain.samples == 2


def test_changes_of_the_answer_are_counted_to_and_from_the_right_one(made: Made) -> None:
    texts = [
        "The answer is 0. Wait. The answer is 5.",  # lost
        "The answer is 0.",
        "The answer is 3. Wait. The answer is 4. Wait. The answer is 0.",  # moved, then found
        "I cannot say.",
    ]
    (plain,) = arm_traits(made([[1, 0], [0, -1]], texts=texts))
    assert plain.changing.value == pytest.approx(0.5)
    assert (plain.lost, plain.found) == (1, 1)
    assert plain.unread.value == pytest.approx(0.25)
    assert plain.score.value == pytest.approx(0.5)
    assert plain.tokens == 10


def test_traces_that_state_nothing_change_nothing(made: Made) -> None:
    (plain,) = arm_traits(made([[-1, -1], [-1, -1]]))
    assert plain.changing.value == 0
    assert plain.entropy is None
    assert plain.unread.value == 1
