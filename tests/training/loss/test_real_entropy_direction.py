"""On a bandit with several right answers, by exact expected gradients:

each mechanism moves the entropy as its docstring says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from breadth.training.chain import Chain
from breadth.training.logits import entropy_and_logprobs
from breadth.training.loss.clipped_policy import ClippedPolicy
from breadth.training.loss.entropy_advantage import EntropyAdvantage
from breadth.training.loss.entropy_bonus import EntropyBonus
from breadth.training.loss.entropy_pi import EntropyPI
from breadth.training.loss.entropy_target import EntropyTarget
from breadth.training.loss.fork_thermostat import ForkThermostat
from breadth.training.loss.repo import Repo
from breadth.training.mechanism import Mechanism
from breadth.training.objective import Objective
from breadth.training.records import Batch

START = (1.0, 0.3, -0.2, 0.6, 0.1, -0.5)
RIGHT = (1.0, 1.0, 1.0, 0.0, 0.0, 0.0)
"""Three of six arms are right, with different chances, so that a plain policy gradient narrows to the first."""


def expected_batch(logits: torch.Tensor) -> Batch:
    """Return one token per arm, weighted by its chance:

    the token mean of the losses is the expectation over the policy.
    """
    arms = len(logits)
    logprobs, entropy = entropy_and_logprobs(logits.expand(arms, 1, arms), torch.arange(arms)[:, None])
    chance, right = logits.detach().softmax(-1), torch.tensor(RIGHT, dtype=logits.dtype)
    advantages = right - (chance * right).sum()
    return Batch(
        logprobs, advantages, torch.ones(arms, 1, dtype=torch.bool), entropy=entropy, weights=arms * chance[:, None]
    )


def entropies(chain: Chain, steps: int = 200, rate: float = 0.3, start: tuple[float, ...] = START) -> list[float]:
    """Return the exact entropy before the first and after every step of gradient descent."""
    logits = torch.tensor(start, dtype=torch.float64, requires_grad=True)
    objective, seen = Objective(chain), []
    for _ in range(steps):
        batch = expected_batch(logits)
        seen.append(float(batch.entropy[0, 0].detach()) if batch.entropy is not None else 0.0)
        objective.begin(batch)
        (gradient,) = torch.autograd.grad(objective.loss(batch), logits)
        objective.finish()
        logits = (logits.detach() - rate * gradient).requires_grad_()
    return seen


def final(*mechanisms: Mechanism[Any, Any], **options: Any) -> float:
    return entropies(Chain(mechanisms), **options)[-1]


def test_the_plain_chain_narrows() -> None:
    plain = entropies(Chain((ClippedPolicy(),)))
    assert plain[0] == pytest.approx(1.6729, abs=1e-3)
    assert plain[-1] < 0.75 * plain[0]


@pytest.mark.parametrize(
    "chain",
    [
        lambda: (ClippedPolicy(), EntropyBonus(0.05)),
        lambda: (ClippedPolicy(), EntropyTarget(target=1.6, increment=0.01, largest=0.2, reads="exact")),
        lambda: (
            ClippedPolicy(),
            EntropyTarget(target_share=1.0, settle=1, increment=0.01, largest=0.2, reads="exact"),
        ),
        lambda: (EntropyPI(target=1.6, threshold=0.3), ClippedPolicy()),
        lambda: (Repo(settle=1, reads="exact"), ClippedPolicy()),
    ],
    ids=["bonus", "target", "target-share", "pi", "repo"],
)
def test_entropy_is_held_up(chain: Callable[[], tuple[Mechanism[Any, Any], ...]]) -> None:
    assert final(*chain()) > final(ClippedPolicy()) + 0.02


def test_a_larger_price_keeps_more() -> None:
    kept = [final(ClippedPolicy(), EntropyBonus(price)) for price in (0.0, 0.01, 0.05, 0.2)]
    assert kept == sorted(kept)
    assert kept[0] == final(ClippedPolicy())


def test_the_target_is_held() -> None:
    target = EntropyTarget(target=1.3, increment=0.01, largest=0.3, reads="exact")
    seen = entropies(Chain((ClippedPolicy(), target)), steps=400)
    assert sum(seen[-100:]) / 100 == pytest.approx(1.3, abs=0.05)
    assert final(ClippedPolicy(), steps=400) < 1.2


def test_a_target_below_the_run_does_nothing() -> None:
    assert final(ClippedPolicy(), EntropyTarget(target=0.01, reads="exact")) == final(ClippedPolicy())


def test_the_controller_lowers_entropy_too() -> None:
    """The sign trap: entropy above the target must come down."""
    plain = final(ClippedPolicy())
    assert final(EntropyPI(target=0.3, threshold=0.3), ClippedPolicy()) < plain - 0.02


def test_a_single_step_of_repo_agrees_with_the_covariance() -> None:
    """Rare right tokens get more and rare wrong ones less blame:

    the covariance of log-prob and step falls, so entropy is higher.
    """
    plain, scaled = entropies(Chain((ClippedPolicy(),)), steps=2), entropies(Chain((Repo(), ClippedPolicy())), steps=2)
    assert scaled[1] > plain[1]


def test_the_entropy_advantage_is_a_baseline_where_its_cap_does_not_bind() -> None:
    small = entropies(Chain((EntropyAdvantage(scale=1e-3), ClippedPolicy())), steps=20)
    assert small == pytest.approx(entropies(Chain((ClippedPolicy(),)), steps=20), abs=1e-12)


@pytest.mark.parametrize(("start", "right"), [(START, 0.5803), ((-2.0, -2.0, -2.0, 1.0, 0.0, 0.0), 0.0792)])
def test_the_capped_entropy_advantage_scales_the_pull_by_the_share_that_is_right(
    start: tuple[float, ...], right: float
) -> None:
    logits = torch.tensor(start, dtype=torch.float64, requires_grad=True)
    share = float(logits.detach().softmax(-1)[:3].sum())
    assert share == pytest.approx(right, abs=1e-4)

    def pull(*mechanisms: Mechanism[Any, Any]) -> torch.Tensor:
        objective, batch = Objective(Chain(mechanisms)), expected_batch(logits)
        objective.begin(batch)
        return torch.autograd.grad(objective.loss(batch), logits)[0]

    shaped, plain = pull(EntropyAdvantage(scale=100.0, cap=2.0), ClippedPolicy()), pull(ClippedPolicy())
    assert torch.allclose(shaped, (1 + (1 - 2 * share) / 2) * plain, atol=1e-9)


def test_the_thermostat_holds_its_band_from_below_and_from_above() -> None:
    firm: dict[str, Any] = {"settle": 1, "proportional": 0.5, "integral": 0.1, "limit": 1.0}
    plain, held = (
        entropies(Chain((ClippedPolicy(),))),
        entropies(Chain((ClippedPolicy(), ForkThermostat(floor=0.8, **firm)))),
    )
    assert plain[-1] < 0.5 * plain[0]
    assert held[-1] == pytest.approx(0.8 * held[0], rel=0.05)
    sharp = (3.0, 0.3, -0.2, 0.6, 0.1, -0.5)
    hot = entropies(Chain((ClippedPolicy(), EntropyBonus(0.3))), start=sharp)
    cooled = entropies(Chain((ClippedPolicy(), EntropyBonus(0.3), ForkThermostat(ceiling=1.2, **firm))), start=sharp)
    assert hot[-1] > 1.4 * hot[0]
    assert cooled[-1] == pytest.approx(1.2 * cooled[0], rel=0.05)
