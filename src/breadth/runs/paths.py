"""Paths of runs: a local folder, or an object store through fsspec (``s3://...``, ``gs://...``, ``memory://...``)."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from breadth.base.errors import MissingExtraError

DEFAULT_RUN_NAME = "run"
"""What folders are called that lie next to other files of the same run."""


def locate(place: Path | str) -> Path:
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


def display_name(folder: Path, name: str = "") -> str:
    """Return what people call a run: its name, or the last telling parts of its path where it is just called run."""
    if name and name != DEFAULT_RUN_NAME:
        return name
    parts = [part for part in folder.parts if part not in (DEFAULT_RUN_NAME, "/", "..", ".")]
    return "/".join(parts[-2:]) or DEFAULT_RUN_NAME
