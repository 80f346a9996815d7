"""``reward-hacking``: the reward rises, and what it stands for does not."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from breadth.doctor import prescriptions
from breadth.doctor.evidence.record import MIN_POINTS, Evidence
from breadth.doctor.evidence.scores import (
    RewardPart,
    ScoreChange,
    count_evaluations,
    eval_score_change,
    excludes_rise,
    is_training_run,
    reward_parts,
)
from breadth.doctor.finding import CannotTell, CheckResult, Finding, Loop, Prescription
from breadth.measure.trends import Trend
from breadth.report.sections import Fact, Severity

FORM = re.compile(r"format|xml|struct|json|boxed|(?<![a-z])(?:tags?|think|style)(?![a-z])")
"""Names of components that pay for form, which is often learned before anything else is."""


@dataclass(frozen=True)
class RewardHacking:
    """The training reward rises for sure, while a held-out score or the component that means right does not.

    By held-out scores: those fall, or rise by less than half as much as the reward for sure, and no rise of theirs is
    shown. By components: those that mean right (by their names, or by the grades of rollouts) explain less than half of
    the rise for sure, and another one rises. Each component's share of the rise is shown; weights are read from the
    log, where the components add up. A component for form that still rises is a note: form is learned first, and the
    rest may follow. So is a component that stays behind and whose name does not say what it means. It misleads where
    held-out problems are of another
    kind or far harder than those of training: then nothing was hacked, and what was learned does not carry over.
    """

    loop: ClassVar[Loop] = "training"
    causes: ClassVar[tuple[str, ...]] = ("overly-hard",)

    part: float = 0.5
    """Share of the reward's rise below which, for sure, what counts has stayed behind: the larger part of the gain is
    something else.
    """

    def check(self, evidence: Evidence) -> CheckResult:
        """Set the reward's rise beside that of held-out scores and of its components."""
        if not is_training_run(evidence):
            return None
        reward = evidence.trend("reward")
        if reward is None:
            return evidence.missing_metric("reward-hacking", "reward")
        if reward.verdict != "rising" or reward.change.low <= 0:
            return None
        beside = eval_score_change(evidence)
        if beside is not None and self.stays_behind(evidence, reward, beside):
            return self.report_held_out(evidence, reward, beside)
        if beside is not None and beside.verdict == "rising" and beside.name != "reward":
            return None
        made_of = reward_parts(evidence)
        counts = [one for one in made_of if one.means_correct]
        if counts and self.components_stay_behind(reward, made_of):
            return self.report_components(evidence, reward, made_of)
        if any(one.change.verdict == "rising" for one in counts) or (beside is not None and beside.verdict == "rising"):
            return None
        if made_of and not counts and beside is None:
            return check_unnamed(evidence, reward, made_of, self.part * reward.change.low)
        return missing_comparison(evidence, beside, counts)

    def stays_behind(self, evidence: Evidence, reward: Trend, beside: ScoreChange) -> bool:
        """Say whether the held-out score has stayed behind: by how much where it has the reward's units, else only if it does not rise."""
        if beside.verdict == "rising":
            return False
        levels = () if evidence.run is None else evidence.run.header.reward_levels
        alike = beside.name == "reward" or set(levels) == {0.0, 1.0}
        if alike and beside.verdict != "falling":
            return beside.change.high < self.part * reward.change.low and beside.end < reward.end.value
        return excludes_rise(beside)

    def components_stay_behind(self, reward: Trend, made_of: tuple[RewardPart, ...]) -> bool:
        """Say whether what means right explains less than half of the rise; where weights are not known, whether something else rises."""
        counts, others = (
            [one for one in made_of if one.means_correct],
            [one for one in made_of if not one.means_correct],
        )
        most = sum(max(one.weight * end for end in (one.change.change.low, one.change.change.high)) for one in counts)
        weighed = all(one.share is not None for one in made_of)
        other = weighed or any(one.change.verdict == "rising" for one in others)
        return other and all(one.change.verdict != "rising" for one in counts) and most < self.part * reward.change.low

    def report_held_out(self, evidence: Evidence, reward: Trend, beside: ScoreChange) -> Finding:
        """Build the finding by the held-out score."""
        falls = beside.verdict == "falling"
        return Finding(
            "reward-hacking",
            Severity.CRITICAL if falls else Severity.WARNING,
            "likely",
            "training",
            f"The training reward has risen by {reward.change.value:.2g}; the held-out score has {describe_change(beside)}.",
            (
                _gain(evidence, reward),
                Fact(f"change of {beside.name}", beside.change, "", f"held out: {beside.verdict}, {beside.where}"),
            ),
            "A held-out set of the same kind as the training problems rises with the reward.",
            "What the run has gained since the start does not show on problems that it was not trained on.",
            _prescriptions(evidence),
        )

    def report_components(self, evidence: Evidence, reward: Trend, made_of: tuple[RewardPart, ...]) -> Finding:
        """Build the finding by the components of the reward."""
        counts = [one for one in made_of if one.means_correct]
        leader = max(
            (one for one in made_of if not one.means_correct),
            key=lambda one: one.share or one.change.change.value,
            default=None,
        )
        first = leader is not None and FORM.search(leader.name.casefold()) is not None and leader.still_rises
        falls = any(one.change.verdict == "falling" for one in counts)
        by = "" if leader is None or leader.share is None else f", {leader.share:.0%} of it by {leader.name}"
        return Finding(
            "reward-hacking",
            Severity.CRITICAL if falls else Severity.NOTE if first else Severity.WARNING,
            "strong" if all(one.share is not None for one in made_of) else "likely",
            "training",
            f"The reward has risen by {reward.change.value:.2g}{by}; {counts[0].name} has {describe_change(counts[0].change)}.",
            (_gain(evidence, reward), *(_component(one) for one in made_of)),
            "The component that means right rises, or a held-out score does.",
            "" if leader is None else "The gain so far is of another kind than what the run is for.",
            _prescriptions(evidence),
        )


def check_unnamed(
    evidence: Evidence, reward: Trend, made_of: tuple[RewardPart, ...], least: float
) -> Finding | CannotTell:
    """Say which component stays where it was while the reward rises, where no name tells what it means: the user knows."""
    still = [one for one in made_of if one.change.verdict != "rising" and one.weight * one.change.change.high < least]
    rising = [one for one in made_of if one.change.verdict == "rising"]
    if not still or not rising:
        return CannotTell(
            "reward-hacking",
            "the reward rises, and no component's name says that it means right",
            "name it, e.g. accuracy",
        )
    leader = max(rising, key=lambda one: one.share or one.change.change.value)
    by = "" if leader.share is None else f", {leader.share:.0%} of it by {leader.name}"
    return Finding(
        "reward-hacking",
        Severity.NOTE,
        "likely",
        "training",
        f"The reward has risen by {reward.change.value:.2g}{by}; {still[0].name} has {describe_change(still[0].change)}.",
        (_gain(evidence, reward), *(_component(one) for one in made_of)),
        f"{still[0].name} is not what the run is for.",
        "If that component is what the run is for, nothing of it was gained so far.",
        _prescriptions(evidence),
    )


def missing_comparison(evidence: Evidence, beside: ScoreChange | None, counts: list[RewardPart]) -> CannotTell:
    """Say what would show whether the reward is hacked."""
    if beside is not None:
        missing = f"the reward rises, and whether {beside.name} does is hidden by noise: {beside.change.value:+.2g} "
        return CannotTell(
            "reward-hacking",
            missing + f"[{beside.change.low:+.2g}, {beside.change.high:+.2g}]",
            "evaluate more problems",
        )
    if counts:
        change = counts[0].change.change
        said = (
            "does not, nor does any other component that is logged"
            if excludes_rise(counts[0].change)
            else "may or may not"
        )
        missing = f"the reward rises, {counts[0].name} {said}: a change of [{change.low:+.2g}, {change.high:+.2g}]"
        return CannotTell("reward-hacking", missing, "log every component of the reward, or evaluate held-out problems")
    had = count_evaluations(evidence)
    missing = "the reward rises, and nothing beside it is logged that it could be compared with"
    missing = (
        f"the reward rises, and a held-out score is logged at {had} steps; {MIN_POINTS} are needed" if had else missing
    )
    return CannotTell(
        "reward-hacking",
        missing,
        evidence.logging_hint("eval") or f"evaluate held-out problems at {MIN_POINTS} steps or more",
    )


def describe_change(one: ScoreChange) -> str:
    """Say in words how a score has changed."""
    verb = {"falling": "fallen", "flat": "stayed where it was"}.get(one.verdict, "not followed")
    return f"{verb} ({one.start:.3g} to {one.end:.3g})"


def _gain(evidence: Evidence, reward: Trend) -> Fact:
    return Fact("rise of the reward", reward.change, "", f"{evidence.describe_steps('reward')}: last eighth less first")


def _component(one: RewardPart) -> Fact:
    share = "its weight is not known" if one.share is None else f"{one.share:.0%} of the rise"
    return Fact(
        f"change of {one.name}",
        one.change.change,
        "",
        f"{one.change.verdict}, {share}{', means right' if one.means_correct else ''}",
    )


def _prescriptions(evidence: Evidence) -> tuple[Prescription, ...]:
    return tuple(
        one for one in (prescriptions.inspect_rewards(), prescriptions.raise_kl_penalty(evidence)) if one is not None
    )


FINDING = RewardHacking()
"""As the doctor asks it."""
