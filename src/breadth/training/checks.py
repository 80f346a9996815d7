"""The check of a mechanism's settings at construction."""

from __future__ import annotations

from typing import Any

from breadth.base.errors import SettingsError


def require(mechanism: Any, field: str, held: bool, wanted: str) -> None:
    """Raise a SettingsError that names the mechanism, the field, what it got and what it needs."""
    if not held:
        value = getattr(mechanism, field)
        raise SettingsError(f"{type(mechanism).__name__} got {field} = {value!r}; it needs {wanted}.", f"Set {field} to {wanted}.")
