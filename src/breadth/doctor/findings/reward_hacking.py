"""``reward-hacking``: the reward rises, but the answers do not get better."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from breadth.doctor import prescriptions
from breadth.doctor.evidence.record import MIN_POINTS, Evidence
from breadth.doctor.evidence.scores import (
    FORM_NAMES,
    RewardPart,
    ScoreChange,
    count_evaluations,
    eval_score_change,
    excludes_rise,
    is_training_run,
    printable,
    reward_parts,
)
from breadth.doctor.finding import CannotTell, CheckResult, Excluded, Finding, Loop, Prescription
from breadth.measure.course import Course
from breadth.measure.trends import Trend
from breadth.report.cells import PERCENT, format_number, format_pair
from breadth.report.sections import Fact, Severity

HACKS = re.compile(r"(?<![a-z])(?:hack|cheat)(?:s|ed|ing)?(?![a-z])")
"""Names of metrics in which a run counts the rollouts that cheat its reward; exploiting is no failure by itself."""
NO_HACKS = re.compile(r"(?<![a-z])(?:no|non|not|without|un[a-z]+|failed|penalty|reward|score)(?![a-z])")
"""Names of their counterparts, of hacks that failed, and of penalties."""

ZERO_IS_BEST = re.compile(
    r"penal|cost|violat|error|repe[at]|invalid|unsafe|toxic|hack|cheat|leak|bonus|length|(?<![a-z])(?:over|too)(?![a-z])"
)
"""Names of components that are at nothing where all is well, or that are seldom paid by design."""


@dataclass(frozen=True)
class RewardHacking:
    """The training reward certainly rises, while a held-out score or the correctness component does not.

    A run that counts the hacks itself (``hack_rate``, ``n_hacking_successful``) is believed where the count surely
    doubles. By held-out scores: they fall, or certainly rise by less than half as much as the reward, and show no rise
    of their own. By components: those that mean correct (by name, or by the grades of rollouts) certainly explain less
    than a quarter of the rise, and another one rises. Each component's share of the rise is shown; weights are fitted
    to the log, where the components add up. A format component that still rises is a note: format is learned first, and
    the rest may follow. So is a component that stays behind and whose name does not say what it means; one that has
    paid next to nothing all along is a warning, unless its name says that nothing is its aim. It misleads where
    held-out problems are of another kind or far harder than the training problems: then nothing was hacked, and the
    learning does not transfer.
    """

    loop: ClassVar[Loop] = "training"
    causes: ClassVar[tuple[str, ...]] = ("overly-hard",)
    summary: ClassVar[str] = "the training reward rises, the held-out score does not"
    first_step: ClassVar[str] = "fix the reward; weigh the component that means right"

    part: float = 0.5
    """Share of the reward's rise below which, if certain, correctness stays behind: most of the gain is something else.
    """
    small: float = 0.25
    """The same for components: a format that is learned first and weighs more explains half of most healthy rises."""

    negligible: float = 0.1
    """Share of the reward's rise below which, if certain, a component counts as still even where it surely rises."""

    nothing: float = 0.05
    """Level of a component, as a share of the reward's rise, up to which it pays nothing."""

    fallen: float = 0.05
    """Share of the reward's rise by which correctness may be lower than at the start, by the best estimate, for a
    format that still rises to be learned first."""

    def check(self, evidence: Evidence) -> CheckResult:
        """Compare the reward's rise with held-out scores and with its components."""
        if not is_training_run(evidence):
            return None
        reward = evidence.trend("reward")
        if reward is None:
            return evidence.missing_metric("reward-hacking", "reward")
        if (hacks := find_counted_hacks(evidence)) is not None:
            return report_counted(evidence, reward, *hacks)
        if reward.verdict != "rising" or reward.change.low <= 0:
            return exclude_rise(evidence, reward)
        evaluation = eval_score_change(evidence)
        if evaluation is not None and self.stays_behind(evidence, reward, evaluation):
            return self.report_held_out(evidence, reward, evaluation)
        if evaluation is not None and evaluation.verdict == "rising" and evaluation.name != "reward":
            return Excluded("reward-hacking", f"{evaluation.name} rises too ({evaluation.change.value:+.2g})")
        made_of = reward_parts(evidence)
        counts = [part for part in made_of if part.means_correct]
        if counts and self.components_stay_behind(reward, made_of):
            return self.report_components(evidence, reward, made_of)
        if any(part.change.verdict == "rising" for part in counts) or (
            evaluation is not None and evaluation.verdict == "rising"
        ):
            return Excluded("reward-hacking", "a score that means correct rises with the reward")
        if made_of and not counts and evaluation is None:
            return self.check_unnamed(evidence, reward, made_of)
        return missing_comparison(evidence, evaluation, counts)

    def stays_behind(self, evidence: Evidence, reward: Trend, evaluation: ScoreChange) -> bool:
        """Say whether the held-out score stays behind: by its amount where units agree, else by its direction."""
        if evaluation.verdict == "rising":
            return False
        levels = () if evidence.run is None else evidence.run.header.reward_levels
        alike = evaluation.name == "reward" or set(levels) == {0.0, 1.0}
        if alike and evaluation.verdict != "falling":
            return evaluation.change.high < self.part * reward.change.low and evaluation.end < reward.end.value
        return excludes_rise(evaluation)

    def components_stay_behind(self, reward: Trend, made_of: tuple[RewardPart, ...]) -> bool:
        """Say whether correctness explains a small part of the rise.

        Where weights are not known, something else must rise instead.
        """
        counts, others = (
            [part for part in made_of if part.means_correct],
            [part for part in made_of if not part.means_correct],
        )
        most = sum(
            max(part.weight * end for end in (part.change.change.low, part.change.change.high)) for part in counts
        )
        weighed = all(part.share is not None for part in made_of)
        other = weighed or any(part.change.verdict == "rising" for part in others)
        still = all(part.change.verdict != "rising" or self.is_negligible(part, reward) for part in counts)
        return other and still and most < self.small * reward.change.low

    def is_negligible(self, part: RewardPart, reward: Trend) -> bool:
        """Say whether a component hardly rises; one that rises with another has no weight that the fit could find."""
        return max(part.weight, 1.0) * part.change.change.high < self.negligible * reward.change.low

    def check_unnamed(self, evidence: Evidence, reward: Trend, made_of: tuple[RewardPart, ...]) -> Finding | CannotTell:
        """Return the component that does not rise with the reward, where no name says what it means: the user knows."""
        still = [
            part
            for part in made_of
            if (
                part.weight * part.change.change.high < self.part * reward.change.low
                and part.change.verdict != "rising"
            )
            or self.is_negligible(part, reward)
        ]
        rising = [part for part in made_of if part.change.verdict == "rising" and part not in still]
        if not still or not rising:
            return CannotTell(
                "reward-hacking",
                "the reward rises, and no component's name says that it means correct",
                "name it, e.g. accuracy",
            )
        leader = max(rising, key=lambda part: part.share or part.change.change.value)
        unpaid = next((part for part in still if self.pays_nothing(part, reward)), None)
        part = unpaid or still[0]
        by = "" if leader.share is None else f", {leader.share:.0%} of it by {leader.name}"
        stayed = f"paid next to nothing ({format_pair(part.change.start, part.change.end)})"
        return Finding(
            "reward-hacking",
            Severity.WARNING if unpaid else Severity.NOTE,
            "likely",
            "training",
            f"The reward has risen by {reward.change.value:.2g}{by}; {part.name} has"
            f" {stayed if unpaid else describe_change(part.change)}.",
            (_gain(evidence, reward), *(_component(part) for part in made_of)),
            f"{part.name} is not the goal of the run.",
            "If that component is the goal of the run, it has gained nothing so far.",
            _prescriptions(evidence),
        )

    def pays_nothing(self, part: RewardPart, reward: Trend) -> bool:
        """Say whether a component is next to nothing all along, neither by its aim nor because it is switched off."""
        level = max(abs(part.change.start), abs(part.change.end))
        aims_at_zero = ZERO_IS_BEST.search(part.name.casefold()) or FORM_NAMES.search(part.name.casefold())
        return not aims_at_zero and 0 < max(part.weight, 1.0) * level < self.nothing * reward.change.value

    def report_held_out(self, evidence: Evidence, reward: Trend, evaluation: ScoreChange) -> Finding:
        """Build the finding by the held-out score."""
        falls = evaluation.verdict == "falling"
        return Finding(
            "reward-hacking",
            Severity.CRITICAL if falls else Severity.WARNING,
            "likely",
            "training",
            f"The training reward has risen by {reward.change.value:.2g}; the held-out score has"
            f" {describe_change(evaluation)}.",
            (
                _gain(evidence, reward),
                Fact(
                    f"change of {evaluation.name}",
                    evaluation.change,
                    "",
                    f"held out: {evaluation.verdict}, {evaluation.where}",
                ),
            ),
            "The score on held-out problems of the same kind as the training problems rises with the reward.",
            "The gain since the start does not show on problems outside of the training set.",
            _prescriptions(evidence),
        )

    def report_components(self, evidence: Evidence, reward: Trend, made_of: tuple[RewardPart, ...]) -> Finding:
        """Build the finding by the components of the reward."""
        counts = [part for part in made_of if part.means_correct]
        leader = max(
            (part for part in made_of if not part.means_correct),
            key=lambda part: part.share or part.change.change.value,
            default=None,
        )
        first = leader is not None and FORM_NAMES.search(leader.name.casefold()) is not None and leader.still_rises
        lost = min(part.change.change.value for part in counts)
        first = first and lost > -self.fallen * reward.change.value
        falls = any(part.change.verdict == "falling" for part in counts)
        by = "" if leader is None or leader.share is None else f", {leader.share:.0%} of it by {leader.name}"
        return Finding(
            "reward-hacking",
            Severity.CRITICAL if falls else Severity.NOTE if first else Severity.WARNING,
            "strong" if all(part.share is not None for part in made_of) else "likely",
            "training",
            f"The reward has risen by {reward.change.value:.2g}{by}; {counts[0].name} has"
            f" {describe_change(counts[0].change)}.",
            (_gain(evidence, reward), *(_component(part) for part in made_of)),
            "The component that means correct rises, or a held-out score does.",
            "" if leader is None else "The gain so far is not in correctness.",
            _prescriptions(evidence, leader),
        )


def exclude_rise(evidence: Evidence, reward: Trend) -> CheckResult:
    """Return that the reward is not seen to rise, or rises from its start to its end with waves in between."""
    course = evidence.course("reward")
    risen = None if course is None else course.change(course.start, course.end)
    if risen is None or risen.low <= 0:
        return Excluded("reward-hacking", f"the reward is not seen to rise ({reward.change.value:+.2g})")
    rise = f"the reward has risen by {risen.value:.2g} ({risen.low:.2g} to {risen.high:.2g})"
    return CannotTell("reward-hacking", f"{rise}, not steadily enough to compare it with other scores", "train longer")


def find_counted_hacks(evidence: Evidence) -> tuple[str, Course] | None:
    """Return the metric in which the run itself counts hacks, and its course, where it surely doubled or more."""
    names = () if evidence.run is None else evidence.run.metric_names()
    for name in names:
        if HACKS.search(name.casefold()) is None or NO_HACKS.search(name.casefold()):
            continue
        course = evidence.course(name)
        if course is None or course.start.level.value < 0:
            continue
        risen = course.change(course.start, course.end)
        if risen.low > 0 and risen.low >= course.start.level.value:
            return name, course
    return None


def report_counted(evidence: Evidence, reward: Trend, name: str, course: Course) -> Finding:
    """Build the finding by the run's own count of hacks."""
    start, end = course.start.level, course.end.level
    steps = f"steps {course.end.first:,.0f} to {course.end.last:,.0f}"
    return Finding(
        "reward-hacking",
        Severity.CRITICAL,
        "certain",
        "training",
        f"The run's own count of hacks, {printable(name)}, has risen from {format_pair(start.value, end.value)}.",
        (
            Fact(f"{printable(name)} at the start", start),
            Fact(f"{printable(name)} now", end, "", steps),
            _gain(evidence, reward),
        ),
        "What that metric counts is no hack: read twenty of the rollouts it counted.",
        "What the reward has gained since is the hack's, not the answers'.",
        _prescriptions(evidence),
    )


def missing_comparison(evidence: Evidence, evaluation: ScoreChange | None, counts: list[RewardPart]) -> CannotTell:
    """Say what would show whether the reward is hacked."""
    if evaluation is not None:
        missing = f"the reward rises, but noise hides whether {evaluation.name} does: {evaluation.change.value:+.2g} "
        return CannotTell(
            "reward-hacking",
            missing + f"[{evaluation.change.low:+.2g}, {evaluation.change.high:+.2g}]",
            "evaluate more problems",
        )
    if counts:
        change = counts[0].change.change
        direction = (
            "does not, nor does any other logged component" if excludes_rise(counts[0].change) else "may or may not"
        )
        missing = f"the reward rises, {counts[0].name} {direction}: a change of [{change.low:+.2g}, {change.high:+.2g}]"
        return CannotTell("reward-hacking", missing, "log every component of the reward, or evaluate held-out problems")
    had = count_evaluations(evidence)
    missing = "the reward rises, and nothing is logged that it could be compared with"
    missing = (
        f"the reward rises, and a held-out score is logged at {had} steps; {MIN_POINTS} are needed" if had else missing
    )
    return CannotTell(
        "reward-hacking",
        missing,
        evidence.how_to_log("eval") or f"evaluate held-out problems at {MIN_POINTS} steps or more",
    )


def describe_change(score: ScoreChange) -> str:
    """Say in words how a score has changed."""
    verb = {"falling": "fallen", "flat": "stayed flat"}.get(score.verdict, "not followed")
    return f"{verb} ({format_pair(score.start, score.end)})"


def _gain(evidence: Evidence, reward: Trend) -> Fact:
    return Fact(
        "rise of the reward", reward.change, "", f"{evidence.describe_steps('reward')}: last eighth minus first"
    )


def _component(part: RewardPart) -> Fact:
    share = "its weight is not known" if part.share is None else f"{format_number(part.share, PERCENT, 0)} of the rise"
    return Fact(
        f"change of {part.name}",
        part.change.change,
        "",
        f"{part.change.verdict}, {share}{', means correct' if part.means_correct else ''}",
    )


def _prescriptions(evidence: Evidence, leader: RewardPart | None = None) -> tuple[Prescription, ...]:
    wanted = (
        None if leader is None else prescriptions.pay_only_correct(leader.name),
        prescriptions.inspect_rewards(),
        prescriptions.raise_kl_penalty(evidence),
    )
    return tuple(remedy for remedy in wanted if remedy is not None)


FINDING = RewardHacking()
"""The check with its default thresholds."""
