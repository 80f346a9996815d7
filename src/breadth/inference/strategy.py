"""The strategy interface: a frozen dataclass that turns a task into a run, and the catalogue of all strategies."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from breadth.base.catalogue import Catalogue
from breadth.inference.catalogue import STRATEGIES
from breadth.inference.records import Run, Task


class Strategy(ABC):
    """A frozen dataclass whose fields are the settings; calling it on a task gives the run.

    A run does no I/O and all its randomness comes from ``task.seed``. Its generator yields `Ask`, `Fork` or `Judge`, is
    sent the results and returns an `Answer`; when it is sent an empty list it returns the best answer so far.
    """

    catalogue: ClassVar[Catalogue] = STRATEGIES
    needs: ClassVar[frozenset[str]] = frozenset()
    """Requirements: logprobs, confidences, prefix, judge. A sampler or store that lacks one is refused at the start."""

    def prepare(self) -> None:  # noqa: B027 - most have nothing to prepare
        """Compute in advance what would block an event loop at the first task, such as a stop table. Optional."""

    @abstractmethod
    def __call__(self, task: Task) -> Run:
        """Return the run of this strategy on a task."""
