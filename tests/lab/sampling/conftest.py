"""A reasoner with weights large enough for each token to depend on all before it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from breadth.lab.reasoner import Reasoner, ReasonerShape, build_reasoner
from breadth.lab.task.teacher import ArithmeticFacts, Teacher


@pytest.fixture(scope="session")
def enlivened() -> Callable[[int, int], Reasoner]:
    """Makes one of so many layers, with room for so many tokens."""
    import torch

    def make(layers: int, context: int) -> Reasoner:
        torch.set_num_threads(1)
        reasoner = build_reasoner(
            Teacher(ArithmeticFacts(prime=7)),
            ReasonerShape(hidden=32, layers=layers, heads=2, inner=32, context=context),
        )
        with torch.no_grad():
            for weight in reasoner.model.parameters():
                if weight.dim() == 2:
                    weight *= 4
        return reasoner

    return make
