"""The results of a demo as records, and what they mean: sentences that also say when an effect is not significant.

The last part puts the entropy law to the test on the plain arm: how well it fits the whole run, and what it would have
forecast from the first steps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from breadth.lab.demo.plan import DemoPlan
from breadth.lab.evaluation.corners import Corners, PairedEffect
from breadth.lab.evaluation.evaluate import Evaluation, PolicyEval
from breadth.lab.evaluation.training_log import TrainingLog, trailing_mean
from breadth.measure.diversity import answer_entropy
from breadth.measure.entropy import LawFit, fit_law, predict_tail
from breadth.measure.intervals import Interval, mean_interval
from breadth.measure.paired_tests import HumpTest, hump_test, paired_difference
from breadth.measure.validate import FloatArray
from breadth.report.cells import format_interval, format_number
from breadth.report.sections import Axis, Curve, Event, Fact, Section, Series, Severity, Verdict


@dataclass(frozen=True)
class ForcedThinking:
    """Accuracy with an exact number of thinking tokens, problem by problem."""

    tokens: int
    """Thinking tokens."""
    accuracy: tuple[float, ...]
    """Share of right replies per problem."""
    answer_entropy: tuple[float, ...]
    """Entropy of the answers per problem, in nats; a missing answer counts as one more answer."""

    @classmethod
    def from_evaluation(cls, tokens: int, found: Evaluation) -> ForcedThinking:
        """Summarize replies with forced thinking; answers are read as by a client that does not know the grammar."""
        answers = found.stated_answers()
        gold = np.array([problem.answer(found.prime) for problem in found.problems])
        right = (answers == gold[:, None]).mean(1)
        return cls(
            tokens,
            tuple(map(float, right)),
            tuple(answer_entropy(np.unique(row, return_inverse=True)[1]) for row in answers),
        )

    @property
    def accuracy_rate(self) -> Interval:
        """Mean accuracy, with an interval over problems."""
        return mean_interval(self.accuracy, bounds=(0.0, 1.0))

    @property
    def entropy_rate(self) -> Interval:
        """Mean entropy of answers, with an interval over problems."""
        return mean_interval(self.answer_entropy)


@dataclass(frozen=True)
class DemoResults:
    """All results of a demo."""

    version: str
    """Version of breadth."""
    plan: DemoPlan
    """Its sizes."""
    base: PolicyEval
    """The base on held-out problems."""
    plain: PolicyEval
    """The plain arm on the same."""
    protected: PolicyEval
    """The protected arm on the same."""
    corners: Corners
    """The two-by-two table."""
    forced: tuple[ForcedThinking, ...]
    """Accuracy of the plain arm against forced thinking, by rising budget."""
    plain_training: TrainingLog
    """How the plain arm's training went."""
    protected_training: TrainingLog
    """How the protected arm's training went."""
    versions: Mapping[str, str]
    """Versions of the libraries used."""
    base_digest: str
    """Hash of the base's files."""
    seconds: float
    """Time taken, over all attempts."""

    def hump(self) -> HumpTest:
        """Test whether accuracy falls again as forced thinking grows longer."""
        table: FloatArray = np.array([point.accuracy for point in self.forced]).T
        return hump_test([point.tokens for point in self.forced], table)


def conclude_corners(table: Corners) -> Verdict:
    """Say what the two-by-two table means, in a headline and with its numbers."""
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
    """Return the headline for whether votes and protection pay off."""
    if votes_pay and kept_pays:
        return (
            "Each remedy pays: the same tokens are worth more in a vote, and protected training gives the vote more to"
            " work with."
        )
    if votes_pay:
        return (
            "The same tokens are worth more in a vote than in one long thought; this run shows no further gain from"
            " protected training."
        )
    if kept_pays:
        return (
            "Protected training gives the vote more to work with; this run does not show a vote beating one long"
            " thought in both arms."
        )
    return "This run shows neither a vote beating one long thought in both arms nor protected training helping it."


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
        head, severity = f"Plain GRPO traded breadth for pass@1: {fewer}, and pass@{k} fell.", Severity.WARNING
        if not (gained.is_significant and gained.value.value > 0):
            head = f"Plain GRPO lost breadth: {fewer}, and pass@{k} fell, with no significant gain in pass@1."
    else:
        head, severity = f"Under plain GRPO {fewer}; this run does not show a fall in pass@{k}.", Severity.NOTE
    return Verdict(severity, head, "", plain_training_facts("plain", base, plain, k, gained, lost))


def conclude_protection(results: DemoResults) -> Verdict:
    """Say what protected training kept, and what it cost."""
    table, k = results.corners, results.plan.samples
    kept, paid = table.pass_k_kept, table.pass_1_change
    held = kept.is_significant and kept.value.value > 0
    costs = paid.is_significant and paid.value.value < 0
    head = (
        f"Protected training keeps more pass@{k} than plain"
        if held
        else f"This run does not show protected training keeping more pass@{k}"
    )
    tail = (
        ("at the cost of pass@1" if held else "and it costs pass@1")
        if costs
        else "with no significant cost in pass@1"
        if held
        else "nor a cost in pass@1"
    )
    severity = Severity.GOOD if held and not costs else Severity.NOTE
    numbers = [
        Fact(f"pass@{k}, protected minus plain", kept.value),
        Fact("pass@1, protected minus plain", paid.value),
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
        Fact("p-value", hump.p_value),
        Fact("tokens of an unforced reply", results.plain.tokens),
    ]
    return Verdict(*hump_sentence(hump, best.tokens, longest.tokens), "", numbers)


def hump_sentence(hump: HumpTest, best: int, longest: int) -> tuple[Severity, str]:
    """Return how serious overthinking is, and a sentence about it."""
    if hump.is_positive:
        return (
            Severity.WARNING,
            f"Thinking longer makes the plain arm worse: accuracy is best at {best} tokens and lower at {longest}.",
        )
    if not hump.can_tell:
        return Severity.CANNOT_TELL, "Too few problems differ between budgets to tell whether forced thinking hurts."
    return (
        Severity.NOTE,
        f"This run does not show accuracy falling again, up to {longest} tokens of forced thinking.",
    )


@dataclass(frozen=True)
class _Phrases:
    """The wording of one comparison by its result, and the two conditions it was made under."""

    up: str
    down: str
    none: str
    places: tuple[str, str]


VOTE = _Phrases(
    "a vote beats one long thought",
    "one long thought beats a vote",
    "a vote and one long thought do not differ significantly",
    ("after plain training", "after protected training"),
)
PROTECTION = _Phrases(
    "protection adds to",
    "protection takes from",
    "protection has no significant effect on",
    ("the vote", "the long thought"),
)


def comparison_sentence(phrases: _Phrases, first: PairedEffect, second: PairedEffect) -> str:
    """Describe a comparison under both conditions, in one clause where the results agree."""
    here_phrase, there_phrase = (getattr(phrases, effect_direction(effect)) for effect in (first, second))
    here, there = (
        f"{place} ({signed_interval(effect.main_interval)})"
        for place, effect in zip(phrases.places, (first, second), strict=True)
    )
    if here_phrase == there_phrase:
        return f"{here_phrase} {here} {'or' if effect_direction(first) == 'none' else 'and'} {there}"
    return f"{here_phrase} {here}, while {there_phrase} {there}"


def effect_direction(effect: PairedEffect) -> str:
    """Return up, down, or none where it is not significant."""
    if not effect.is_significant:
        return "none"
    return "up" if effect.value.value > 0 else "down"


def interaction_sentence(interaction: PairedEffect) -> str:
    """Say whether the vote gains more after protected training."""
    numbers = f"({signed_interval(interaction.main_interval)})"
    if not interaction.is_significant:
        return f"the two remedies show no significant interaction {numbers}"
    more = interaction.value.value > 0
    return f"the vote gains {'more' if more else 'less'} from a protected policy {numbers}"


def signed_interval(value: Interval) -> str:
    """Write a difference with its sign and interval, for use inside brackets."""
    text = format_interval(value).replace(" (", ", ").removesuffix(")")
    return text if text.startswith("-") else f"+{text}"


def interval_note(table: Corners) -> str:
    """Say what the intervals are over."""
    if table.seeds > 1:
        return f"Intervals are over {table.seeds} training seeds; what is significant is so over problems as well."
    return "Intervals are over problems, for one training seed: another seed may differ by more."


def pass_at_k_effect(first: PolicyEval, second: PolicyEval, k: int) -> PairedEffect:
    """Compare pass@k of two policies, paired by problem."""
    paired = paired_difference(first.scores_at(k).pass_at_k, second.scores_at(k).pass_at_k)
    return PairedEffect(paired.difference, paired.p_value)


def plain_training_facts(
    name: str, base: PolicyEval, arm: PolicyEval, k: int, gained: PairedEffect, lost: PairedEffect
) -> list[Fact]:
    """Return what plain training changed, as facts."""
    return [
        Fact(f"pass@1, {name} minus base", gained.value),
        Fact(f"pass@{k}, {name} minus base", lost.value),
        *entropy_facts(name, base, arm),
    ]


def entropy_facts(name: str, base: PolicyEval, arm: PolicyEval) -> list[Fact]:
    """Return the entropy of forks and mechanical tokens, of the base and of an arm."""
    return [
        Fact("fork entropy, base", base.planning, "nats"),
        Fact(f"fork entropy, {name}", arm.planning, "nats"),
        Fact("mechanical entropy, base", base.execution, "nats"),
        Fact(f"mechanical entropy, {name}", arm.execution, "nats"),
    ]


EARLY_SHARE = 0.15
"""Share of the run that the forecast is made from, as in the published demonstration (2505.22617: 36 of 236 steps)."""
MIN_EARLY_GENERATIONS = 5
"""Generations a forecast needs at least: three more than the law has parameters."""
SMOOTHING_WINDOW = 5
"""Generations that the plotted score is averaged over."""


def conclude_entropy_law(results: DemoResults) -> list[Section]:
    """Return what the law says about the plain arm, with a curve; a short run gets only a verdict that says so."""
    log = results.plain_training
    known = [place for place, entropy in enumerate(log.entropy) if math.isfinite(entropy)]
    early = math.ceil(EARLY_SHARE * len(known))
    if early < MIN_EARLY_GENERATIONS:
        return [
            Verdict(
                Severity.CANNOT_TELL,
                f"The run is too short for a forecast by the entropy law: its first {EARLY_SHARE:.0%} are {early}"
                " generations.",
                f"The law needs {MIN_EARLY_GENERATIONS}; run the demo without --fast.",
            )
        ]
    log = log.select(known)
    whole, first = fit_log(log, len(known)), fit_log(log, early)
    return [law_verdict(log, whole, early), law_curve(log, whole, first, early)]


def law_verdict(log: TrainingLog, whole: LawFit, early: int) -> Verdict:
    """Say whether the law forecasts the rest of the run better than simple baselines do."""
    tail = predict_tail(log.steps, log.entropy, log.reward, early)
    baseline, error = min(
        {"early mean": tail.mean, "last early score": tail.last, "straight line": tail.line}.items(),
        key=lambda named: named[1],
    )
    ahead = tail.law < error
    head = (
        f"The entropy law, fitted to the first {EARLY_SHARE:.0%} of the plain run, "
        f"{'forecasts the rest better than' if ahead else 'does not forecast the rest better than'} "
        f"{'any simple baseline' if ahead else f'the best simple baseline, the {baseline}'}."
    )
    body = "The later entropies are given, as the law requires. " + (
        "Over the whole run it holds."
        if whole.valid
        else f"Over the whole run it does not hold: {' '.join(whole.reasons)}"
    )
    numbers = [
        Fact("typical error of the forecast", tail.law),
        Fact(f"error of the {baseline}", error),
        Fact("later score minus forecast", tail.mean_error),
        Fact("variance explained by the whole fit", whole.r2, "%"),
        Fact("score at zero entropy, by the whole fit", whole.ceiling),
    ]
    return Verdict(Severity.NOTE, head, body, numbers)


def law_curve(log: TrainingLog, whole: LawFit, first: LawFit, early: int) -> Curve:
    """Plot the score and what the law makes of the entropy."""
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
            f"score = b - a exp(entropy). The score is the mean of the last {SMOOTHING_WINDOW} generations; the fits"
            " use the raw values."
        ),
    )


def fit_log(log: TrainingLog, length: int) -> LawFit:
    """Fit the law to the first generations of a log."""
    return fit_law(log.steps[:length], log.entropy[:length], log.reward[:length])


def law_scores(fit: LawFit, log: TrainingLog) -> list[float]:
    """Return the scores that a fit gives for the smoothed entropy."""
    return [fit.b - fit.a * math.exp(entropy) for entropy in trailing_mean(log.entropy, SMOOTHING_WINDOW)]
