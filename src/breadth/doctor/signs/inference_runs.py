"""Which runs are of the inference loop, and how sure a finding about them must be; light, for every diagnosis asks."""

from __future__ import annotations

from collections.abc import Mapping

from breadth.doctor.evidence import Evidence
from breadth.runs.reader import Run

ALARM = 0.005
"""Chance of an alarm that one check may take where nothing is wrong: ten checks look at a sweep, and all of them together may alarm one
healthy sweep in twenty."""
MARGIN = 0.05
"""Difference of scores below which two policies are as good as each other: what `breadth tune` accepts to lose for
fewer tokens.
"""
PAIR = 2
"""Width of a vote that is never looked at: two that differ are a tie, so that it scores as one draw does, for twice the
tokens.
"""
TUNE = "breadth tune URL --tasks FILE --out FOLDER"
"""What measures what a run folder does not hold."""


def of_inference(evidence: Evidence) -> bool:
    """Say whether a run is a sweep or was recorded by `solve`; a bare configuration and a training run are not."""
    return evidence.run is not None and (is_sweep(evidence.run) or is_recorded(evidence.run))


def is_sweep(run: Run) -> bool:
    """Say whether a run folder is one of `breadth tune`, whole or not."""
    return "plan" in run.header.config and not _imported(run)


def is_recorded(run: Run) -> bool:
    """Say whether a run folder was recorded while answering under a policy; trainers have a section ``policy`` without a strategy."""
    policy = run.header.config.get("policy")
    return isinstance(policy, Mapping) and "strategy" in policy and not is_sweep(run) and not _imported(run)


def _imported(run: Run) -> bool:
    return bool(run.header.trainer or run.header.files)
