"""Trainers' names become ours by suffix, the preferred one wins, and nothing is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from breadth.runs.names import METRIC_NAMES, describe_metric, match_name, translate

SPELLINGS = {
    "entropy": [
        "entropy",
        "actor/entropy",
        "actor/entropy_loss",
        "train/entropy_loss",
        "policy_entropy",
        "entropy/all/mean",
        "optim/entropy",
    ],
    "reward": ["reward", "critic/score/mean", "rollout/raw_reward", "reward/all/mean", "reward/mean"],
    "zero_variance_groups": ["frac_reward_zero_std"],
    "truncated": ["completions/clipped_ratio", "response_length/clip_ratio", "is_truncated/all/mean"],
    "length": [
        "completions/mean_length",
        "completion_length",
        "response_length/mean",
        "seq_len/all/mean",
        "rollout/response_len/mean",
    ],
    "kl_reference": ["kl", "actor/kl_loss", "kl_loss", "policy_kl"],
    "kl_old": ["actor/ppo_kl", "train/ppo_kl", "optim/kl_sample_train_v1"],
    "clip_fraction": ["clip_ratio/region_mean", "actor/pg_clipfrac", "train/pg_clipfrac", "clip_ratio"],
    "mismatch": [
        "sampling/sampling_logp_difference/mean",
        "training/rollout_probs_diff_mean",
        "train/train_rollout_logprob_abs_diff",
    ],
    "grad_norm": ["grad_norm", "actor/grad_norm"],
    "learning_rate": ["learning_rate", "actor/lr", "optim/lr"],
}


@pytest.mark.parametrize(
    ("ours", "theirs"), [(ours, theirs) for ours, several in SPELLINGS.items() for theirs in several]
)
def test_every_trainer_spelling_is_known(ours: str, theirs: str) -> None:
    assert translate({theirs: 1.0}) == ({ours: 1.0}, {ours: theirs})


@pytest.mark.parametrize(
    "theirs",
    [
        "rewards/format/mean",
        "critic/rewards/max",
        "perf/mfu/actor",
        "entropy_coef",
        "reward/correctness_f",
        "actor/kl_coef",
    ],
)
def test_other_names_are_left_alone(theirs: str) -> None:
    assert translate({theirs: 1.0}) == ({theirs: 1.0}, {})


def test_the_preferred_name_wins_and_the_others_stay() -> None:
    row = {
        "critic/rewards/mean": 1.0,
        "critic/score/mean": 2.0,
        "completion_length": 3.0,
        "completions/mean_length": 4.0,
    }
    values, used = translate(row)
    assert values == {"reward_shaped": 1.0, "reward": 2.0, "completion_length": 3.0, "length": 4.0}
    assert used["reward"] == "critic/score/mean"


def test_a_name_that_lost_to_another_does_not_pose_as_ours() -> None:
    values, _ = translate({"reward": 1.0, "critic/score/mean": 2.0})
    assert values == {"raw/reward": 1.0, "reward": 2.0}


def test_no_spelling_means_two_things() -> None:
    several = [theirs for _, spellings in METRIC_NAMES.values() for theirs in spellings]
    assert len(several) == len(set(several))
    assert all(match_name(theirs) for theirs in several)


def test_meaning_is_given_for_ours_only() -> None:
    assert "nats" in describe_metric("entropy")
    assert describe_metric("perf/mfu") == ""


@given(
    st.dictionaries(
        st.sampled_from(sorted({name for names in SPELLINGS.values() for name in names} | {"x", "raw/reward"})),
        st.floats(0, 1),
    )
)
def test_nothing_is_lost(row: dict[str, float]) -> None:
    values, _ = translate(row)
    assert sorted(values.values()) == sorted(row.values())
