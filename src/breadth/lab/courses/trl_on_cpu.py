"""What every training of the lab tells TRL, hears from it and takes up again: one process on a CPU, logged and saved as it goes."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from breadth.training.chain import Chain
from breadth.training.loss.reference_kl import ReferenceKL

Told = Callable[[int, Mapping[str, float]], None]
"""Told each optimizer step and what TRL logs of it."""


def arguments(checkpoints: Path, chain: Chain, **own: Any) -> Any:
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
        beta=_reference_price(chain),
        **own,
    )


def keep_quiet() -> None:
    """Let libraries look for nothing on the network and not warn of what is used on purpose; what a user has set stays."""
    for name, value in {
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "TRL_EXPERIMENTAL_SILENCE": "1",
    }.items():
        os.environ.setdefault(name, value)


def listener(told: Told) -> Any:
    """Return a callback that passes on what the trainer logs of each step."""
    from transformers import TrainerCallback

    class Listener(TrainerCallback):  # type: ignore[misc]  # transformers is untyped here
        """Passes on what the trainer logs."""

        def on_log(
            self, _args: Any, state: Any, _control: Any, logs: Mapping[str, float] | None = None, **_: Any
        ) -> None:
            if logs and "reward" in logs:
                told(state.global_step, logs)

    return Listener()


def last_checkpoint(checkpoints: Path) -> str | None:
    """Return the newest checkpoint that is whole: the state of the objective is written last."""
    from breadth.adapters.trl.trainer import STATE

    whole = [path for path in checkpoints.glob("checkpoint-*") if (path / STATE).is_file()]
    found = sorted(whole, key=lambda path: int(path.name.split("-")[1]))
    return str(found[-1]) if found else None


def _reference_price(chain: Chain) -> float:
    """Return the price of leaving the base that the chain asks for: TRL loads a reference policy only when told one."""
    return next((one.coefficient for one in chain.mechanisms if isinstance(one, ReferenceKL)), 0.0)
