"""What becomes of right and wrong answers as a chain goes on: the flip matrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from breadth.base.errors import MeasureError


@dataclass(frozen=True)
class FlipMatrix:
    """Steps of chains by whether the answer was right before and after; they sum to the chains' lengths, each less one."""

    right_to_wrong: int = 0
    """Steps that lost a right answer."""
    wrong_to_right: int = 0
    """Steps that found it."""
    stayed_right: int = 0
    """Steps that kept it."""
    stayed_wrong: int = 0
    """Steps that did not find it; an answer that cannot be read is wrong."""

    @property
    def steps(self) -> int:
        """All steps."""
        return self.right_to_wrong + self.wrong_to_right + self.stayed_right + self.stayed_wrong

    @property
    def net(self) -> int:
        """Right answers that the chains have gained from first to last."""
        return self.wrong_to_right - self.right_to_wrong


def flip_matrix(chains: Sequence[Sequence[str | None]], truths: Sequence[str]) -> FlipMatrix:
    """Count the flips in chains of answer keys, each graded by the key of its truth.

    Revision without new information loses about as many right answers as it finds (arXiv 2310.01798); accuracy alone hides it.
    `breadth.measure.oscillation` counts the same within one trace, where answers come with positions.
    """
    if len(chains) != len(truths):
        raise MeasureError(f"There are {len(chains)} chains and {len(truths)} truths.", "Give each chain the key of its right answer.")
    counts = {(was, became): 0 for was in (True, False) for became in (True, False)}
    for chain, truth in zip(chains, truths, strict=True):
        right = [key == truth for key in chain]
        for step in pairwise(right):
            counts[step] += 1
    return FlipMatrix(counts[True, False], counts[False, True], counts[True, True], counts[False, False])


def changes(chain: Sequence[str | None]) -> tuple[int, int]:
    """Return how often the answer of a chain changed, and how often it changed to one it had given before; unread ones are passed over."""
    read = [key for key in chain if key is not None]
    changed = [place for place in range(1, len(read)) if read[place] != read[place - 1]]
    return len(changed), sum(read[place] in read[:place] for place in changed)
