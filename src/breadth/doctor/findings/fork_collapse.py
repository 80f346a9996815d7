"""``fork-collapse``: the entropy is gone where the policy decides between routes, however much is left elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from breadth.doctor import prescriptions
from breadth.doctor.evidence.record import Evidence
from breadth.doctor.evidence.rollouts import Ends, asked_ends, lacks_rollouts, token_switch, trained_ends, trains
from breadth.doctor.finding import CannotTell, Finding, Loop, Outcome
from breadth.report.sections import Fact, Severity

if TYPE_CHECKING:
    from breadth.doctor.signs.forks import Forks

NAME = "fork-collapse"


@dataclass(frozen=True)
class ForkCollapse:
    """The tokens of most entropy, at which routes part, have lost it.

    Forks are the fifth of the tokens with the most entropy (arXiv 2506.01939), told in each window by its own rank: by
    an edge in nats from the start, most of them would be gone when all entropies halve, and look like a collapse of
    forks. Where texts have grown longer, as many forks a text are compared as at the start, so that mechanical tokens
    cannot dilute them. The share of tokens that are still as open as a fork was at the start, by that one edge, stands
    beside it for the reader and decides nothing.

    A fall at forks that is surely deeper than elsewhere is a collapse of forks, which the mean entropy hides. Where
    everything falls alike it is a note about where the loss sits, and ``entropy-collapse`` judges it. Misleads when the
    last steps ask easier problems.
    """

    loop: ClassVar[Loop] = "training"
    causes: ClassVar[tuple[str, ...]] = ("entropy-collapse", "narrow-data-format", "train-inference-mismatch")

    forks: float = 0.2
    """Share of the tokens that fork: the paper's."""
    floor: float = 0.7
    """Share of the start below which, for sure, forks have lost enough to speak of: where the band of our own
    thermostat begins.
    """
    low: float = 0.25
    """Share below which it is a warning: with 73 % of the entropy used, the runs of arXiv 2505.22617 had 76 %
    of all they were ever to gain."""
    spent: float = 0.1
    """Share below which it is critical: with 93 % used they had 94 %."""

    def check(self, evidence: Evidence) -> Outcome:
        """Compare the entropy of forks and of other tokens with the start."""
        if evidence.run is None or not trains(evidence):
            return None
        kind = evidence.run.header.entropies.get("entropy")
        if "entropy" not in evidence.run.columns:
            return CannotTell(NAME, "the entropy of each token is not recorded", token_switch(evidence))
        if kind is not None and kind.estimator == "sampled":
            return CannotTell(
                NAME,
                "what is recorded as entropy is minus the log-probability of the drawn token",
                token_switch(evidence),
            )
        windows = [ends for ends in (trained_ends(evidence), asked_ends(evidence)) if ends is not None]
        if not windows:
            return lacks_rollouts(evidence, NAME)
        from breadth.doctor.signs.forks import Forks, measured_forks

        for ends in windows:
            found = measured_forks(evidence.run, ends, self.forks)
            if isinstance(found, Forks):
                return self._finding(evidence, ends, found) if found.left.high < self.floor else None
        return CannotTell(NAME, str(found), token_switch(evidence))

    def _finding(self, evidence: Evidence, ends: Ends, found: Forks) -> Finding:
        deeper = found.against_rest.high < 1
        kind = None if evidence.run is None else evidence.run.header.entropies.get("entropy")
        rest = f"{found.rest.value:.0%}"
        beside = f", while the others kept {rest}" if deeper else f", and that of the others to {rest}"
        return Finding(
            NAME,
            self._severity(found) if deeper else Severity.NOTE,
            "strong" if kind is not None and kind.estimator == "exact" else "likely",
            "training",
            f"The entropy of the forking tokens has fallen to {found.left.value:.0%} of its start{beside}.",
            _facts(ends, found),
            "On the problems of the first steps the same policy is as unsure at its forks as it was then.",
            f"{found.lost:.0%} of the entropy that was lost was lost at forks.",
            (
                prescriptions.hold_forks(),
                *(
                    one
                    for one in (prescriptions.anchor(evidence), prescriptions.clip_higher(evidence))
                    if one is not None
                ),
                prescriptions.train_on_forks(),
            ),
        )

    def _severity(self, found: Forks) -> Severity:
        if found.left.high < self.spent:
            return Severity.CRITICAL
        return Severity.WARNING if found.left.high < self.low else Severity.NOTE


def _facts(ends: Ends, found: Forks) -> tuple[Fact, ...]:
    return (
        Fact(
            "entropy of forks, of the start",
            found.left,
            "%",
            f"entropy of each token, {ends.where}, {found.tokens:,} tokens",
        ),
        Fact("entropy of other tokens, of the start", found.rest, "%"),
        Fact("tokens as open as a fork at the start, then", found.open_then, "%"),
        Fact("now", found.open, "%"),
        Fact("of the loss at forks", found.lost, "%"),
    )


FINDING = ForkCollapse()
"""As the doctor asks it."""
