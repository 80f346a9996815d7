"""The KL to a reference policy as a loss term: four estimators; only k3+ has the right value and gradient."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from breadth.base.catalogue import Paper
from breadth.base.errors import require
from breadth.base.stats import Mean
from breadth.training.mechanism import Effect, Mechanism, NoEffect, Regime, Selection
from breadth.training.ops import log_ratio, masked_values
from breadth.training.records import Batch, not_none

MAX_DISTANCE = 100.0
"""Distances are clamped to this many nats: e^-100 is about the smallest probability in float32 (e^-103)."""


@dataclass(frozen=True)
class ReferenceKL(Mechanism[Batch, None]):
    """Penalise the distance to the reference policy.

    Adds ``coefficient * k`` to every token's loss, with ``d = log p - log p_reference`` of the sampled token. In
    expectation over tokens of the current policy (k1 to k3 are Schulman's of 2020; k3+ is verl's)::

        k1   d                    value: the KL        gradient: zero
        k2   d^2 / 2              value: near the KL   gradient: the KL's
        k3   exp(-d) + d - 1      value: the KL        gradient: that of KL(reference || current), not ours
        k3+  k3, back-propagating as k2                value and gradient: the KL's

    On tokens of an older policy all four are off by the drift.

    Defaults: k3+, the only one right in both; the coefficient is that of verl and DeepSeek-R1 (GRPO, 2402.03300, has
    0.04 with k3). Most of the recent recipes for reasoning (DAPO, Dr. GRPO, GPPO) leave the term out.

    Harm: it keeps the policy near a reference that may not solve the task, and costs a forward pass of the reference.
    k3 explodes on tokens that are likely for the reference but not for the policy: its gradient is ``1 - exp(-d)``.
    """

    paper = Paper(
        "Schulman 2020",
        "KL estimators k1, k2, k3 as a loss",
        "also k3 with the gradient of k2, the only one with the right value and the right gradient",
    )
    neutral: ClassVar[Mapping[str, Any]] = {"coefficient": 0.0}

    coefficient: float = 0.001
    """Penalty per nat; 0 switches it off."""
    estimator: Literal["k1", "k2", "k3", "k3+"] = "k3+"
    """Which of the four estimators."""
    tokens: Literal["all", "planning"] = "all"
    """Where it acts: on all tokens, or only on planning tokens.

    The second keeps the choices near the reference's and lets their execution improve; the trainer must mark the
    planning tokens.
    """

    def __post_init__(self) -> None:
        require(self, "estimator", self.estimator in ("k1", "k2", "k3", "k3+"), "'k1', 'k2', 'k3' or 'k3+'")
        require(self, "coefficient", self.coefficient >= 0, "a number of 0 or more")
        require(self, "tokens", self.tokens in ("all", "planning"), "'all' or 'planning'")

    @property
    def needs(self) -> frozenset[str]:
        """The reference policy's log-probabilities; which tokens plan, if only those are penalised."""
        return frozenset({"reference_logprobs"} | ({"planning"} if self.tokens == "planning" else set()))

    def apply(self, batch: Batch, state: None, selection: Selection | None) -> Effect[Batch]:
        """Add the term and report the estimate."""
        penalised = batch.mask if self.tokens == "all" else batch.mask & not_none(batch.planning)
        divergence = masked_values(self.estimate_kl(batch.logprobs, not_none(batch.reference_logprobs)), penalised)
        stats = {"divergence": Mean(divergence.detach().sum(), penalised.sum())}
        return Effect(batch, (self.coefficient * divergence,) if self.coefficient else (), stats)

    def no_effect(self, regime: Regime) -> NoEffect | None:
        """Report k1 on-policy: as a loss it is log p plus a constant, and the expected gradient of log p is zero."""
        if regime.on_policy and self.estimator == "k1":
            return NoEffect(
                "reference-kl",
                "the gradient of k1 is zero in expectation, so the term adds noise and nothing else.",
                "Use k3+ or k2.",
            )
        return None

    def estimate_kl(self, logprobs: Tensor, reference: Tensor) -> Tensor:
        """Return (B, T) the estimate of the KL at each token."""
        distance = (logprobs - reference).clamp(-MAX_DISTANCE, MAX_DISTANCE)
        if self.estimator == "k1":
            return distance
        squared = distance.square() / 2
        if self.estimator == "k2":
            return squared
        bounded = log_ratio(logprobs, reference)
        exact = torch.expm1(-bounded) + bounded
        return exact if self.estimator == "k3" else exact.detach() + (squared - squared.detach())
