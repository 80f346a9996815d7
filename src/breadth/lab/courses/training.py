"""Runs a course through TRL's trainer with our objective inside, into a run folder; a killed run goes on from its last checkpoint."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import shutil
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from breadth.base import settings
from breadth.base.atomic import whole_file, write_error
from breadth.base.errors import BrokenFileError, MissingExtraError
from breadth.lab.courses.course import Course
from breadth.lab.courses.marks import PlanningMarks
from breadth.lab.courses.rollouts import rollouts_of
from breadth.lab.model.reasoner import Reasoner, digest, load, save
from breadth.lab.task.grammar import CLOSE, parse
from breadth.lab.task.problems import NUMBER, read_problem
from breadth.lab.task.vocabulary import words_of
from breadth.training.loss.reference_kl import ReferenceKL

SAVED_EVERY = 20
"""Optimizer steps between checkpoints."""
COURSE, ORIGIN, CHECKPOINTS, TRAINED, RUN = "course.toml", "base.sha256", "checkpoints", "policy", "run"
"""In the folder of a course: its settings, which base it began with, TRL's checkpoints while it runs, the trained reasoner, the run."""
Told = Callable[[int, Mapping[str, float]], None]
"""Told each optimizer step and what TRL logs of it."""
Prepare = Callable[[Any, Reasoner], None]
"""Changes a trainer, given with the reasoner it trains, before it begins."""


def train(course: Course, folder: Path, base: Path | None = None, told: Told | None = None, prepare: Prepare | None = None) -> Reasoner:
    """Run a course from a base (by default the one that ships) and return the trained reasoner.

    A course that has ended before is loaded, one that was interrupted goes on; a folder of another course or base is refused.
    """
    if finished(course, folder, base):
        return load(folder / TRAINED)
    reasoner = load(base)
    _begin(course, folder, base)
    with _quiet():
        trainer = _trainer(course, reasoner, folder, told)
        if prepare is not None:
            prepare(trainer, reasoner)
        trainer.train(resume_from_checkpoint=_last_checkpoint(folder))
        save(Reasoner(trainer.model.eval(), reasoner.tokenizer, reasoner.teacher), folder / TRAINED)
    shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
    return Reasoner(trainer.model, reasoner.tokenizer, reasoner.teacher)


def finished(course: Course, folder: Path, base: Path | None = None) -> bool:
    """Say whether this course has ended in this folder; refuse a folder that holds another, or one from another base."""
    path = folder / COURSE
    if not path.exists():
        return False
    if settings.load(Course, path) != course:
        raise BrokenFileError(path, "is another course than the one asked for.", "Name another folder, or move this one away.")
    origin = folder / ORIGIN
    if origin.exists() and origin.read_text(encoding="utf-8").strip() != digest(base):
        raise BrokenFileError(origin, "names another base than the one given.", "Name another folder, or move this one away.")
    return (folder / TRAINED).is_dir()


def grader(prime: int) -> Callable[..., list[float]]:
    """Return the reward: 1 for a reply that is complete, keeps to the grammar and gives the right answer; 0 for anything else.

    It reads token by token, not the decoded text: decoding leaves marks out, so a reply cut before its end, or with a mark in the middle
    of its thinking, would read like a whole one.
    """
    words = words_of(prime)

    def right_answers(prompts: Sequence[str], completion_ids: Sequence[Sequence[int]], gold: Sequence[int], **_: Any) -> list[float]:
        replies = zip(prompts, completion_ids, gold, strict=True)
        return [float(parse(read_problem(prompt), [words[one] for one in ids]).answer == answer) for prompt, ids, answer in replies]

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
        from trl import GRPOConfig

        from breadth.adapters.trl.hook import BreadthGRPOTrainer
    except ImportError as error:
        raise MissingExtraError("Training the tiny reasoner", "train") from error
    prime = reasoner.teacher.facts.prime
    rows = [{"prompt": problem.text, "gold": problem.answer(prime)} for problem in course.trained_on(prime)]
    arguments = GRPOConfig(
        str(folder / CHECKPOINTS),
        max_steps=course.steps,
        learning_rate=course.rate,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=5,
        per_device_train_batch_size=course.prompts * course.group // course.updates,
        steps_per_generation=course.updates,
        num_generations=course.group,
        max_completion_length=course.longest,
        logging_steps=1,
        save_strategy="steps",
        save_steps=_checkpoint_steps(course),
        save_total_limit=2,  # the last but one goes when the last is complete, not before
        gradient_checkpointing=False,  # TRL saves memory by default; here there is enough, and time is short
        bf16=False,
        use_cpu=True,
        disable_tqdm=True,
        report_to="none",
        seed=course.seed,
        beta=_reference_price(course),
    )
    return BreadthGRPOTrainer(
        reasoner.model.train(),
        grader(prime),
        arguments,
        Dataset.from_list(rows),
        processing_class=reasoner.tokenizer,
        objective=course.chain,
        outcome=stated_answer,
        grams=PlanningMarks(),
        rollout_func=rollouts_of(reasoner, course.longest),
        run=folder / RUN,
        callbacks=[] if told is None else [_callback(told)],
    )


def _reference_price(course: Course) -> float:
    """Return the price of leaving the base that the chain asks for: TRL loads a reference policy only when told one."""
    return next((one.coefficient for one in course.chain.mechanisms if isinstance(one, ReferenceKL)), 0.0)


def _checkpoint_steps(course: Course) -> int:
    """Return a multiple of the updates of a generation: only at its end can a run be taken up again."""
    return max(1, SAVED_EVERY // course.updates) * course.updates


def _callback(told: Told) -> Any:
    from transformers import TrainerCallback

    class Listener(TrainerCallback):  # type: ignore[misc]  # transformers is untyped here
        """Passes on what the trainer logs."""

        def on_log(self, _args: Any, state: Any, _control: Any, logs: Mapping[str, float] | None = None, **_: Any) -> None:
            if logs and "reward" in logs:
                told(state.global_step, logs)

    return Listener()


def _last_checkpoint(folder: Path) -> str | None:
    """Return the newest checkpoint that is whole: the state of the objective is written last."""
    from breadth.adapters.trl.hook import STATE

    whole = [path for path in (folder / CHECKPOINTS).glob("checkpoint-*") if (path / STATE).is_file()]
    found = sorted(whole, key=lambda path: int(path.name.split("-")[1]))
    return str(found[-1]) if found else None


@contextlib.contextmanager
def _quiet() -> Any:
    """Keep what the libraries print and warn about out of the terminal: our own words say what matters."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
