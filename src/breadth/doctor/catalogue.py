"""Every finding the doctor knows, by name, in the order it looks for them."""

from __future__ import annotations

from breadth.base.catalogue import Catalogue

_HERE = "breadth.doctor.findings"
_TRAINING = (
    "unreliable-metric",
    "entropy-collapse",
    "entropy-explosion",
    "fork-collapse",
    "train-inference-mismatch",
    "truncation",
    "overly-hard",
    "zero-variance-groups",
    "length-collapse",
    "degenerate-rollouts",
    "format-collapse",
    "narrow-data-format",
    "overconfidence",
    "drift",
    "reward-hacking",
    "diversity-transfer",
    "saturation",
)
INFERENCE = (
    "over-thinking",
    "oscillation",
    "over-sampling",
    "under-sampling",
    "vote-without-diversity",
    "useless-confidence",
    "max-tokens-ignored",
    "repetition-loops",
    "processed-logprobs",
    "bottleneck",
)
"""What can be found in the inference loop alone, or in both loops at once."""
_CONFIGURATION = (
    "no-op-settings",
    "contradictory-settings",
    "wrong-units",
)

FINDINGS = Catalogue(
    "findings",
    {name: f"{_HERE}.{name.replace('-', '_')}:FINDING" for name in (*_TRAINING, *INFERENCE, *_CONFIGURATION)},
)
"""Name -> the check; a package adds its own through the entry-point group ``breadth.findings``."""
