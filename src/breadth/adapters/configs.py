"""Read configuration files as data: text, YAML and JSON tables, and settings by the type they should have; nothing is executed."""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from breadth.base.errors import BrokenFileError
from breadth.runs.jsonl import unreadable

LARGEST = 200_000
"""Bytes of a configuration at most: verl's whole tree has 40,000; what is larger is data, or an attack on the parser,
which is slow.
"""
DEEPEST = 50
"""Tables inside tables at most."""
EXPONENT = re.compile(r"[-+]?(\d[\d_]*)(\.\d*)?[eE][-+]?\d+|[-+]?\.\d+[eE][-+]?\d+")
"""A number in scientific notation, as YAML 1.2 and Hydra have it; YAML 1.1, which PyYAML speaks, asks for a dot and a
sign as well.
"""


@dataclass(frozen=True)
class Computed:
    """A value that only running the file would tell."""

    text: str
    """As it stands there."""

    def __str__(self) -> str:
        return self.text


def read_text(path: Path, largest: int = LARGEST) -> str:
    """Return a configuration's text; refuse what is far too large to be one."""
    try:
        if path.stat().st_size > largest:
            raise BrokenFileError(
                path, f"is larger than {largest:,} bytes: no configuration is.", "Name the configuration alone."
            )
        return path.read_text(encoding="utf-8-sig", errors="replace")
    except OSError as error:
        raise unreadable(path, error) from error


def table_of(path: Path, *, exponents: bool = False) -> Any:
    """Return what a YAML or JSON file holds: plain values only.

    ``exponents`` reads ``1e-6`` as a number, as Hydra does; PyYAML, which most scripts use, reads it as text.
    """
    text = read_text(path)
    try:
        if path.suffix == ".json":
            return orjson.loads(text)
        from breadth.adapters.yaml_values import (
            loaded,
        )  # PyYAML is slow to load, and most files that the doctor is shown are logs

        return loaded(text, exponents=exponents)
    except (RecursionError, ValueError) as error:
        kind = "JSON" if path.suffix == ".json" else "YAML"
        raise BrokenFileError(
            path, f"is not {kind} ({' '.join(str(error).split())[:200]}).", "Correct the place it names."
        ) from error


def flat(table: Any, prefix: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield the leaves of nested tables by dotted path; ``{"expr": ...}`` stands for a value that the file computes."""
    if depth > DEEPEST:
        return
    for key, value in table.items() if isinstance(table, Mapping) else ():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping) and set(value) == {"expr"}:
            yield path, Computed(str(value["expr"]))
        elif isinstance(value, Mapping) and value:
            yield from flat(value, f"{path}.", depth + 1)
        else:
            yield path, value


def interpolated(own: Mapping[str, Any]) -> dict[str, Any]:
    """Put in what settings borrow from one another as a whole, ``${path.of.another}``; any other reference stays as it is."""
    found = dict(own)
    for name, value in own.items():
        for _ in range(DEEPEST):
            borrowed = re.fullmatch(r"\$\{([\w.]+)\}", value) if isinstance(value, str) else None
            if borrowed is None or borrowed[1] not in own:
                break
            value = own[borrowed[1]]
        found[name] = value
    return found


def nearest(table: Any) -> dict[str, Any]:
    """Return the leaves of nested tables by their last name: of several the least deep, and of two as deep that differ neither."""
    found: dict[str, tuple[int, Any]] = {}
    for path, value in flat(table):
        depth, name = path.count("."), path.rpartition(".")[2]
        before = found.get(name)
        if before is None or depth < before[0]:
            found[name] = (depth, value)
        elif depth == before[0] and value != before[1]:
            found[name] = (depth, Computed(f"{before[1]} or {value}"))
    return {name: value for name, (_, value) in found.items()}


@dataclass(frozen=True)
class Settings:
    """What a file sets, with the trainer's defaults for what it does not, each read by the type it should have.

    A value that is computed, or of another type, is None: not known; never the default.
    """

    own: Mapping[str, Any]
    """What the file sets, as spelled there."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """What the trainer takes for the rest."""

    def number(self, name: str) -> float | None:
        """Return a number; a text that is one counts as what it says."""
        value = self.own.get(name, self.defaults.get(name))
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            return None
        if isinstance(value, str) and not (EXPONENT.fullmatch(value) or re.fullmatch(r"[-+]?\d+(\.\d*)?", value)):
            return None
        try:
            found = float(value)
        except OverflowError:  # a whole number of hundreds of digits
            return None
        return found if math.isfinite(found) else None

    def whole(self, name: str) -> int | None:
        """Return a whole number."""
        value = self.number(name)
        return int(value) if value is not None and value == int(value) else None

    def switch(self, name: str) -> bool | None:
        """Return whether something is on."""
        value = self.own.get(name, self.defaults.get(name))
        words: Mapping[Hashable, bool] = {True: True, False: False, "true": True, "false": False}
        return (
            words.get(value.lower() if isinstance(value, str) else value)
            if isinstance(value, bool | str | int)
            else None
        )

    def text(self, name: str) -> str | None:
        """Return a word; one that other settings would fill in is not known."""
        value = self.own.get(name, self.defaults.get(name))
        return value if isinstance(value, str) and value and "$" not in value else None

    def off(self, name: str) -> bool:
        """Say whether something is known not to be set: null, empty, false, or absent with a default that is."""
        return self.own.get(name, self.defaults.get(name, name)) in (None, "null", "None", "", False)

    def says(self, *names: str) -> str:
        """Return settings as the file spells them, with their values, for a sentence; those it does not set are left out."""
        return ", ".join(spelled(name, self.own[name]) for name in names if name in self.own)


def spelled(name: str, value: Any) -> str:
    """Return a setting with its value, short and without control characters: files are not ours.

    Hydra's dotted names take no quotes.
    """
    shown = str(value) if isinstance(value, Computed) or (isinstance(value, str) and "." in name) else repr(value)
    plain = "".join(sign if sign.isprintable() else " " for sign in f"{name}={shown}")
    return plain if len(plain) <= 100 else plain[:97] + "..."
