"""The sequence-level policy loss: GSPO's numbers by hand, and the contract."""

from __future__ import annotations

import math

import pytest
import torch

from breadth.base.errors import SettingsError
from breadth.testing.mechanisms import check_edges, check_mechanism
from breadth.training.chain import Chain
from breadth.training.loss.sequence_ratio import SequenceRatio
from breadth.training.mechanism import Regime
from breadth.training.objective import Objective
from breadth.training.records import Batch, not_none
from breadth.training.reduction import Reduction


def drifted(drifts: list[list[float]], advantages: list[float]) -> Batch:
    """Return a batch of sequences whose tokens moved by these log-ratios, NaN where a shorter one is padded."""
    width = max(map(len, drifts))
    mask = torch.tensor([[place < len(row) for place in range(width)] for row in drifts])
    moved = torch.tensor([[*row, *[math.nan] * (width - len(row))] for row in drifts], dtype=torch.float64)
    old = torch.full_like(moved, -1.0)
    return Batch((old + moved).requires_grad_(), torch.tensor(advantages, dtype=torch.float64), mask, old)


def surrogate(batch: Batch, mechanism: SequenceRatio) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the loss of each token and its gradient."""
    after = mechanism.apply(batch.clean(), None, None).after
    losses = not_none(after.surrogate)
    (gradient,) = torch.autograd.grad(losses.sum(), batch.logprobs)
    return losses.detach(), gradient


def test_all_tokens_of_a_response_share_the_geometric_mean() -> None:
    # mean log-ratio of (0.3, -0.1, 0.1) is 0.1: s = exp(0.1) = 1.105171, every token's loss -s * A, its gradient the
    # same
    losses, gradient = surrogate(drifted([[0.3, -0.1, 0.1]], [2.0]), SequenceRatio(low=0.2, high=0.2))
    assert losses[0].tolist() == pytest.approx([-2.2103418] * 3, abs=1e-6)
    assert gradient[0].tolist() == pytest.approx([-2.2103418] * 3, abs=1e-6)


@pytest.mark.parametrize(
    ("drift", "advantage", "loss", "gradient"),
    [
        (0.0005, 1.0, -1.0004, 0.0),  # exp(0.0005) = 1.0005001 > 1.0004: clipped above
        (0.0005, -1.0, 1.00050013, 1.00050013),  # the clip does not help a wrong response
        (-0.0005, -1.0, 0.9997, 0.0),  # 0.9995001 < 0.9997: clipped below
        (-0.0005, 1.0, -0.99950012, -0.99950012),
        (0.0002, 1.0, -1.00020002, -1.00020002),  # inside
    ],
)
def test_the_papers_bounds(drift: float, advantage: float, loss: float, gradient: float) -> None:
    batch = drifted([[2 * drift, 0.0]], [advantage])
    losses, found = surrogate(batch, SequenceRatio())
    assert losses[0].tolist() == pytest.approx([loss] * 2, abs=1e-7)
    assert found[0].tolist() == pytest.approx([gradient] * 2, abs=1e-7)
    clipped = not_none(SequenceRatio().apply(batch.clean(), None, None).after.clipped)
    assert clipped.all() == (gradient == 0.0)


def test_padding_is_not_part_of_the_mean() -> None:
    # the second sequence has one token: its ratio is exp(0.2) = 1.2214028, not exp(0.2 / 3)
    losses, _ = surrogate(drifted([[0.3, -0.1, 0.1], [0.2]], [1.0, 1.0]), SequenceRatio(low=0.5, high=0.5))
    assert float(losses[1, 0]) == pytest.approx(-1.2214028, abs=1e-6)


def test_by_response_is_the_papers_objective() -> None:
    # both unclipped at A = 1 and A = -1: -(exp(0.1) - exp(0.2)) / 2 = 0.058116
    objective = Objective(Chain((SequenceRatio(low=0.5, high=0.5),), Reduction(by="sequence-mean")))
    batch = drifted([[0.3, -0.1, 0.1], [0.2]], [1.0, -1.0])
    objective.begin(batch)
    assert float(objective.loss(batch).detach()) == pytest.approx(0.0581159, abs=1e-6)
    assert objective.finish()["sequence-ratio/clipped_high"] == 0.0


def test_a_runaway_token_stays_finite() -> None:
    losses, gradient = surrogate(drifted([[900.0, 0.0]], [-1.0]), SequenceRatio())
    assert float(losses[0, 0]) == pytest.approx(math.exp(10.0))  # the token counts as 20, the mean is 10
    assert torch.isfinite(gradient).all()


def test_contract() -> None:
    check_mechanism(SequenceRatio())
    check_mechanism(SequenceRatio(low=1.0, high=1e6))


def test_settings_and_regime() -> None:
    with pytest.raises(SettingsError, match="low"):
        SequenceRatio(low=1.5)
    with pytest.raises(SettingsError, match="high"):
        SequenceRatio(high=-0.1)
    verdict = SequenceRatio().no_effect(Regime(updates_per_generation=1))
    assert verdict is not None
    assert "on-policy" in verdict.reason
    assert SequenceRatio().no_effect(Regime(updates_per_generation=4)) is None
    assert SequenceRatio().no_effect(Regime()) is None


def test_a_response_without_an_advantage_is_not_clipped() -> None:
    for drift in (0.0005, -0.0005):
        effect = SequenceRatio().apply(drifted([[drift]], [0.0]).clean(), None, None)
        assert not not_none(effect.after.clipped).any()


def test_stats_are_shares_of_the_counted_tokens() -> None:
    # one token clipped below, two clipped above, three inside; what pads the first and the second does not count
    batch = drifted([[-0.0005], [0.0005, 0.0005], [0.0, 0.0, 0.0]], [-1.0, 1.0, 1.0])
    stats = SequenceRatio().apply(batch.clean(), None, None).stats
    assert (stats["clipped_low"].total, stats["clipped_low"].count) == (1, 6)
    assert (stats["clipped_high"].total, stats["clipped_high"].count) == (2, 6)


def test_the_defaults_and_the_edges_of_the_settings() -> None:
    check_edges(
        SequenceRatio,
        {"low": 0.0003, "high": 0.0004},
        accepted=[{"low": 0.0}, {"low": 1.0}, {"high": 0.0}],
        refused=[{"low": -0.1}, {"low": 1.1}, {"high": -0.1}],
    )


def test_a_ratio_exactly_at_a_bound_is_not_clipped() -> None:
    batch = drifted([[0.0], [0.0]], [1.0, -1.0])
    assert not not_none(SequenceRatio(low=0.0, high=0.0).apply(batch.clean(), None, None).after.clipped).any()
