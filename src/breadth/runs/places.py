"""Where a run lies: a local folder, or an object store through fsspec (``s3://...``, ``gs://...``, ``memory://...``)."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from breadth.base.errors import MissingExtraError


def located(place: Path | str) -> Path:
    """Return a path for a folder's name or address; an address gives a path-like object that reads through fsspec."""
    if isinstance(place, Path) or "://" not in str(place):
        return Path(place)
    try:
        from upath import UPath
    except ImportError as error:
        raise MissingExtraError(f"Reading {place}", "remote") from error
    return cast("Path", UPath(place))


def is_remote(path: Path) -> bool:
    """Say whether a path reads through fsspec."""
    return not isinstance(path, Path)
