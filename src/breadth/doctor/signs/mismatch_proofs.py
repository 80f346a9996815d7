"""Proofs that trainer and sampler are not the same policy: by the logged metric, by the entropy of tokens, by both log-probabilities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from breadth.doctor.evidence import Evidence
from breadth.doctor.finding import SEVERITIES, Confidence
from breadth.doctor.signs.disagreement import (
    Growth,
    Surprise,
    divergence,
    divergence_of_entropy,
    growth,
    proven_divergence,
    selection,
    surprise,
    temperatures,
)
from breadth.doctor.signs.token_windows import FEWEST, Ends
from breadth.measure.intervals import Interval
from breadth.measure.trends import Trend
from breadth.report.sections import Fact, Severity
from breadth.runs.reader import Run


@dataclass(frozen=True)
class Proof:
    """What one way of looking proves."""

    severity: Severity
    """How bad."""
    confidence: Confidence
    """How sure."""
    said: str
    """The start of a headline, with its number."""
    facts: tuple[Fact, ...]
    """The numbers."""
    sign: int = 0
    """1: drawn hotter than scored, -1: colder, 0: not told."""


Looked: TypeAlias = Proof | str | None
"""A proof, why this way could not be gone, or None: looked, nothing there."""


def by_metric(evidence: Evidence, share: float, times: float) -> Looked:
    """Look at the logged metric: a divergence above a share of the entropy, or growth to so many times the start that goes on."""
    found, series = evidence.trend("mismatch"), evidence.series("mismatch")
    if found is None or series is None:
        return evidence.lacks("", "mismatch").missing
    theirs, proven, grown = evidence.logged("mismatch"), divergence_of_entropy(evidence, found), growth(series)
    facts = _metric_facts(evidence, found, proven, grown)
    if proven is None and grown is None:
        return f"{theirs} can be compared neither with the entropy nor with its own start"
    if proven is not None and proven.low > share:
        said = f"By {theirs} trainer and sampler diverge by at least {proven.value:.0%} of the entropy"
        return Proof(_severity(evidence, beyond=True), "strong", said, facts)
    if grown is not None and grown.times.low > times and grown.goes_on:
        said = (
            f"By {theirs} trainer and sampler differ {grown.times.value:.3g} times as much as at the start, and ever"
            " more"
        )
        return Proof(_severity(evidence, beyond=False), "likely", said, facts)
    return None


def by_entropy(evidence: Evidence, run: Run, ends: Ends, allowed: float, nats: float) -> Looked:
    """Look at how surprising tokens are for the entropy they were drawn with, where they hold so many nats."""
    found, kind = surprise(run, ends.now), run.header.entropies.get("entropy")
    if found is None:
        return "entropies of the tokens are not recorded beside their log-probabilities"
    if (kind is not None and kind.estimator not in ("exact", "unknown")) or found.apart <= 1e-6:
        return "what is recorded as entropy is not taken over the whole vocabulary"
    if found.nats < nats or found.rollouts < FEWEST:
        return f"the tokens of {found.rollouts} rollouts hold {found.nats:,.0f} nats together; {nats:,.0f} are needed"
    if not _beyond(found.share, allowed):
        return None
    chosen = selection(evidence, run, ends.now)
    if chosen:
        return f"tokens differ from their entropy, but {chosen}"
    sign = 1 if found.share.value > 0 else -1
    sure = kind is not None and kind.estimator == "exact"
    harmless = _temperatures_explain(evidence, sign) or not (sure or _came_up(run, ends, found.share, allowed))
    return Proof(
        Severity.NOTE if harmless else _severity(evidence, beyond=True),
        "strong" if sure and evidence.knobs.on_policy and not harmless else "likely",
        f"Tokens are {abs(found.share.value):.0%} {'more' if sign > 0 else 'less'} surprising than their own entropy"
        " allows",
        _token_facts(evidence, found, ends),
        sign,
    )


def _metric_facts(evidence: Evidence, found: Trend, proven: Interval | None, grown: Growth | None) -> tuple[Fact, ...]:
    facts = [
        Fact("difference at the start", found.start, "", f"{evidence.steps('mismatch')}: median of the first eighth"),
        Fact("difference now", found.end, "", "median of the last eighth"),
    ]
    if grown is not None:
        facts.append(Fact("times the start", grown.times))
    unit = proven_divergence(evidence.logged("mismatch"))
    if proven is not None and unit is not None:
        facts.append(
            Fact(
                "divergence that proves, of the entropy",
                proven,
                "%",
                f"the metric is a {unit[0]}; entropy the larger of then and now",
            )
        )
    return tuple(facts)


def by_both(evidence: Evidence, run: Run, ends: Ends, allowed: float) -> Looked:
    """Look at the log-probabilities that trainer and sampler give to the same tokens."""
    found = divergence(run, ends.now) if {"logprobs", "old_logprobs"} <= run.columns else None
    if found is None:
        return "only one of trainer and sampler has its log-probabilities recorded"
    if not found.low > allowed:
        return None
    said = f"The sampler is {found.value:.0%} of its entropy away from the trainer"
    fact = Fact(
        "divergence, of the entropy", found, "%", f"log-probabilities of both for the tokens of {ends.now.name}"
    )
    return Proof(_severity(evidence, beyond=True), "strong" if evidence.knobs.on_policy else "likely", said, (fact,))


def _came_up(run: Run, ends: Ends, now: Interval, allowed: float) -> bool:
    """Say whether it came up on the way: a unit or an estimator that is not ours would show from the first step on."""
    then = surprise(run, ends.start)
    if then is None or _beyond(then.share, allowed):
        return False
    return then.share.high < now.low or now.high < then.share.low


def _beyond(share: Interval, allowed: float) -> bool:
    return share.low > allowed or share.high < -allowed


def _severity(evidence: Evidence, *, beyond: bool) -> Severity:
    """Worse where the score falls, milder where the difference is weighed away."""
    falls = any(
        score is not None and score.verdict == "falling"
        for score in (evidence.trend("reward"), evidence.late("reward"))
    )
    level = 2 - int(beyond) - int(falls) + int(bool(evidence.knobs.correct_mismatch))
    return SEVERITIES[min(level, 2)]


def _temperatures_explain(evidence: Evidence, sign: int) -> bool:
    """Say whether entropies are recorded at another temperature than the rollouts were drawn at, and that way round."""
    found = temperatures(evidence)
    return found is not None and (found[1] - found[0]) * sign > 0


def _token_facts(evidence: Evidence, found: Surprise, ends: Ends) -> tuple[Fact, ...]:
    facts = [
        Fact(
            "surprise less entropy",
            found.excess,
            "nats",
            f"{found.tokens:,} tokens of {found.rollouts:,} rollouts, {ends.now.name}",
        ),
        Fact("the same, of the entropy", found.share, "%", "0 for tokens drawn from the policy that scores them"),
    ]
    known = temperatures(evidence)
    if known is not None:
        why = (
            "the same, so they explain nothing" if known[0] == known[1] else "they differ, which alone may be all of it"
        )
        facts.append(Fact("temperature of entropies, of rollouts", f"{known[0]:g}, {known[1]:g}", "", why))
    if evidence.knobs.top_p is not None and evidence.knobs.top_p < 1:
        facts.append(Fact("top-p of the rollouts", evidence.knobs.top_p, "", evidence.knobs.given("top_p")))
    return tuple(facts)
