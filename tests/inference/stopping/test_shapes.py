"""The rule over a library of shapes: samples on the paper's synthetic question, and its fallbacks."""

from __future__ import annotations

import numpy as np
import pytest

from breadth.base.errors import SettingsError
from breadth.inference.stopping.beta_lead import BetaLead
from breadth.inference.stopping.paths import Paths
from breadth.inference.stopping.shape_library import ShapeLibrary
from breadth.inference.stopping.shapes import Shapes
from breadth.inference.voting import Standing

SHARES = (0.5, 0.2, 0.1, 0.1, 0.05, 0.03, 0.01, 0.01)
LIBRARY = ShapeLibrary((SHARES,), (1.0,))


def test_the_samples_of_the_paper() -> None:
    # arXiv 2602.05395: 18.07 samples at delta = .01 with the shape known; the predicted rate is 16.75.
    votes = np.random.default_rng(0).choice(len(SHARES), size=(4000, 90), p=SHARES).astype(np.int32)
    paths = Paths(votes)
    along = Shapes(0.01, LIBRARY).decided_along(paths)
    taken = along.argmax(axis=1) + 1
    assert along.any(axis=1).mean() > 0.999
    assert taken.mean() == pytest.approx(18.07, abs=0.5)
    winners = np.array([np.bincount(row[:end]).argmax() for row, end in zip(votes, taken, strict=True)])
    assert np.mean(winners != 0) <= 0.01


def test_at_a_stop_the_chance_is_what_was_asked() -> None:
    rule = Shapes(0.05, LIBRARY)
    assert rule.posterior(Standing((3,), (0, 0, 0))) == pytest.approx(0.92487, abs=5e-6)
    assert not rule.decided(Standing((3,), (0, 0, 0)))
    assert rule.decided(Standing((5, 1), (0,) * 6))
    assert "1 past questions" in rule.basis


def test_without_a_library_or_beyond_it_it_is_the_beta_rule() -> None:
    standing = Standing((4, 1, 1), (0,) * 6)
    assert Shapes().posterior(standing) == BetaLead().posterior(standing)
    assert "no library" in Shapes().basis
    two = Shapes(0.05, ShapeLibrary(((0.6, 0.4),), (1.0,)))
    assert two.posterior(standing) == BetaLead().posterior(standing)


def test_an_impossible_delta_is_refused() -> None:
    with pytest.raises(SettingsError, match="delta"):
        Shapes(0.0)
