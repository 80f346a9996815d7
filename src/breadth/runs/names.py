"""One table from the trainers' metric names to ours, with an order of preference.

A name matches an entry when it equals it, or ends in ``/`` + entry, after case, dots, colons, spaces, hyphens and
ROLL's ``@sum`` are made alike. Of several names of a row for one of ours, a name under a scope we know (``train/``,
``actor/``) comes before one under any other (``gsm8k/``), then the earlier entry of the list, then the shorter name;
the others keep their own names. Under the scopes of ``FOREIGN_SCOPES`` (the critic's, a draft model's, timings) only a
whole name counts: ``critic/lr`` is not the policy's learning rate. A name that matches nothing is kept as it is. Values
are never rescaled: a share logged in percent stays in percent.

The entries are what the trainers' sources log, read at these commits: TRL f2cd577 (GRPO, RLOO, async GRPO, PPO, online
DPO; PPO up to 0.11 at b3f93f0), verl b178a3c, OpenRLHF 3c3be62, prime-rl 559b447, SkyRL a956457, slime 624b824,
NeMo-RL 7ea279a, ROLL 8eb27cc, tinker-cookbook 9dfcc3a, torchforge 6e77f0b, axolotl 067b021 and unsloth 015bdef (both
log TRL's names), ms-swift 3602360, RAGEN 20daedc, open-instruct e6c3044, torchtune bd2a0fc, AReaL 4aef98d. Names that
no source explains are the usual ones of hand-written loops; those made of the words of `WORD_RULES` need no entry.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

METRIC_TABLE: dict[str, tuple[str, ...]] = {
    "entropy": (
        "policy entropy, nats per token unless its kind says otherwise",
        "policy/entropy_avg",  # TRL PPO, open-instruct: per token; objective/entropy is of a whole reply
        "entropy",  # TRL GRPO, verl actor/, slime rollout/, tinker optim/
        # SkyRL policy/; prime-rl; NeMo-RL; OpenRLHF, slime and older verl: the entropy itself:
        "policy_entropy entropy/all/mean approx_entropy entropy_loss",
        # ms-swift; ROLL's policy, logged with the critic's; AReaL:
        "policy/entropy_mean entropy/mean critic/entropy/mean entropy/avg",
        # hand-written loops:
    ),
    "reward": (
        "mean reward of the rollouts",
        # verl, ROLL: the score before penalties; prime-rl; tinker:
        "critic/score/mean reward/all/mean reward/mean env/all/reward/total",
        # slime rollout/; SkyRL; TRL PPO and online DPO; torchforge; AReaL:
        "raw_reward reward/avg_raw_reward objective/scores avg_total_reward task_reward/avg",
        "reward",  # TRL, OpenRLHF, NeMo-RL, ms-swift
        # OpenRLHF rollout/; hand-written loops:
        "reward_mean mean_reward avg_reward average_reward reward_avg rewards/mean reward/avg reward/average",
        "mean_rewards train_reward train_reward_mean train_mean_reward train_avg_reward train/reward_mean",
        "terminal_reward episode_reward mean_episode_reward episode_reward_mean rollout_reward batch_reward",
        "total_reward rewards/total rewards/total_mean rewards/total/mean reward/total mean_total_reward final_reward",
        # TRL PPO up to 0.11; open-instruct and torchtune; gymnasium's habits:
        "ppo/mean_scores env/reward_mean scores score score/mean mean_score avg_score score_mean train_score",
        "rewards mean_return avg_return return_mean episode_return avg_episode_return ep_rew_mean",
    ),
    "accuracy": (
        "share of the training rollouts that are correct",
        # ROLL; torchtune; open-instruct. tinker's env/all/correct stays a component of the reward:
        "correct/mean critic/correct/mean successes objective/verifiable_correct_rate batch/percent_solved_mean",
        # hand-written loops:
        "success_rate solve_rate",
        "correct_rate pass_rate",
    ),
    "reward_shaped": (
        "mean reward after the trainer's own penalties",
        # verl, ROLL; TRL PPO, torchtune; SkyRL; AReaL; OpenRLHF; NeMo-RL is before: filtered_reward keeps its name:
        "critic/rewards/mean rlhf_reward loss/avg_final_rewards final_reward/avg return",
    ),
    "reward_std": (
        "spread of the rewards",
        "reward_std reward/all/std reward/std",  # TRL, OpenRLHF rollout/; prime-rl
        "group_reward_std in_group_reward_std in_group_std",  # within a group: OpenRLHF; RAGEN rollout/
        # TRL PPO up to 0.11; hand-written loops:
        "env/reward_std std_reward rewards/std rewards_std train_reward_std reward_stddev mean_group_std variance",
    ),
    "zero_variance_groups": (
        "share of groups whose rewards are all equal, so they teach nothing",
        # TRL, ms-swift, axolotl; open-instruct, prime-rl: filtered because their spread is zero:
        "frac_reward_zero_std batch/filtered_prompts_pct filters/all/zero_advantage",
        # hand-written loops:
        "zero_std",
    ),
    "all_correct_groups": (
        "share of groups whose rollouts are all right: too easy to teach",
        "by_group/frac_all_good solved_all all_correct_groups_ratio",  # tinker env/all/; prime-rl; ROLL group/
        # hand-written loops:
        "frac_all_good frac_all_correct all_correct_frac all_correct_ratio all_correct_rate all_right_ratio",
        "all_solved_ratio",
    ),
    "all_wrong_groups": (
        "share of groups whose rollouts are all wrong: too hard to teach",
        "by_group/frac_all_bad solved_none all_incorrect_groups_ratio",  # tinker env/all/; prime-rl; ROLL group/
        # hand-written loops:
        "frac_all_bad frac_all_wrong frac_all_incorrect all_wrong_frac all_wrong_ratio all_wrong_rate",
        "all_incorrect_ratio group_reward_all_zero_rate all_failed_ratio",
    ),
    "trained_samples": (
        "samples that the step was trained on",
        "samples_used valid_samples num_valid_samples num_datums n_datums",  # ROLL actor/; NeMo-RL; tinker's loops
        # hand-written loops:
        "trained_datums num_trained_datums n_trained datums_trained trained_samples num_trained_samples",
        "n_train_samples kept_samples",
    ),
    "trained_groups": (
        "groups that the step was trained on",
        "filter_kept_count val/total_reward_groups",  # RAGEN rollout/; open-instruct
        # hand-written loops:
        "trained_groups num_trained_groups n_trained_groups kept_groups num_kept_groups groups_kept n_groups_kept",
        "informative_groups groups_with_signal",
    ),
    "trained_tokens": (
        "tokens that the step was trained on",
        "global_valid_toks trained_tokens num_trained_tokens loss_tokens",  # NeMo-RL; hand-written loops
    ),
    "truncated": (
        "share of completions cut at the length cap",
        "completions/clipped_ratio response_length/clip_ratio",  # TRL; verl
        # prime-rl; slime rollout/; OpenRLHF rollout/; NeMo-RL; AReaL; OpenRLHF's older name; tinker env/all/:
        "is_truncated/all/mean is_truncated/mean truncated_ratio truncated_rate truncation_rate no_eos_ratios/avg",
        "response_clip_ratio stop/max_tokens rollout/truncated",
        # hand-written loops:
        "truncation clipped_ratio cap_hit_rate hit_cap_rate cap_rate max_tokens_hit_rate length_cap_rate",
        "length_cap_hit_rate finish_reason/length finish_reason_length",
        "finish_length_ratio length_finish_ratio is_truncated",
    ),
    "stopped": (
        "share of completions that end by themselves: the complement of those cut",
        # open-instruct; NeMo-RL; hand-written loops:
        "val/stop_rate natural_termination_rate stop_rate stop_ratio finish_reason/stop finish_reason_stop",
        "finish_stop_ratio eos_rate eos_ratio frac_eos contain_eos_token",
    ),
    "length": (
        "mean tokens in a completion",
        "completions/mean_length response_length/mean completion_length",  # TRL; verl; unsloth and older TRL
        # prime-rl; slime rollout/; NeMo-RL; tinker env/all/; OpenRLHF:
        "num_output_tokens/mean seq_len/all/mean response_len/mean mean_gen_tokens_per_sample ac_tokens_per_turn",
        "response_length",
        # OpenRLHF rollout/; SkyRL; open-instruct; torchforge; torchtune, slime rollout/; TRL PPO up to 0.11:
        "response_length_mean generate/avg_num_tokens val/sequence_lengths",
        "generator/generate/avg_tokens_generated response_lengths tokens/responses_len_mean",
        # hand-written loops:
        "mean_tokens avg_tokens tokens_mean mean_length avg_length mean_len avg_len length_mean length/mean",
        "lengths/mean",
    ),
    "length_min": (
        "shortest completion",
        # TRL; verl; SkyRL; open-instruct; slime:
        "completions/min_length response_length/min generate/min_num_tokens val/sequence_lengths_min",
        "response_len/min",
    ),
    "length_max": (
        "longest completion",
        # TRL; verl; SkyRL; open-instruct; slime; NeMo-RL:
        "completions/max_length response_length/max generate/max_num_tokens val/sequence_lengths_max",
        "response_len/max max_gen_tokens_per_sample",
    ),
    "length_cap": (
        "longest completion that the run allows",
        # hand-written loops:
        "max_completion_length max_response_length max_new_tokens max_tokens max_gen_tokens max_gen_len",
        "length_cap",
    ),
    "kl_reference": (
        "divergence from the reference policy",
        "kl kl_loss policy_kl kl_policy_base",  # TRL, OpenRLHF; verl actor/, slime, torchtune; SkyRL policy/; tinker
        # verl and ROLL with the KL in the reward; NeMo-RL; prime-rl; SkyRL; TRL PPO (of a whole reply):
        "reward_kl_penalty critic/kl kl_penalty ref_kl/all/mean ref_kl loss/avg_kl objective/kl",
        # open-instruct: its four estimators, the default one first:
        "objective/kl2_avg objective/kl3_avg objective/kl1_avg objective/kl0_avg",
        # hand-written loops:
    ),
    "kl_old": (
        "divergence from the policy that sampled",
        "ppo_kl kl_sample_train_v1 policy_kl_error",  # verl, slime, OpenRLHF; tinker; NeMo-RL
        # ROLL actor/; TRL PPO; torchtune; AReaL; TRL PPO up to 0.11:
        "approxkl policykl policy/approxkl_avg approx_policy_kl approx_kl/avg approx_kl",
    ),
    "clip_fraction": (
        "share of tokens the ratio clip acts on",
        "clip_ratio/region_mean pg_clipfrac clip_ratio clip_fraction",  # TRL; verl, slime; SkyRL and older TRL
        # ROLL actor/; OpenRLHF; TRL PPO, open-instruct; torchtune; AReaL:
        "ppo_ratio_clipfrac ppo_clip_ratio policy/clipfrac_avg clipfrac clip_ratio/avg",
        "clip_frac policy_clipfrac mean_clip_fraction clip_rate",  # hand-written loops
    ),
    "clip_fraction_low": (
        "share clipped from below",
        "clip_ratio/low_mean ppo_ratio_low_clipfrac",  # TRL; ROLL actor/
    ),
    "clip_fraction_high": (
        "share clipped from above",
        "clip_ratio/high_mean ppo_ratio_high_clipfrac",  # TRL; ROLL actor/
    ),
    "clip_fraction_dual": (
        "share caught by the dual clip",
        "pg_clipfrac_lower dual_clip_ratio/avg",  # verl; AReaL
    ),
    "mismatch": (
        "difference between the log-probabilities of trainer and sampler",
        # TRL; verl training/; prime-rl; slime; OpenRLHF; NeMo-RL; tinker:
        "sampling/sampling_logp_difference/mean rollout_probs_diff_mean mismatch_kl/all/mean",
        "train_rollout_logprob_abs_diff vllm_kl gen_kl_error kl_sample_train_v2",
        # verl; SkyRL; open-instruct; AReaL; ms-swift; prime-rl's console:
        "rollout_corr/kl rollout_corr/k3_kl rollout_train_logprobs_abs_diff_mean vllm_vs_local_logprob_diff_mean",
        "behave_approx_kl/avg rollout_correction/kl generation_kl_error mismatch_kl mismatch_kl/mean",
    ),
    "mismatch_max": (
        "largest such difference in the step",
        # TRL; verl; prime-rl; SkyRL; open-instruct:
        "sampling/sampling_logp_difference/max rollout_probs_diff_max mismatch_kl/all/max",
        "rollout_train_logprobs_abs_diff_max vllm_vs_local_logprob_diff_max",
    ),
    "mismatch_ratio": (
        "mean ratio of the trainer's to the sampler's probabilities",
        # TRL; verl; SkyRL; slime; NeMo-RL; AReaL:
        "sampling/importance_sampling_ratio/mean rollout_corr/rollout_is_mean is_ratio_mean ois",
        "sampling_importance_ratio behave_imp_weight/avg",
    ),
    "mismatch_correlation": (
        "correlation of the trainer's and the sampler's probabilities",
        "rollout_actor_probs_pearson_corr",  # verl training/
    ),
    "sample_age": (
        "updates of the weights since the samples were drawn, in asynchronous runs",
        # prime-rl; SkyRL; NeMo-RL; torchforge; AReaL:
        "off_policy/mean async/staleness_mean avg_trajectory_age avg_sampled_policy_age",
        "sample_staleness_theta_avg",
        # prime-rl's older names; hand-written loops:
        "trajectory_staleness/mean off_policy_level/all/mean off_policy_level/mean off_policy_level staleness_mean",
        "staleness/mean mean_staleness avg_staleness staleness sample_age mean_sample_age policy_lag weight_lag",
        "version_lag",
    ),
    "sample_age_max": (
        "the oldest sample of the step, in updates",
        # prime-rl; SkyRL; torchforge; AReaL; hand-written loops:
        "off_policy/max async/staleness_max max_sampled_policy_age sample_staleness_theta_max",
        "trajectory_staleness/max off_policy_level/all/max off_policy_level/max staleness_max staleness/max",
        "max_staleness",
    ),
    "advantages_mean": (
        "mean advantage",
        # verl, ROLL; NeMo-RL; open-instruct; SkyRL; AReaL; slime rollout/; TRL PPO up to 0.11:
        "critic/advantages/mean advantages/mean val/advantages_mean loss/avg_raw_advantages advantages/avg",
        "advantages policy/advantages_mean",
        # hand-written loops:
        "advantages_mean advantage_mean advantage/mean mean_advantage avg_advantage adv_mean mean_advantages",
    ),
    "advantages_max": (
        "largest advantage",
        # verl, ROLL; NeMo-RL, AReaL; open-instruct; hand-written loops:
        "critic/advantages/max advantages/max val/advantages_max advantages_max advantage_max adv_max",
    ),
    "advantages_std": (
        "spread of the advantages",
        "advantages/std advantages_std advantage/std advantage_std adv_std std_advantage",  # hand-written loops
    ),
    "mutual_information": (
        "how much the reasoning says of its prompt, nats per token",
        # RAGEN: matched minus marginal log-probability; hand-written loops:
        "collapse/mi_estimate mi_estimate mutual_information prompt_mi",
    ),
    "mutual_information_limit": (
        "the most it can be: the logarithm of the number of prompts",
        "collapse/mi_upper_bound",  # RAGEN
    ),
    "prompt_retrieval": (
        "share of reasonings whose prompt is found again among the batch's prompts",
        "collapse/retrieval_accuracy",  # RAGEN
    ),
    "prompt_retrieval_chance": (
        "that share by chance",
        "collapse/retrieval_chance_level",  # RAGEN
    ),
    "grad_norm": (
        "norm of the policy's gradient",
        # verl, RAGEN; OpenRLHF; SkyRL; prime-rl and open-instruct optim/:
        "actor/grad_norm actor_grad_norm policy/grad_norm policy/raw_grad_norm optim/grad_norm",
        # TRL, NeMo-RL, slime train/, AReaL update/; hand-written loops:
        "grad_norm gradient_norm total_grad_norm raw_grad_norm global_grad_norm grad_norm/mean mean_grad_norm",
        "grad_norm_mean policy_grad_norm train_grad_norm optim/gradient_norm",
    ),
    "loss": (
        "training loss of the policy",
        "pg_loss policy_loss loss loss/mean",  # verl, slime, ROLL; SkyRL, OpenRLHF, torchtune; TRL, NeMo-RL; prime-rl
        # TRL PPO, open-instruct; AReaL; torchforge; TRL PPO up to 0.11; SkyRL, ROLL: with every term:
        "loss/policy_avg actor_loss/avg avg_loss loss/policy actor_loss final_loss total_loss loss/total",
        "loss_mean mean_loss",
    ),
    "value_loss": (
        "training loss of the value model",
        # verl; ROLL; SkyRL, OpenRLHF; slime, torchtune; TRL PPO:
        "critic/vf_loss critic/loss critic/critic_loss critic_loss value_loss vf_loss loss/value_avg loss/value",
        "value/loss",
    ),
    "learning_rate": (
        "learning rate of the policy",
        "actor/lr actor_lr policy_lr optim/lr",  # verl, ROLL; OpenRLHF; SkyRL; tinker, prime-rl
        # TRL, torchforge; slime train/; hand-written loops:
        "learning_rate lr lr_pg_0 optim/learning_rate current_lr",
    ),
    "epoch": (
        "passes over the data",
        "epoch",  # TRL, verl training/, SkyRL trainer/
    ),
    "tokens_seen": (
        "tokens processed so far",
        "num_tokens progress/total_tokens val/num_total_tokens",  # TRL; prime-rl progress/; open-instruct
    ),
    "seconds_per_step": (
        "wall-clock seconds of a step",
        # TRL; verl; prime-rl; tinker, open-instruct; slime; SkyRL; OpenRLHF; ROLL; NeMo-RL:
        "step_time timing_s/step time/step time/total perf/step_time timing/step timing/step_total",
        "time/step_total timing/train/total_step_time",
    ),
}
"""Our name -> its meaning, then the trainers' names for it in order of preference, several in a line."""

METRIC_NAMES: dict[str, tuple[str, tuple[str, ...]]] = {
    ours: (meaning, tuple(" ".join(lines).split())) for ours, (meaning, *lines) in METRIC_TABLE.items()
}
"""Our name -> (meaning, trainers' names in order of preference)."""

RENAMED_METRICS = {"starved_groups": "zero_variance_groups"}
"""Names in run folders written earlier -> the names of today; the reader renames them."""

COMMON_SCOPES = frozenset(
    {
        *("train", "training", "trainer", "train_metrics", "metrics", "stats", "global", "main", "summary", "overall"),
        *("actor", "policy", "agent", "ppo", "grpo", "rl", "algo", "optim", "update", "ppo_actor", "rl_trainer"),
        *("rollout", "rollouts", "generate", "generation", "batch", "objective", "losses", "charts", "episode", "all"),
        *("agg", "effective", "total", "token", "tokens", "group", "loss_metrics"),
    }
)
"""First parts of names that say nothing about whose metric it is."""
FOREIGN_SCOPES = frozenset(
    {
        *("critic", "ppo_critic", "step_critic", "value", "values", "vf", "ref", "reference", "teacher", "student"),
        *("draft", "mtp", "moe", "router", "aux", "rm", "reward_model", "discriminator", "sft", "distill", "opd"),
        *("rewards", "components", "reward_components", "advantage_diff", "right_response", "error_response"),
        *("time", "timing", "timing_s", "timing_per_token_ms", "perf", "performance", "system", "memory", "gpu"),
        *("eval", "evaluation", "test", "val", "valid", "validation", "heldout", "held_out", "best"),
        *("prompt", "prompt_length", "response_length", "response_length_non_aborted", "coef", "config"),
        *("rollout_corr", "rollout_correction", "scheduler", "dispatcher", "inference", "grad_analysis"),
        *("grad_analysis_prefilter", "no_filter", "non_zero", "collapse", "fipo", "vespo", "replay"),
    }
)
"""Parts of names that say the metric is not the policy's: only an entry that contains them counts."""
FOREIGN_NAMES = frozenset(
    {
        # slime's rewards after normalisation; RAGEN's terms of the loss and of the gradient; TRL PPO's value clip.
        *("rollout/rewards", "loss/entropy", "loss/kl", "grad_norm/entropy", "grad_norm/kl", "val/clipfrac_avg"),
        # The Hugging Face Trainer's mean over the whole run, in its last row.
        "train_loss",
    }
)
"""Names that look like one of ours and are something else."""
FLAT_SCOPES = frozenset({"actor", "train", "training", "rollout"})
"""Scopes of names whose slashes an export has made underscores."""
NAMES_OF_ONE_RUN = frozenset({"accuracy", "stopped", "length_cap", "advantages_std"})
"""Ours whose spellings are so common that they count only by themselves or under common scopes."""

_RANK = {theirs: (ours, rank) for ours, (_, several) in METRIC_NAMES.items() for rank, theirs in enumerate(several)}
_FLAT = {theirs.replace("/", "_"): theirs for theirs in reversed(_RANK)}
_SEPARATOR = re.compile(r"(?<=[a-z_])[.:](?=[a-z_])")
_BLANK = re.compile(r"[\s_-]+")
_FLAT_COMPONENT = re.compile(r"rewards_(\w+)_(mean|std)")
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z][a-z])")
_ABBREVIATION = re.compile(r"(?<=[a-z])\.(?=[\s_-]|$)")


QUALIFIERS = frozenset(
    {
        *("mean", "avg", "average", "current", "cur", "latest", "overall", "all", "train", "training", "policy"),
        *("step", "steps", "batch", "rollout", "rollouts"),
    }
)
"""Words that say how or where a metric was taken, and leave its meaning as it is."""
_SHARE = "ratio rate frac fraction share pct percent percentage proportion"
_TEXT = "completion completions response responses gen generated generation generations output outputs reply replies"
_PROBLEMS = "answer answers example examples problem problems question questions sample samples"
WORD_RULES: tuple[tuple[str, tuple[frozenset[str], ...], frozenset[str]], ...] = tuple(
    (ours, tuple(frozenset(words.split()) for words in needed), frozenset(" ".join((*needed, allowed)).split()))
    for ours, needed, allowed in (
        ("entropy", ("entropy",), "token tokens per action actor response nats"),
        ("reward", ("reward rewards return returns score scores",), "total raw episode ep final task env group"),
        ("accuracy", ("accuracy acc",), "answer rollout"),
        ("accuracy", ("correct solved", _SHARE), f"of {_PROBLEMS} {_TEXT}"),
        ("reward_std", ("reward rewards score scores", "std stdev stddev sd var variance"), "group groups within in"),
        (
            "zero_variance_groups",
            ("zero degenerate flat", "std var variance degenerate flat", _SHARE),
            "group groups reward rewards prompt prompts of with",
        ),
        (
            "truncated",
            ("truncated truncation clipped overlong", _SHARE, f"{_TEXT} truncated truncation overlong"),
            "of",
        ),
        ("length", ("length lengths len tokens", f"{_TEXT} seq sequence"), "new token"),
        ("kl_reference", ("kl",), "div divergence ref reference base to from vs token tokens per"),
        ("grad_norm", ("grad grads gradient gradients", "norm"), "global total raw actor"),
        ("learning_rate", ("lr learning", "lr rate"), "actor"),
    )
)
"""Our name, words of which each set must give one, and all words that a name of it may have besides qualifiers.

For names that no table of a trainer's has, as those of hand-written loops: ``rewards_avg``, ``latest_step_reward``,
``Percentage of correct examples``.
"""


METRIC_WORDS = {
    "kl_reference": "the KL to the reference",
    "kl_old": "the KL to the sampling policy",
    "truncated": "the share of truncated completions",
    "length": "the mean length",
    "zero_variance_groups": "the share of zero-variance groups",
    "reward_std": "the spread of the rewards",
    "grad_norm": "the gradient norm",
    "mismatch": "the trainer-sampler mismatch",
    "clip_fraction": "the share of clipped tokens",
}
"""Our name -> plain words for a metric that was not logged, where the name with spaces would not do."""


def metric_words(name: str) -> str:
    """Return plain words for one of our metric names."""
    return METRIC_WORDS.get(name, name.replace("_", " "))


def describe_metric(name: str) -> str:
    """Say what one of our metric names means; empty for a trainer's own name."""
    return METRIC_NAMES[name][0] if name in METRIC_NAMES else ""


def fold_name(theirs: str) -> str:
    """Make spellings alike: ``Grad. Norm``, ``train.gradNorm`` and ``grad_norm@sum`` become ``(train/)grad_norm``."""
    plain = _HUMP.sub("_", theirs.strip()).casefold()
    bare = plain.rpartition("@")
    name = bare[0] if bare[2] in ("sum", "mean") else plain
    return _SEPARATOR.sub("/", _BLANK.sub("_", _ABBREVIATION.sub("", name)))


def unflatten_name(name: str) -> str:
    """Return ``critic_score_mean`` and ``actor_entropy`` of exported tables with the slashes that they have lost."""
    if "/" in name or name in _RANK or name in FOREIGN_NAMES:
        return name
    scope, _, rest = name.partition("_")
    if (component := _FLAT_COMPONENT.fullmatch(name)) is not None:
        return f"rewards/{component[1]}/{component[2]}"
    return _FLAT.get(name) or (f"{scope}/{_FLAT.get(rest, rest)}" if scope in FLAT_SCOPES else name)


@lru_cache(maxsize=4096)
def match_name(theirs: str) -> tuple[str, int] | None:
    """Return our name for one of theirs with its preference (lower is better), or None."""
    parts = unflatten_name(fold_name(theirs)).split("/")
    for start in range(len(parts)):
        name, scopes = "/".join(parts[start:]), parts[:start]
        if name in FOREIGN_NAMES:
            return None
        found = _RANK.get(name)
        if found and FOREIGN_SCOPES.isdisjoint(scopes):
            is_common = COMMON_SCOPES.issuperset(scopes)
            if not is_common and found[0] in NAMES_OF_ONE_RUN:
                return None
            return found[0], (not is_common) * 100_000 + found[1] * 100 + start
    for start in range(len(parts)):
        scopes = parts[:start]
        found = match_words("/".join(parts[start:])) if FOREIGN_SCOPES.isdisjoint(parts[:-1]) else None
        if found and (COMMON_SCOPES.issuperset(scopes) or found[0] not in NAMES_OF_ONE_RUN):
            return found[0], (not COMMON_SCOPES.issuperset(scopes)) * 100_000 + found[1] + start
    return None


def match_words(name: str) -> tuple[str, int] | None:
    """Return our name for one that is made of its words and of qualifiers only, behind every name of the table."""
    words = frozenset(re.split("[/_]", name)) - {""}
    for ours, needed, allowed in WORD_RULES:
        if words <= allowed | QUALIFIERS and not any(words.isdisjoint(several) for several in needed):
            return ours, 50_000 + 100 * len(words) + len(words - QUALIFIERS)
    return None


def translate(row: Mapping[str, float]) -> tuple[dict[str, float], dict[str, str]]:
    """Rename a row's metrics to ours; return it with the names used (ours -> theirs)."""
    names, used = rename_all(tuple(row))
    return dict(zip(names, row.values(), strict=True)), dict(used)


@lru_cache(maxsize=64)
def rename_all(row: tuple[str, ...]) -> tuple[tuple[str, ...], Mapping[str, str]]:
    """Return our names of a row in its order, and the names used (ours -> theirs); rows repeat their names."""
    best: dict[str, tuple[int, str]] = {}
    for theirs in row:
        found = match_name(theirs)
        if found and (found[0] not in best or found[1] < best[found[0]][0]):
            best[found[0]] = (found[1], theirs)
    used = {ours: theirs for ours, (_, theirs) in best.items()}
    renamed = {theirs: ours for ours, theirs in used.items()}
    return tuple(renamed[theirs] if theirs in renamed else keep_name(theirs, used, row) for theirs in row), used


def keep_name(theirs: str, used: Mapping[str, str], row: Sequence[str]) -> str:
    """Keep a trainer's own name, out of the way where one of ours that another of its metrics won is spelt the same."""
    name = theirs
    while name in used or (name != theirs and name in row):
        name = f"raw/{name}"
    return name
