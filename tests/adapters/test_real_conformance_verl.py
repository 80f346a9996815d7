"""The same tensors through verl's own worker loss:

where a chain is the same thing, and by how much each difference shows.
"""

from __future__ import annotations

import math
from importlib.resources import files
from typing import Any

import pytest
import torch

from breadth.training.chain import Chain
from breadth.training.loss.cispo import Cispo
from breadth.training.loss.clip_cov import ClipCov
from breadth.training.loss.clipped_policy import ClippedPolicy
from breadth.training.loss.entropy_bonus import EntropyBonus
from breadth.training.loss.kl_cov import KLCov
from breadth.training.loss.reference_kl import ReferenceKL
from breadth.training.loss.sequence_ratio import SequenceRatio
from breadth.training.mechanism import Mechanism
from breadth.training.reduction import Reduction

WIDE, UNCLIPPED = ClippedPolicy(low=1.0, high=1.0), ClippedPolicy(low=1.0, high=math.inf)
AVERAGES: dict[str, tuple[Reduction, dict[str, Any]]] = {
    "token-mean": (Reduction(), {}),
    "seq-mean-token-mean": (Reduction("sequence-mean"), {"loss_agg_mode": "seq-mean-token-mean"}),
    "seq-mean-token-sum-norm": (
        Reduction("fixed-length", 12),
        {"loss_agg_mode": "seq-mean-token-sum-norm", "loss_scale_factor": 12},
    ),
}
AGREE: dict[str, tuple[tuple[Mechanism[Any, Any], ...], dict[str, Any], int]] = {
    "vanilla": ((ClippedPolicy(high=0.28, dual=3.0),), {"clip_ratio_high": 0.28}, 4),
    "gspo": ((SequenceRatio(low=0.1, high=0.2),), {"clip_ratio_low": 0.1, "clip_ratio_high": 0.2}, 4),
    "cispo": ((Cispo(low=0.2, high=0.28),), {"clip_ratio_low": 0.2, "clip_ratio_high": 0.28}, 4),
    "clip_cov": (
        (WIDE, ClipCov(share=1.0, lower=0.2, upper=2.0)),
        {
            "clip_ratio_low": 1.0,
            "clip_ratio_high": 1.0,
            "policy_loss": {"clip_cov_ratio": 1.0, "clip_cov_lb": 0.2, "clip_cov_ub": 2.0},
        },
        1,
    ),
    "kl_cov": (
        (UNCLIPPED, KLCov(share=0.2, coefficient=0.7)),
        {"policy_loss": {"kl_cov_ratio": 0.2, "ppo_kl_coef": 0.7}},
        1,
    ),
}
"""verl's loss mode -> (our mechanisms, verl's settings, the most micro-batches in which the two are the same)."""


@pytest.mark.parametrize("by_token", [False, True], ids=["by response", "by token"])
@pytest.mark.parametrize("average", AVERAGES)
@pytest.mark.parametrize("mode", AGREE)
def test_the_chain_is_verls_own_loss(same: Any, in_verl: Any, mode: str, average: str, by_token: bool) -> None:
    (mechanisms, settings, most), (reduction, averaging) = AGREE[mode], AVERAGES[average]
    for drift in same.DRIFTS if average == "token-mean" else (0.5,):
        data = same.tokens(drift, by_token=by_token)
        for parts in {1, most}:
            theirs = in_verl.theirs(data, mode, parts, **settings, **averaging)
            same.close(theirs, same.bare(Chain(mechanisms, reduction), data, parts))


@pytest.mark.parametrize("average", AVERAGES)
def test_verls_entropy_and_kl_terms_are_ours(same: Any, in_verl: Any, average: str) -> None:
    reduction, averaging = AVERAGES[average]
    data = same.tokens(0.5)
    for kind in ("k1", "k2", "k3", "k3+"):
        chain = Chain((ClippedPolicy(dual=3.0), EntropyBonus(0.1), ReferenceKL(0.04, kind)), reduction)
        settings = {"entropy_coeff": 0.1, "use_kl_loss": True, "kl_loss_coef": 0.04, "kl_loss_type": kind}
        same.close(in_verl.theirs(data, "vanilla", 4, **settings, **averaging), same.bare(chain, data))


def left_out(outcome: Any, data: Any) -> int:
    return int(((outcome.by_logprob == 0) & data.mask).sum())


def whole_batch(same: Any, rows: int = 8, width: int = 1024) -> Any:
    """Return 8 responses of 1,024 tokens, on-policy, of which half are good."""
    data = same.tokens(0.0, rows=rows, width=width)
    signs = torch.where(torch.arange(rows) % 2 == 0, 1.0, -1.0).double()
    return same.changed(data, advantages=signs, mask=torch.ones_like(data.mask), old_logprobs=data.logprobs)


def test_clip_cov_leaves_out_one_token_or_eight_by_a_memory_setting(same: Any, in_verl: Any) -> None:
    """verl issue 7829: 2e-4 of 8,192 tokens is 1.

    Of each of eight micro-batches it is less than one, and rounds up to 1 each.
    """
    data = whole_batch(same)
    bounds = {"lower": -math.inf, "upper": math.inf}
    settings = {
        "clip_ratio": 1.0,
        "policy_loss": {"clip_cov_ratio": 2e-4, "clip_cov_lb": -math.inf, "clip_cov_ub": math.inf},
    }
    chain = Chain((WIDE, ClipCov(share=2e-4, **bounds)))
    assert [left_out(in_verl.theirs(data, "clip_cov", parts, **settings), data) for parts in (1, 8)] == [1, 8]
    assert [left_out(same.bare(chain, data, parts), data) for parts in (1, 8)] == [1, 1]
    assert [left_out(in_verl.ours(chain, data, parts), data) for parts in (1, 8)] == [1, 1]


def test_clip_cov_draws_as_many_as_verl_from_the_same_candidates(same: Any, in_verl: Any) -> None:
    """Which of them is chance: torch's generator in verl, the token's own key here."""
    data = whole_batch(same)
    mechanisms = {share: Chain((WIDE, ClipCov(share=share))) for share in (0.01, 1.0)}
    drawn, candidates = (same.bare(chain, data, 4).by_logprob == 0 for chain in mechanisms.values())
    theirs = in_verl.theirs(data, "clip_cov", clip_ratio=1.0, policy_loss={"clip_cov_ratio": 0.01}).by_logprob == 0
    assert [int(chosen.sum()) for chosen in (drawn, theirs)] == [81, 81]
    assert int(candidates.sum()) > 500
    assert not (theirs & ~candidates).any()
    assert not (drawn & ~candidates).any()


def test_with_one_response_per_micro_batch_clip_cov_finds_no_candidate(same: Any, in_verl: Any) -> None:
    """The paper's bounds of 1 and 5: every covariance is zero when all tokens share one advantage."""
    data, settings = whole_batch(same), {"clip_ratio": 1.0, "policy_loss": {"clip_cov_ratio": 2e-3}}
    assert [left_out(in_verl.theirs(data, "clip_cov", parts, **settings), data) for parts in (1, 8)] == [16, 0]
    assert [left_out(same.bare(Chain((WIDE, ClipCov(share=2e-3))), data, parts), data) for parts in (1, 8)] == [16, 16]


def charged(outcome: Any, plain: Any) -> Any:
    return (outcome.by_logprob != plain.by_logprob).nonzero().tolist()


def test_with_one_response_per_micro_batch_kl_cov_picks_by_rounding(same: Any, in_verl: Any) -> None:
    """All covariances of one response are zero but for the rounding of its mean advantage.

    So another precision charges other tokens.
    """
    data = same.tokens(0.3, width=64)
    data = same.changed(
        data,
        mask=torch.ones_like(data.mask),
        old_logprobs=torch.where(data.mask, data.old_logprobs, data.logprobs - 0.1),
        advantages=torch.linspace(-1.1, 0.9, 8, dtype=torch.float64),
    )
    narrow = same.changed(
        data, **{name: value.float() for name, value in vars(data).items() if name not in ("mask", "weights")}
    )
    settings = {"policy_loss": {"kl_cov_ratio": 0.01, "ppo_kl_coef": 1.0}}
    theirs, ours = {}, {}
    for held, parts in [(held, parts) for held in (data, narrow) for parts in (1, 8)]:
        plain = same.bare(Chain((UNCLIPPED,)), held, parts)
        theirs[held is data, parts] = charged(in_verl.theirs(held, "kl_cov", parts, **settings), plain)
        ours[held is data, parts] = charged(same.bare(Chain((UNCLIPPED, KLCov(share=0.01))), held, parts), plain)
    assert all(picks == theirs[True, 1] for picks in [*ours.values(), theirs[False, 1]]), (
        "over the whole batch all agree"
    )
    assert [len(theirs[True, parts]) for parts in (1, 8)] == [5, 8]
    assert len([pick for pick in theirs[True, 8] if pick in theirs[True, 1]]) == 1, (
        "one of the five is still among the eight"
    )
    assert theirs[False, 8] != theirs[True, 8]


def test_verl_ships_a_tenth_of_the_published_kl_cov(same: Any, in_verl: Any) -> None:
    """The function would fall back on 1, but the settings are never empty:

    dataclass and YAML say 0.1, and a tenth of the tokens too.
    """
    import verl.trainer
    from verl.workers.config import PolicyLossConfig

    text = files(verl.trainer).joinpath("config/actor/actor.yaml").read_text(encoding="utf-8")
    assert "ppo_kl_coef: 0.1\n" in text
    assert "kl_cov_ratio: 0.0002\n" in text
    assert (PolicyLossConfig().ppo_kl_coef, PolicyLossConfig().kl_cov_ratio) == (0.1, 0.0002)
    assert (KLCov().coefficient, KLCov().share) == (1.0, 0.002)
    data = same.tokens(0.5)
    same.close(in_verl.theirs(data, "kl_cov"), same.bare(Chain((UNCLIPPED, KLCov(share=2e-4, coefficient=0.1))), data))


def test_a_samplers_correction_weighs_verls_kl_cov_penalty_too(same: Any, in_verl: Any) -> None:
    """On-policy but for the sampler, with no advantage: what is left is the penalty.

    Here it is not the sampler's business.
    """
    data = same.tokens(0.5)
    data = same.changed(data, advantages=0 * data.advantages, weights=torch.full_like(data.entropy, 0.25))
    settings = {"policy_loss": {"kl_cov_ratio": 1.0, "ppo_kl_coef": 1.0}}
    ours = same.bare(Chain((UNCLIPPED, KLCov(share=1.0))), data)
    assert in_verl.theirs(data, "kl_cov", **settings).loss / ours.loss == pytest.approx(0.25)


def test_verls_vanilla_has_a_dual_clip_of_three_and_a_plain_clipped_policy_none(same: Any, in_verl: Any) -> None:
    """One token fell from the old policy's favour by a factor of ten the wrong way: A = -1, ratio 10."""
    data = same.tokens(0.0)
    old = data.logprobs - math.log(10.0)
    data = same.changed(data, old_logprobs=old, advantages=torch.full_like(data.advantages, -1.0))
    assert in_verl.theirs(data, "vanilla").loss == pytest.approx(3.0)
    assert same.bare(Chain((ClippedPolicy(),)), data).loss == pytest.approx(10.0)
    same.close(in_verl.theirs(data, "vanilla", clip_ratio_c=11.0), same.bare(Chain((ClippedPolicy(dual=11.0),)), data))


def test_verls_cispo_bounds_small_weights_unless_told_otherwise(same: Any, in_verl: Any) -> None:
    """Tokens that lost half of their probability:

    the paper and our default weigh them with 0.5, verl's clip_ratio of 0.2 with 0.8.
    """
    data = same.tokens(0.0)
    data = same.changed(data, old_logprobs=data.logprobs + math.log(2.0))
    ours = same.bare(Chain((Cispo(),)), data)
    assert in_verl.theirs(data, "cispo").loss / ours.loss == pytest.approx(0.8 / 0.5)
    same.close(in_verl.theirs(data, "cispo", clip_ratio_low=1.0, clip_ratio_high=0.28), ours)


@pytest.mark.parametrize(
    ("mode", "mechanism"), [("clip_cov", ClipCov(share=0.0)), ("kl_cov", KLCov(share=0.0)), ("vanilla", None)]
)
def test_a_ratio_that_overflows_is_bounded_here_and_in_vanilla_only(
    same: Any, in_verl: Any, mode: str, mechanism: Any
) -> None:
    data = same.tokens(0.0)
    old, advantages = data.logprobs.clone(), data.advantages.clone()
    old[0, 0], advantages[0] = data.logprobs[0, 0] - 800.0, -1.0
    data = same.changed(data, old_logprobs=old, advantages=advantages)
    settings = {} if mode == "vanilla" else {"clip_ratio": 1.0}
    theirs = in_verl.theirs(data, mode, **settings, **({"clip_ratio_c": 1e12} if mode == "vanilla" else {}))
    ours = same.bare(Chain((WIDE, mechanism) if mechanism else (ClippedPolicy(),)), data)
    assert ours.loss == pytest.approx(math.exp(20) / int(data.mask.sum()), rel=1e-6)
    assert theirs.loss == (pytest.approx(ours.loss) if mode == "vanilla" else math.inf)


def test_gspo_bounds_the_response_in_verl_and_each_token_here(same: Any, in_verl: Any) -> None:
    """A response whose tokens all moved by 15 nats: verl's ratio stops at exp(10), ours goes on to exp(15).

    A = -1, so no clip acts.
    """
    data = same.tokens(0.0)
    data = same.changed(data, old_logprobs=data.logprobs - 15.0, advantages=torch.full_like(data.advantages, -1.0))
    assert in_verl.theirs(data, "gspo").loss == pytest.approx(math.exp(10))
    assert same.bare(Chain((SequenceRatio(),)), data).loss == pytest.approx(math.exp(15))


def test_verl_stops_counting_k3_at_ten(same: Any, in_verl: Any) -> None:
    """Three nats below the reference: k3 is exp(3) - 4 = 16.085537.

    Verl's value is 10, and k3 has no gradient there.
    """
    data = same.tokens(0.0)
    data = same.changed(data, reference=data.logprobs + 3.0, advantages=0 * data.advantages)
    settings = {"use_kl_loss": True, "kl_loss_coef": 1.0, "kl_loss_type": "k3"}
    theirs, ours = (
        in_verl.theirs(data, "vanilla", **settings),
        same.bare(Chain((ClippedPolicy(), ReferenceKL(1.0, "k3"))), data),
    )
    assert (theirs.loss, ours.loss) == pytest.approx((10.0, 16.085537))
    assert [float(one.by_logprob[0, 0]) * int(data.mask.sum()) for one in (theirs, ours)] == pytest.approx(
        [0.0, 1 - math.exp(3)]
    )


def test_a_response_without_tokens_counts_in_verls_workers_and_not_in_its_bare_average(same: Any, in_verl: Any) -> None:
    """verl's agg_loss leaves it out, unless it is told the size of the batch, and verl's workers tell it."""
    from verl.trainer.ppo.core_algos import agg_loss

    data = same.tokens(0.5)
    mask = data.mask.clone()
    mask[3] = False
    data, chain = same.changed(data, mask=mask), Chain((ClippedPolicy(dual=3.0),), Reduction("sequence-mean"))
    ours = same.bare(chain, data)
    same.close(in_verl.ours(chain, data, 2), ours)
    averaging = {"loss_agg_mode": "seq-mean-token-mean"}
    assert in_verl.theirs(data, "vanilla", **averaging).loss / ours.loss == pytest.approx(7 / 8)
    assert in_verl.alone(chain, data, **averaging).loss / ours.loss == pytest.approx(7 / 8)
    assert float(agg_loss(data.entropy, mask, "seq-mean-token-mean")) == pytest.approx(
        float(((data.entropy * mask).sum(1) / mask.sum(1).clamp(min=1)).sum() / 7)
    )
