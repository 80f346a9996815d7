"""``repetition-loops``: completions end by repeating a passage, and never reach an answer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from breadth.doctor.evidence.record import FALSE_ALARM_RATE, SCORE_MARGIN, Evidence, is_inference_run
from breadth.doctor.finding import CannotTell, Change, CheckResult, Excluded, Finding, Loop, Prescription
from breadth.report.sections import Fact, Severity

if TYPE_CHECKING:
    from breadth.doctor.evidence.sweeps import ArmTexts
    from breadth.inference.policy import Policy
    from breadth.measure.intervals import Interval
    from breadth.measure.validate import FloatArray

_NAME = "repetition-loops"


@dataclass(frozen=True)
class RepetitionLoops:
    """A share of the completions ends in a loop.

    A completion counts when its last 200 rough tokens or more are one passage at least four times over. That is what
    breadth's own loop guard stops during generation, so the guard would have saved every one of them. Shares are
    averaged over questions. A warning where the policy in use samples this way; a note where only other budgets show
    it, and more than plain samples do. It misleads on tasks whose correct answer repeats one line, such as a matrix of
    zeros.
    """

    loop: ClassVar[Loop] = "inference"
    causes: ClassVar[tuple[str, ...]] = ("max-tokens-ignored",)
    summary: ClassVar[str] = "many completions end in a loop"
    first_step: ClassVar[str] = "stop a completion when it repeats itself"

    few: float = 0.01
    """Share above which, if certain, it is reported: a vote of eight then meets a loop on one question in thirteen."""
    many: float = SCORE_MARGIN
    """Share above which it is a warning: a loop has no answer, so its share is lost score, and `breadth tune` counts
    five points."""
    false_alarm_rate: float = FALSE_ALARM_RATE
    """Error rate of each bound; ten checks together may alarm one healthy sweep in twenty."""
    warm: float = 0.6
    """Temperature to prescribe where it is below 0.5: what the authors of DeepSeek-R1 advise against endless
    repetition."""

    def check(self, evidence: Evidence) -> CheckResult:
        """Count completions that end in a loop."""
        if not is_inference_run(evidence):
            return None
        from breadth.doctor.evidence.sweeps import arm_texts, plain_samples, policy_in_use, policy_spending

        samples = plain_samples(evidence, _NAME, needs_answers=False)
        if samples is None or isinstance(samples, CannotTell):
            return samples
        arms, policy = arm_texts(evidence), policy_in_use(evidence)
        if not any(text for arm in arms for text in arm.texts):
            return CannotTell(
                _NAME,
                "the texts of the samples are not recorded",
                "a run folder as breadth solve --out or tune writes it",
            )
        spent = None if policy is None else policy_spending(policy, 1.0)
        used = next((arm for arm in arms if spent is not None and arm.budget == spent.budget), arms[0])
        return self.compare_arms(used, arms, policy, samples.sampling.temperature)

    def compare_arms(
        self, used: ArmTexts, arms: Sequence[ArmTexts], policy: Policy | None, temperature: float
    ) -> CheckResult:
        """Return the finding for the arm in use, else for another that loops more."""
        counted = {arm.name: count_loops(arm) for arm in arms}
        share = self.loop_share(counted[used.name])
        if share.low > self.few:
            severity = Severity.WARNING if share.low > self.many else Severity.NOTE
            return self.report(used, share, counted, severity, self._prescriptions(policy, temperature))
        for arm in reversed([other for other in arms if other is not used]):
            share = self.loop_share(counted[arm.name])
            if share.low > self.few and self.loops_more(counted[arm.name], counted[used.name], len(arms) - 1):
                return self.report(arm, share, counted, Severity.NOTE, self._prescriptions(policy, temperature))
        share = self.loop_share(counted[used.name])
        shown = f"{share.value:.1%} of the completions end in a loop ({share.low:.1%} to {share.high:.1%})"
        if share.value <= self.few:
            return Excluded(_NAME, shown)
        return CannotTell(_NAME, shown, "more questions", undecided=True)

    def loop_share(self, found: _Counted) -> Interval:
        """Return the share of looping texts, averaged over questions."""
        from breadth.measure.intervals import mean_interval

        return mean_interval(found.by_question, bounds=(0.0, 1.0), level=1 - 2 * self.false_alarm_rate, replicates=2000)

    def loops_more(self, found: _Counted, plain: _Counted, arms: int) -> bool:
        """Say whether an arm loops more than the one in use, at the rate of false alarms allowed."""
        from breadth.measure.paired_tests import paired_difference

        gap = paired_difference(found.by_question, plain.by_question)
        return gap.difference.value > 0 and gap.p_value / 2 * arms <= self.false_alarm_rate

    def report(
        self,
        arm: ArmTexts,
        share: Interval,
        counted: dict[str, _Counted],
        severity: Severity,
        wanted: tuple[Prescription, ...],
    ) -> Finding:
        """Build the finding."""
        facts = [
            Fact(f"ends in a loop, {name}", float(loops.by_question.mean()), "%", f"{loops.texts} texts")
            for name, loops in counted.items()
        ]
        return Finding(
            _NAME,
            severity,
            "certain",
            "inference",
            f"{share.value:.0%} of the completions ({arm.name}) end in a loop.",
            (
                Fact("ends in a loop", share, "%", f"{arm.name}, {len(arm.texts)} texts"),
                *(facts if len(facts) > 1 else ()),
            ),
            "The task asks for the repeated passages.",
            f"{counted[arm.name].tokens:.0%} of the tokens are in completions that end in a loop.",
            wanted,
        )

    def _prescriptions(self, policy: Policy | None, temperature: float) -> tuple[Prescription, ...]:
        guard = Prescription(
            "Stop a completion as soon as it repeats itself",
            "In policy.toml: halt.kind = loop; on the server itself: repetition_detection on vLLM, the DRY sampler on"
            " llama.cpp.",
            (Change("loop_guard", True),),
            "A correct answer that repeats one line is cut too.",
            "vllm#52673, ollama#17561",
        )
        warmer = Prescription(
            f"Sample at temperature {self.warm:g} instead of {temperature:g}",
            "Near-greedy sampling stays in a loop once it is in one.",
            (Change("temperature", self.warm),),
            source="DeepSeek-R1, usage recommendations",
        )
        guarded = policy is not None and policy.halt is not None
        return (() if guarded else (guard,)) + ((warmer,) if temperature < 0.5 else ())


@dataclass(frozen=True, eq=False)
class _Counted:
    """Loops of one arm."""

    by_question: FloatArray
    """Share of each question's texts that end in one."""
    tokens: float
    """Share of all tokens that were written in such texts."""
    texts: int
    """Texts looked at."""


def count_loops(arm: ArmTexts) -> _Counted:
    """Count the texts of an arm that end in a loop."""
    import numpy as np

    from breadth.inference.halting import Loop as Guard

    looped = np.array([Guard(every=1).watch().push(text, math.nan, math.nan) for text in arm.texts], dtype=np.float64)
    _, owner, each = np.unique(arm.questions, return_inverse=True, return_counts=True)
    tokens = float((arm.tokens * looped).sum() / max(float(arm.tokens.sum()), 1.0))
    return _Counted(np.bincount(owner, looped) / each, tokens, len(arm.texts))


FINDING = RepetitionLoops()
"""The check with its default thresholds."""
