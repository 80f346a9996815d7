"""Runs a course as `train` does, and besides keeps the policy at several steps and lets the trainer be prepared before it begins."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from breadth.lab.courses.course import Course
from breadth.lab.courses.training import TRAINED, train
from breadth.lab.courses.trl_on_cpu import Told
from breadth.lab.model.reasoner import Reasoner, save

STAGES = "stages"
"""In the folder of a course: the policy at each step that is kept, by step."""
Prepare = Callable[[Any], None]
"""Changes a trainer before it begins."""


def train_in_stages(
    course: Course,
    folder: Path,
    base: Path | None,
    stages: Sequence[int] = (),
    told: Told | None = None,
    prepare: Prepare | None = None,
) -> dict[int, Path]:
    """Run a course and return where the policy lies at each stage and at the end, by step; what has ended is not run again."""
    kept = {step: folder / STAGES / str(step) for step in stages if step < course.steps}

    def begin(trainer: Any, reasoner: Reasoner) -> None:
        trainer.add_callback(_keeper(kept, reasoner))
        if prepare is not None:
            prepare(trainer)

    train(course, folder, base, told, begin)
    return {**kept, course.steps: folder / TRAINED}


def _keeper(kept: Mapping[int, Path], reasoner: Reasoner) -> Any:
    from transformers import TrainerCallback

    class Keeper(TrainerCallback):  # type: ignore[misc]  # transformers is untyped here
        """Saves the policy when a stage is reached."""

        def on_step_end(self, _args: Any, state: Any, _control: Any, model: Any = None, **_: Any) -> None:
            place = kept.get(state.global_step)
            if place is not None and not place.exists():
                save(Reasoner(model, reasoner.tokenizer, reasoner.teacher), place)

    return Keeper()
