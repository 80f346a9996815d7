"""Every mechanism of the catalogue can be loaded, is documented, tolerates an empty period.

And is held to the contract.
"""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

from breadth.base.errors import SettingsError
from breadth.training.catalogue import MECHANISMS
from breadth.training.mechanism import Mechanism, Role, Stage, mechanism_name

TESTS = Path(__file__).parent
SOURCE = TESTS.parent.parent / "src" / "breadth" / "training"

EVERY = pytest.mark.parametrize(("name", "place"), MECHANISMS.entries.items(), ids=str)

INF = math.inf
SETTINGS: dict[str, tuple[dict[str, Any], list[dict[str, Any]], list[dict[str, Any]]]] = {
    "group-advantage": (
        {"scale": "sample", "epsilon": 1e-6},
        [{"epsilon": 0.0}],
        [{"epsilon": -1e-9}, {"scale": "mean"}],
    ),
    "leave-one-out": ({}, [], []),
    "pass-at-k": (
        {"k": 4, "form": "normalised", "epsilon": 1e-6, "baseline": True},
        [{"k": 1}, {"epsilon": 1e-12}],
        [{"k": 0}, {"epsilon": 0.0}, {"form": "other"}],
    ),
    "maxrl": ({"all_fail": "control"}, [{"all_fail": "zero"}], [{"all_fail": "one"}]),
    "brier-reward": ({"form": "paper"}, [{"form": "code"}], [{"form": "other"}]),
    "outcome-bonus": (
        {"coefficient": 0.1, "baseline": "constant", "constant": 0.5},
        [{"coefficient": 0.0}, {"constant": 0.0}, {"constant": 1.0}, {"baseline": "none"}, {"baseline": "mean"}],
        [{"coefficient": -0.1}, {"constant": -0.1}, {"constant": 1.1}, {"baseline": "other"}],
    ),
    "repeat-penalty": ({"coefficient": 0.1}, [{"coefficient": 0.0}], [{"coefficient": -0.1}]),
    "planning-credit": (
        {"alpha": 0.2, "form": "paper"},
        [{"alpha": 0.0}, {"alpha": 0.99}],
        [{"alpha": 1.0}, {"alpha": -0.1}, {"form": "other"}],
    ),
    "flat-filter": ({"on": "correct"}, [{"on": "reward"}, {"on": "advantage"}], [{"on": "other"}]),
    "degenerate-guard": ({"settle": 5}, [{"settle": 1}], [{"settle": 0}]),
    "rare-success-cap": ({"cap": 2.0, "size": 8}, [{"cap": 0.0}, {"size": 2}], [{"cap": -0.1}, {"size": 1}]),
    "length-guard": (
        {"floor": 0.5, "act": "mute", "settle": 5, "smoothing": 0.1},
        [{"floor": 0.0}, {"floor": 0.99}, {"settle": 1}, {"smoothing": 1.0}, {"smoothing": 0.01}],
        [{"floor": -0.1}, {"floor": 1.0}, {"settle": 0}, {"smoothing": 0.0}, {"smoothing": 1.1}, {"act": "other"}],
    ),
    "clipped-policy": (
        {"low": 0.2, "high": 0.2, "dual": None},
        [{"low": 0.0}, {"low": 1.0}, {"high": 0.0}, {"high": INF}, {"dual": 1.01}],
        [{"low": -0.1}, {"low": 1.1}, {"high": -0.1}, {"dual": 1.0}],
    ),
    "sequence-ratio": (
        {"low": 3e-4, "high": 4e-4},
        [{"low": 0.0}, {"low": 1.0}, {"high": 0.0}],
        [{"low": -0.1}, {"low": 1.1}, {"high": -0.1}],
    ),
    "gradient-preserving": (
        {"low": 0.2, "high": 0.28, "below": 1.0, "above": 1.0, "dual": None},
        [{"low": 0.0}, {"low": 1.0}, {"high": 0.0}, {"below": 0.0}, {"above": 0.0}, {"dual": 1.01}],
        [{"low": -0.1}, {"low": 1.1}, {"high": -0.1}, {"below": -0.1}, {"above": -0.1}, {"dual": 1.0}],
    ),
    "cispo": (
        {"bounds": "around-one", "low": 1.0, "high": 0.28, "cap": 5.0},
        [{"low": 0.0}, {"high": 0.0}, {"cap": 1.0}, {"bounds": "cap"}],
        [{"low": -0.1}, {"low": 1.1}, {"high": -0.1}, {"cap": 0.9}, {"bounds": "other"}],
    ),
    "clip-cov": (
        {"share": 2e-4, "lower": 1.0, "upper": 5.0},
        [{"share": 0.0}, {"share": 1.0}, {"lower": 4.9}],
        [{"share": -0.1}, {"share": 1.1}, {"lower": 5.0}],
    ),
    "kl-cov": (
        {"share": 2e-3, "coefficient": 1.0, "divergence": "sampled"},
        [{"share": 0.0}, {"share": 1.0}, {"coefficient": 0.0}, {"divergence": "full"}],
        [{"share": -0.1}, {"share": 1.1}, {"coefficient": -0.1}, {"divergence": "other"}],
    ),
    "forking-tokens": ({"share": 0.2}, [{"share": 1e-9}, {"share": 1.0}], [{"share": 0.0}, {"share": 1.1}]),
    "entropy-bonus": (
        {"coefficient": 0.001},
        [{"coefficient": 0.0}],
        [{"coefficient": -0.1}, {"coefficient": INF}],
    ),
    "entropy-target": (
        {
            "target": 0.2,
            "target_share": None,
            "increment": 1e-4,
            "smallest": 0.0,
            "largest": 0.005,
            "reads": "sampled",
            "settle": 5,
        },
        [{"target": 0.0}, {"increment": 0.0}, {"target_share": 0.1}, {"smallest": 0.005}, {"settle": 1}],
        [
            {"target": -0.1},
            {"target": INF},
            {"increment": -0.1},
            {"increment": INF},
            {"target_share": 0.0},
            {"target_share": INF},
            {"smallest": -0.1},
            {"smallest": 0.006},
            {"largest": INF},
            {"settle": 0},
            {"reads": "other"},
        ],
    ),
    "entropy-pi": (
        {"proportional": 1.0, "integral": 0.01, "target": None, "threshold": 0.95, "reads": "exact", "settle": 5},
        [{"proportional": 0.0}, {"integral": 0.0}, {"target": 0.0}, {"threshold": 0.01}, {"settle": 1}],
        [
            {"proportional": -0.1},
            {"proportional": INF},
            {"integral": -0.1},
            {"integral": INF},
            {"target": -0.1},
            {"target": INF},
            {"threshold": 0.0},
            {"threshold": 1.0},
            {"settle": 0},
            {"reads": "other"},
        ],
    ),
    "entropy-advantage": (
        {"scale": 0.4, "cap": 2.0},
        [{"scale": 0.0}, {"cap": 1.01}],
        [{"scale": -0.1}, {"scale": INF}, {"cap": 1.0}],
    ),
    "repo": (
        {"scale": 0.1, "smallest": 0.0125, "largest": 0.8, "reads": "sampled", "settle": 5},
        [{"scale": 0.0, "smallest": 0.0}, {"smallest": 0.1}, {"largest": 0.1}, {"settle": 1}],
        [
            {"scale": -0.1},
            {"scale": INF},
            {"smallest": -0.1},
            {"smallest": 0.2},
            {"largest": 0.09},
            {"largest": INF},
            {"settle": 0},
            {"reads": "other"},
        ],
    ),
    "reference-kl": (
        {"coefficient": 0.001, "estimator": "k3+", "tokens": "all"},
        [{"coefficient": 0.0}, {"estimator": "k1"}, {"estimator": "k2"}, {"estimator": "k3"}, {"tokens": "planning"}],
        [{"coefficient": -0.1}, {"estimator": "k4"}, {"tokens": "other"}],
    ),
    "fork-thermostat": (
        {
            "share": 0.2,
            "forks": "entropy",
            "floor": 0.7,
            "ceiling": 1.5,
            "settle": 5,
            "proportional": 0.05,
            "integral": 0.01,
            "limit": 0.2,
            "dry_run": False,
        },
        [{"share": 1.0}, {"floor": 0.0}, {"settle": 1}, {"proportional": 0.0}, {"integral": 0.0}, {"limit": 0.0}],
        [
            {"share": 0.0},
            {"share": 1.1},
            {"floor": -0.1},
            {"floor": 1.5},
            {"settle": 0},
            {"proportional": -0.1},
            {"integral": -0.1},
            {"limit": -0.1},
            {"forks": "other"},
        ],
    ),
    "difficulty": (
        {"pilot": 16, "low": 0.125, "high": 0.75, "retry": 100, "review": 0.02},
        [{"pilot": 1}, {"low": 0.0}, {"low": 0.75}, {"high": 1.0}, {"retry": 1}, {"review": 0.0}, {"review": 1.0}],
        [
            {"pilot": 0},
            {"low": -0.1},
            {"low": 0.76},
            {"high": 1.1},
            {"retry": 0},
            {"review": -0.1},
            {"review": 1.1},
        ],
    ),
    "temperature": (
        {"shape": "linear"},
        [{"shape": "cosine"}, {"over": 1}],
        [{"over": 0}, {"shape": "other"}],
    ),
}
"""Name -> the published defaults, settings at the edge that are accepted, and settings just beyond that are refused."""


def default(name: str, **changes: Any) -> Mechanism[Any, Any]:
    """One as it comes; what has no default gets 1."""
    kind = MECHANISMS.load(name)
    missing = [spec.name for spec in fields(kind) if spec.default is MISSING and spec.default_factory is MISSING]
    mechanism: Mechanism[Any, Any] = kind(**{**dict.fromkeys(missing, 1), **changes})
    return mechanism


@EVERY
def test_it_lives_in_the_folder_of_its_stage(name: str, place: str) -> None:
    one = default(name)
    assert place.split(".")[2] == one.stage.value
    assert mechanism_name(one) == name
    assert is_dataclass(type(one))
    assert (type(one).__doc__ or "").count("\n") >= 2, "a docstring says what it does, then formula, source and harm"


@EVERY
def test_the_defaults_are_the_documented_ones(name: str, place: str) -> None:
    defaults, _, _ = SETTINGS[name]
    assert {field: getattr(default(name), field) for field in defaults} == defaults


@EVERY
def test_settings_are_accepted_up_to_the_edge_and_refused_beyond(name: str, place: str) -> None:
    _, accepted, refused = SETTINGS[name]
    for values in accepted:
        changed = default(name, **values)
        assert {field: getattr(changed, field) for field in values} == values
    for values in refused:
        with pytest.raises(SettingsError, match=next(iter(values))):
            default(name, **values)


@EVERY
def test_it_is_held_to_the_contract_in_its_own_test_file(name: str, place: str) -> None:
    stage, file = place.partition(":")[0].split(".")[-2:]
    text = (TESTS / stage / f"test_{file}.py").read_text(encoding="utf-8")
    assert "check_mechanism(" in text
    assert place.partition(":")[2] in text


@EVERY
def test_a_period_without_stats_leaves_the_state_alone(name: str, place: str) -> None:
    one = default(name)
    state = one.init()
    assert one.update(state, {}) == state


def test_every_mechanism_file_is_in_the_catalogue() -> None:
    modules = {place.partition(":")[0] for place in MECHANISMS.entries.values()}
    for stage in Stage:
        for file in (SOURCE / stage.value).glob("*.py"):
            if "(Mechanism[" in file.read_text(encoding="utf-8"):
                assert f"breadth.training.{stage.value}.{file.stem}" in modules


def test_roles_are_taken_by_those_that_can_stand_alone() -> None:
    kinds = dict(MECHANISMS)
    assert {name for name, kind in kinds.items() if kind.role is Role.SURROGATE} == {
        "clipped-policy",
        "sequence-ratio",
        "gradient-preserving",
        "cispo",
    }
    assert {name for name, kind in kinds.items() if kind.role is Role.ESTIMATOR} == {
        "group-advantage",
        "leave-one-out",
        "pass-at-k",
        "maxrl",
    }
    for name, kind in kinds.items():
        for other in (kind.precedes, kind.follows):
            assert other is None or (other is Role.SURROGATE) == (kind.stage is Stage.LOSS), name


def test_every_mechanism_has_a_short_import() -> None:
    import breadth.training

    for name, place in MECHANISMS.entries.items():
        assert getattr(breadth.training, place.partition(":")[2]) is MECHANISMS.load(name)
    for name in breadth.training.__all__:
        assert getattr(breadth.training, name) is not None
    source = Path(breadth.training.__file__).read_text(encoding="utf-8")
    assert all(f" import {name} as {name}" in source for name in breadth.training.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        breadth.training.Nothing  # noqa: B018


def test_importing_the_package_does_not_load_torch() -> None:
    script = (
        "import sys, breadth.training; print('torch' in sys.modules); breadth.training.KLCov; print('torch' in"
        " sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]
