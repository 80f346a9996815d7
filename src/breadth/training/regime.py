"""How a trainer will run a chain, as far as it decides whether a mechanism can act; and the verdict on one that cannot."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Regime:
    """The circumstances of a run that are known before it starts. Leave unknown what is not known."""

    updates_per_generation: int | None = None
    """Optimizer steps taken on the rollouts of one generation."""
    sequences_per_update: int | None = None
    """Responses in one optimizer step, over all ranks."""
    group_size: int | None = None
    """Rollouts of one problem in one generation."""
    tokens_per_response: float | None = None
    """Response tokens to expect, or at most; without it quotas of tokens cannot be judged."""
    temperature: float | None = None
    """Sampling temperature."""

    @property
    def on_policy(self) -> bool | None:
        """Whether every update is strictly on-policy: one optimizer step a generation, so the ratio is always exactly 1."""
        return None if self.updates_per_generation is None else self.updates_per_generation <= 1

    @property
    def tokens_per_update(self) -> float | None:
        """Response tokens in one optimizer step, over all ranks."""
        if self.sequences_per_update is None or self.tokens_per_response is None:
            return None
        return self.sequences_per_update * self.tokens_per_response


@dataclass(frozen=True)
class Inert:
    """A mechanism that cannot act, or not as its settings say, in this regime."""

    mechanism: str
    """Its name in the catalogue."""
    reason: str
    """Why it cannot act."""
    remedy: str
    """What to change so that it can."""

    def __str__(self) -> str:
        return f"{self.mechanism}: {self.reason}\n  -> {self.remedy}"


ON_POLICY_REMEDY = (
    "Take several optimizer steps per generation (TRL: steps_per_generation above gradient_accumulation_steps, or num_iterations > 1; "
    "verl: ppo_mini_batch_size below train_batch_size), or use a mechanism that acts on-policy, e.g. fork-thermostat."
)
"""The remedy most drift-driven mechanisms share."""
