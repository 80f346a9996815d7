"""Confidence: no log-probs, no gate; a gate that opens only on evidence, and a vote by confidence only on a shown gain."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from breadth.inference.strategies.confidence_vote import ConfidenceVote
from breadth.tuning.confidence import fit_confidence
from breadth.tuning.evidence import Evidence

Made = Callable[..., Evidence]


def drawn(
    surer: float, right: float, questions: int = 60, seed: int = 0
) -> tuple[list[list[int]], np.ndarray[tuple[int, ...], np.dtype[np.float64]]]:
    rng = np.random.default_rng(seed)
    classes = (rng.random((questions, 8)) >= right).astype(int)
    return classes.tolist(), 10 + rng.normal(size=classes.shape) + surer * (classes == 0)


def test_without_log_probs_there_is_nothing_to_say(made: Made) -> None:
    assert fit_confidence(made([[0, 1]] * 20), 2) is None


def test_a_confidence_that_tells_nothing_leaves_the_gate_shut(made: Made) -> None:
    classes, sure = drawn(0.0, 0.5)
    fit = fit_confidence(made(classes, confidences=sure), 8)
    assert fit is not None
    assert not fit.gate.open
    assert fit.strategy is None
    assert fit.change is None


def test_a_confidence_that_tells_right_from_wrong_is_used_where_it_gains(made: Made) -> None:
    classes, sure = drawn(6.0, 0.4)
    fit = fit_confidence(made(classes, confidences=sure), 4)
    assert fit is not None
    assert fit.gate.open
    assert fit.gate.evidence == "labelled"
    assert fit.change is not None
    assert fit.change.difference.low > 0
    assert fit.strategy == ConfidenceVote(4, gate=fit.gate)


def test_an_open_gate_without_a_gain_keeps_the_plain_vote(made: Made) -> None:
    classes, sure = drawn(3.0, 0.97)
    fit = fit_confidence(made(classes, confidences=sure, labelled=False), 8)
    assert fit is not None
    assert fit.gate.open
    assert fit.gate.evidence == "self-consistent"
    assert fit.strategy is None


def test_a_single_draw_has_no_vote_to_weigh(made: Made) -> None:
    classes, sure = drawn(6.0, 0.4)
    fit = fit_confidence(made(classes, confidences=sure), 1)
    assert fit is not None
    assert fit.gate.open
    assert fit.strategy is None
