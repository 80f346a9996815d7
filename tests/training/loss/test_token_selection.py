"""Tests of the module of the same name."""

from __future__ import annotations

import pytest
import torch

from breadth.base.errors import MechanismError
from breadth.training.loss.token_selection import covariance, no_covariance, selection_mask, share_too_small, token_keys
from breadth.training.mechanism import Regime, Selection
from breadth.training.ops import TokenKeys, sample_tokens, select_largest
from breadth.training.records import Batch

KEYS = TokenKeys(torch.arange(4), seed=3, step=1)


def test_the_largest_are_picked() -> None:
    scores = torch.tensor([[3.0, 1.0], [9.0, 2.0], [8.0, 7.0], [0.0, 5.0]])
    among = torch.ones(4, 2, dtype=torch.bool)
    among[1, 0] = False
    assert select_largest(scores, among, 3, KEYS).nonzero().tolist() == [[2, 0], [2, 1], [3, 1]]


@pytest.mark.parametrize(("count", "wanted"), [(-1, 0), (0, 0), (5, 5), (6, 6), (7, 6)])
def test_counts_at_the_edges(count: int, wanted: int) -> None:
    among = torch.tensor([[True, True], [True, True], [True, False], [False, True]])
    chosen = select_largest(torch.arange(8.0).view(4, 2), among, count, KEYS)
    assert int(chosen.sum()) == wanted
    assert not (chosen & ~among).any()
    assert int(sample_tokens(among, count, KEYS).sum()) == wanted
    assert int(select_largest(torch.arange(8.0).view(4, 2), torch.zeros_like(among), count, KEYS).sum()) == 0


def test_no_score_is_too_low_to_be_picked() -> None:
    scores = torch.tensor([[1.0, -torch.inf], [-torch.inf, -torch.inf]])
    among = torch.tensor([[True, True], [True, False]])
    chosen = select_largest(scores, among, 2, TokenKeys(torch.arange(2), 0, 0))
    assert bool(chosen[0, 0])
    assert int((chosen & among).sum()) == int(chosen.sum()) == 2


@pytest.mark.parametrize("count", [1, 5, 37, 60])
def test_ties_fall_alike_in_any_order(count: int) -> None:
    dice = torch.Generator().manual_seed(count)
    scores = torch.randint(3, (16, 8), generator=dice).float()
    among = torch.rand(16, 8, generator=dice) < 0.8
    rows, turn = torch.arange(100, 116), torch.randperm(16, generator=dice)
    straight = select_largest(scores, among, count, TokenKeys(rows, 0, 0))
    turned = select_largest(scores[turn], among[turn], count, TokenKeys(rows[turn], 0, 0))
    assert int(straight.sum()) == count
    assert torch.equal(straight[turn], turned)
    assert float(scores[straight].min()) >= float(scores[among & ~straight].max())


def test_the_draw_is_fair_and_changes_with_the_step() -> None:
    among = torch.ones(4, 5, dtype=torch.bool)
    drawn = torch.stack([sample_tokens(among, 5, TokenKeys(torch.arange(4), 0, step)) for step in range(2000)]).float()
    # each of 20 tokens is drawn with probability 1/4: standard error sqrt(0.25 * 0.75 / 2000) = 0.0097; five of them
    # are 0.048
    assert float((drawn.mean(0) - 0.25).abs().max()) < 0.048
    assert not torch.equal(drawn[0], drawn[1])


def test_keys_of_a_batch_follow_its_rows_seed_and_step() -> None:
    batch = Batch(
        torch.zeros(2, 3), torch.zeros(2), torch.ones(2, 3, dtype=torch.bool), rows=torch.tensor([4, 9]), seed=5, step=6
    )
    keys = token_keys(batch.clean())
    assert (keys.rows.tolist(), keys.seed, keys.step) == ([4, 9], 5, 6)


def test_a_pick_without_a_survey_is_refused() -> None:
    with pytest.raises(MechanismError, match="without a survey"):
        selection_mask(None)
    mask = torch.ones(1, 1, dtype=torch.bool)
    assert selection_mask(Selection({"picked": mask})) is mask


def test_a_share_that_rounds_to_nothing_is_named() -> None:
    verdict = share_too_small("kl-cov", 2e-4, Regime(sequences_per_update=8, tokens_per_response=500))
    assert verdict is not None
    assert "0.0002 of about 4,000 tokens" in verdict.reason
    assert "5,000 tokens" in verdict.remedy
    assert share_too_small("kl-cov", 2e-4, Regime(sequences_per_update=10, tokens_per_response=500)) is None
    assert share_too_small("kl-cov", 0.0, Regime(sequences_per_update=1, tokens_per_response=1)) is None
    assert share_too_small("kl-cov", 2e-4, Regime(sequences_per_update=8)) is None


LOGPROBS = [-0.05, -0.10, -2.30, -0.02, -1.20, -3.00]
ADVANTAGES = [1.0, 1.0, 1.0, -1.0, -1.0, -1.0]


def test_the_specs_numbers() -> None:
    batch = Batch(torch.tensor([LOGPROBS]), torch.tensor([ADVANTAGES]), torch.ones(1, 6, dtype=torch.bool)).clean()
    cost = covariance(batch)
    assert cost[0].tolist() == pytest.approx([1.061667, 1.011667, -1.188333, -1.091667, 0.088333, 1.888333], abs=1e-6)
    assert float(cost.mean()) == pytest.approx(0.295, abs=1e-6)


def test_means_are_over_the_mask() -> None:
    padded = Batch(
        torch.tensor([[*LOGPROBS[:3], float("nan")], [*LOGPROBS[3:], 1e9]]),
        torch.tensor([1.0, -1.0]),
        torch.tensor([[True, True, True, False]] * 2),
    ).clean()
    cost = covariance(padded)[padded.mask]
    assert cost.tolist() == pytest.approx([1.061667, 1.011667, -1.188333, -1.091667, 0.088333, 1.888333], abs=1e-6)


def test_the_mean_advantage_is_weighted_by_length() -> None:
    # three tokens at A = 1 and one at A = -1: the mean is 0.5, so the lone token is 1.5 away and the others 0.5
    mask = torch.tensor([[True, True, True], [True, False, False]])
    batch = Batch(torch.tensor([[-1.0, -1.0, -1.0], [-5.0, 0.0, 0.0]]), torch.tensor([1.0, -1.0]), mask).clean()
    assert covariance(batch)[mask].tolist() == pytest.approx([0.5, 0.5, 0.5, 4.5])


def test_an_empty_batch_has_finite_covariances() -> None:
    batch = Batch(torch.full((2, 3), float("nan")), torch.ones(2), torch.zeros(2, 3, dtype=torch.bool)).clean()
    assert torch.isfinite(covariance(batch)).all()


def test_order_does_not_change_a_bit() -> None:
    dice = torch.Generator().manual_seed(0)
    logprobs, advantages = -torch.rand(64, 100, generator=dice), torch.randn(64, generator=dice)
    mask = torch.rand(64, 100, generator=dice) < 0.9
    turn = torch.randperm(64, generator=dice)
    straight = covariance(Batch(logprobs, advantages, mask).clean())
    assert torch.equal(straight[turn], covariance(Batch(logprobs[turn], advantages[turn], mask[turn]).clean()))


def test_no_gradient_and_inputs_untouched() -> None:
    batch = Batch(
        torch.tensor([LOGPROBS], requires_grad=True), torch.tensor([ADVANTAGES]), torch.ones(1, 6, dtype=torch.bool)
    ).clean()
    assert not covariance(batch).requires_grad
    assert batch.logprobs[0].tolist() == pytest.approx(LOGPROBS)


def test_one_response_has_no_spread() -> None:
    verdict = no_covariance("clip-cov", Regime(sequences_per_update=1))
    assert verdict is not None
    assert "same advantage" in verdict.reason
    assert no_covariance("clip-cov", Regime(sequences_per_update=2)) is None
    assert no_covariance("clip-cov", Regime()) is None
    lone = Batch(torch.tensor([LOGPROBS]), torch.tensor([0.7]), torch.ones(1, 6, dtype=torch.bool)).clean()
    assert not covariance(lone).any()


def test_a_token_alone_has_no_covariance() -> None:
    batch = Batch(torch.tensor([[-1.0]]), torch.tensor([1.0]), torch.ones(1, 1, dtype=torch.bool)).clean()
    assert covariance(batch).tolist() == [[0.0]]
