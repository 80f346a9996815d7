"""One course of reinforcement learning: everything that decides what a GRPO run on the reasoner does."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import shutil
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from breadth.base import settings
from breadth.base.atomic import atomic_file, write_error
from breadth.base.checks import require
from breadth.base.errors import BrokenFileError, MissingExtraError
from breadth.inference.records import Sampling
from breadth.lab.model.reasoner import Reasoner, load_reasoner, reasoner_digest, save_reasoner
from breadth.lab.sampling.batch import CompletionJob, sample_all
from breadth.lab.task.grammar import CLOSE, TokenRole, parse, token_roles
from breadth.lab.task.problems import LEVELS, NUMBER, Level, Problem, draw_held_out, draw_problems, read_problem
from breadth.lab.task.vocabulary import vocabulary_words
from breadth.training.chain import Chain
from breadth.training.loss.reference_kl import ReferenceKL

TRAIN_SEED, VALIDATION_SEED = 77, 78
"""Seeds of the problems that are trained on, and of those beside them; none of either is held out."""
OFF_POLICY_UPDATES, OFF_POLICY_LEARNING_RATE = 4, 3e-4
"""Updates a generation where remedies act only on a policy that has moved, and the rate there, by
`breadth lab run choices-several`.
"""


@dataclass(frozen=True)
class GrpoRun:
    """Settings of a run.

    Two courses that differ in nothing but the chain are the same experiment with and without a remedy.
    """

    chain: Chain
    """Advantages and loss."""
    steps: int = 120
    """Optimizer steps."""
    learning_rate: float = 1e-3
    """Learning rate, constant after five steps."""
    prompts: int = 8
    """Problems of a generation."""
    group: int = 16
    """Replies to each."""
    updates: int = 1
    """Optimizer steps a generation; 1 is strictly on-policy."""
    problems: int = 128
    """Problems trained on, in all."""
    level: Level = "medium"
    """How long they are."""
    max_completion_length: int = 96
    """Tokens of a reply at most; a longer one is cut and gets nothing."""
    seed: int = 0
    """Of the order of the problems and of what is drawn."""

    def __post_init__(self) -> None:
        for field in ("steps", "prompts", "updates", "problems", "max_completion_length"):
            require(self, field, getattr(self, field) >= 1, "1 or more")
        require(self, "group", self.group >= 2, "2 or more, to be compared with each other")
        require(self, "learning_rate", 0 < self.learning_rate < 1, "a number above 0, below 1")
        require(self, "level", self.level in LEVELS, f"one of {', '.join(LEVELS)}")
        require(
            self,
            "prompts",
            self.prompts * self.group % self.updates == 0,
            "so many that prompts x group divides into the updates",
        )
        require(self, "seed", self.seed >= 0, "0 or more")

    def validation_problems(self, count: int, prime: int) -> list[Problem]:
        """List problems that are neither trained on nor held out: what a choice between courses may be made on."""
        taken = {*draw_held_out(prime, self.level), *self.training_problems(prime)}
        return draw_problems(count, prime, self.level, VALIDATION_SEED, frozenset(taken))

    def training_problems(self, prime: int) -> list[Problem]:
        """List the problems trained on: the same for every seed, none of them held out."""
        return draw_problems(self.problems, prime, self.level, TRAIN_SEED, frozenset(draw_held_out(prime, self.level)))


CHECKPOINT_STEPS = 20
"""Optimizer steps between checkpoints."""
MAX_LENGTH_BUCKETS, MIN_BUCKET_REPLIES = 8, 8
"""Forward passes an optimizer step is cut into, replies of like length together, and the fewest replies of one: twice
as fast on a core.
"""
SETTINGS_FILE, BASE_HASH_FILE, CHECKPOINTS_FOLDER, POLICY_FOLDER, RUN_FOLDER = (
    "course.toml",
    "base.sha256",
    "checkpoints",
    "policy",
    "run",
)
"""In the folder of a course: its settings, which base it began with, TRL's checkpoints while it runs, the trained
reasoner, the run.
"""
PrepareRun = Callable[[Any, Reasoner], None]
"""Changes a trainer, given with the reasoner it trains, before it begins."""


def train_grpo(
    run: GrpoRun,
    folder: Path,
    base: Path | None = None,
    on_step: OnStep | None = None,
    prepare: PrepareRun | None = None,
) -> Reasoner:
    """Run a course from a base (by default the one that ships) and return the trained reasoner.

    A course that has ended before is loaded, one that was interrupted goes on; a folder of another course or base is
    refused.
    """
    if is_finished(run, folder, base):
        return load_reasoner(folder / POLICY_FOLDER)
    reasoner = load_reasoner(base)
    _start_folder(run, folder, base)
    with _silence():
        trainer = build_trainer(run, reasoner, folder, on_step)
        if prepare is not None:
            prepare(trainer, reasoner)
        trainer.train(resume_from_checkpoint=last_checkpoint(folder / CHECKPOINTS_FOLDER))
        save_reasoner(Reasoner(trainer.model.eval(), reasoner.tokenizer, reasoner.teacher), folder / POLICY_FOLDER)
    shutil.rmtree(folder / CHECKPOINTS_FOLDER, ignore_errors=True)
    return Reasoner(trainer.model, reasoner.tokenizer, reasoner.teacher)


def is_finished(run: GrpoRun, folder: Path, base: Path | None = None) -> bool:
    """Say whether this course has ended in this folder; refuse a folder that holds another, or one from another base."""
    path = folder / SETTINGS_FILE
    if not path.exists():
        return False
    if settings.load(GrpoRun, path) != run:
        raise BrokenFileError(
            path, "is another course than the one asked for.", "Name another folder, or move this one away."
        )
    origin = folder / BASE_HASH_FILE
    if origin.exists() and origin.read_text(encoding="utf-8").strip() != reasoner_digest(base):
        raise BrokenFileError(
            origin, "names another base than the one given.", "Name another folder, or move this one away."
        )
    return (folder / POLICY_FOLDER).is_dir()


def routes_reward_function(prime: int) -> Callable[..., list[float]]:
    """Return the reward: 1 for a reply that is complete, keeps to the grammar and gives the right answer; 0 for anything else.

    It reads token by token, not the decoded text: decoding leaves marks out, so a reply cut before its end, or with a
    mark in the middle of its thinking, would read like a whole one.
    """
    words = vocabulary_words(prime)

    def right_answers(
        prompts: Sequence[str], completion_ids: Sequence[Sequence[int]], gold: Sequence[int], **_: Any
    ) -> list[float]:
        replies = zip(prompts, completion_ids, gold, strict=True)
        return [
            float(parse(read_problem(prompt), [words[token] for token in ids]).answer == answer)
            for prompt, ids, answer in replies
        ]

    return right_answers


def read_stated_answer(text: str) -> str | None:
    """Return the answer that a reply states behind its thinking, for the run folder; None where there is none."""
    words = text.split()
    return words[-1] if len(words) > 1 and words[-2] == CLOSE and NUMBER.fullmatch(words[-1]) else None


def _start_folder(run: GrpoRun, folder: Path, base: Path | None) -> None:
    """Make the folder and write down what is run in it; the settings last, for by them it is known."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_error(folder, error) from error
    with atomic_file(folder / BASE_HASH_FILE) as temporary:
        temporary.write_text(reasoner_digest(base) + "\n", encoding="utf-8")
    settings.dump(run, folder / SETTINGS_FILE)


def build_trainer(run: GrpoRun, reasoner: Reasoner, folder: Path, on_step: OnStep | None) -> Any:
    try:
        from datasets import Dataset

        from breadth.adapters.trl.trainer import BreadthGRPOTrainer
    except ImportError as error:
        raise MissingExtraError("Training the tiny reasoner", "train") from error
    prime = reasoner.teacher.facts.prime
    rows = [{"prompt": problem.text, "gold": problem.answer(prime)} for problem in run.training_problems(prime)]
    config = cpu_grpo_config(
        folder / CHECKPOINTS_FOLDER,
        run.chain,
        max_steps=run.steps,
        learning_rate=run.learning_rate,
        warmup_steps=5,
        per_device_train_batch_size=run.prompts * run.group // run.updates,
        steps_per_generation=run.updates,
        num_generations=run.group,
        max_completion_length=run.max_completion_length,
        save_steps=_checkpoint_steps(run),
        seed=run.seed,
    )
    return BreadthGRPOTrainer(
        reasoner.model.train(),
        routes_reward_function(prime),
        config,
        Dataset.from_list(rows),
        processing_class=reasoner.tokenizer,
        objective=run.chain,
        outcome=read_stated_answer,
        grams=PlanningMarks(),
        rollout_func=routes_rollout_function(reasoner, run.max_completion_length),
        run=folder / RUN_FOLDER,
        length_buckets=max(1, min(MAX_LENGTH_BUCKETS, config.per_device_train_batch_size // MIN_BUCKET_REPLIES)),
        callbacks=[] if on_step is None else [step_callback(on_step)],
    )


def _checkpoint_steps(run: GrpoRun) -> int:
    """Return a multiple of the updates of a generation: only at its end can a run be taken up again."""
    return max(1, CHECKPOINT_STEPS // run.updates) * run.updates


@contextlib.contextmanager
def _silence() -> Any:
    """Keep what the libraries print and warn about out of the terminal: our own words say what matters."""
    silence_libraries()
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


STAGES_FOLDER = "stages"
"""In the folder of a course: the policy at each step that is kept, by step."""
PrepareTrainer = Callable[[Any], None]
"""Changes a trainer before it begins."""


def train_with_checkpoints(
    run: GrpoRun,
    folder: Path,
    base: Path | None,
    stages: Sequence[int] = (),
    on_step: OnStep | None = None,
    prepare: PrepareTrainer | None = None,
) -> dict[int, Path]:
    """Run a course and return where the policy lies at each stage and at the end, by step; what has ended is not run again."""
    kept = {step: folder / STAGES_FOLDER / str(step) for step in stages if step < run.steps}

    def begin(trainer: Any, reasoner: Reasoner) -> None:
        trainer.add_callback(_keeper(kept, reasoner))
        if prepare is not None:
            prepare(trainer)

    train_grpo(run, folder, base, on_step, begin)
    return {**kept, run.steps: folder / POLICY_FOLDER}


def _keeper(kept: Mapping[int, Path], reasoner: Reasoner) -> Any:
    from transformers import TrainerCallback

    class Keeper(TrainerCallback):  # type: ignore[misc]  # transformers is untyped here
        """Saves the policy when a stage is reached."""

        def on_step_end(self, _args: Any, state: Any, _control: Any, model: Any = None, **_: Any) -> None:
            place = kept.get(state.global_step)
            if place is not None and not place.exists():
                save_reasoner(Reasoner(model, reasoner.tokenizer, reasoner.teacher), place)

    return Keeper()


RolloutFunction = Callable[[Sequence[str], Any], dict[str, Any]]
"""Given the prompts of a generation, each as often as it is to be answered, and the trainer."""


def routes_rollout_function(reasoner: Reasoner, longest: int) -> RolloutFunction:
    """Return TRL's ``rollout_func`` for a reasoner: one reply to each prompt given, drawn from the weights as they are then.

    Seeds come from torch's own chance, which checkpoints keep: a run that goes on draws what it would have drawn. The
    temperature is that of the trainer's generation, whatever its loss takes it to be.
    """
    import torch

    def rollouts(prompts: Sequence[str], trainer: Any) -> dict[str, Any]:
        given = {prompt: tuple(reasoner.tokenizer(prompt)["input_ids"]) for prompt in dict.fromkeys(prompts)}
        sampling = Sampling(temperature=trainer.generation_config.temperature, top_p=1.0, max_tokens=longest)
        seeds = torch.randint(2**62, (len(prompts),)).tolist()
        drawn = sample_all(
            reasoner,
            [CompletionJob(given[prompt], sampling, seed) for prompt, seed in zip(prompts, seeds, strict=True)],
        )
        return {
            "prompt_ids": [list(given[prompt]) for prompt in prompts],
            "completion_ids": [completion.ids.tolist() for completion in drawn],
            "logprobs": None,
        }

    return rollouts


@dataclass(frozen=True)
class PlanningMarks:
    """Marks the planning tokens of Routes; what `BreadthGRPOTrainer` takes as its grams."""

    def mark_tokens(self, text: str, offsets: Sequence[tuple[int, int]]) -> list[bool]:
        """Say for each token, given the (start, end) of its characters in the text, whether it plans; a token is one word."""
        words = [text[start:end].strip() for start, end in offsets]
        return [role is TokenRole.PLANNING for role in token_roles(words)]


OnStep = Callable[[int, Mapping[str, float]], None]
"""Told each optimizer step and what TRL logs of it."""


def cpu_grpo_config(checkpoints: Path, chain: Chain, **own: Any) -> Any:
    """Return TRL's settings for a chain: those of all trainings, and a training's own."""
    from trl import GRPOConfig

    return GRPOConfig(
        str(checkpoints),
        lr_scheduler_type="constant_with_warmup",
        logging_steps=1,
        save_strategy="steps",
        save_total_limit=2,  # the last but one goes when the last is complete, not before
        gradient_checkpointing=False,  # TRL saves memory by default; here there is enough, and time is short
        bf16=False,
        use_cpu=True,
        disable_tqdm=True,
        report_to="none",
        beta=reference_kl_coefficient(chain),
        **own,
    )


def silence_libraries() -> None:
    """Let libraries look for nothing on the network and not warn of what is used on purpose; what a user has set stays."""
    for name, value in {
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "TRL_EXPERIMENTAL_SILENCE": "1",
    }.items():
        os.environ.setdefault(name, value)


def step_callback(on_step: OnStep) -> Any:
    """Return a callback that passes on what the trainer logs of each step."""
    from transformers import TrainerCallback

    class Listener(TrainerCallback):  # type: ignore[misc]  # transformers is untyped here
        """Passes on what the trainer logs."""

        def on_log(
            self, _args: Any, state: Any, _control: Any, logs: Mapping[str, float] | None = None, **_: Any
        ) -> None:
            if logs and "reward" in logs:
                on_step(state.global_step, logs)

    return Listener()


def last_checkpoint(checkpoints: Path) -> str | None:
    """Return the newest checkpoint that is whole: the state of the objective is written last."""
    from breadth.adapters.trl.trainer import OBJECTIVE_FILE

    whole = [path for path in checkpoints.glob("checkpoint-*") if (path / OBJECTIVE_FILE).is_file()]
    found = sorted(whole, key=lambda path: int(path.name.split("-")[1]))
    return str(found[-1]) if found else None


def reference_kl_coefficient(chain: Chain) -> float:
    """Return the price of leaving the base that the chain asks for: TRL loads a reference policy only when told one."""
    return next((mechanism.coefficient for mechanism in chain.mechanisms if isinstance(mechanism, ReferenceKL)), 0.0)
