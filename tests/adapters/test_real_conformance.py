"""One suite, same tensors: a chain gives the same loss and gradient bare, inside TRL and inside verl.

And advantages as theirs.
"""

from __future__ import annotations

import math
from typing import Any

import pytest

from breadth.training.chain import Chain
from breadth.training.loss.cispo import Cispo
from breadth.training.loss.clip_cov import ClipCov
from breadth.training.loss.clipped_policy import ClippedPolicy
from breadth.training.loss.entropy_bonus import EntropyBonus
from breadth.training.loss.forking_tokens import ForkingTokens
from breadth.training.loss.gradient_preserving import GradientPreserving
from breadth.training.loss.kl_cov import KLCov
from breadth.training.loss.reference_kl import ReferenceKL
from breadth.training.loss.sequence_ratio import SequenceRatio
from breadth.training.reduction import Reduction

pytestmark = pytest.mark.filterwarnings(
    "ignore::Warning:(torch|transformers|trl|datasets|accelerate|tokenizers|huggingface_hub)"
)

ANY_COST = {"lower": -math.inf, "upper": math.inf}
PLAIN = {
    "clipped": Chain((ClippedPolicy(high=0.28, dual=3.0),)),
    "preserving": Chain((GradientPreserving(),)),
    "cispo": Chain((Cispo(),), Reduction("sequence-mean")),
    "capped cispo": Chain((Cispo("cap", cap=1.5),)),
    "sequence": Chain((SequenceRatio(low=0.1, high=0.1),), Reduction("sequence-mean")),
    "terms": Chain((ClippedPolicy(), EntropyBonus(0.1), ReferenceKL(0.04)), Reduction("fixed-length", 12)),
}
SURVEYING = {
    "clip-cov": Chain((ClippedPolicy(low=1.0, high=1.0), ClipCov(share=0.2, **ANY_COST))),
    "kl-cov": Chain((ClippedPolicy(low=1.0, high=math.inf), KLCov(share=0.2))),
    "forking": Chain((ClippedPolicy(), ForkingTokens(share=0.4), EntropyBonus(0.1)), Reduction("sequence-mean")),
}
DRIFTS = (0.0, 0.05, 0.5, 2.0)


def beta(chain: Chain) -> dict[str, float]:
    """Return the setting without which TRL has no reference policy."""
    return {"beta": 0.04} if "loss.reference_logprobs" in chain.needs else {}


@pytest.mark.parametrize("by_token", [False, True], ids=["by response", "by token"])
@pytest.mark.parametrize("drift", DRIFTS)
@pytest.mark.parametrize("name", PLAIN)
def test_a_chain_is_the_same_bare_in_trl_and_in_verl(
    same: Any, in_trl: Any, in_verl: Any, name: str, drift: float, by_token: bool
) -> None:
    chain, data = PLAIN[name], same.tokens(drift, by_token=by_token)
    bare = same.bare(chain, data)
    for parts in (1, 4):
        same.close(same.bare(chain, data, parts), bare)
        same.close(in_trl.ours(chain, data, parts, **beta(chain)), bare)
        same.close(in_verl.ours(chain, data, parts), bare)


@pytest.mark.parametrize("name", SURVEYING)
def test_so_is_one_that_surveys_where_the_policy_has_not_moved(same: Any, in_trl: Any, in_verl: Any, name: str) -> None:
    chain, data = SURVEYING[name], same.tokens(0.0)
    bare = same.bare(chain, data)
    for parts in (1, 4):
        same.close(same.bare(chain, data, parts), bare)
        same.close(in_trl.ours(chain, data, parts), bare)
        same.close(in_verl.ours(chain, data, parts), bare)


@pytest.mark.parametrize("drift", DRIFTS[1:])
@pytest.mark.parametrize("name", SURVEYING)
def test_after_that_trl_surveys_the_policy_as_it_is_and_verl_as_it_was(
    same: Any, in_trl: Any, in_verl: Any, name: str, drift: float
) -> None:
    """Inside verl no forward pass is there to ask the current policy, and the metric breadth/stale says so."""
    chain, data = SURVEYING[name], same.tokens(drift)
    fresh, stale = same.bare(chain, data), same.bare(chain, data, surveyed=same.unchanged(data))
    for parts in (1, 4):
        same.close(in_trl.ours(chain, data, parts), fresh)
        same.close(in_verl.ours(chain, data, parts), stale)


def test_how_many_choices_a_stale_survey_changes(same: Any, in_trl: Any, in_verl: Any) -> None:
    chain = SURVEYING["kl-cov"]
    left_out = Chain(chain.mechanisms[:1])
    changed, charged = [], []
    for drift in DRIFTS:
        data = same.tokens(drift, rows=32, width=32)
        plain = same.bare(left_out, data).by_logprob
        fresh, stale = (side.ours(chain, data).by_logprob != plain for side in (in_trl, in_verl))
        changed.append(int((fresh & ~stale).sum()))
        charged.append(int(fresh.sum()))
    assert changed == [0, 0, 17, 52]
    assert charged == [0, 117, 117, 117], "where the policies agree the charge has no gradient"


@pytest.mark.parametrize("name", ["clipped", "cispo", "capped cispo", "sequence"])
def test_the_policy_loss_alone_is_the_same_under_verls_own_trainers(same: Any, in_verl: Any, name: str) -> None:
    chain = PLAIN[name]
    settings = {"loss_agg_mode": "seq-mean-token-mean"} if chain.reduction.by == "sequence-mean" else {}
    for drift in DRIFTS:
        data = same.tokens(drift)
        same.close(in_verl.alone(chain, data, 2, **settings), same.bare(chain, data))


def test_a_samplers_correction_weighs_the_policy_loss_everywhere_alike(same: Any, in_trl: Any, in_verl: Any) -> None:
    chain, data = Chain((ClippedPolicy(dual=3.0), EntropyBonus(0.1))), same.tokens(0.5)
    data = same.changed(data, weights=0.5 + data.entropy)
    bare = same.bare(chain, data)
    same.close(in_trl.ours(chain, data, 2), bare)
    same.close(in_verl.ours(chain, data, 2), bare)
    same.close(in_verl.theirs(data, "vanilla", 2, entropy_coeff=0.1), bare)
    same.close(in_trl.theirs(data, delta=3.0, entropy_coef=0.1), bare)


def test_nan_in_the_padding_is_nothing_to_us_and_spreads_in_trl_and_verl(same: Any, in_trl: Any, in_verl: Any) -> None:
    """TRL multiplies by the mask on the way out, and so does verl in all averages but the token mean.

    NaN times zero is NaN.
    """
    chain, data = Chain((ClippedPolicy(dual=3.0),)), same.tokens(0.5)
    bare = same.bare(chain, data)
    dirty = same.changed(data, old_logprobs=data.old_logprobs.masked_fill(~data.mask, math.nan))
    for outcome in (
        same.bare(chain, dirty),
        in_trl.ours(chain, dirty, 2),
        in_verl.ours(chain, dirty, 2),
        in_verl.alone(chain, dirty, 2),
    ):
        same.close(outcome, bare)
    assert math.isnan(in_trl.theirs(dirty, delta=3.0).loss)
    same.close(in_verl.theirs(dirty, "vanilla"), bare)
    assert math.isnan(in_verl.theirs(dirty, "vanilla", loss_agg_mode="seq-mean-token-mean").loss)
