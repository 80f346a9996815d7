"""The conformance suite's sides, each loaded only when a test asks for it: the bare Objective, TRL, verl."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

HERE = Path(__file__).parent
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")


def helper(name: str) -> ModuleType:
    """Load a module beside this file under the name it has for everybody, once; no path leads to it."""
    whole = f"tests.adapters.{name}"
    if whole not in sys.modules:
        spec = spec_from_file_location(whole, HERE.joinpath(*name.split(".")).with_suffix(".py"))
        assert spec is not None
        assert spec.loader is not None
        sys.modules[whole] = module_from_spec(spec)
        spec.loader.exec_module(sys.modules[whole])
    return sys.modules[whole]


@pytest.fixture(scope="session")
def same() -> Any:
    """The tensors that every side gets, and the bare Objective on them."""
    pytest.importorskip("torch", reason="torch is not installed (extra 'train')")
    return helper("same_tensors")


@pytest.fixture(scope="session")
def in_trl(same: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """TRL's own loss, and our adapter's, inside real trainers."""
    if find_spec("trl") is None:
        pytest.skip("TRL is not installed (extra 'train')")
    tiny = helper("trl.conftest").Tiny
    return helper("drive_trl").Driver(tiny(tmp_path_factory.mktemp("trl")))


@pytest.fixture(scope="session")
def in_verl(same: Any) -> Any:
    """verl's own worker loss, with its policy losses and with ours."""
    if find_spec("verl") is None:
        pytest.skip("verl is not installed")
    return helper("drive_verl")
