"""Which loops a piece of evidence can tell of: a check of another one was not made, and must not be listed as clear."""

from __future__ import annotations

from breadth.bridge.doctor.evidence import Evidence
from breadth.bridge.doctor.finding import Loop
from breadth.bridge.doctor.signs.inference_runs import of_inference
from breadth.bridge.doctor.signs.scores import is_training


def loops_of(evidence: Evidence) -> frozenset[Loop]:
    """Return the loops whose checks mean something here."""
    found: set[Loop] = set()
    if is_training(evidence) or evidence.data:
        found.add("training")
    if of_inference(evidence) or evidence.policy is not None or evidence.server is not None:
        found |= {"inference", "both"}
    if evidence.knobs.theirs or evidence.policy is not None or evidence.server is not None:
        found.add("configuration")
    return frozenset(found)
