"""Stop when a whole window of votes agrees (early-stopping self-consistency)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from breadth.base.catalogue import Paper
from breadth.base.errors import MeasureError, require
from breadth.inference.stopping.rule import StopRule
from breadth.inference.stored_votes import Paths
from breadth.inference.voting import VoteState
from breadth.measure.validate import BoolArray


@dataclass(frozen=True)
class UnanimousWindow(StopRule):
    """Cut the votes into windows of ``size``; stop when all votes of one whole window are the same.

    arXiv 2401.10480 (ESC), whose window of five is the default. A candidate without a readable answer does not count
    towards a window. Where we differ: the paper answers with the window's answer; here the answer is always that of all
    votes, so a late unanimous window does not overrule an earlier and larger majority.
    Harm: once a window has split, its remaining votes are wasted; the Beta rule needs fewer for the same agreement.
    """

    paper = Paper("arXiv 2401.10480", "early-stopping self-consistency (windows)")

    size: int = 5
    """Votes in a window."""

    def __post_init__(self) -> None:
        require(self, "size", self.size >= 1, "at least one vote")

    def is_decided(self, state: VoteState) -> bool:
        """Look for a full window of one answer."""
        votes = state.arrivals
        whole = range(self.size, len(votes) + 1, self.size)
        return any(len(set(votes[end - self.size : end])) == 1 for end in whole)

    def is_decided_along(self, paths: Paths) -> BoolArray:
        """Track the length of the last run of equal votes."""
        along = np.zeros(paths.classes.shape, dtype=np.bool_)
        last, run = np.zeros((2, len(along)), dtype=np.int32)
        reached = np.zeros(len(along), dtype=np.bool_)
        for draw, label in paths.iterate_draws():
            voting = label >= 0
            run = np.where(voting, np.where(label == last, run + 1, 1), run)
            last = np.where(voting, label, last)
            reached |= voting & (paths.total[:, draw] % self.size == 0) & (run >= self.size)
            along[:, draw] = reached
        return along


def expected_window_draws(shares: Sequence[float], size: int = 5, most: int = 40) -> float:
    """Return the mean samples that `UnanimousWindow` needs when each answer has its share, with ``most`` at most.

    With Q the chance that a window agrees: sum over windows of size * i * Q (1 - Q)^(i - 1), the last one taking the
    remaining probability (the control scheme of arXiv 2401.10480, which estimates the shares from the first window).
    """
    if size < 1 or most < size or most % size:
        raise MeasureError(f"{most} samples are not whole windows of {size}.", "Give a multiple of the window's size.")
    windows = most // size
    agree = sum(share**size for share in shares)
    early = sum(agree * (1 - agree) ** place * (place + 1) for place in range(windows - 1))
    return float(size * (early + (1 - agree) ** (windows - 1) * windows))
