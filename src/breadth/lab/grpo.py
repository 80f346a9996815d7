"""GRPO on the tiny reasoner through TRL, with our objective inside: settings, training into a run folder, resuming.

A killed run resumes from its last checkpoint. Replies are sampled by the lab's own engine through TRL's
``rollout_func``, so none waits for the longest. Which tokens plan is known from the grammar, where others must guess.
"""

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
from breadth.base.errors import BrokenFileError, MissingExtraError, require
from breadth.base.system import atomic_file, write_error
from breadth.inference.records import Sampling
from breadth.lab.reasoner import Reasoner, load_reasoner, reasoner_digest, save_reasoner
from breadth.lab.sampling.batch import CompletionJob, sample_all
from breadth.lab.task.grammar import CLOSE, TokenRole, parse, token_roles
from breadth.lab.task.problems import LEVELS, NUMBER, Level, Problem, draw_held_out, draw_problems, read_problem
from breadth.lab.task.vocabulary import vocabulary_words
from breadth.training.chain import Chain
from breadth.training.loss.reference_kl import ReferenceKL

TRAIN_SEED, VALIDATION_SEED = 77, 78
"""Seeds of the training and of the validation problems; none of them is held out."""
OFF_POLICY_UPDATES, OFF_POLICY_LEARNING_RATE = 4, 3e-4
"""Updates per generation in the off-policy regime, and its learning rate, by `breadth lab run choices-several`."""


@dataclass(frozen=True)
class GrpoRun:
    """Settings of a GRPO run.

    Two runs that differ only in the chain are the same experiment with and without a remedy.
    """

    chain: Chain
    """Advantages and loss."""
    steps: int = 120
    """Optimizer steps."""
    learning_rate: float = 1e-3
    """Learning rate, constant after five steps."""
    prompts: int = 8
    """Problems per generation."""
    group: int = 16
    """Replies per problem."""
    updates: int = 1
    """Optimizer steps per generation; 1 is strictly on-policy."""
    problems: int = 128
    """Training problems in total."""
    level: Level = "medium"
    """Their level."""
    max_completion_length: int = 96
    """Maximum tokens of a reply; a longer one is truncated and gets no reward."""
    seed: int = 0
    """Seed of the order of problems and of sampling."""

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
        """List problems neither trained on nor held out: the only ones that choices may be made on."""
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
    "grpo.toml",
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
    """Train from a base (by default the shipped one) and return the trained reasoner.

    A finished run is loaded, an interrupted one resumes; a folder of another run or base is refused.
    """
    if is_finished(run, folder, base):
        return load_reasoner(folder / POLICY_FOLDER)
    reasoner = load_reasoner(base)
    _start_folder(run, folder, base)
    with _silence():
        trainer = build_trainer(run, reasoner, folder, on_step)
        if prepare is not None:
            prepare(trainer, reasoner)
        train_from_newest(trainer, folder / CHECKPOINTS_FOLDER)
        save_reasoner(Reasoner(trainer.model.eval(), reasoner.tokenizer, reasoner.teacher), folder / POLICY_FOLDER)
    shutil.rmtree(folder / CHECKPOINTS_FOLDER, ignore_errors=True)
    return Reasoner(trainer.model, reasoner.tokenizer, reasoner.teacher)


def is_finished(run: GrpoRun, folder: Path, base: Path | None = None) -> bool:
    """Say whether this run has ended in this folder; refuse a folder of another run or base."""
    path = folder / SETTINGS_FILE
    if not path.exists():
        return False
    if settings.load(GrpoRun, path) != run:
        raise BrokenFileError(path, "holds the settings of another run.", "Name another folder, or move this one away.")
    origin = folder / BASE_HASH_FILE
    if origin.exists() and origin.read_text(encoding="utf-8").strip() != reasoner_digest(base):
        raise BrokenFileError(
            origin, "names another base than the one given.", "Name another folder, or move this one away."
        )
    return (folder / POLICY_FOLDER).is_dir()


def routes_reward_function(prime: int) -> Callable[..., list[float]]:
    """Return the reward function: 1 for a complete, well-formed reply with the right answer, else 0.

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
    """Make the folder and write what is run in it; the settings last, as they mark it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_error(folder, error) from error
    with atomic_file(folder / BASE_HASH_FILE) as temporary:
        temporary.write_text(reasoner_digest(base) + "\n", encoding="utf-8")
    settings.dump(run, folder / SETTINGS_FILE)


def build_trainer(run: GrpoRun, reasoner: Reasoner, folder: Path, on_step: OnStep | None) -> Any:
    """Return the TRL trainer of a run."""
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
    """Return a multiple of the updates per generation: a run can resume only between generations."""
    return max(1, CHECKPOINT_STEPS // run.updates) * run.updates


@contextlib.contextmanager
def _silence() -> Any:
    """Keep the output and warnings of libraries out of the terminal."""
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
    """Train, keep the policy at several steps, and return their folders by step; a finished run is not repeated."""
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
    """Return TRL's ``rollout_func`` for a reasoner: one reply per prompt, sampled from the current weights.

    Seeds come from torch's generator, which checkpoints keep: a resumed run samples what it would have sampled. The
    temperature is that of the trainer's generation, whatever its loss assumes.
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
        """Say for each token, given its (start, end) in the text, whether it plans; a token is one word."""
        words = [text[start:end].strip() for start, end in offsets]
        return [role is TokenRole.PLANNING for role in token_roles(words)]


OnStep = Callable[[int, Mapping[str, float]], None]
"""Called with each optimizer step and what TRL logs for it."""


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
    """Keep libraries offline and silent about what we use on purpose; what the user has set stays."""
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


def train_from_newest(trainer: Any, checkpoints: Path) -> None:
    """Train from the newest whole checkpoint on; one of the last step is only loaded.

    A run killed between its last step and its end leaves one, and transformers would take a further step from it.
    """
    newest = last_checkpoint(checkpoints)
    if newest is not None and checkpoint_step(Path(newest)) >= trainer.args.max_steps:
        trainer._load_from_checkpoint(newest)
    else:
        trainer.train(resume_from_checkpoint=newest)


def checkpoint_step(checkpoint: Path) -> int:
    """Return the step of a checkpoint, by the name of its folder."""
    return int(checkpoint.name.split("-")[1])


def last_checkpoint(checkpoints: Path) -> str | None:
    """Return the newest checkpoint that is whole: the state of the objective is written last."""
    from breadth.adapters.trl.history import OBJECTIVE_FILE

    whole = [path for path in checkpoints.glob("checkpoint-*") if (path / OBJECTIVE_FILE).is_file()]
    newest = max(whole, key=checkpoint_step, default=None)
    return None if newest is None else str(newest)


def reference_kl_coefficient(chain: Chain) -> float:
    """Return the KL coefficient of the chain: TRL loads a reference policy only if ``beta`` is above 0."""
    return next((mechanism.coefficient for mechanism in chain.mechanisms if isinstance(mechanism, ReferenceKL)), 0.0)
