"""One table from the trainers' metric names to ours, matched by suffix.

Trainers prefix the same quantity differently (``actor/``, ``train/``, ``policy/``), so a name matches when it equals an
entry or ends in ``/`` + entry. Where several of a row's names mean one of ours, the first entry wins and
the others keep their own names. A name that matches nothing is kept as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

METRIC_NAMES: dict[str, tuple[str, tuple[str, ...]]] = {
    "entropy": (
        "policy entropy, nats per token unless its kind says otherwise",
        (
            "entropy",
            "policy_entropy",
            "entropy/all/mean",
            "approx_entropy",
            "entropy_loss",
            "policy/entropy_mean",
            "entropy/mean",
        ),
    ),
    "reward": (
        "mean reward of the rollouts",
        (
            "critic/score/mean",
            "reward/all/mean",
            "reward/mean",
            "env/all/reward/total",
            "raw_reward",
            "reward/avg_raw_reward",
            "reward",
        ),
    ),
    "reward_shaped": ("mean reward after the trainer's own penalties", ("critic/rewards/mean",)),
    "reward_std": ("spread of the rewards", ("reward_std", "reward/all/std", "reward/std")),
    "zero_variance_groups": (
        "share of groups whose rewards are all equal, so they teach nothing",
        ("frac_reward_zero_std", "zero_std", "frac_zero_std"),
    ),
    "truncated": (
        "share of completions cut at the length cap",
        (
            "completions/clipped_ratio",
            "response_length/clip_ratio",
            "is_truncated/all/mean",
            "is_truncated/mean",
            "truncated_ratio",
        ),
    ),
    "length": (
        "mean tokens in a completion",
        (
            "completions/mean_length",
            "response_length/mean",
            "completion_length",
            "num_output_tokens/mean",
            "seq_len/all/mean",
            "response_len/mean",
            "mean_gen_tokens_per_sample",
            "ac_tokens_per_turn",
            "response_length",
        ),
    ),
    "length_min": ("shortest completion", ("completions/min_length", "response_length/min")),
    "length_max": ("longest completion", ("completions/max_length", "response_length/max")),
    "kl_reference": ("divergence from the reference policy", ("kl", "kl_loss", "policy_kl", "kl_policy_base")),
    "kl_old": (
        "divergence from the policy that sampled",
        ("ppo_kl", "kl_sample_train_v1", "policy_kl_error", "approx_kl"),
    ),
    "clip_fraction": (
        "share of tokens the ratio clip acts on",
        ("clip_ratio/region_mean", "pg_clipfrac", "clip_ratio", "clip_fraction"),
    ),
    "clip_fraction_low": ("share clipped from below", ("clip_ratio/low_mean",)),
    "clip_fraction_high": ("share clipped from above", ("clip_ratio/high_mean",)),
    "clip_fraction_dual": ("share caught by the dual clip", ("pg_clipfrac_lower",)),
    "mismatch": (
        "difference between the log-probabilities of trainer and sampler",
        (
            "sampling/sampling_logp_difference/mean",
            "rollout_probs_diff_mean",
            "mismatch_kl/all/mean",
            "train_rollout_logprob_abs_diff",
            "vllm_kl",
            "gen_kl_error",
            "kl_sample_train_v2",
        ),
    ),
    "grad_norm": ("norm of the gradient", ("grad_norm",)),
    "loss": ("training loss", ("pg_loss", "policy_loss", "loss", "loss/mean")),
    "learning_rate": ("learning rate", ("learning_rate", "lr")),
    "epoch": ("passes over the data", ("epoch",)),
    "tokens_seen": ("tokens processed so far", ("num_tokens",)),
    "seconds_per_step": ("wall-clock seconds of a step", ("step_time", "timing_s/step", "time/step", "time/total")),
}
"""Our name -> (meaning, trainers' names in order of preference)."""

RENAMED_METRICS = {"starved_groups": "zero_variance_groups"}
"""Names in run folders written earlier -> the names of today; the reader renames them."""

_RANK = {theirs: (ours, rank) for ours, (_, several) in METRIC_NAMES.items() for rank, theirs in enumerate(several)}


def describe_metric(name: str) -> str:
    """Say what one of our metric names means; empty for a trainer's own name."""
    return METRIC_NAMES[name][0] if name in METRIC_NAMES else ""


@lru_cache(maxsize=4096)
def match_name(theirs: str) -> tuple[str, int] | None:
    """Return our name for one of theirs with its preference (lower is better), or None."""
    parts = theirs.split("/")
    for start in range(len(parts)):
        found = _RANK.get("/".join(parts[start:]))
        if found:
            return found[0], found[1] * 100 + start
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
