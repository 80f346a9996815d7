"""Runs a course through TRL's trainer with our objective inside, into a run folder; a killed run goes on from its last checkpoint."""

from __future__ import annotations

import contextlib
import io
import logging
import shutil
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from breadth.base import settings
from breadth.base.atomic import whole_file, write_error
from breadth.base.errors import BrokenFileError, MissingExtraError
from breadth.lab.courses.course import Course
from breadth.lab.courses.marks import PlanningMarks
from breadth.lab.courses.rollouts import rollouts_of
from breadth.lab.courses.trl_on_cpu import Told, arguments, keep_quiet, last_checkpoint, listener
from breadth.lab.model.reasoner import Reasoner, digest, load, save
from breadth.lab.task.grammar import CLOSE, parse
from breadth.lab.task.problems import NUMBER, read_problem
from breadth.lab.task.vocabulary import words_of

SAVED_EVERY = 20
"""Optimizer steps between checkpoints."""
MOST_PARTS, PART = 8, 8
"""Forward passes an optimizer step is cut into, replies of like length together, and the fewest replies of one: twice
as fast on a core.
"""
COURSE, ORIGIN, CHECKPOINTS, TRAINED, RUN = "course.toml", "base.sha256", "checkpoints", "policy", "run"
"""In the folder of a course: its settings, which base it began with, TRL's checkpoints while it runs, the trained
reasoner, the run.
"""
Prepare = Callable[[Any, Reasoner], None]
"""Changes a trainer, given with the reasoner it trains, before it begins."""


def train(
    course: Course, folder: Path, base: Path | None = None, told: Told | None = None, prepare: Prepare | None = None
) -> Reasoner:
    """Run a course from a base (by default the one that ships) and return the trained reasoner.

    A course that has ended before is loaded, one that was interrupted goes on; a folder of another course or base is
    refused.
    """
    if finished(course, folder, base):
        return load(folder / TRAINED)
    reasoner = load(base)
    _begin(course, folder, base)
    with _quiet():
        trainer = _trainer(course, reasoner, folder, told)
        if prepare is not None:
            prepare(trainer, reasoner)
        trainer.train(resume_from_checkpoint=last_checkpoint(folder / CHECKPOINTS))
        save(Reasoner(trainer.model.eval(), reasoner.tokenizer, reasoner.teacher), folder / TRAINED)
    shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
    return Reasoner(trainer.model, reasoner.tokenizer, reasoner.teacher)


def finished(course: Course, folder: Path, base: Path | None = None) -> bool:
    """Say whether this course has ended in this folder; refuse a folder that holds another, or one from another base."""
    path = folder / COURSE
    if not path.exists():
        return False
    if settings.load(Course, path) != course:
        raise BrokenFileError(
            path, "is another course than the one asked for.", "Name another folder, or move this one away."
        )
    origin = folder / ORIGIN
    if origin.exists() and origin.read_text(encoding="utf-8").strip() != digest(base):
        raise BrokenFileError(
            origin, "names another base than the one given.", "Name another folder, or move this one away."
        )
    return (folder / TRAINED).is_dir()


def grader(prime: int) -> Callable[..., list[float]]:
    """Return the reward: 1 for a reply that is complete, keeps to the grammar and gives the right answer; 0 for anything else.

    It reads token by token, not the decoded text: decoding leaves marks out, so a reply cut before its end, or with a
    mark in the middle of its thinking, would read like a whole one.
    """
    words = words_of(prime)

    def right_answers(
        prompts: Sequence[str], completion_ids: Sequence[Sequence[int]], gold: Sequence[int], **_: Any
    ) -> list[float]:
        replies = zip(prompts, completion_ids, gold, strict=True)
        return [
            float(parse(read_problem(prompt), [words[one] for one in ids]).answer == answer)
            for prompt, ids, answer in replies
        ]

    return right_answers


def stated_answer(text: str) -> str | None:
    """Return the answer that a reply states behind its thinking, for the run folder; None where there is none."""
    words = text.split()
    return words[-1] if len(words) > 1 and words[-2] == CLOSE and NUMBER.fullmatch(words[-1]) else None


def _begin(course: Course, folder: Path, base: Path | None) -> None:
    """Make the folder and write down what is run in it; the settings last, for by them it is known."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_error(folder, error) from error
    with whole_file(folder / ORIGIN) as temporary:
        temporary.write_text(digest(base) + "\n", encoding="utf-8")
    settings.dump(course, folder / COURSE)


def _trainer(course: Course, reasoner: Reasoner, folder: Path, told: Told | None) -> Any:
    try:
        from datasets import Dataset

        from breadth.adapters.trl.trainer import BreadthGRPOTrainer
    except ImportError as error:
        raise MissingExtraError("Training the tiny reasoner", "train") from error
    prime = reasoner.teacher.facts.prime
    rows = [{"prompt": problem.text, "gold": problem.answer(prime)} for problem in course.trained_on(prime)]
    settled = arguments(
        folder / CHECKPOINTS,
        course.chain,
        max_steps=course.steps,
        learning_rate=course.rate,
        warmup_steps=5,
        per_device_train_batch_size=course.prompts * course.group // course.updates,
        steps_per_generation=course.updates,
        num_generations=course.group,
        max_completion_length=course.longest,
        save_steps=_checkpoint_steps(course),
        seed=course.seed,
    )
    return BreadthGRPOTrainer(
        reasoner.model.train(),
        grader(prime),
        settled,
        Dataset.from_list(rows),
        processing_class=reasoner.tokenizer,
        objective=course.chain,
        outcome=stated_answer,
        grams=PlanningMarks(),
        rollout_func=rollouts_of(reasoner, course.longest),
        run=folder / RUN,
        parts=max(1, min(MOST_PARTS, settled.per_device_train_batch_size // PART)),
        callbacks=[] if told is None else [listener(told)],
    )


def _checkpoint_steps(course: Course) -> int:
    """Return a multiple of the updates of a generation: only at its end can a run be taken up again."""
    return max(1, SAVED_EVERY // course.updates) * course.updates


@contextlib.contextmanager
def _quiet() -> Any:
    """Keep what the libraries print and warn about out of the terminal: our own words say what matters."""
    keep_quiet()
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
