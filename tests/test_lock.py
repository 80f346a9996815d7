"""The locked requirements are those of the core, pinned as the tests run them, each with the hashes of its files."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


OF_HATCHLING = {"packaging", "pathspec", "pluggy", "tomlkit", "trove-classifiers"}
"""What the build backend needs; it need not be installed where the tests run."""


def pinned(text: str) -> dict[str, str]:
    """Return the version of each requirement of a file."""
    lines = re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", text, re.MULTILINE)
    return {canonicalize_name(name): version for name, version in lines}


def closure(requirements: list[str]) -> Iterator[str]:
    """Yield what requirements need on this machine, themselves included, as installed packages tell."""
    waiting, seen = [Requirement(text) for text in requirements], set[str]()
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name in seen or not (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
            continue
        seen.add(name)
        yield name
        try:
            waiting += [Requirement(text) for text in requires(requirement.name) or []]
        except PackageNotFoundError:
            assert name in PROJECT["build-system"]["requires"][0], f"{name} is not installed"


def test_the_versions_are_those_of_the_constraints() -> None:
    constraints = pinned((ROOT / "constraints.txt").read_text(encoding="utf-8"))
    locked = pinned(LOCK)
    assert locked.items() <= constraints.items(), "run: make lock"


def test_every_requirement_has_hashes_and_no_line_names_a_place() -> None:
    entries = re.split(r"^(?=[A-Za-z])", LOCK, flags=re.MULTILINE)[1:]
    assert len(entries) == len(pinned(LOCK)) > 20
    for entry in entries:
        first, *rest = entry.rstrip().split("\n")
        assert re.fullmatch(r"[a-z0-9-]+==\S+( ; [^\\]+)? \\", first)
        assert rest
        assert all(re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}( \\)?", line) for line in rest)
    assert "://" not in LOCK


@pytest.mark.parametrize("table", ["project.dependencies", "build-system.requires"])
def test_everything_the_core_needs_is_locked(table: str) -> None:
    section, key = table.split(".")
    assert set(closure(PROJECT[section][key])) <= pinned(LOCK).keys(), "run: make lock"


def test_nothing_else_is_locked() -> None:
    needed = {*closure(PROJECT["project"]["dependencies"]), *closure(PROJECT["build-system"]["requires"])}
    conditional = {canonicalize_name(name) for name in re.findall(r"^(\S+)==\S+ ;", LOCK, re.MULTILINE)}
    assert pinned(LOCK).keys() - needed - conditional <= OF_HATCHLING


def test_the_core_is_as_small_as_the_results_say() -> None:
    measured = json.loads((ROOT / "docs" / "data" / "install.json").read_text(encoding="utf-8"))
    assert measured["megabytes"] <= 400
    assert not {"torch", "scipy", "pandas", "transformers"} & pinned(LOCK).keys()
