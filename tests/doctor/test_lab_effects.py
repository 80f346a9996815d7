"""Remedies are ordered by what the lab measured, and the table holds what the committed data say."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from breadth.doctor import prescriptions
from breadth.doctor.evidence.record import Evidence
from breadth.doctor.finding import Finding, Prescription
from breadth.doctor.findings.entropy_collapse import FINDING as COLLAPSE
from breadth.doctor.lab_effects import LAB_EFFECTS, LabEffect, LabRank, describe_lab_effect
from breadth.doctor.trainer_config import TrainerConfig
from breadth.measure.intervals import Interval

ROOT = Path(__file__).parents[2]
T = np.linspace(0, 1, 100)


def generated_effects() -> dict[str, dict[str, Any]]:
    script = ROOT / "tools" / "write_lab_effects.py"
    if not script.is_file():
        pytest.skip("tools/ is not part of this installation")
    spec = importlib.util.spec_from_file_location("write_lab_effects", script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    effects: dict[str, dict[str, Any]] = module.lab_effects()
    return effects


def test_the_table_is_what_the_committed_data_say() -> None:
    generated = generated_effects()
    assert list(LAB_EFFECTS) == list(generated)
    for name, effect in LAB_EFFECTS.items():
        assert effect.setting == generated[name]["setting"]
        for key in ("pass_at_1", "pass_at_64"):
            found = getattr(effect, key)
            assert (found.value, found.low, found.high) == generated[name][key]


def test_the_labs_own_verdict_names_the_same_remedies() -> None:
    page = json.loads((ROOT / "docs/data/lab/remedies.json").read_text(encoding="utf-8"))["page"]
    headline = page["sections"][0]["headline"]
    keeping = {name for name, effect in LAB_EFFECTS.items() if effect.rank is LabRank.KEEPS_BREADTH}
    assert keeping == set(headline.rpartition(": ")[2].rstrip(".").split(", ")) - {"pair"}


def effect(first: tuple[float, float], wide: tuple[float, float]) -> LabEffect:
    return LabEffect("x", *(Interval(sum(ends) / 2, *ends) for ends in (first, wide)))


@pytest.mark.parametrize(
    ("first", "wide", "rank"),
    [
        ((-0.1, 0.1), (0.1, 0.2), LabRank.KEEPS_BREADTH),
        ((-0.1, 0.1), (-0.1, 0.2), LabRank.NOTHING_SHOWN),
        ((-0.2, -0.1), (0.1, 0.2), LabRank.COSTS_SCORE),
        ((-0.1, 0.1), (-0.2, -0.1), LabRank.COSTS_SCORE),
    ],
)
def test_a_gain_of_breadth_counts_only_where_the_score_is_kept(
    first: tuple[float, float], wide: tuple[float, float], rank: LabRank
) -> None:
    assert effect(first, wide).rank is rank


def test_remedies_are_ordered_by_what_the_lab_found() -> None:
    keeps, costs, shows_nothing = "anchor", "entropy-target", "kl-cov"
    given = [Prescription(name, "", effect=name) for name in (costs, shows_nothing, "", keeps)]
    assert [remedy.effect for remedy in prescriptions.sort_by_lab_effect([None, *given])] == [
        keeps,
        "",
        shows_nothing,
        costs,
    ]


def test_a_collapse_is_answered_by_what_kept_breadth_first(make: Any, around: Any) -> None:
    config = TrainerConfig(updates=4, clip_high=0.2, kl=0.0)
    found = COLLAPSE.check(make(entropy=around(0.8 * 0.03**T, 0.005), reward=around(0.5 + 0 * T, 0.01), config=config))
    assert isinstance(found, Finding)
    effects = [remedy.effect for remedy in found.prescriptions if remedy.effect]
    assert effects[0] == "anchor"
    assert effects == sorted(effects, key=lambda name: LAB_EFFECTS[name].rank)
    assert found.prescriptions[-1].action.startswith("Resume from the last checkpoint")


def test_measured_remedies_say_what_was_found_and_others_nothing() -> None:
    anchor = prescriptions.add_kl_penalty(Evidence("run"))
    assert anchor is not None
    assert "pass@64 +0.17" in describe_lab_effect(anchor.effect)
    assert describe_lab_effect(anchor.effect).endswith("against plain GRPO, at a coefficient of 0.15.")
    assert describe_lab_effect(prescriptions.train_for_pass_at_k().effect) == ""
    for name in ("raise_upper_clip", "add_kl_cov"):
        assert getattr(prescriptions, name)(Evidence("run")).effect in LAB_EFFECTS
    for remedy in (prescriptions.hold_entropy(1.0), prescriptions.hold_fork_entropy(), prescriptions.train_on_forks()):
        assert remedy.effect in LAB_EFFECTS
