"""Every strategy, stop rule, allocator and halt rule has a short import; importing the package stays light."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import breadth.inference
from breadth.base.catalogue import Catalogue
from breadth.inference.catalogue import ALLOCATORS, HALTS, STOP_RULES, STRATEGIES


@pytest.mark.parametrize("catalogue", [STRATEGIES, STOP_RULES, ALLOCATORS, HALTS], ids=lambda each: each.family)
def test_every_part_has_a_short_import(catalogue: Catalogue) -> None:
    for name, place in catalogue.entries.items():
        assert getattr(breadth.inference, place.partition(":")[2]) is catalogue.load(name)


def test_every_listed_name_can_be_imported_and_is_known_to_type_checkers() -> None:
    for name in breadth.inference.__all__:
        assert getattr(breadth.inference, name) is not None
    folder = Path(breadth.inference.__file__).parent
    source = "".join((folder / name).read_text(encoding="utf-8") for name in ("__init__.py", "catalogue.py"))
    assert all(f" import {name} as {name}" in source for name in breadth.inference.__all__)
    assert dir(breadth.inference) == sorted(breadth.inference.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        breadth.inference.Nothing  # noqa: B018


def test_replay_is_the_function() -> None:
    from breadth.inference import replay, stored_replay

    assert replay is stored_replay.replay


def test_importing_the_package_does_not_load_numpy() -> None:
    script = (
        "import sys, breadth.inference; print('numpy' in sys.modules); breadth.inference.AdaptiveVote;"
        " print('numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]
