"""A cheap strategy first, an expensive one only where the cheap one is not confident (cascade)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from breadth.base.errors import require
from breadth.inference.records import Answer, Candidate, Run, Task
from breadth.inference.strategy import Strategy, with_model


@dataclass(frozen=True)
class CascadeStage:
    """One stage of a cascade."""

    strategy: Strategy
    """Strategy of the stage."""
    model: str = ""
    """Model to ask; empty for the task's."""
    confidence: float = 0.95
    """Confidence from which its answer is taken; the last stage's answer always is, others never without confidence."""

    def __post_init__(self) -> None:
        require(self, "confidence", 0 <= self.confidence <= 1, "a probability")


@dataclass(frozen=True)
class Cascade(Strategy):
    """Answer by the first stage; continue to the next while the answer is not confident enough.

    Votes of stages are not mixed: a small model's votes would outnumber a large one's, and the posterior of a vote
    holds for samples of one kind. The last stage's answer is always taken; where a stage has none (its budget ran out,
    or nothing was readable) the latest earlier answer is used. The adaptive vote stops at a confidence of 0.95, so with
    it as first stage the cascade continues exactly when its vote was not decided.
    Harm: the confidence is that of the vote, not of being right: a small model that agrees on a wrong answer is never
    asked again.
    """

    example: ClassVar[Mapping[str, Any]] = {
        "stages": [{"strategy": {"kind": "single"}}, {"strategy": {"kind": "vote", "n": 3}}]
    }

    stages: tuple[CascadeStage, ...]
    """Stages, cheapest first."""

    def __post_init__(self) -> None:
        require(self, "stages", len(self.stages) >= 1, "at least one stage")

    @property
    def needs(self) -> frozenset[str]:  # type: ignore[override]  # what the stages need, not the class
        """Requirements of all stages."""
        return frozenset().union(*(stage.strategy.needs for stage in self.stages))

    def prepare(self) -> None:
        """Prepare every stage."""
        for stage in self.stages:
            stage.strategy.prepare()

    def __call__(self, task: Task) -> Run:
        """Try one stage after the other."""
        best = Answer(stopped="budget")
        seen: list[Candidate] = []
        used = 0.0
        for stage in self.stages:
            used += 1
            subject = replace(task, model=stage.model or task.model)
            answer: Answer = yield from with_model(stage.strategy(subject), stage.model)
            seen += answer.candidates
            if answer.key is not None or best.key is None:
                best = answer if answer.chosen is not None else best
            if answer.confidence is not None and answer.confidence >= stage.confidence:
                break
        return replace(best, candidates=tuple(seen), figures={**best.figures, "stages": used})
