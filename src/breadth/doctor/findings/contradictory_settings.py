"""``contradictory-settings``: settings that contradict one another, by arithmetic or by the trainer's own rules."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from breadth.doctor.evidence.record import Evidence
from breadth.doctor.finding import Change, CheckResult, Finding, Loop, Need, Prescription
from breadth.doctor.lint import (
    Issue,
    cannot_read,
    describe_unread,
    exclude_issues,
    issue_facts,
    issue_headline,
    issue_prescriptions,
    issue_severity,
)
from breadth.doctor.trainer_config import TrainerConfig


@dataclass(frozen=True)
class ContradictorySettings:
    """Settings that contradict one another.

    Checked: a key that appears twice at one level of a YAML file; a group of one where advantages are computed
    within groups; rollouts or prompts that make no whole groups or mini-batches, a mini-batch larger than a
    generation; a cap of 4,096 tokens or fewer on a model known to think longer; a run that saves no checkpoint; an
    upper clip below the lower, a cap on the ratio inside the clip; greedy rollouts; a sampler with less context
    than prompt and completion may need; truncated completions masked from the loss together with a length penalty;
    rollouts from a part of the distribution (top_p, top_k, min_p, a repetition penalty) without importance weights;
    half of Dr. GRPO; the reference paid for twice. A temperature other than 1 is no contradiction: TRL, verl,
    OpenRLHF and NeMo-RL take log-probs at the temperature of the rollouts.

    A warning where the trainer would refuse to start or does something else than the settings say, a note where it only
    does less. "Refuses to start" names the first version that does. Where a value is computed when the trainer starts,
    and a rule depends on it, the check cannot tell. It misleads where a fork of the trainer has other rules.
    """

    loop: ClassVar[Loop] = "configuration"
    causes: ClassVar[tuple[str, ...]] = ()
    needs: ClassVar[tuple[Need, ...]] = ("settings",)
    summary: ClassVar[str] = "settings that exclude each other"
    first_step: ClassVar[str] = "keep one"

    def check(self, evidence: Evidence) -> CheckResult:
        """Apply the rules; a configuration that is not known contradicts nothing."""
        points = tuple(find_contradictions(evidence))
        if not points:
            unread = cannot_read("contradictory-settings", evidence, find_contradictions)
            return unread or exclude_issues("contradictory-settings", evidence)
        return Finding(
            "contradictory-settings",
            issue_severity(points),
            "certain",
            "configuration",
            issue_headline(points, "contradiction", "is in the settings", "are in the settings"),
            (*issue_facts(points), *describe_unread(evidence, find_contradictions)),
            "The trainer starts with these settings, and its first steps log values that agree with all of them.",
            "",
            issue_prescriptions(points),
        )


GROUP_ESTIMATORS = frozenset(
    {
        "grpo",
        "grpo_passk",
        "rloo",
        "opo",
        "gpg",
        "reinforce_plus_plus_baseline",
        "grpo_vectorized",
        "rloo_vectorized",
        "group_norm",
        "reinforce_baseline",
        "dr_grpo",
    }
)
"""Estimators that compare the responses of a prompt with one another."""
FILTERING_TRAINERS = frozenset({"nemo-rl"})
"""Trainers whose loss applies the same sampling filters as the sampler."""
FULL_DISTRIBUTION: dict[str, float] = {"top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
"""Sampling settings -> the value at which rollouts are sampled from the policy itself."""


def find_contradictions(evidence: Evidence) -> Iterator[Issue]:
    """Yield every contradiction between settings."""
    for conflict in evidence.config.conflicts:
        ran = evidence.run is not None and conflict.consequence == "refused"
        refuses = f"{conflict.since} and later refuse" if conflict.since else "the trainer refuses"
        why = conflict.why + f"; {refuses} to start" * (conflict.consequence == "refused" and not ran)
        yield Issue(
            conflict.settings,
            why + ("; the run started anyway" if ran else ""),
            serious=conflict.consequence != "slight" and not ran,
        )
    rules: tuple[Callable[[TrainerConfig], Iterator[Issue]], ...] = (
        check_group_of_one,
        check_reversed_clip,
        check_dual_clip,
        check_greedy_rollouts,
        check_context_length,
        check_masked_penalty,
        check_short_cap,
        check_loss_name,
    )
    for rule in rules:
        yield from rule(evidence.config)
    if evidence.dialect is None or evidence.dialect.trainer not in FILTERING_TRAINERS:
        yield from check_sampling_filters(evidence.config)


def check_group_of_one(config: TrainerConfig) -> Iterator[Issue]:
    """Find groups of one, which have nothing to be compared with."""
    if (
        config.group != 1
        or config.estimator not in GROUP_ESTIMATORS
        or not {"group", "estimator"} & config.user_settings.keys()
    ):
        return
    settings = "; ".join(dict.fromkeys((config.describe("estimator"), config.describe("group"))))
    why = f"{config.estimator} compares the responses to one prompt with each other, and there is only one"
    prescription = Prescription(
        "Sample 8 rollouts per prompt",
        "The advantage of a response is relative to the others in its group.",
        (Change("group", 8),),
        "Eight times the rollouts, or an eighth of the prompts.",
        "arXiv 2402.03300",
    )
    yield Issue(settings, why, serious=True, prescription=prescription)


def check_reversed_clip(config: TrainerConfig) -> Iterator[Issue]:
    """Find clip-higher the wrong way round: an upper clip tighter than the lower one."""
    low, high = config.clip_low, config.clip_high
    if (
        low is None
        or high is None
        or config.clips is False
        or config.loss == "cispo"  # its weight needs no lower bound, so authors write a very wide one
        or not {"clip_low", "clip_high"} <= config.user_settings.keys()
        or high >= low
    ):
        return
    why = f"the ratio may fall by {low:g} but rise by only {high:g}: clip-higher the wrong way round"
    prescription = Prescription(
        f"Swap the two: {high:g} below, {low:g} above",
        "Unlikely tokens need room to rise.",
        (Change("clip_low", high), Change("clip_high", low)),
    )
    yield Issue(
        f"{config.describe('clip_low')}; {config.describe('clip_high')}", why, serious=True, prescription=prescription
    )


def check_dual_clip(config: TrainerConfig) -> Iterator[Issue]:
    """Find a dual clip below the upper clip, which it then replaces."""
    if (
        config.dual_clip is None
        or config.clip_high is None
        or not config.clips
        or "dual_clip" not in config.user_settings
    ):
        return
    if config.loss in ("cispo", "dppo_tv", "dppo_kl") or config.dual_clip > 1 + config.clip_high:
        return
    why = f"a cap of {config.dual_clip:g} on the ratio lies inside the clip, which ends at {1 + config.clip_high:g}"
    prescription = Prescription(
        "Raise the cap to 3, or remove it", "It is meant for ratios far beyond the clip.", (Change("dual_clip", 3.0),)
    )
    yield Issue(config.describe("dual_clip"), why, serious=True, prescription=prescription)


def check_greedy_rollouts(config: TrainerConfig) -> Iterator[Issue]:
    """Find greedy rollouts: all responses to a prompt are then the same."""
    if config.temperature != 0 or "temperature" not in config.user_settings or config.group == 1:
        return
    prescription = Prescription(
        "Sample rollouts at a temperature of 1", "Responses must differ to be compared.", (Change("temperature", 1.0),)
    )
    yield Issue(
        config.describe("temperature"),
        "all responses to a prompt are the same at a temperature of 0",
        serious=True,
        prescription=prescription,
    )


def check_context_length(config: TrainerConfig) -> Iterator[Issue]:
    """Find a context length of the sampler that truncates completions below their cap."""
    if (
        config.max_completion_length is None
        or config.context is None
        or not {"max_completion_length", "context"} & config.user_settings.keys()
    ):
        return
    needed = config.max_completion_length + (config.max_prompt_length or 0)
    if needed <= config.context:
        return
    settings = "; ".join(
        config.describe(name)
        for name in ("max_prompt_length", "max_completion_length", "context")
        if name in config.user_settings
    )
    why = f"prompt and completion may have {needed:,} tokens, but the sampler's context holds {config.context:,}"
    prescription = Prescription(
        "Raise the sampler's context length to hold both",
        "Long completions are truncated below their cap.",
        (Change("max_completion_length", config.max_completion_length),),
    )
    yield Issue(settings, why, serious=True, prescription=prescription)


def check_masked_penalty(config: TrainerConfig) -> Iterator[Issue]:
    """Find a length penalty that masking keeps from the longest completions."""
    if config.mask_truncated and config.length_penalty:
        why = "truncated completions are masked in the loss, so the largest length penalties are never learned from"
        settings = "; ".join(dict.fromkeys((config.describe("mask_truncated"), config.describe("length_penalty"))))
        yield Issue(settings, why, serious=False)


def check_sampling_filters(config: TrainerConfig) -> Iterator[Issue]:
    """Find sampling filters that the loss does not know of, with no correction of the mismatch."""
    uncorrected = config.correct_mismatch is False or (config.correct_mismatch is None and config.engine == "hf")
    filtered = [
        name
        for name, neutral in FULL_DISTRIBUTION.items()
        if name in config.user_settings and getattr(config, name) not in (None, neutral)
    ]
    filtered = [name for name in filtered if name != "top_p" or (config.top_p or 0) < 1]
    if not filtered or not uncorrected:
        return
    why = (
        "rollouts are sampled from a filtered or reweighted distribution, and the loss treats them as samples from the"
        " full one"
    )
    prescription = Prescription(
        "Sample rollouts from the full distribution",
        "Tokens that are never sampled can only lose probability: cutting the tail at every step narrows the policy.",
        tuple(Change(name, FULL_DISTRIBUTION[name]) for name in filtered),
        "Noisier rollouts; the alternative is to correct the mismatch.",
        "DAPO trains at top_p 1, arXiv 2503.14476",
    )
    yield Issue("; ".join(config.describe(name) for name in filtered), why, serious=False, prescription=prescription)


LONG_THINKERS = re.compile(
    r"R1-Distill|DeepSeek-R1|R1-0528|QwQ|DeepScaleR|OpenThinker|Skywork-OR1|Magistral|JustRL|Nemotron.*Reason"
    r"|Phi-4.*reasoning|[-_/]Thinking",
    re.IGNORECASE,
)
"""Names of models that think for thousands of tokens whatever the template says."""
HYBRID_THINKERS = re.compile(
    r"Qwen3(\.\d)?-\d+(\.\d+)?B(-A\d+B)?(-(FP8|AWQ|GPTQ|unsloth|bnb|4bit|Int\d)\b.*)?/?$", re.IGNORECASE
)
"""Names of models that think unless the chat template switches it off; Base, Instruct and Coder models do not."""
SHORT_CAP = 4096
"""Tokens that such a model's first drafts exceed: DeepScaleR's R1-Distill-Qwen-1.5B began at 5,500 on average."""


def check_short_cap(config: TrainerConfig) -> Iterator[Issue]:
    """Find a cap on completions that a model known to think long will hit at once."""
    name, cap = config.model, config.max_completion_length
    if not name or not cap or cap > SHORT_CAP or "max_completion_length" not in config.user_settings:
        return
    if not LONG_THINKERS.search(name) and (config.thinking is False or not HYBRID_THINKERS.search(name)):
        return
    why = (
        f"{name.rstrip('/').rpartition('/')[2]} is known to think for thousands of tokens, and what is longer than"
        f" {cap:,} is truncated and scored as wrong"
    )
    prescription = Prescription(
        "Allow 8,192 tokens or more, or switch thinking off in the chat template",
        "R1-Distill-Qwen-1.5B began at 5,500 tokens on average; Qwen3's authors recommend room for 32,768.",
        (Change("max_completion_length", 8192),),
        "Memory and time grow with the longest completion.",
        "DeepScaleR, 2025; model card of Qwen3",
    )
    settings = "; ".join(dict.fromkeys((config.describe("model"), config.describe("max_completion_length"))))
    yield Issue(settings, why, serious=False, prescription=prescription)


def check_loss_name(config: TrainerConfig) -> Iterator[Issue]:
    """Find verl's loss ``dro``, which shares its name with another method."""
    if config.loss == "dro" and "loss" in config.user_settings:
        why = "verl's dro is Direct Reward Optimization, not the DRO with R3 of arXiv 2506.13351"
        yield Issue(config.describe("loss"), why, serious=False)


FINDING = ContradictorySettings()
"""The check with its default thresholds."""
