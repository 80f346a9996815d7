"""Forking tokens: the spec's numbers, ties, certain tokens, and the contract."""

from __future__ import annotations

import pytest
import torch

from breadth.base.errors import SettingsError
from breadth.testing.mechanisms import check_edges, check_mechanism
from breadth.training.chain import Chain
from breadth.training.loss.clipped_policy import ClippedPolicy
from breadth.training.loss.forking_tokens import ForkingTokens
from breadth.training.mechanism import Regime
from breadth.training.objective import Objective
from breadth.training.records import Batch


def batch_of(entropy: list[list[float]], mask: list[list[bool]] | None = None) -> Batch:
    """Return sequences with these entropies, A = 1 and log p = -1."""
    values = torch.tensor(entropy, dtype=torch.float64)
    inside = torch.ones_like(values, dtype=torch.bool) if mask is None else torch.tensor(mask)
    return Batch(
        torch.full_like(values, -1.0).requires_grad_(),
        torch.ones(len(values), dtype=torch.float64),
        inside,
        entropy=values,
    )


def kept(batch: Batch, share: float = 0.2) -> list[int]:
    """Return the flat places of the kept tokens."""
    return list(ForkingTokens(share).survey(batch.clean(), None).tokens["picked"].flatten().nonzero()[:, 0].tolist())


TENTHS = [place / 10 for place in range(1, 11)]


def test_the_specs_numbers() -> None:
    assert float(torch.quantile(torch.tensor(TENTHS, dtype=torch.float64), 0.8)) == pytest.approx(0.82, abs=1e-6)
    assert kept(batch_of([TENTHS])) == [8, 9]


def test_padding_changes_nothing() -> None:
    padded = batch_of([TENTHS, [99.0] * 10], [[True] * 10, [False] * 10])
    assert kept(padded) == [8, 9]


@pytest.mark.parametrize("count", [1, 2, 6, 11, 50, 101])
@pytest.mark.parametrize("share", [0.1, 0.2, 0.5, 0.9])
def test_as_many_as_reach_the_interpolated_quantile(count: int, share: float) -> None:
    entropy = torch.rand(count, generator=torch.Generator().manual_seed(count), dtype=torch.float64)
    reached = (entropy >= torch.quantile(entropy, 1 - share)).nonzero()[:, 0].tolist()
    assert kept(batch_of([entropy.tolist()]), share) == reached


def test_dropped_tokens_have_no_gradient_and_all_count() -> None:
    batch = batch_of([TENTHS])
    objective = Objective(Chain((ForkingTokens(), ClippedPolicy())))
    objective.begin(batch)
    loss = objective.loss(batch)
    (gradient,) = torch.autograd.grad(loss, batch.logprobs)
    assert float(loss.detach()) == pytest.approx(-0.2)  # two tokens of -1, over ten
    assert gradient[0].tolist() == pytest.approx([0.0] * 8 + [-0.1] * 2)
    assert not gradient[0, :8].any()
    metrics = objective.finish()
    assert metrics["forking-tokens/kept"] == pytest.approx(0.2)
    assert metrics["forking-tokens/kept_entropy"] == pytest.approx(0.95)


def test_certain_tokens_are_never_kept() -> None:
    # nine of ten are certain: the quantile is 0 and "at least the quantile" would keep all ten
    assert kept(batch_of([[0.0] * 9 + [0.5]])) == [9]
    assert kept(batch_of([[0.0] * 10])) == []
    assert kept(batch_of([[0.0] * 10]), share=1.0) == list(range(10))


def test_ties_at_the_edge_are_drawn_to_the_share() -> None:
    assert len(kept(batch_of([[0.3] * 5, [0.3] * 5]))) == 2
    assert kept(batch_of([[0.3] * 9 + [0.7]]))[-1] == 9


def test_contract() -> None:
    check_mechanism(ForkingTokens())
    check_mechanism(ForkingTokens(share=0.01), after=(ClippedPolicy(),))


@pytest.mark.parametrize("share", [0.0, -0.2, 1.1])
def test_bad_settings(share: float) -> None:
    with pytest.raises(SettingsError, match="share"):
        ForkingTokens(share)


def test_regimes() -> None:
    verdict = ForkingTokens(share=1e-4).no_effect(Regime(sequences_per_update=8, tokens_per_response=100))
    assert verdict is not None
    assert verdict.mechanism == "forking-tokens"
    assert (
        ForkingTokens().no_effect(Regime(updates_per_generation=1, sequences_per_update=1, tokens_per_response=100))
        is None
    )
    assert ForkingTokens().needs == {"entropy"}


def test_the_defaults_and_the_edges_of_the_settings() -> None:
    check_edges(
        ForkingTokens,
        {"share": 0.2},
        accepted=[{"share": 1e-09}, {"share": 1.0}],
        refused=[{"share": 0.0}, {"share": 1.1}],
    )


def test_where_no_token_counts_none_is_kept() -> None:
    assert kept(batch_of([[0.5, 0.5]], [[False, False]])) == []
