"""Runs whose requests are changed on the way: another model, another prompt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from breadth.inference.records import Answer, Ask, Fork, Run


def rewritten(run: Run, change: Callable[[Ask], Ask]) -> Run:
    """Run a strategy with every ask of it, and of the runs it forks, changed."""
    reply: Any = None
    try:
        while True:
            try:
                request = run.send(reply)
            except StopIteration as end:
                answer: Answer = end.value
                return answer
            if isinstance(request, Ask):
                request = change(request)
            elif isinstance(request, Fork):
                request = replace(request, runs=tuple(rewritten(part, change) for part in request.runs))
            reply = yield request
    finally:
        run.close()


def with_model(run: Run, model: str) -> Run:
    """Run a strategy with another model than the task's; requests that name one keep it. An empty name changes nothing."""
    return rewritten(run, lambda ask: replace(ask, model=model) if ask.model is None else ask) if model else run
