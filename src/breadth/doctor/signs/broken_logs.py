"""What is wrong with a log itself, told under ``unreliable-metric``: metrics that are no numbers, two writers in one file."""

from __future__ import annotations

from breadth.doctor.evidence import Evidence
from breadth.doctor.finding import Finding, Prescription
from breadth.doctor.findings.entropy_collapse import FINDING as COLLAPSE
from breadth.doctor.findings.entropy_explosion import FINDING as EXPLOSION
from breadth.doctor.remedies import go_back, smaller_rate
from breadth.doctor.signs.doubles import two_levels
from breadth.doctor.signs.not_numbers import stretches
from breadth.measure.trends import Trend
from breadth.report.sections import Fact, Severity


def no_number(evidence: Evidence) -> Finding | None:
    """Tell of metrics that are NaN or infinite: a warning where that goes on to the end, a note where it passes.

    A gradient's norm alone is a note at most: an update that overflowed is left out, and the policy goes on.
    """
    found = stretches(evidence)
    if not found:
        return None
    last = [one for one in found if one.to_the_end and one.name != "grad_norm"]
    begin = min(one.first for one in last or found)
    names = ", ".join(evidence.logged(one.name) for one in last or found)
    where = f"from step {begin:,} to the end" if last else f"for a while from step {begin:,} on"
    return Finding(
        "unreliable-metric",
        Severity.WARNING if last else Severity.NOTE,
        "certain",
        "training",
        f"NaN or infinity in the place of {names}, {where}.",
        tuple(
            Fact(
                evidence.logged(one.name),
                f"no number at {one.points:,} points",
                "",
                f"steps {one.first:,} to {one.last:,}",
            )
            for one in found
        ),
        "The same steps, run again from the checkpoint before them, give numbers.",
        (
            "The weights may hold NaN from there on: nothing that was trained since is of use."
            if last
            else "Nothing is known of these steps."
        ),
        (smaller_rate(evidence), *([go_back(begin)] if last else [])),
    )


def interleaved(evidence: Evidence, logged: Trend) -> Finding | None:
    """Tell of a log that two writers share; what entropy seems to do in it is taken back."""
    found = None if evidence.run is None else two_levels(evidence.run, "entropy")
    if found is None:
        return None
    shown = {"entropy-collapse": COLLAPSE.shows(logged), "entropy-explosion": EXPLOSION.shows(logged)}
    return Finding(
        "unreliable-metric",
        Severity.WARNING,
        "strong",
        "training",
        f"{found.steps:,} steps stand twice in this log, with entropies of about {found.low:.2g} and about"
        f" {found.high:.2g}.",
        (Fact("lower values", found.low, "nats", "median"), Fact("higher values", found.high, "nats", "median")),
        "Only one process wrote this log.",
        "Two runs, or two processes that count differently, write into it: what is read from it is a mixture.",
        (
            Prescription(
                "Give every run a log of its own, and let one process write it", "Then each can be judged by itself."
            ),
        ),
        tuple(name for name, shows in shown.items() if shows),
    )
