"""Every mechanism of the catalogue can be loaded, is documented, tolerates an empty period.

And is held to the contract.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

import pytest

from breadth.training.catalogue import MECHANISMS
from breadth.training.mechanism import Mechanism, Role, Stage, mechanism_name

TESTS = Path(__file__).parent
SOURCE = TESTS.parent.parent / "src" / "breadth" / "training"

EVERY = pytest.mark.parametrize(("name", "place"), MECHANISMS.entries.items(), ids=str)


def default(name: str) -> Mechanism[Any, Any]:
    """One as it comes, or its example where it has no defaults."""
    kind = MECHANISMS.load(name)
    mechanism: Mechanism[Any, Any] = kind(**kind.example)
    return mechanism


@EVERY
def test_it_lives_in_the_folder_of_its_stage(name: str, place: str) -> None:
    one = default(name)
    assert place.split(".")[2] == one.stage.value
    assert mechanism_name(one) == name
    assert is_dataclass(type(one))
    assert (type(one).__doc__ or "").count("\n") >= 2, "a docstring says what it does, then formula, source and harm"


@EVERY
def test_it_is_held_to_the_contract_in_its_own_test_file(name: str, place: str) -> None:
    stage, file = place.partition(":")[0].split(".")[-2:]
    text = (TESTS / stage / f"test_{file}.py").read_text(encoding="utf-8")
    assert "check_mechanism(" in text
    assert "check_edges(" in text
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
    assert {name for name, kind in kinds.items() if kind.role is Role.SURROGATE} >= {
        "clipped-policy",
        "sequence-ratio",
        "gradient-preserving",
        "cispo",
    }
    assert {name for name, kind in kinds.items() if kind.role is Role.ESTIMATOR} >= {
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
    source = "".join((SOURCE / name).read_text(encoding="utf-8") for name in ("__init__.py", "catalogue.py"))
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
