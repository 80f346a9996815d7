"""Trains an arm of the second rung through TRL with our objective inside; a killed run goes on from its last checkpoint."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from breadth.base.errors import MissingExtraError
from breadth.lab.demo.plan import ANCHOR, ArmName, chain_of
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
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    policy = load(base)
    trainer = _trainer(plan, arm, policy, folder)
    trainer.add_callback(_listener(told))
    trainer.train(resume_from_checkpoint=_last_checkpoint(folder))
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
        from trl import GRPOConfig

        from breadth.adapters.trl.hook import BreadthGRPOTrainer
    except ImportError as error:
        raise MissingExtraError(JOB, "train") from error
    arguments = GRPOConfig(
        str(folder / CHECKPOINTS),
        max_steps=plan.steps,
        learning_rate=plan.rate,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=min(5, plan.steps - 1),
        per_device_train_batch_size=plan.prompts * plan.group // plan.parts,
        gradient_accumulation_steps=plan.parts,
        steps_per_generation=plan.parts,
        num_generations=plan.group,
        max_completion_length=plan.longest,
        logging_steps=1,
        save_strategy="steps",
        save_steps=SAVED_EVERY,
        save_total_limit=2,  # the last but one goes when the last is complete, not before
        gradient_checkpointing=False,  # time is shorter than memory
        bf16=False,
        use_cpu=True,
        disable_tqdm=True,
        report_to="none",
        seed=plan.seed,
        beta=ANCHOR if arm == "protected" else 0.0,  # TRL loads a reference policy only when told a price
    )
    return BreadthGRPOTrainer(
        policy.model.train(),
        grader(policy),
        arguments,
        Dataset.from_list([{"prompt": problem.prompt, "gold": problem.answer} for problem in trained_on(plan.trained)]),
        processing_class=policy.tokenizer,
        objective=chain_of(arm),
        outcome=lambda text: read_answer(text, ended=True),
        rollout_func=rollouts_of(policy, plan.longest),
        run=folder / RUN,
    )


def _listener(told: Callable[[int], None]) -> Any:
    from transformers import TrainerCallback

    class Listener(TrainerCallback):  # type: ignore[misc]  # transformers is untyped here
        """Tells each step."""

        def on_step_end(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
            told(state.global_step)

    return Listener()


def _last_checkpoint(folder: Path) -> str | None:
    """Return the newest checkpoint that is whole: the state of the objective is written last."""
    from breadth.adapters.trl.hook import STATE

    whole = [path for path in (folder / CHECKPOINTS).glob("checkpoint-*") if (path / STATE).is_file()]
    found = sorted(whole, key=lambda path: int(path.name.split("-")[1]))
    return str(found[-1]) if found else None
