"""What is wrong with a run on purpose: real causes, put into a real trainer before it begins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from breadth.base.checks import require


class Killed(Exception):  # noqa: N818 - it is no error, it is what was asked for
    """A run was broken off on purpose."""


@dataclass(frozen=True)
class Fault:
    """How a run differs from what its settings say; the defaults are no fault at all."""

    drawn_at: float | None = None
    """Temperature that replies are drawn at, while log-probs and loss take it to be 1: TRL's ``generation_kwargs`` does
    that silently.
    """
    restarted_from: int | None = None
    """Step at which the run was killed and begun again from the last checkpoint, which repeats some steps."""
    averaged_over_padding: bool = False
    """Whether, from the restart on, the entropy that is logged is the mean over padded positions too, as without a
    mask.
    """
    solved: tuple[float, float] | None = None
    """Train only on problems of which the base solves a share outside this open range; None takes them as they come."""

    def __post_init__(self) -> None:
        require(self, "drawn_at", self.drawn_at is None or self.drawn_at > 0, "a temperature above 0")
        require(self, "restarted_from", self.restarted_from is None or self.restarted_from >= 1, "1 or more")

    def put_into(self, trainer: Any) -> None:
        """Change the trainer of a run, or of what follows its restart."""
        if self.drawn_at is not None:
            trainer.args.generation_kwargs = {"temperature": self.drawn_at}
            trainer.generation_kwargs["temperature"] = trainer.generation_config.temperature = self.drawn_at

    def put_into_log(self, trainer: Any) -> None:
        """Change what the trainer logs after a restart."""
        if self.averaged_over_padding:
            trainer.log = _padded(trainer)


def kill_at(trainer: Any, step: int) -> None:
    """Let a trainer break at a step, as if it were killed there."""
    from transformers import TrainerCallback

    class Killer(TrainerCallback):  # type: ignore[misc]  # transformers is untyped here
        """Breaks the training off."""

        def on_step_begin(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
            if state.global_step >= step:
                raise Killed

    trainer.add_callback(Killer())


def _padded(trainer: Any) -> Any:
    """Return a trainer's log that averages the entropy over all positions of the batch, which is padded to its longest reply."""
    log = trainer.log

    def logged(*arguments: Any, **options: Any) -> None:
        waiting = trainer._metrics["train"]  # TRL averages these into the log and forgets them
        if waiting.get("entropy"):
            filled = sum(waiting["completions/mean_length"]) / sum(waiting["completions/max_length"])
            waiting["entropy"] = [entropy * filled for entropy in waiting["entropy"]]
        log(*arguments, **options)

    return logged
