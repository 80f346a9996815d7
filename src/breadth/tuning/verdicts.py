"""Verdicts on a sweep: what to use, whether longer thinking harms, whether more samples beat it at equal tokens."""

from __future__ import annotations

import math

from breadth.inference.strategies.confidence_vote import ConfidenceVote
from breadth.measure.intervals import Interval
from breadth.report.plaintext import pluralize
from breadth.report.sections import Fact, Severity, Verdict
from breadth.tuning.choice import MIN_QUESTIONS, RISK, SCORE_TOLERANCE
from breadth.tuning.result import TuningResult

MAX_UNREAD = 0.2
"""Largest share of plain samples without a readable answer before the report warns."""


def write_verdicts(tuned: TuningResult) -> list[Verdict]:
    """Return the verdict on the choice, then those on unread answers, extended thinking and equal tokens, if any."""
    return [choice_verdict(tuned), *unread_verdict(tuned), *hump_verdict(tuned), *equal_tokens_verdict(tuned)]


def choice_verdict(tuned: TuningResult) -> Verdict:
    """State what to use, what to expect of it, and why."""
    choice = tuned.choice
    score_word = "right" if tuned.evidence.labelled else "agreeing with the pooled majority"
    expected = f"{tuned.score:.0%} {score_word} at {tuned.cost:,.0f} tokens per question"
    name = describe_policy(tuned)
    relation = "better than" if choice.gain.difference.low > 0 else "no worse than"
    number = pluralize(len(tuned.evidence.questions), "question")
    headlines = {
        "better": f"Use {name}: {expected}.",
        "cheaper": f"Use {name}: {expected}, {relation} one plain sample at {choice.default.cost:,.0f}.",
        "enough": f"One plain sample is enough: {expected}.",
        "cannot tell": f"No option is shown to beat one plain sample on {number}: one plain sample is kept.",
    }
    severity = Severity.GOOD if choice.is_conclusive else Severity.CANNOT_TELL
    if choice.outcome == "better" and choice.gain.difference.low <= 0:
        severity = Severity.NOTE
    return Verdict(severity, headlines[choice.outcome], explain_choice(tuned), choice_facts(tuned))


def describe_policy(tuned: TuningResult) -> str:
    """Return the chosen policy in a few words."""
    option = tuned.choice.option
    if option.budget is not None:
        return f"{option.budget:,} thinking tokens"
    if tuned.stops_early is not None:
        return f"a vote of up to {option.width} that stops early"
    weighed = " weighted by confidence" if isinstance(tuned.policy.strategy, ConfidenceVote) else ""
    return f"a {option.name}{weighed}"


def explain_choice(tuned: TuningResult) -> str:
    """Return the reason for the choice, and how its score was measured."""
    choice = tuned.choice
    if len(tuned.evidence.questions) < MIN_QUESTIONS:
        return (
            f"Below {MIN_QUESTIONS} questions nothing is chosen. Give more; fifty to a hundred make the choice steady."
        )
    chance = (
        "a gain over one plain sample as large as the best one seen comes by chance with probability"
        f" {choice.p_value:.2g}"
    )
    gone = "its gain is gone when every question is scored with the choice of the other questions"
    best = (
        "It has the highest score of all"
        if choice.best is choice.option
        else f"The highest score is that of '{choice.best.name}'"
    )
    gain = choice.gain.difference
    unsure = " That may still be chance: the interval holds zero." if gain.low <= 0 <= gain.high else ""
    reasons = {
        "better": (
            f"{best}; the rule takes the cheapest option that is shown to gain and within one standard error of the"
            f" best such. Against one plain sample: {points(gain)}.{unsure}"
        ),
        "cheaper": (
            f"Nothing more expensive is shown to be better ({chance}), and a loss by this of {SCORE_TOLERANCE:.0%} or"
            " more is ruled out."
        ),
        "enough": (
            f"Nothing more expensive is shown to be better ({chance}), and a gain of {SCORE_TOLERANCE:.0%} or more is"
            " ruled out."
        ),
        "cannot tell": (
            f"{best}, but {gone if choice.p_value <= RISK else chance}. "
            "More questions would tell; more samples of the same ones help less."
        ),
    }
    fitted = (
        "The expected score is cross-fitted: every question is scored with the choice of the other four fifths of the"
        f" questions. {choice.agreement:.0%} of these parts chose the same."
    )
    return f"{reasons[choice.outcome]}{describe_stopping(tuned)}\n\n{fitted}"


def describe_stopping(tuned: TuningResult) -> str:
    """Return what stopping early saves and changes; empty where the policy never does."""
    stop = tuned.stops_early
    if stop is None:
        return ""
    saved = 1 - stop.tokens / tuned.choice.option.cost
    return (
        f"\n\nStopping early ({stop.name}) saves {saved:.0%} of its tokens and changes {tuned.evidence.score_name} "
        f"by {points(stop.change.difference)}."
    )


def choice_facts(tuned: TuningResult) -> list[Fact]:
    """Return the numbers of the chosen option."""
    choice = tuned.choice
    which = "" if tuned.stops_early is None else ", whole vote"
    facts = [Fact(f"{tuned.evidence.score_name} to expect{which}", choice.score, "%")]
    if choice.option is not choice.default:
        facts.append(Fact("gain over one plain sample", choice.gain.display_value, "%"))
    spread = choice.outcome == "better"
    facts.append(
        Fact(
            f"tokens per question{which}", choice.cost if spread else choice.option.cost, note=_RANGE if spread else ""
        )
    )
    if tuned.stops_early is not None:
        facts.append(Fact("tokens when stopping early", round(tuned.cost)))
    if choice.option.money > 0:
        facts.append(Fact("money per question", choice.option.money))
    return facts


_RANGE = "the range is over the rule's choices when questions are resampled"


def unread_verdict(tuned: TuningResult) -> list[Verdict]:
    """Warn when so many plain samples have no answer that scores measure the reading or the length cap."""
    plain = tuned.traits[0]
    if plain.unread.value <= MAX_UNREAD:
        return []
    cut = plain.truncated > plain.unread.value / 2
    remedy = (
        "Most of them were cut at the length cap: raise --max-tokens."
        if cut
        else (
            "Choose --answer-format number or whole, or ask in --system for an answer that is stated, as in 'The answer"
            " is 42'."
        )
    )
    numbers = [Fact("unread", plain.unread, "%"), Fact("cut at the cap", plain.truncated, "%")]
    headline = f"No answer could be read in {plain.unread.value:.0%} of the plain samples, and those count as wrong."
    return [Verdict(Severity.WARNING, headline, remedy, numbers)]


def hump_verdict(tuned: TuningResult) -> list[Verdict]:
    """Say whether the score falls again as thinking grows; nothing with fewer than two budgets."""
    hump = tuned.hump
    if hump is None:
        return []
    largest, word = hump.budgets[-1], tuned.evidence.score_name
    numbers = [
        Fact("fall from the best smaller budget to the largest", hump.fall, "%"),
        Fact("p", round(hump.p_value, 4)),
    ]
    if hump.is_positive:
        headline = (
            f"Thinking past the optimum harms: {word} peaks near {hump.peak:,.0f} thinking tokens and falls towards"
            f" {largest:,.0f}."
        )
        body = "The best budget is chosen again in every resample, which accounts for the luck of being best."
        return [Verdict(Severity.WARNING, headline, body, numbers)]
    if not hump.can_tell:
        return [
            Verdict(
                Severity.CANNOT_TELL,
                f"These questions do not show whether {word} falls again as thinking grows.",
                "Too few questions differ between budgets.",
                numbers,
            )
        ]
    return [Verdict(Severity.NOTE, f"No fall of {word} is shown up to {largest:,.0f} thinking tokens.", "", numbers)]


def equal_tokens_verdict(tuned: TuningResult) -> list[Verdict]:
    """Compare at the largest budget only: one comparison, fixed before looking at the scores."""
    if not tuned.equal or tuned.equal[-1].width < 2:
        return []
    pair = tuned.equal[-1]
    gap = pair.difference.difference
    what = f"a vote of {pair.width} against one trace of {pair.budget:,} thinking tokens"
    numbers = [
        Fact("vote minus trace", pair.difference.display_value, "%"),
        Fact("p", round(pair.difference.p_value, 4)),
    ]
    body = (
        f"{pair.parallel_tokens:,.0f} tokens for the vote, {pair.serial_tokens:,.0f} for the trace; the same questions."
    )
    if gap.low > 0:
        return [Verdict(Severity.NOTE, f"At equal tokens more samples beat longer thinking: {what}.", body, numbers)]
    if gap.high < 0:
        return [Verdict(Severity.NOTE, f"At equal tokens longer thinking beats more samples: {what}.", body, numbers)]
    return [Verdict(Severity.CANNOT_TELL, f"At equal tokens neither is shown to be better: {what}.", body, numbers)]


def points(gap: Interval) -> str:
    """Return a difference of shares in points, with its interval where that is finite."""
    # Adding zero makes -0.0 a plain zero.
    value, low, high = (f"{round(100 * share, 1) + 0.0:+.1f}" for share in (gap.value, gap.low, gap.high))
    return f"{value} points ({low} to {high})" if math.isfinite(gap.low + gap.high) else f"{value} points"
