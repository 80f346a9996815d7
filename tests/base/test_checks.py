"""The check of settings names what it got and what it needs."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from breadth.base.checks import require
from breadth.base.errors import SettingsError


@dataclass(frozen=True)
class Cup:
    size: float = 0.2


def test_what_holds_passes() -> None:
    require(Cup(), "size", True, "a number above 0")


def test_what_does_not_is_named() -> None:
    with pytest.raises(SettingsError) as caught:
        require(Cup(-1.5), "size", False, "a number above 0")
    assert caught.value.problem == "Cup got size = -1.5; it needs a number above 0."
    assert caught.value.remedy == "Set size to a number above 0."
