"""Two ranks as two threads of one process, for tests of what happens between ranks that need no processes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from breadth.training import reduction


class Meeting:
    """Stands in for torch.distributed: each thread is a rank, and every call waits for the other."""

    def __init__(self, size: int) -> None:
        self.size, self.place = size, threading.local()
        self.barrier, self.slots = threading.Barrier(size, timeout=120), [None] * size

    def exchanged(self, thing: Any) -> list[Any]:
        self.slots[self.place.rank] = thing
        self.barrier.wait()
        everyone = list(self.slots)
        self.barrier.wait()
        return everyone

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return hasattr(self.place, "rank")

    def get_world_size(self) -> int:
        return self.size

    def get_rank(self) -> int:
        return int(self.place.rank)

    def all_gather_object(self, everyone: list[Any], thing: Any) -> None:
        everyone[:] = self.exchanged(thing)

    def all_gather(self, everyone: list[torch.Tensor], own: torch.Tensor) -> None:
        for room, part in zip(everyone, self.exchanged(own.clone()), strict=True):
            assert room.shape == part.shape, "a real all_gather needs equal shapes"
            assert room.dtype is part.dtype
            assert part.dtype is not torch.bool, "gloo gathers no bool"
            room.copy_(part)

    def all_reduce(self, total: torch.Tensor) -> None:
        total.copy_(sum(self.exchanged(total.clone())))


@pytest.fixture
def on_two_ranks(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[int], Any]], list[Any]]:
    """Return a function that calls another one with rank 0 and with rank 1 at once.

    And returns what the two returned.
    """
    meeting = Meeting(2)
    monkeypatch.setattr(reduction, "dist", meeting)

    def run(work: Callable[[int], Any]) -> list[Any]:
        def one(rank: int) -> Any:
            meeting.place.rank = rank
            try:
                return work(rank)
            except BaseException:
                meeting.barrier.abort()
                raise

        with ThreadPoolExecutor(2) as pool:
            return [job.result() for job in [pool.submit(one, rank) for rank in range(2)]]

    return run
