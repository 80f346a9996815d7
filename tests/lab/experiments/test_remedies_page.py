"""The page of the remedies, from looks made by hand."""

from __future__ import annotations

import pytest

from breadth.lab.experiments.remedies import Remedies
from breadth.lab.measuring.looks import Look
from breadth.lab.trials.coursework import Looks
from breadth.lab.trials.experiment import Bench, Done, Trial
from breadth.measure.intervals import Interval
from breadth.report.jsonable import render_json
from breadth.report.sections import Curve, Severity, Table, Verdict

EXPERIMENT = Remedies(looks=Looks(problems=4, samples=8))
TRAIN = {"steps": [1, 2, 3, 4], "planning": [1.0, 0.8, 0.6, 0.4], "passed": [0.1, 0.2, 0.3, 0.4]}


def look(rights: list[int], step: int = 4) -> dict[str, object]:
    """Eight replies a problem, so many of them right (the answer 1), the others all different."""
    answers = [[1] * right + list(range(2, 10 - right)) for right in rights]
    return Look(step, [1] * len(rights), answers, 0.5, 0.6, 0.2, 1.0, 20.0, {"infix": 1.0}, {"add": 1.0}).to_row()


def done(arm: str, seed: int, rights: list[int]) -> Done:
    return Done(Trial(f"{arm}/seed-{seed}", "m:w"), {"looks": [look(rights, 2), look(rights)], "train": TRAIN}, 1.0)


BASE = Done(Trial("base", "m:w"), {"looks": [look([1, 1, 1, 1], 0)]}, 1.0)
WIDE = [done("thermostat", seed, [4, 4, 4, 1 + seed % 2]) for seed in range(4)]
NARROW = [done("on-policy", seed, [8, 4, seed % 2, 0]) for seed in range(4)]


def cells(table: Table, row: str) -> dict[str, object]:
    (found,) = [one for one in table.rows if one[0] == row]
    return dict(zip((column.name for column in table.columns), found, strict=True))


def test_numbers_and_places_by_hand() -> None:
    page = EXPERIMENT.page([BASE, *WIDE, *NARROW], Bench(4, weights="abc"))
    verdict, scores, gains, entropies, *pictures = page.sections
    assert isinstance(scores, Table)
    assert isinstance(gains, Table)
    assert isinstance(entropies, Table)
    # pass@8 is 1 on all four problems with the thermostat; plain solves two, and a third at odd seeds: 0.5 and 0.75,
    # mean 0.625.
    found = cells(scores, "on-policy")
    assert isinstance(found["pass@8"], Interval)
    assert found["pass@8"].value == pytest.approx(0.625)
    # Standard deviation of 0.5, 0.75, 0.5, 0.75 is 0.144338, error 0.0721688, t(3, 0.975) = 3.182446: reach 0.229673.
    assert found["pass@8"].low == pytest.approx(0.395327, abs=1e-5)
    assert cells(scores, "base")["pass@1"] == pytest.approx(0.125)
    assert cells(scores, "thermostat")["place by pass@8"] == "1"
    assert found["place by pass@8"] == "2"
    gain = cells(gains, "thermostat")
    assert gain["against"] == "on-policy"
    assert isinstance(gain["pass@8, seeds"], Interval)
    assert gain["pass@8, seeds"].value == pytest.approx(0.375)
    assert gain["pass@8, seeds"].low > 0
    assert isinstance(verdict, Verdict)
    assert verdict.severity is Severity.GOOD
    assert "thermostat" in verdict.headline
    assert all(isinstance(picture, Curve) for picture in pictures)
    assert render_json(page)


def test_an_arm_that_pays_with_its_score_is_not_praised() -> None:
    # pass@8 of 1 against 0.5 or 0.75, but pass@1 of an eighth against half and more.
    poor = [done("thermostat", seed, [1, 1, 1, 1]) for seed in range(4)]
    rich = [done("on-policy", seed, [8, 8, 4 + seed % 2, 0]) for seed in range(4)]
    (verdict, *_) = EXPERIMENT.page([BASE, *poor, *rich], Bench(4)).sections
    assert isinstance(verdict, Verdict)
    assert verdict.severity is Severity.NOTE


def test_one_seed_proves_nothing() -> None:
    (verdict, *_) = EXPERIMENT.page([BASE, WIDE[0], NARROW[0]], Bench(1)).sections
    assert isinstance(verdict, Verdict)
    assert verdict.severity is Severity.CANNOT_TELL


def test_an_unfinished_experiment_has_a_page_too() -> None:
    page = EXPERIMENT.page([WIDE[0], NARROW[1]], Bench(2))  # no base, no common seed
    assert render_json(page)
