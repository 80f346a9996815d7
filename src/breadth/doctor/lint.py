"""What the findings about settings share: the issues of their rules, and settings whose values could not be read.

A rule yields an `Issue`; several become one finding (`issue_severity`, `issue_headline`, `issue_facts`,
`issue_prescriptions`). A setting that could not be read is neither absent nor sound: each rule is tried with values
that it warns of, and where one makes a difference, the finding cannot be excluded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from breadth.doctor.evidence.record import Evidence
from breadth.doctor.finding import CannotTell, Excluded, Prescription
from breadth.doctor.trainer_config import SETTING_NAMES
from breadth.report.plaintext import pluralize
from breadth.report.sections import Fact, Severity

MAX_NAMED_SETTINGS = 3
"""Settings that a headline names; the others are in the evidence."""


@dataclass(frozen=True)
class Issue:
    """One thing that is wrong with a configuration."""

    setting: str
    """The settings as the user's file spells them."""
    why: str
    """What is wrong, as the end of a sentence."""
    serious: bool
    """Whether it makes the finding a warning, and not a note."""
    prescription: Prescription | None = None
    """What to do about it."""


def issue_severity(issues: Sequence[Issue]) -> Severity:
    """Return the severity of the worst issue."""
    return Severity.WARNING if any(issue.serious for issue in issues) else Severity.NOTE


def issue_headline(issues: Sequence[Issue], noun: str, does: str, do: str) -> str:
    """Return one sentence with the number of issues, what they do and the first by name, serious ones first."""
    ordered = [issue.setting for issue in sorted(issues, key=lambda issue: not issue.serious)]
    more = f" and {len(issues) - MAX_NAMED_SETTINGS} more" if len(issues) > MAX_NAMED_SETTINGS else ""
    verb = does if len(issues) == 1 else do
    return f"{pluralize(len(issues), noun)} {verb}: {'; '.join(ordered[:MAX_NAMED_SETTINGS])}{more}."


def issue_facts(issues: Sequence[Issue]) -> tuple[Fact, ...]:
    """Return one fact per issue."""
    return tuple(Fact(issue.setting, issue.why) for issue in issues)


def exclude_issues(name: str, evidence: Evidence) -> Excluded | None:
    """Return that a check of settings found nothing in those that were read; None where none were."""
    settings = len(evidence.config.user_settings)
    return Excluded(name, f"{pluralize(settings, 'setting')} read") if settings else None


def issue_prescriptions(issues: Sequence[Issue]) -> tuple[Prescription, ...]:
    """Return the prescriptions, each action once, those of serious issues first."""
    by_action = {
        issue.prescription.action: issue.prescription
        for issue in sorted(issues, key=lambda issue: not issue.serious)
        if issue.prescription is not None
    }
    return tuple(by_action.values())


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
IssueRules = Callable[[Evidence], Iterable[Issue]]
"""All rules of one finding."""


def find_undecided(evidence: Evidence, issues_of: IssueRules, *, switches: bool = False) -> dict[str, str]:
    """Return the settings that could not be read and on whose values a rule of this finding depends.

    A setting that only the trainer knows may switch others off: it counts where ``switches`` do. ``**table`` may hold
    any setting, so it always counts.
    """
    config = evidence.config
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


def describe_unread(evidence: Evidence, issues_of: IssueRules, *, switches: bool = False) -> tuple[Fact, ...]:
    """Return one fact that names the settings whose values could not be read; none where no rule needs them."""
    unread = find_undecided(evidence, issues_of, switches=switches)
    spelled = "; ".join(dict.fromkeys(unread.values()))
    return (Fact("not checked", spelled, "", "values that are computed when the trainer starts"),) if unread else ()


def cannot_read(name: str, evidence: Evidence, issues_of: IssueRules, *, switches: bool = False) -> CannotTell | None:
    """Say which values could not be read, and how to give them; None where no rule of this finding needs them."""
    unread = list(dict.fromkeys(find_undecided(evidence, issues_of, switches=switches).values()))
    if not unread:
        return None
    more = f" and {len(unread) - MAX_NAMED_SETTINGS} more" if len(unread) > MAX_NAMED_SETTINGS else ""
    known_values = getattr(evidence.dialect, "known_values", "")
    return CannotTell(
        name,
        f"values are computed when the trainer starts: {'; '.join(unread[:MAX_NAMED_SETTINGS])}{more}",
        known_values or "write the numbers into the file, or name the configuration that the trainer saved",
    )
