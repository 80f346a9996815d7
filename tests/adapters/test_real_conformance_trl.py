"""The same tensors through TRL's own losses: where a chain is the same thing, and by how much each difference shows."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from breadth.training.chain import Chain
from breadth.training.loss.cispo import Cispo
from breadth.training.loss.clipped_policy import ClippedPolicy
from breadth.training.loss.entropy_bonus import EntropyBonus
from breadth.training.loss.forking_tokens import ForkingTokens
from breadth.training.loss.reference_kl import ReferenceKL
from breadth.training.loss.sequence_ratio import SequenceRatio
from breadth.training.reduction import Reduction

pytestmark = pytest.mark.filterwarnings(
    "ignore::Warning:(torch|transformers|trl|datasets|accelerate|tokenizers|huggingface_hub)"
)

CLIP = ClippedPolicy(low=0.2, high=0.28)
HIGHER = {"epsilon": 0.2, "epsilon_high": 0.28}
BY_RESPONSE = Reduction("sequence-mean")
AGREE: dict[str, tuple[Chain, dict[str, Any], int]] = {
    "dapo": (Chain((CLIP,)), {"loss_type": "dapo", **HIGHER}, 4),
    "grpo": (Chain((CLIP,), BY_RESPONSE), {"loss_type": "grpo", **HIGHER}, 4),
    "dr_grpo": (Chain((CLIP,), Reduction("fixed-length", 12)), {"loss_type": "dr_grpo", **HIGHER}, 4),
    "bnpo": (Chain((CLIP,)), {"loss_type": "bnpo", **HIGHER}, 1),
    "cispo": (Chain((Cispo("cap", cap=1.5),)), {"loss_type": "cispo", "epsilon_high": 1.5}, 4),
    "delta": (Chain((ClippedPolicy(dual=1.7),)), {"delta": 1.7}, 4),
    "k3": (Chain((CLIP, ReferenceKL(0.04, "k3"))), {**HIGHER, "beta": 0.04, "use_bias_correction_kl": False}, 4),
    "entropy_coef": (Chain((CLIP, EntropyBonus(0.1))), {**HIGHER, "entropy_coef": 0.1}, 1),
    "top_entropy_quantile": (Chain((CLIP, ForkingTokens(0.3))), {**HIGHER, "top_entropy_quantile": 0.3}, 1),
}
"""Name -> (our chain, TRL's settings, the most micro-batches in which the two are the same)."""


@pytest.mark.parametrize("by_token", [False, True], ids=["by response", "by token"])
@pytest.mark.parametrize("name", AGREE)
def test_the_chain_is_trls_own_loss(same: Any, in_trl: Any, name: str, by_token: bool) -> None:
    chain, settings, most = AGREE[name]
    for drift in same.DRIFTS:
        data = same.tokens(drift, by_token=by_token)
        for parts in {1, most}:
            same.close(in_trl.theirs(data, parts, **settings), same.bare(chain, data, parts))


def test_a_delta_below_the_clip_also_stops_good_tokens_in_trl(same: Any, in_trl: Any) -> None:
    """A = 1, a ratio of 1.15 and bounds of 1.2 and delta = 1.1:

    TRL caps whatever the sign, the dual clip acts on bad tokens only.
    """
    data = same.tokens(0.0)
    data = same.changed(data, old_logprobs=data.logprobs - math.log(1.15), advantages=torch.ones_like(data.advantages))
    theirs, ours = in_trl.theirs(data, delta=1.1), same.bare(Chain((ClippedPolicy(dual=1.1),)), data)
    assert (theirs.loss, ours.loss) == pytest.approx((-1.1, -1.15))
    assert float(theirs.by_logprob.abs().max()) == 0.0


def test_gspo_is_trls_sequence_level_where_a_response_has_one_advantage(same: Any, in_trl: Any) -> None:
    chain = Chain((SequenceRatio(low=0.1, high=0.2),), BY_RESPONSE)
    settings = {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 0.1, "epsilon_high": 0.2}
    for drift in same.DRIFTS:
        data = same.tokens(drift)
        same.close(in_trl.theirs(data, 2, **settings), same.bare(chain, data))


def test_with_an_advantage_for_each_token_trl_pushes_them_all_by_the_mean(same: Any, in_trl: Any, in_verl: Any) -> None:
    """Half the tokens of each response are good and half are bad:

    TRL's sequence level learns nothing from it, GSPO-token and verl do.
    """
    data = same.tokens(0.0)
    signs = torch.tensor([1.0, -1.0], dtype=torch.float64).repeat(8, 6)
    data = same.changed(data, advantages=signs, mask=torch.ones_like(data.mask), old_logprobs=data.logprobs)
    trl = in_trl.theirs(data, loss_type="grpo", importance_sampling_level="sequence").by_logprob
    verl = in_verl.theirs(data, "gspo", loss_agg_mode="seq-mean-token-mean").by_logprob
    ours = same.bare(Chain((SequenceRatio(),), BY_RESPONSE), data).by_logprob
    assert float(trl.abs().max()) < 1e-12
    assert (ours + signs / (8 * 12)).abs().max() < 1e-9
    assert (verl - ours).abs().max() < 1e-9


def test_trls_default_kl_is_our_k3_plus_on_policy_and_weighted_by_the_ratio_off_it(same: Any, in_trl: Any) -> None:
    """Half a nat from the reference:

    the KL pulls with 0.5, k3 with 1 - exp(-0.5), TRL's with ratio * 0.5 (use_bias_correction_kl).
    """
    data = same.tokens(0.0)
    data = same.changed(data, advantages=0 * data.advantages, reference=data.logprobs - 0.5)
    drifted = same.changed(data, old_logprobs=data.logprobs - 0.4)
    chains = {name: Chain((CLIP, ReferenceKL(1.0, name))) for name in ("k3", "k3+")}
    pulls: dict[tuple[str, str], float] = {}
    for name, batch in (("on", data), ("off", drifted)):
        outcomes = {
            "TRL": in_trl.theirs(batch, beta=1.0),
            **{kind: same.bare(chain, batch) for kind, chain in chains.items()},
        }
        pulls |= {(name, side): float(one.by_logprob[0, 0]) * int(data.mask.sum()) for side, one in outcomes.items()}
    assert pulls == pytest.approx(
        {
            ("on", "TRL"): 0.5,
            ("on", "k3"): 0.393469,
            ("on", "k3+"): 0.5,
            ("off", "TRL"): 0.745912,
            ("off", "k3"): 0.393469,
            ("off", "k3+"): 0.5,
        },
        abs=1e-6,
    )


def test_bnpo_averages_each_micro_batch_alone(same: Any, in_trl: Any) -> None:
    data = same.tokens(0.5)
    theirs = [in_trl.theirs(data, parts, loss_type="bnpo").loss for parts in (1, 2, 4, 8)]
    ours = [same.bare(Chain((ClippedPolicy(),)), data, parts).loss for parts in (1, 2, 4, 8)]
    assert theirs == pytest.approx([-0.1234, -0.0839, 0.1152, 0.2923], abs=1e-4), "even the sign is a matter of memory"
    assert ours == pytest.approx([theirs[0]] * 4)


def test_cispo_epsilon_high_is_a_cap_in_trl_and_a_distance_from_one_in_verl(
    same: Any, in_trl: Any, in_verl: Any
) -> None:
    """The same setting on policies that agree: TRL's update is 0.28 of verl's."""
    data = same.tokens(0.0)
    trl, verl = (
        in_trl.theirs(data, loss_type="cispo", epsilon_high=0.28),
        in_verl.theirs(data, "cispo", clip_ratio_high=0.28),
    )
    same.close(verl, same.bare(Chain((Cispo(high=0.28),)), data))
    assert trl.loss / verl.loss == pytest.approx(0.28)
    assert (trl.by_logprob[data.mask] - 0.28 * verl.by_logprob[data.mask]).abs().max() < 1e-9


def test_dapo_divides_an_update_by_its_share_of_the_generation(same: Any, in_trl: Any) -> None:
    """Two updates a generation, of which this one holds more than half of the tokens:

    TRL's loss is larger than its own mean.
    """
    data = same.tokens(0.5)
    assert int(data.mask.sum()) == 56
    theirs = in_trl.theirs(data, 2, generated=80, steps_per_generation=4)
    ours = same.bare(Chain((ClippedPolicy(),)), data, 2)
    same.close(in_trl.ours(Chain((ClippedPolicy(),)), data, 2, steps_per_generation=4), ours)
    assert theirs.loss / ours.loss == pytest.approx(1.4), "56 tokens of 80 in one of two updates"


def test_the_entropy_bonus_is_a_token_mean_of_each_micro_batch_in_trl(same: Any, in_trl: Any) -> None:
    """Ours is averaged as the policy loss is, over the whole batch; verl's too."""
    data, chain = same.tokens(0.5), Chain((ClippedPolicy(), EntropyBonus(0.1)), BY_RESPONSE)
    paid = [in_trl.theirs(data, parts, loss_type="grpo", entropy_coef=0.1).by_entropy[data.mask] for parts in (1, 4)]
    ours = same.bare(chain, data, 4).by_entropy[data.mask]
    longest, shortest = max(data.mask.sum(1)), min(data.mask.sum(1))
    assert float(ours.min() / ours.max()) == pytest.approx(float(longest / shortest)), (
        "a token of a short response is paid more"
    )
    assert float(paid[0].min() / paid[0].max()) == pytest.approx(1.0)
    assert float(paid[1].min() / paid[1].max()) == pytest.approx(19 / 11), (
        "two responses a micro-batch, of 11 to 19 tokens"
    )


def kept(outcome: Any, data: Any) -> Any:
    return (outcome.by_logprob != 0) & data.mask


def test_top_entropy_quantile_ranks_each_micro_batch_alone(same: Any, in_trl: Any) -> None:
    """Half of the responses are easy, every token of them surer than any of the others:

    TRL trains on them once they come by themselves.
    """
    data = same.tokens(0.0, rows=16)
    easy = torch.arange(16)[:, None] < 8
    sure = data.entropy / (1 + data.entropy)
    entropy = torch.where(easy, 0.5 * sure, 0.5 + sure).float().double()  # TRL ranks in float32
    data = same.changed(data, entropy=entropy, advantages=data.advantages.abs() + 0.01)
    chain, settings = Chain((ClippedPolicy(), ForkingTokens(0.2))), {"top_entropy_quantile": 0.2}
    theirs = [kept(in_trl.theirs(data, parts, **settings), data) for parts in (1, 4)]
    ours = [kept(same.bare(chain, data, parts), data) for parts in (1, 4)]
    assert [int((one & easy).sum()) for one in (*theirs, *ours)] == [0, 11, 0, 0]
    assert bool((theirs[0] == ours[0]).all())
    assert bool((ours[1] == ours[0]).all())


def test_top_entropy_quantile_keeps_everything_when_most_tokens_are_certain(same: Any, in_trl: Any) -> None:
    data = same.tokens(0.0)
    undecided = (data.entropy > 2.0) & data.mask
    data = same.changed(data, entropy=data.entropy * undecided, advantages=data.advantages + 0.01)
    theirs = kept(in_trl.theirs(data, top_entropy_quantile=0.2), data)
    ours = kept(same.bare(Chain((ClippedPolicy(), ForkingTokens(0.2))), data), data)
    assert bool((ours == undecided).all())
    assert [int(one.sum()) for one in (data.mask, theirs, ours)] == [56, 56, 7]


def test_trl_pays_for_the_entropy_of_the_kept_tokens_only(same: Any, in_trl: Any) -> None:
    data = same.tokens(0.0)
    theirs = in_trl.theirs(data, top_entropy_quantile=0.3, entropy_coef=0.1)
    ours = same.bare(Chain((ClippedPolicy(), ForkingTokens(0.3), EntropyBonus(0.1))), data)
    assert [int((one.by_entropy != 0).sum()) for one in (theirs, ours)] == [17, 56]
    assert float(theirs.by_entropy.sum()) == pytest.approx(-0.1)
    assert float(ours.by_entropy.sum()) == pytest.approx(-0.1)


@pytest.mark.parametrize(("kind", "reduction"), [("grpo", BY_RESPONSE), ("dr_grpo", Reduction("fixed-length", 12))])
def test_a_response_without_tokens_counts_as_one_in_trl(
    same: Any, in_trl: Any, kind: str, reduction: Reduction
) -> None:
    data = same.tokens(0.5)
    mask = data.mask.clone()
    mask[3] = False
    data = same.changed(data, mask=mask)
    theirs, ours = in_trl.theirs(data, loss_type=kind), same.bare(Chain((ClippedPolicy(),), reduction), data)
    same.close(in_trl.ours(Chain((ClippedPolicy(),), reduction), data, 2), ours)
    assert theirs.loss / ours.loss == pytest.approx(7 / 8)


def test_a_ratio_that_overflows_is_a_number_here_and_infinite_in_trl(same: Any, in_trl: Any) -> None:
    data = same.tokens(0.0)
    old = data.old_logprobs.clone()
    old[0, 0] = data.logprobs[0, 0] - 800.0
    advantages = data.advantages.clone()
    advantages[0] = -1.0
    data = same.changed(data, old_logprobs=old, advantages=advantages)
    assert in_trl.theirs(data).loss == math.inf
    ours = in_trl.ours(Chain((ClippedPolicy(),)), data)
    assert ours.loss == pytest.approx(math.exp(20) / int(data.mask.sum()), rel=1e-6)
    assert float(ours.by_logprob[0, 0]) == 0.0
