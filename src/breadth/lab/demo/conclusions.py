"""What a demo's numbers mean, in sentences that are computed from them: an effect that does not show is said not to."""

from __future__ import annotations

import math
from dataclasses import dataclass

from breadth.lab.demo.results import DemoResults
from breadth.lab.evaluation.corners import Corners, PairedEffect
from breadth.lab.evaluation.evaluate import PolicyEval
from breadth.lab.evaluation.seeds import trailing_mean
from breadth.lab.evaluation.training_log import TrainingLog
from breadth.measure.entropy import LawFit, fit_law, predict_tail
from breadth.measure.intervals import Interval
from breadth.measure.paired_tests import HumpTest, paired_difference
from breadth.report.cells import format_interval, format_number
from breadth.report.sections import Axis, Curve, Event, Fact, Section, Series, Severity, Verdict


def conclude_corners(table: Corners) -> Verdict:
    """Say what the two by two table means: in a sentence, and with its numbers."""
    voting = comparison_sentence(VOTE, table.vote_when_plain, table.vote_when_protected)
    protecting = comparison_sentence(PROTECTION, table.protection_when_parallel, table.protection_when_extended)
    votes_pay = all(effect_direction(effect) == "up" for effect in (table.vote_when_plain, table.vote_when_protected))
    kept_pays = effect_direction(table.protection_when_parallel) == "up"
    return Verdict(
        Severity.GOOD if votes_pay and kept_pays else Severity.NOTE,
        corners_headline(votes_pay, kept_pays),
        f"At equal tokens {voting}; {protecting}; {interaction_sentence(table.interaction)}. {interval_note(table)}",
    )


def corners_headline(votes_pay: bool, kept_pays: bool) -> str:
    if votes_pay and kept_pays:
        return (
            "Each remedy pays: the same tokens are worth more in a vote, and protected training gives the vote more to"
            " work with."
        )
    if votes_pay:
        return (
            "The same tokens are worth more in a vote than in one long thought; that protected training adds to it does"
            " not show here."
        )
    if kept_pays:
        return (
            "Protected training gives the vote more to work with; that a vote beats one long thought in both arms does"
            " not show here."
        )
    return (
        "Neither that a vote beats one long thought in both arms nor that protected training helps it shows in this"
        " run."
    )


def conclude_plain_training(results: DemoResults) -> Verdict:
    """Say what plain training did to the base."""
    base, plain, k = results.base, results.plain, results.plan.samples
    lost = pass_at_k_effect(plain, base, k)
    gained = pass_at_k_effect(plain, base, 1)
    share = plain.entropy.value / base.entropy.value if base.entropy.value else float("nan")
    fewer = (
        f"entropy fell to {format_number(share, '%')} of the base's"
        if share < 1
        else f"entropy is {format_number(share, '%')} of the base's"
    )
    if lost.is_significant and lost.value.value < 0:
        head, severity = f"Plain GRPO bought pass@1 with breadth: {fewer}, and pass@{k} fell.", Severity.WARNING
        if not (gained.is_significant and gained.value.value > 0):
            head = f"Plain GRPO lost breadth: {fewer}, and pass@{k} fell, while no gain in pass@1 shows."
    else:
        head, severity = f"Under plain GRPO {fewer}; that pass@{k} fell does not show in this run.", Severity.NOTE
    return Verdict(severity, head, "", narrowing_facts("plain", base, plain, k, gained, lost))


def conclude_protection(results: DemoResults) -> Verdict:
    """Say what protected training kept, and what it cost."""
    table, k = results.corners, results.plan.samples
    kept, paid = table.pass_k_kept, table.pass_1_change
    held = kept.is_significant and kept.value.value > 0
    dear = paid.is_significant and paid.value.value < 0
    head = (
        f"Protected training keeps more pass@{k} than plain"
        if held
        else f"That protected training keeps more pass@{k} does not show"
    )
    tail = (
        "at the cost of pass@1"
        if dear
        else "and pays nothing that shows in pass@1"
        if held
        else "and neither does a cost in pass@1"
    )
    severity = Severity.GOOD if held and not dear else Severity.NOTE
    numbers = [
        Fact(f"pass@{k}, protected less plain", kept.value),
        Fact("pass@1, protected less plain", paid.value),
        *entropy_facts("protected", results.base, results.protected),
    ]
    return Verdict(severity, f"{head}, {tail}.", "", numbers)


def conclude_forced_thinking(results: DemoResults) -> Verdict:
    """Say whether forced thinking hurts past some length."""
    hump, longest = results.hump(), results.forced[-1]
    best = next(point for point in results.forced if point.tokens == hump.peak)
    numbers = [
        Fact(f"accuracy at {best.tokens} thinking tokens", best.accuracy_rate),
        Fact(f"accuracy at {longest.tokens}", longest.accuracy_rate),
        Fact("fall", hump.fall),
        Fact("by chance", hump.p_value),
        Fact("tokens of a reply left alone", results.plain.tokens),
    ]
    return Verdict(*hump_sentence(hump, best.tokens, longest.tokens), "", numbers)


def hump_sentence(hump: HumpTest, best: int, longest: int) -> tuple[Severity, str]:
    if hump.is_positive:
        return (
            Severity.WARNING,
            f"Thinking longer makes the plain arm worse: accuracy is best at {best} tokens and lower at {longest}.",
        )
    if not hump.can_tell:
        return Severity.CANNOT_TELL, "Too few problems differ between budgets to tell whether forced thinking hurts."
    return (
        Severity.NOTE,
        f"That accuracy falls again up to {longest} tokens of forced thinking does not show in this run.",
    )


@dataclass(frozen=True)
class _Phrases:
    """How one comparison is told, by what came of it, and the two places it was made at."""

    up: str
    down: str
    unseen: str
    places: tuple[str, str]


VOTE = _Phrases(
    "a vote beats one long thought",
    "one long thought beats a vote",
    "no difference between a vote and one long thought shows",
    ("after plain training", "after protected training"),
)
PROTECTION = _Phrases(
    "protection adds to", "protection takes from", "no effect of protection shows on", ("the vote", "the long thought")
)


def comparison_sentence(phrases: _Phrases, first: PairedEffect, second: PairedEffect) -> str:
    """Tell a comparison at both places, in one breath where the same came of it."""
    one, other = (getattr(phrases, effect_direction(effect)) for effect in (first, second))
    here, there = (
        f"{place} ({signed_interval(effect.reported)})"
        for place, effect in zip(phrases.places, (first, second), strict=True)
    )
    if one == other:
        return f"{one} {here} {'or' if effect_direction(first) == 'unseen' else 'and'} {there}"
    return f"{one} {here}, while {other} {there}"


def effect_direction(effect: PairedEffect) -> str:
    if not effect.is_significant:
        return "unseen"
    return "up" if effect.value.value > 0 else "down"


def interaction_sentence(interaction: PairedEffect) -> str:
    numbers = f"({signed_interval(interaction.reported)})"
    if not interaction.is_significant:
        return f"that the two remedies need each other does not show {numbers}"
    more = interaction.value.value > 0
    return f"the vote gains {'more' if more else 'less'} from a policy that was protected {numbers}"


def signed_interval(value: Interval) -> str:
    """Write a difference with its sign and its interval, to stand in brackets."""
    text = format_interval(value).replace(" (", ", ").removesuffix(")")
    return text if text.startswith("-") else f"+{text}"


def interval_note(table: Corners) -> str:
    if table.seeds > 1:
        return (
            f"Intervals are over {table.seeds} seeds of training; what is said to show does so over problems as well."
        )
    return "Intervals are over problems, for one seed of training: another seed may differ by more than they say."


def pass_at_k_effect(first: PolicyEval, second: PolicyEval, k: int) -> PairedEffect:
    paired = paired_difference(first.scores_at(k).pass_at_k, second.scores_at(k).pass_at_k)
    return PairedEffect(paired.difference, paired.p_value)


def narrowing_facts(
    name: str, base: PolicyEval, arm: PolicyEval, k: int, gained: PairedEffect, lost: PairedEffect
) -> list[Fact]:
    return [
        Fact(f"pass@1, {name} less base", gained.value),
        Fact(f"pass@{k}, {name} less base", lost.value),
        *entropy_facts(name, base, arm),
    ]


def entropy_facts(name: str, base: PolicyEval, arm: PolicyEval) -> list[Fact]:
    return [
        Fact("fork entropy, base", base.planning, "nats"),
        Fact(f"fork entropy, {name}", arm.planning, "nats"),
        Fact("mechanical entropy, base", base.execution, "nats"),
        Fact(f"mechanical entropy, {name}", arm.execution, "nats"),
    ]


EARLY_SHARE = 0.15
"""Share of the course that the forecast is made from, as in the published demonstration (2505.22617: 36 of 236 steps).
"""
MIN_EARLY_GENERATIONS = 5
"""Generations a forecast needs at least: three more than the law has parameters."""
SMOOTHING_WINDOW = 5
"""Generations the score in the picture is the mean of."""


def conclude_entropy_law(results: DemoResults) -> list[Section]:
    """Return what the law says of the plain arm, and the picture; only the verdict where the course is too short for a forecast."""
    log = results.plain_training
    known = [place for place, entropy in enumerate(log.entropy) if math.isfinite(entropy)]
    early = math.ceil(EARLY_SHARE * len(known))
    if early < MIN_EARLY_GENERATIONS:
        return [
            Verdict(
                Severity.CANNOT_TELL,
                f"The course is too short to forecast it by the entropy law: {early} generations are its first"
                f" {EARLY_SHARE:.0%}.",
                f"The law needs {MIN_EARLY_GENERATIONS}; run the demo without --fast.",
            )
        ]
    log = log.select(known)
    whole, first = fit_log(log, len(known)), fit_log(log, early)
    return [law_verdict(log, whole, early), law_curve(log, whole, first, early)]


def law_verdict(log: TrainingLog, whole: LawFit, early: int) -> Verdict:
    tail = predict_tail(log.steps, log.entropy, log.reward, early)
    rival, error = min(
        {"early mean": tail.mean, "last early score": tail.last, "straight line": tail.line}.items(),
        key=lambda one: one[1],
    )
    ahead = tail.law < error
    head = (
        f"The entropy law, fitted to the first {EARLY_SHARE:.0%} of the plain course, "
        f"{'forecasts the rest better than' if ahead else 'does not forecast the rest better than'} "
        f"{'any simple rival' if ahead else f'its simplest rival, the {rival}'}."
    )
    body = "Given the later entropies, as the law asks. " + (
        "Over the whole course it holds."
        if whole.valid
        else f"Over the whole course it does not hold: {' '.join(whole.reasons)}"
    )
    numbers = [
        Fact("typical error of the forecast", tail.law),
        Fact(f"of the {rival}", error),
        Fact("later score less forecast", tail.mean_error),
        Fact("variance the whole fit describes", whole.r2, "%"),
        Fact("score at no entropy, by the whole fit", whole.ceiling),
    ]
    return Verdict(Severity.NOTE, head, body, numbers)


def law_curve(log: TrainingLog, whole: LawFit, first: LawFit, early: int) -> Curve:
    return Curve(
        "The entropy law on the plain arm",
        [
            Series("score", log.steps, trailing_mean(log.reward, SMOOTHING_WINDOW).tolist()),
            Series("law, fitted to all", log.steps, law_scores(whole, log)),
            Series("law, from the first steps", log.steps, law_scores(first, log)),
        ],
        Axis("optimizer step"),
        Axis("right replies", "%"),
        events=[Event(log.steps[early - 1], "fitted up to here")],
        note=(
            f"score = b - a exp(entropy). The score is the mean of the last {SMOOTHING_WINDOW} generations; the fits see each as"
            " it was."
        ),
    )


def fit_log(log: TrainingLog, length: int) -> LawFit:
    return fit_law(log.steps[:length], log.entropy[:length], log.reward[:length])


def law_scores(fit: LawFit, log: TrainingLog) -> list[float]:
    return [fit.b - fit.a * math.exp(entropy) for entropy in trailing_mean(log.entropy, SMOOTHING_WINDOW)]
