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
    "grad_norm": ["grad_norm", "actor/grad_norm", "train/actor_grad_norm", "gradient_norm", "total_grad_norm"],
    "learning_rate": ["learning_rate", "actor/lr", "optim/lr", "train/lr-pg_0"],
    "value_loss": ["critic/vf_loss", "ppo/loss/value", "value/loss"],
    "all_correct_groups": ["env/all/by_group/frac_all_good", "train/agg/all/agent/solved_all"],
    "all_wrong_groups": ["env/all/by_group/frac_all_bad", "group/all_incorrect_groups_ratio"],
    "mutual_information": ["collapse/mi_estimate"],
    "sample_age": ["off_policy/mean", "async/staleness_mean", "buffer/sample/avg_sampled_policy_age"],
    "advantages_mean": ["critic/advantages/mean", "train/advantages/mean"],
    "stopped": ["val/stop_rate", "stop_ratio"],
}
SPELLINGS["accuracy"] = ["Percentage of correct examples", "solved_ratio", "correct response rate"]
SPELLINGS["reward"] += ["reward_mean", "mean_reward", "avg_reward", "train_reward", "terminal_reward", "episode_reward"]
SPELLINGS["reward"] += ["rewards/mean", "objective/scores", "ppo/mean_scores", "Mean Reward"]
SPELLINGS["kl_reference"] += ["kl_divergence", "kl_div", "critic/kl", "objective/kl", "loss/avg_kl", "train.kl"]
SPELLINGS["truncated"] += ["cap_hit_rate", "finish_reason/length", "rollout/truncated_rate", "train/truncation_rate"]
SPELLINGS["mismatch"] += ["rollout_corr/kl", "Mismatch KL"]
SPELLINGS["grad_norm"] += ["Grad. Norm", "policy/raw_grad_norm", "ppo_actor/update/grad_norm"]
SPELLINGS["reward"] += ["rewards_avg", "reward_latest", "latest_step_reward", "train/avgReward", "score_avg"]
SPELLINGS["entropy"] += ["avg_token_entropy", "policy/mean_entropy_per_token", "meanEntropy"]
SPELLINGS["length"] += ["avg_completion_tokens", "mean response length", "gen_len_avg", "output_tokens_mean"]
SPELLINGS["zero_variance_groups"] += ["frac_zero_std_groups", "zero_variance_groups_ratio", "degenerate_group_rate"]
SPELLINGS["truncated"] += ["truncated_pct", "clipped_completions_ratio", "frac_overlong"]
SPELLINGS["kl_reference"] += ["avg_kl_to_ref", "kl_from_base"]
SPELLINGS["learning_rate"] += ["current_lr", "learning_rate_current"]


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
        "critic/grad_norm",
        "critic/lr",
        "ppo_critic/update/grad_norm",
        "ref/kl",
        "draft/entropy",
        "timing_s/reward",
        "prompt_length/clip_ratio",
        "response_length_non_aborted/clip_ratio",
        "rewards/reward/mean",
        "rollout/rewards",
        "actor/loss/entropy",
        "rollout/eval/reward",
        "gsm8k/accuracy",
        "reward_weight",
        "best_reward",
        "running_reward",
        "format_reward",
        "max_reward",
        "mean_token_accuracy",
        "kl_coef",
        "entropy_bonus",
        "zero_grad_norm",
        "total_generated_tokens",
        "max_completion_len",
        "reward_model/mean_score",
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


@pytest.mark.parametrize("names", [("critic", "actor"), ("actor", "critic")])
def test_the_actors_numbers_win_over_the_critics_in_any_order(names: tuple[str, str]) -> None:
    level = {"actor": 1.0, "critic": 2.0}
    row = {f"{name}/{metric}": level[name] for name in names for metric in ("grad_norm", "lr")}
    values, _ = translate(row | {"critic/vf_loss": 3.0})
    assert values == {
        "grad_norm": 1.0,
        "learning_rate": 1.0,
        "critic/grad_norm": 2.0,
        "critic/lr": 2.0,
        "value_loss": 3.0,
    }


def test_a_name_of_the_whole_run_wins_over_one_of_a_part() -> None:
    values, used = translate({"gsm8k/reward/mean": 1.0, "train/reward": 2.0})
    assert used == {"reward": "train/reward"}
    assert values == {"gsm8k/reward/mean": 1.0, "reward": 2.0}


def test_names_that_lost_their_slashes_in_an_export_are_known() -> None:
    row = {"critic_score_mean": 1.0, "actor_entropy": 2.0, "actor_pg_loss": 3.0, "training_epoch": 4.0}
    other = {"critic_lr": 5.0, "train_loss": 6.0, "response_length_non_aborted_clip_ratio": 7.0}
    assert translate(row | other)[0] == {"reward": 1.0, "entropy": 2.0, "loss": 3.0, "epoch": 4.0} | other


def test_ended_and_cut_are_not_mixed_up() -> None:
    assert translate({"stop_ratio": 0.9, "cap_hit_rate": 0.1})[0] == {"stopped": 0.9, "truncated": 0.1}


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
