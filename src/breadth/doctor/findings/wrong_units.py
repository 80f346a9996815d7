"""``wrong-units``: a number written in another unit than the trainer reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from breadth.doctor.evidence.record import Evidence
from breadth.doctor.finding import Change, CheckResult, Finding, Loop, Need, Prescription
from breadth.doctor.lint import (
    Issue,
    cannot_read,
    describe_unread,
    exclude_issues,
    issue_facts,
    issue_headline,
    issue_prescriptions,
    issue_severity,
)
from breadth.doctor.trainer_config import TrainerConfig


@dataclass(frozen=True)
class WrongUnits:
    """A number in the wrong unit.

    Checked: percent where a fraction is meant (top_p, min_p, shares of tokens, clips); the largest ratio written as a
    distance from 1, or the other way round (CISPO in TRL); the clip of a token's ratio on the ratio of a whole response
    (GSPO); entropy in other units than nats, temperature in percent, a cap of a few tokens; and numbers that YAML 1.1
    reads as text (``1e-6`` without a dot).

    The numbers are impossible, or far outside of anything published. A learning rate has no such bounds, and is not
    checked.
    """

    loop: ClassVar[Loop] = "configuration"
    causes: ClassVar[tuple[str, ...]] = ()
    needs: ClassVar[tuple[Need, ...]] = ("settings",)
    summary: ClassVar[str] = "a number in the wrong unit, such as a clip for sequences given for tokens"
    first_step: ClassVar[str] = "use the value printed"

    widest_share: float = 0.01
    """Largest share of tokens that covariance selects: the paper takes 0.002 and 0.0002, and writes them as 0.2 and
    0.02 percent (arXiv 2505.22617)."""
    widest_clip: float = 5.0
    """Largest distance of an upper clip from 1: published ones end at 1, and percents begin at 10."""
    sequence_clip: float = 0.04
    """Largest clip of a response's ratio: a hundred times GSPO's 0.0004 (arXiv 2507.18071), and still below any clip of
    a token's ratio."""
    hottest: float = 10.0
    """Highest temperature: at 10 a token that was 20,000 times as likely as another is 2.7 times as likely."""
    shortest: int = 8
    """Fewest tokens of a completion: fewer hold no answer with its tags."""
    most_nats: float = 12.5
    """Highest entropy of a token: the logarithm of 262,144, the largest vocabulary in use."""

    def check(self, evidence: Evidence) -> CheckResult:
        """Compare every number with its possible range."""
        points = self.find_issues(evidence)
        if not points:
            unread = cannot_read("wrong-units", evidence, self.find_issues)
            return unread or exclude_issues("wrong-units", evidence)
        return Finding(
            "wrong-units",
            issue_severity(points),
            "certain" if all(point.prescription is None for point in points) else "likely",
            "configuration",
            issue_headline(points, "number", "is in the wrong unit", "are in the wrong units"),
            (*issue_facts(points), *describe_unread(evidence, self.find_issues)),
            "At its start the trainer logs the intended value.",
            "",
            issue_prescriptions(points),
        )

    def find_issues(self, evidence: Evidence) -> tuple[Issue, ...]:
        """Return every number in the wrong unit."""
        trainer = None if evidence.dialect is None else evidence.dialect.trainer
        return (
            *self.check_fractions(evidence.config),
            *self.check_clips(evidence.config, trainer),
            *self.check_ranges(evidence.config),
        )

    def check_fractions(self, config: TrainerConfig) -> Iterator[Issue]:
        """Yield percents where a fraction is read."""
        bounds = {
            "top_p": 1.0,
            "min_p": 1.0,
            "entropy_share": 1.0,
            "covariance_share": self.widest_share,
            "clip_low": 1.0,
        }
        for setting, most in {**bounds, "clip_high": self.widest_clip}.items():
            value = getattr(config, setting)
            ours = setting in config.user_settings or (setting == "covariance_share" and value is not None)
            if (
                not ours
                or value is None
                or not most < value <= 100
                or (setting.startswith("clip") and (config.clips is False or _caps(config)))
            ):
                continue
            written = config.user_settings.get(setting, f"the share of {config.covariance}, {value:g}")
            why = (
                f"{value:g} is read as a fraction: at most {most:g} makes sense; as a percentage it means"
                f" {value / 100:g}"
            )
            yield Issue(written, why, serious=True, prescription=set_instead(setting, value / 100))

    def check_clips(self, config: TrainerConfig, trainer: str | None) -> Iterator[Issue]:
        """Yield clips that are written in another unit than the loss reads."""
        if (
            trainer == "trl"
            and _caps(config)
            and config.clip_high is not None
            and config.clip_high < 0
            and "loss" in config.user_settings
        ):
            cap = 1 + config.clip_high
            why = (
                f"with cispo TRL takes epsilon_high as the largest weight itself: every token's is cut to {cap:g};"
                " ScaleRL takes 5"
            )
            yield Issue(
                f"{config.describe('loss')}; epsilon_high={cap:g}",
                why,
                serious=True,
                prescription=set_instead("clip_high", 4.0, "arXiv 2510.13786"),
            )
        wide = config.clip_high is not None and config.clip_high > self.sequence_clip
        if config.sequence_ratio and wide and config.clips and not _caps(config):
            written = config.user_settings.get("sequence_ratio", config.describe("loss"))
            why = (
                f"the ratio of a whole response hardly leaves 1, and is clipped {config.clip_high:g} away from it; GSPO"
                " takes 0.0004"
            )
            changes = (Change("clip_low", 3e-4), Change("clip_high", 4e-4))
            remedy = Prescription(
                "Clip the ratio of responses at GSPO's bounds",
                "Otherwise it is never clipped.",
                changes,
                "",
                "arXiv 2507.18071",
            )
            yield Issue(written, why, serious=False, prescription=remedy)

    def check_ranges(self, config: TrainerConfig) -> Iterator[Issue]:
        """Yield numbers that are impossible and numbers that YAML reads as text."""
        if (
            "temperature" in config.user_settings
            and config.temperature is not None
            and config.temperature >= self.hottest
        ):
            why = f"at a temperature of {config.temperature:g} tokens are sampled nearly at random"
            yield Issue(
                config.describe("temperature"),
                why,
                serious=True,
                prescription=set_instead("temperature", config.temperature / 100),
            )
        if (
            "max_completion_length" in config.user_settings
            and config.max_completion_length is not None
            and config.max_completion_length < self.shortest
        ):
            yield Issue(
                config.describe("max_completion_length"),
                f"a completion of {config.max_completion_length} tokens holds no answer",
                serious=True,
            )
        if config.entropy_target is not None and config.entropy_target > self.most_nats:
            why = (
                f"no token has an entropy of {config.entropy_target:g} nats: the largest vocabularies end at"
                f" {self.most_nats:g}"
            )
            yield Issue(config.describe("entropy_target"), why, serious=True)
        for name, text in config.text_numbers.items():
            why = (
                f"YAML 1.1 reads {text} as text, not as a number; TRL's command line turns it into one, GRPOConfig by"
                " itself does not"
            )
            yield Issue(f"{name}: {text}", f"{why}. Write {yaml_float(text)}", serious=False)


def _caps(config: TrainerConfig) -> bool:
    return config.loss == "cispo"


def set_instead(setting: str, value: float, source: str = "") -> Prescription:
    """Prescribe the value that was meant."""
    tidy = float(f"{value:.6g}")
    return Prescription(
        f"Set {setting.replace('_', ' ')} to {tidy:g}",
        "The trainer reads it in this unit.",
        (Change(setting, tidy),),
        "",
        source,
    )


def yaml_float(text: str) -> str:
    """Return a number as YAML 1.1 needs it: with a dot, and a sign in the exponent."""
    digits, _, exponent = text.lower().partition("e")
    return f"{digits if '.' in digits else digits + '.0'}e{exponent if exponent[0] in '+-' else '+' + exponent}"


FINDING = WrongUnits()
"""The check with its default thresholds."""
