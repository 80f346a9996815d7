"""A cheap way first, a dear one only where the cheap one is not sure (cascade)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from breadth.base.checks import require
from breadth.inference.prompts import with_model
from breadth.inference.records import Answer, Candidate, Run, Task
from breadth.inference.strategy import Strategy


@dataclass(frozen=True)
class CascadeStage:
    """One step of a cascade."""

    strategy: Strategy
    """How to answer."""
    model: str = ""
    """Model to ask; empty for the task's."""
    confidence: float = 0.95
    """Confidence from which its answer is taken; an answer without confidence never is, unless the stage is the last.
    """

    def __post_init__(self) -> None:
        require(self, "confidence", 0 <= self.confidence <= 1, "a probability")


@dataclass(frozen=True)
class Cascade(Strategy):
    """Answer by the first stage; go on to the next while the answer is not confident enough.

    Votes of stages are not mixed: a small model's votes would outnumber a large one's, and the posterior of a vote
    holds for draws of one kind. The last stage's answer is taken as it is; where a stage can read none (its budget
    died, or nothing was readable) the latest earlier one stands. A confidence of 0.95 is what the adaptive vote stops
    at, so that a first stage of it goes on exactly when its vote was not decided.
    Harm: the confidence is that of the vote, not of being right: a small model that agrees on a wrong answer is never
    asked again.
    """

    stages: tuple[CascadeStage, ...]
    """What to try, cheapest first."""

    def __post_init__(self) -> None:
        require(self, "stages", len(self.stages) >= 1, "at least one stage")

    @property
    def needs(self) -> frozenset[str]:  # type: ignore[override]  # what the stages need, not the class
        """What any stage cannot work without."""
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
