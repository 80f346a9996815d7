"""Trains an arm of the second rung through TRL with our objective inside; a killed run goes on from its last checkpoint."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from breadth.base.errors import MissingExtraError
from breadth.lab.demo.plan import ArmName, chain_of
from breadth.lab.grpo import arguments, keep_quiet, last_checkpoint, listener
from breadth.lab.rung.drawing import rollouts_of
from breadth.lab.rung.model import JOB, Policy, load, save
from breadth.lab.rung.plan import RungPlan
from breadth.lab.rung.sums import read_answer, trained_on

SAVED_EVERY = 10
"""Optimizer steps between checkpoints: weights and Adam's two moments, 1.6 GB each."""
CHECKPOINTS, TRAINED, RUN = "checkpoints", "policy", "run"
"""In the folder of an arm: TRL's checkpoints while it runs, the trained policy, the run."""


def train(plan: RungPlan, arm: ArmName, folder: Path, base: Path, told: Callable[[int], None]) -> Policy:
    """Train all weights of a base and return what became of it; what has ended before is loaded, what was interrupted goes on."""
    if (folder / TRAINED).is_dir():
        return load(folder / TRAINED)
    keep_quiet()
    policy = load(base)
    trainer = _trainer(plan, arm, policy, folder)
    trainer.add_callback(listener(lambda step, _: told(step)))
    trainer.train(resume_from_checkpoint=last_checkpoint(folder / CHECKPOINTS))
    trained = Policy(trainer.model.eval(), policy.tokenizer)
    save(trained, folder / TRAINED)
    shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
    return trained


def grader(policy: Policy) -> Callable[..., list[float]]:
    """Return the reward: 1 for a reply that ends by itself and whose answer is the sum, 0 for anything else.

    It reads tokens, not the text TRL decodes, in which a reply that was cut looks like a whole one.
    """

    def right_answers(completion_ids: Sequence[Sequence[int]], gold: Sequence[str], **_: Any) -> list[float]:
        replies = [list(ids) for ids in completion_ids]
        answers = [read_answer(policy.said(ids), ended=ids[-1] == policy.end) for ids in replies]
        return [float(answer == right) for answer, right in zip(answers, gold, strict=True)]

    return right_answers


def _trainer(plan: RungPlan, arm: ArmName, policy: Policy, folder: Path) -> Any:
    try:
        from datasets import Dataset

        from breadth.adapters.trl.trainer import BreadthGRPOTrainer
    except ImportError as error:
        raise MissingExtraError(JOB, "train") from error
    chain = chain_of(arm)
    settled = arguments(
        folder / CHECKPOINTS,
        chain,
        max_steps=plan.steps,
        learning_rate=plan.rate,
        warmup_steps=min(5, plan.steps - 1),
        per_device_train_batch_size=plan.prompts * plan.group // plan.parts,
        gradient_accumulation_steps=plan.parts,
        steps_per_generation=plan.parts,
        num_generations=plan.group,
        max_completion_length=plan.longest,
        save_steps=SAVED_EVERY,
        seed=plan.seed,
    )
    return BreadthGRPOTrainer(
        policy.model.train(),
        grader(policy),
        settled,
        Dataset.from_list([{"prompt": problem.prompt, "gold": problem.answer} for problem in trained_on(plan.trained)]),
        processing_class=policy.tokenizer,
        objective=chain,
        outcome=lambda text: read_answer(text, ended=True),
        rollout_func=rollouts_of(policy, plan.longest),
        run=folder / RUN,
    )
