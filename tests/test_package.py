"""The package's public names load when they are used, and only then."""

from __future__ import annotations

import subprocess
import sys

import pytest

import breadth


@pytest.mark.parametrize("name", [name for name in breadth.__all__ if name != "__version__"])
def test_every_public_name_loads_and_is_documented(name: str) -> None:
    thing = getattr(breadth, name)
    assert thing.__name__ == name
    assert thing.__doc__


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nonsense"):
        _ = breadth.nonsense
    assert dir(breadth) == sorted(breadth.__all__)


@pytest.mark.parametrize(("name", "missing"), [("Chain", "torch"), ("BreadthGRPOTrainer", "trl")])
def test_a_missing_extra_is_named(name: str, missing: str) -> None:
    script = f"""
import sys
sys.modules[{missing!r}] = None
import breadth
try:
    breadth.{name}
except breadth.base.errors.MissingExtraError as error:
    print(error.remedy)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert 'pip install "breadth[train]"' in done.stdout
