"""The pictures of the remedies: which arms, and their points by hand."""

from __future__ import annotations

from breadth.lab.experiments.remedies_curves import SHOWN, curves, drawn
from breadth.lab.measuring.looks import Look
from breadth.lab.measuring.measured_arms import MeasuredArm
from breadth.lab.trials.experiment import Done, Trial


def arm(*rights: int) -> MeasuredArm:
    """Looks at steps 2, 4, ... at which so many of eight problems are solved by one reply of one."""
    looks = [
        Look(2 * place + 2, [1] * 8, [[1]] * right + [[0]] * (8 - right), 0, 0, 0, 1, 1, {}, {})
        for place, right in enumerate(rights)
    ]
    return MeasuredArm({0: looks})


def done(name: str, seed: int, planning: list[float | None]) -> Done:
    steps = list(range(1, len(planning) + 1))
    return Done(Trial(f"{name}/seed-{seed}", "m:w"), {"train": {"steps": steps, "planning": planning}}, 1.0)


def test_controls_and_the_best_are_drawn() -> None:
    arms = {"on-policy": arm(1), "plain": arm(1), **{f"arm-{right}": arm(right) for right in range(1, 8)}}
    assert drawn(arms) == ["on-policy", "plain", "arm-7", "arm-6", "arm-5", "arm-4"]
    assert SHOWN == 4


def test_points_by_hand() -> None:
    entropy, score, coverage = curves(
        {"on-policy": arm(2, 6)}, [done("on-policy", 0, [1, 2, 3, 4, 5]), done("on-policy", 1, [3, 4, 5, 6])]
    )
    (line,) = entropy.series
    assert (line.x, line.y) == (
        (1, 2, 3, 4),
        (2, 3, 4, 5),
    )  # of two seeds, as far as both go; blocks of one where there are so few
    for curve in (score, coverage):  # looks of few replies: pass@8 is asked for as many as there are
        (points,) = curve.series
        assert (points.x, points.y) == ((2, 4), (0.25, 0.75))


def test_arms_of_several_updates_are_drawn_against_generations() -> None:
    _, _, coverage = curves({"plain": arm(2, 6)}, [])
    assert coverage.series[0].x == (0.5, 1.0)  # steps 2 and 4 at four updates a generation
