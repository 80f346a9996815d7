"""The library of shapes: what it recovers, how it is kept, what it refuses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from breadth.base.errors import BrokenFileError, MeasureError, SettingsError
from breadth.inference.stopping.shape_library import MOST_SHAPES, RARE, ShapeLibrary, spread_out


def test_two_kinds_of_questions_are_told_apart_and_the_noise_taken_out() -> None:
    rng = np.random.default_rng(0)
    easy, hard = rng.multinomial(40, (0.95, 0.05), 300), rng.multinomial(40, (0.5, 0.3, 0.2), 100)
    library = ShapeLibrary.fit([*easy.tolist(), *hard.tolist()])
    leaders = np.array([shape[0] for shape in library.shapes])
    weights = np.array(library.weights)
    assert weights[leaders > 0.8].sum() == pytest.approx(0.75, abs=0.02)
    assert weights @ leaders == pytest.approx(0.75 * 0.95 + 0.25 * 0.5, abs=0.02)
    # The shares of 40 votes spread by sqrt(.5 * .5 / 40) = .08 around one half; the fitted ones by much less.
    hard_ones = leaders < 0.8
    spread = np.sqrt(np.average((leaders[hard_ones] - 0.5) ** 2, weights=weights[hard_ones]))
    assert spread < 0.055
    assert library.questions == 400


def test_order_and_zeros_of_counts_do_not_matter() -> None:
    assert ShapeLibrary.fit([[1, 5, 0], [4]]) == ShapeLibrary.fit([[4, 0], [0, 5, 1], [0]])


def test_a_large_library_stays_small() -> None:
    rng = np.random.default_rng(1)
    counts = rng.multinomial(40, rng.dirichlet((3, 1, 1, 0.5, 0.5), 1500))
    library = ShapeLibrary.fit(counts.tolist())
    assert len(library.shapes) <= MOST_SHAPES
    assert sum(library.weights) == pytest.approx(1, abs=1e-5)


def test_it_survives_its_file(tmp_path: Path) -> None:
    library = ShapeLibrary.fit([[38, 2], [20, 15, 5], [40]])
    library.dump(tmp_path / "shapes.toml")
    assert ShapeLibrary.load(tmp_path / "shapes.toml") == library
    (tmp_path / "shapes.toml").write_text("shapes = [[0.2, 0.5]]\nweights = [1.0]\n")
    with pytest.raises(BrokenFileError, match="largest first"):
        ShapeLibrary.load(tmp_path / "shapes.toml")


def test_what_the_shares_lack_goes_to_rare_answers() -> None:
    shares = spread_out((0.7, 0.18))
    assert shares[2:].tolist() == pytest.approx([0.01] * RARE)
    assert spread_out((0.75, 0.25)).tolist() == [0.75, 0.25] + [0.0] * RARE


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"shapes": ((1.0,),), "weights": ()}, "one weight a shape"),
        ({"shapes": ((1.0,),), "weights": (0.0,)}, "above 0"),
        ({"shapes": ((0.7, 0.6),), "weights": (1.0,)}, "sum of at most 1"),
        ({"shapes": ((),), "weights": (1.0,)}, "shares above 0"),
        ({"novelty": (1.0,)}, "10 weights"),
        ({"questions": -1}, "number of questions"),
    ],
)
def test_libraries_that_make_no_sense_are_refused(settings: dict[str, tuple[object, ...]], problem: str) -> None:
    with pytest.raises(SettingsError, match=problem):
        ShapeLibrary(**settings)  # type: ignore[arg-type]


def test_nothing_to_fit_is_refused() -> None:
    with pytest.raises(MeasureError, match="no question"):
        ShapeLibrary.fit([[], [0, 0]])
    assert ShapeLibrary().empty
