"""The pictures of the remedies: entropy of the planning tokens while training, coverage at the looks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from breadth.lab.experiments.arms import ON_POLICY, PLAIN
from breadth.lab.experiments.pairing import ALL_ARMS
from breadth.lab.measuring.measured_arms import MeasuredArm
from breadth.lab.trials.experiment import Done
from breadth.report.sections import Axis, Curve, Series

WIDTH = 10
"""Generations that a point of a training curve averages over."""
SHOWN = 4
"""Arms that are drawn beside the controls; more lines cannot be told apart."""


def curves(arms: dict[str, MeasuredArm], done: Sequence[Done]) -> list[Curve]:
    """Draw the entropy of planning tokens while training and pass@8 at each look: the controls and the arms with the most coverage."""
    shown = {name: arms[name] for name in drawn(arms)}
    lines = [_entropy(name, [one for one in done if one.trial.name.startswith(f"{name}/seed-")]) for name in shown]
    note = f"Means over seeds; the controls and the {SHOWN} arms with the highest coverage at the end."
    entropy = Curve(
        "Entropy of the planning tokens while training",
        [line for line in lines if line.x],
        Axis("generation"),
        Axis("entropy", "nats"),
        note=f"{note} On the problems trained on.",
    )
    scored, covered = ([_passed(name, arm, k) for name, arm in shown.items()] for k in (1, 8))
    return [
        entropy,
        Curve("Score at each look", scored, Axis("generation"), Axis("pass@1"), note=f"{note} On problems held out."),
        Curve(
            "Coverage at each look", covered, Axis("generation"), Axis("pass@8"), note=f"{note} On problems held out."
        ),
    ]


def drawn(arms: dict[str, MeasuredArm]) -> list[str]:
    """Choose the arms to draw."""
    others = [name for name in arms if name not in (ON_POLICY, PLAIN)]
    others.sort(key=lambda name: -arms[name].over_seeds(lambda look: look.passed(look.samples)).value)
    return [name for name in (ON_POLICY, PLAIN, *others[:SHOWN]) if name in arms]


def _entropy(name: str, done: Sequence[Done]) -> Series:
    """Average the seeds, each over blocks of generations."""
    found = [one.result["train"] for one in done]
    length = min((len(one["steps"]) for one in found), default=0)
    if not length:
        return Series(name, (), ())
    table = np.array(
        [[np.nan if value is None else value for value in one["planning"][:length]] for one in found]
    ).mean(0)
    width = min(WIDTH, max(1, length // 4))
    ends = range(width, length + 1, width)
    return Series(
        name,
        [found[0]["steps"][end - 1] / ALL_ARMS[name].updates for end in ends],
        [float(table[end - width : end].mean()) for end in ends],
    )


def _passed(name: str, arm: MeasuredArm, k: int) -> Series:
    """Average pass@k at each step at which every seed was looked at."""
    by_seed = [
        {look.step: float(np.mean(look.passed(min(k, look.samples)))) for look in looks} for looks in arm.looks.values()
    ]
    steps = sorted(set.intersection(*(set(one) for one in by_seed)))
    return Series(
        name,
        [step / ALL_ARMS[name].updates for step in steps],
        [float(np.mean([one[step] for one in by_seed])) for step in steps],
    )
