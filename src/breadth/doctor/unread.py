"""Settings whose values are expressions: whether a finding depends on them, and how the user can give them.

A setting that could not be read is neither absent nor sound. Each rule is tried with values that it warns of; where one
makes a difference, the finding cannot be excluded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from breadth.doctor.evidence.record import Evidence
from breadth.doctor.finding import CannotTell
from breadth.doctor.lint import MAX_NAMED_SETTINGS, Issue, find_no_op_settings
from breadth.doctor.trainer_config import SETTING_NAMES
from breadth.report.sections import Fact

WORST_VALUES: Mapping[str, tuple[Any, ...]] = {
    "group": (1,),
    "updates": (1,),
    "micro_batch": (1,),
    "estimator": ("grpo",),
    "clip_low": (0.9, 20.0),
    "clip_high": (0.28, 0.01, 28.0, -0.72),
    "dual_clip": (1.0,),
    "sequence_ratio": (True,),
    "loss": ("kl_cov", "cispo", "gspo"),
    "covariance": ("kl-cov",),
    "covariance_share": (0.2, 1e-9),
    "entropy_adaptive": (True,),
    "entropy_target": (1000.0,),
    "entropy_share": (1.0, 20.0),
    "temperature": (0.0, 100.0),
    "top_p": (0.5, 95.0),
    "top_k": (20,),
    "min_p": (0.5, 5.0),
    "repetition_penalty": (1.5,),
    "max_completion_length": (1, 10**9),
    "max_prompt_length": (10**9,),
    "context": (1,),
    "mask_truncated": (True,),
    "length_penalty": (True,),
    "dynamic_sampling": (True,),
    "filter_metric": ("reward",),
    "shaped_reward": (True,),
    "correct_mismatch": (False,),
    "engine": ("hf",),
    "kl_given": (0.001,),
}
"""Setting -> values that a rule warns of, tried for a setting that could not be read: does its value matter here?"""
ISSUES_OF = Callable[[Evidence], Iterable[Issue]]
"""All rules of one finding."""


def find_undecided(evidence: Evidence, issues_of: ISSUES_OF) -> dict[str, str]:
    """Return the settings that could not be read and on whose values a rule of this finding depends.

    A setting that only the trainer knows may switch others off, so it counts for settings without effect; ``**table``
    may hold any setting, so it always counts.
    """
    config = evidence.config
    switches = issues_of is find_no_op_settings
    found = {
        name: text for name, text in config.unread.items() if name == "**" or (switches and name not in SETTING_NAMES)
    }
    together = {name: WORST_VALUES[name][0] for name in config.unread if name in WORST_VALUES}

    def issues(settings: Mapping[str, Any]) -> set[Issue]:
        return set(issues_of(replace(evidence, config=replace(config, **settings))))

    for name in together:
        others = {other: value for other, value in together.items() if other != name}
        for base in ({}, others) if others else ({},):
            plain = issues(base)
            if any(issues({**base, name: value}) - plain for value in WORST_VALUES[name]):
                found[name] = config.unread[name]
    return found


def describe_unread(evidence: Evidence, issues_of: ISSUES_OF) -> tuple[Fact, ...]:
    """Return one fact that names the settings whose values could not be read; none where no rule needs them."""
    unread = find_undecided(evidence, issues_of)
    spelled = "; ".join(dict.fromkeys(unread.values()))
    return (Fact("not checked", spelled, "", "values that are computed when the trainer starts"),) if unread else ()


def cannot_read(name: str, evidence: Evidence, issues_of: ISSUES_OF) -> CannotTell | None:
    """Say which values could not be read, and how to give them; None where no rule of this finding needs them."""
    unread = list(dict.fromkeys(find_undecided(evidence, issues_of).values()))
    if not unread:
        return None
    more = f" and {len(unread) - MAX_NAMED_SETTINGS} more" if len(unread) > MAX_NAMED_SETTINGS else ""
    known_values = getattr(evidence.dialect, "known_values", "")
    return CannotTell(
        name,
        f"values are computed when the trainer starts: {'; '.join(unread[:MAX_NAMED_SETTINGS])}{more}",
        known_values or "write the numbers into the file, or name the configuration that the trainer saved",
    )
