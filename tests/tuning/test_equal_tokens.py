"""Equal tokens: the width follows from cost alone, and the difference is paired."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from breadth.tuning.equal_tokens import equal_tokens
from breadth.tuning.evidence import Evidence

Made = Callable[..., Evidence]


def test_the_vote_is_the_widest_that_costs_no_more(made: Made) -> None:
    # Plain draws cost 10, traces 4 more than their budget: 35 pays for 3, 99 for more than the four there are, 9 for
    # none.
    evidence = made([[0, 0, 1, 1], [0, 0, 0, 1]], {5: [[0], [1]], 31: [[1], [1]], 95: [[0], [0]]}, widths=(1, 4))
    pairs = equal_tokens(evidence)
    assert [(pair.budget, pair.width, pair.serial_tokens, pair.parallel_tokens) for pair in pairs] == [
        (31, 3, 35, 30),
        (95, 4, 99, 40),
    ]
    # Votes of three: of 2 against 2 right in half of the draws; of 3 against 1 always. The trace is right on none.
    assert pairs[0].parallel.value == pytest.approx(0.75)
    assert pairs[0].difference.difference.value == pytest.approx(0.75)
    # Votes of four: a tie counts half, and the second is right. The trace is right on both.
    assert pairs[1].difference.difference.value == pytest.approx(-0.25)


def test_without_forced_thinking_there_is_nothing_to_compare(made: Made) -> None:
    assert equal_tokens(made([[0, 1]])) == ()
