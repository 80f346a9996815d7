"""The check of settings at construction."""

from __future__ import annotations

from typing import Any

from breadth.base.errors import SettingsError


def require(settings: Any, field: str, condition: bool, requirement: str) -> None:
    """Raise a SettingsError that names the class, the field, what it got and what it needs."""
    if not condition:
        value = getattr(settings, field)
        raise SettingsError(
            f"{type(settings).__name__} got {field} = {value!r}; it needs {requirement}.",
            f"Set {field} to {requirement}.",
        )
