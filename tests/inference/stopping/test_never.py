"""The rule that never stops."""

from __future__ import annotations

import numpy as np

from breadth.inference.stopping.never import Never
from breadth.inference.stored_votes import Paths
from breadth.inference.voting import VoteState


def test_a_thousand_equal_votes_do_not_stop_it() -> None:
    assert not Never().is_decided(VoteState((1000,), (0,) * 1000))
    assert not Never().is_decided_along(Paths(np.zeros((1, 50), dtype=np.int32))).any()
    assert Never().posterior(VoteState((3,), (0, 0, 0))) is None
    assert Never().basis == ""


def test_its_decision_is_a_plain_no() -> None:
    assert Never().is_decided(VoteState((1,), (0,))) is False
