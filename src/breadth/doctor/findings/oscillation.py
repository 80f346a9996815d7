"""``oscillation``: traces state one answer and then another, and lose right answers by it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from breadth.doctor.evidence import Evidence
from breadth.doctor.finding import CannotTell, Change, Finding, Loop, Outcome, Prescription
from breadth.doctor.signs.inference_runs import ALARM, of_inference
from breadth.report.sections import Fact, Severity

if TYPE_CHECKING:
    from breadth.doctor.signs.restated import Restated

_NAME = "oscillation"


@dataclass(frozen=True)
class Oscillation:
    """The answer changes inside a trace, for the worse.

    In every trace the answers it states are followed. Right answers given up less those found is exactly what a trace's
    first stated answer scores above its last: what stopping at once would gain. It is a warning when that is above zero
    for sure where the policy in use draws, a note when only budgets that are not in use show it, and a note too when
    traces change their answer more and more as the budget grows, for then the length buys doubt. All tests flip the
    signs of whole questions. Only stated answers are seen (boxes, tags, "the answer is"); a trace that changes its mind
    in other words is not. A short check that restates the answer is no change.
    """

    loop: ClassVar[Loop] = "inference"
    causes: ClassVar[tuple[str, ...]] = ("over-thinking", "repetition-loops")

    alarm: float = ALARM
    """Chance of the same without any harm, over all arms together, from which down it is said; ten checks share the one healthy sweep in
    twenty that may be alarmed."""

    def check(self, evidence: Evidence) -> Outcome:
        """Follow the answers of every arm."""
        if not of_inference(evidence):
            return None
        from breadth.doctor.signs.restated import restated
        from breadth.doctor.signs.sweeps import looked_at

        drawn = looked_at(evidence, _NAME)
        if drawn is None or isinstance(drawn, CannotTell):
            return drawn
        arms = restated(evidence)
        if not arms:
            return CannotTell(
                _NAME,
                "no text states an answer in a box, a tag or as 'the answer is'",
                "ask for stated answers in --system",
            )
        losing = [arm for arm in arms if drawn.labelled and arm.p_value * len(arms) <= self.alarm]
        worst = max(losing, key=lambda arm: (arm.used, arm.given_up.value), default=None)
        return self._growing(arms) if worst is None else _lost(worst, arms)

    def _growing(self, arms: Sequence[Restated]) -> Finding | None:
        """Say whether traces change their answer more and more as the budget grows."""
        from breadth.doctor.signs.restated import rise

        forced = [arm for arm in arms if arm.budget is not None]
        if len(forced) < 2:
            return None
        slope, p_value = rise(forced)
        if p_value > self.alarm:
            return None
        first, last = forced[0], forced[-1]
        told = (
            f"{first.changing.value:.0%} of the traces at {first.budget:,} thinking tokens to {last.changing.value:.0%}"
            f" at {last.budget:,}"
        )
        return Finding(
            _NAME,
            Severity.NOTE,
            "strong",
            "inference",
            f"Traces that change their stated answer grow from {told}.",
            (Fact("rise with each doubling of the budget", slope, "%", f"p = {p_value:.2g}"), *_changing(arms)),
            "The share of traces that change their answer is the same at all budgets.",
            "",
            _prescriptions(last, arms),
        )


def _lost(worst: Restated, arms: Sequence[Restated]) -> Finding:
    points = 100 * worst.given_up.value
    return Finding(
        _NAME,
        Severity.WARNING if worst.used else Severity.NOTE,
        "strong",
        "inference",
        f"Right answers are given up {worst.lost} times and found {worst.found} times inside traces ({worst.name}).",
        (
            Fact(
                "first stated answer less the last",
                worst.given_up,
                "%",
                f"score of {worst.traces} traces; p = {worst.p_value:.2g}",
            ),
            *_changing(arms),
        ),
        "On new questions traces find as many right answers after their first one as they give up.",
        f"The first answer that a trace states scores {points:.1f} points more than the one it ends with.",
        _prescriptions(worst, arms),
    )


def _changing(arms: Sequence[Restated]) -> list[Fact]:
    return [
        Fact(f"traces that change their answer, {arm.name}", arm.changing, "%", f"{arm.lost} lost, {arm.found} found")
        for arm in arms
    ]


def _prescriptions(worst: Restated, arms: Sequence[Restated]) -> tuple[Prescription, ...]:
    steady = [arm for arm in arms if arm.budget is not None and worst.budget is not None and arm.budget < worst.budget]
    best = max(steady, key=lambda arm: (arm.score, -(arm.budget or 0)), default=None)
    shorter = (
        None
        if best is None or best.budget is None or best.score < worst.score
        else Prescription(
            f"Hold thinking to {best.budget:,} tokens",
            f"There traces end right in {best.score:.0%}, here in {worst.score:.0%}.",
            (Change("thinking_budget", best.budget),),
            source="arXiv 2506.04210; this sweep",
        )
    )
    leave = Prescription(
        "Answer as soon as the model is sure (strategy early-exit in policy.toml) in the place of thinking on",
        "It tries the answer where the thinking turns ('Wait') and stays with one that is sure.",
        (),
        "An over-confident model leaves too early; needs a server that continues a beginning and sends log-probs.",
        "DEER, arXiv 2504.15895",
    )
    return tuple(one for one in (shorter, leave) if one is not None)


FINDING = Oscillation()
"""As the doctor asks it."""
