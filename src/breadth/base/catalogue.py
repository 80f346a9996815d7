"""Parts and modules that are loaded when used: catalogues of name -> "module:Name", extended by entry points."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import Any, overload

from breadth.base.errors import TRAIN_PACKAGES, CatalogueError, MissingExtraError, suggestion


class LazyModule:
    """A module that is slow to import, imported when something of it is first used.

    For modules that many functions of a file use but a common way through the program never needs: pyarrow, for one,
    takes longer to load than a log to read. Types come from an import under ``TYPE_CHECKING``.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    @cached_property
    def _module(self) -> ModuleType:
        return import_module(self._name)

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._module, attribute)


@cache
def find_all_plugins() -> dict[str, tuple[EntryPoint, ...]]:
    """Return the entry points of installed packages by group of ours; found once, as it reads all their metadata."""
    found = entry_points()
    return {group: tuple(found.select(group=group)) for group in found.groups if group.startswith("breadth.")}


def find_plugins(group: str) -> tuple[EntryPoint, ...]:
    """Return what installed packages register under an entry-point group of ours."""
    return find_all_plugins().get(group, ())


@dataclass(frozen=True)
class Catalogue:
    """One family of interchangeable parts (importers, mechanisms, ...), each known by name and loaded when asked for.

    Ours are in ``entries``; an installed package adds its own through the entry-point group
    ``breadth.<family>``. A third party cannot replace one of ours: a clash of names is an error.
    """

    family: str
    """Plural noun of the family; also the last part of its entry-point group."""
    entries: Mapping[str, str]
    """Name -> ``"module:Name"``."""

    def table(self) -> dict[str, str]:
        """Return every known name with where it lives, ours first, then installed plug-ins."""
        table = dict(self.entries)
        for point in find_plugins(f"breadth.{self.family}"):
            if point.name in table:
                raise CatalogueError(
                    f"The plug-in {point.value} registers '{point.name}' among the {self.family}, but"
                    f" {table[point.name]} has that name.",
                    "Uninstall the plug-in or ask its author for another name.",
                )
            table[point.name] = point.value
        return table

    def names(self) -> tuple[str, ...]:
        """Return every known name, in order."""
        return tuple(self.table())

    def name_of(self, member: type) -> str | None:
        """Return the name under which a class is listed, None when it is not."""
        here = f"{member.__module__}:{member.__qualname__}"
        return next((name for name, place in self.table().items() if place == here), None)

    def load(self, name: str) -> Any:
        """Import and return the part called ``name``."""
        table = self.table()
        if name not in table:
            raise CatalogueError(f"There is no '{name}' among the {self.family}.", suggestion(name, table, self.family))
        module, _, attribute = table[name].partition(":")
        try:
            return getattr(import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            if isinstance(error, ModuleNotFoundError) and error.name in TRAIN_PACKAGES:
                raise MissingExtraError(f"'{name}' of the {self.family}", "train") from error
            raise CatalogueError(
                f"'{name}' of the {self.family} should be at {table[name]}, but it cannot be loaded: {error}.",
                "Install what it needs, or correct its entry.",
            ) from error

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        for name in self.table():
            yield name, self.load(name)


@dataclass(frozen=True)
class Paper:
    """Where a part of a catalogue comes from; the page of papers is written from these."""

    source: str
    """Its papers, ``arXiv 2505.22617, ...``; ``ours`` where there is none."""
    subject: str
    """What it is called there."""
    differs: str = ""
    """Where we differ."""


@dataclass(frozen=True)
class CatalogueParts(Sequence[Any]):
    """The parts of a catalogue, in order; each is loaded when it is reached: a search that ends early loads few."""

    catalogue: Catalogue
    """The catalogue they belong to."""

    def __len__(self) -> int:
        return len(self.catalogue.table())

    @overload
    def __getitem__(self, place: int) -> Any: ...
    @overload
    def __getitem__(self, place: slice) -> list[Any]: ...
    def __getitem__(self, place: int | slice) -> Any:
        names = self.catalogue.names()[place]
        return self.catalogue.load(names) if isinstance(names, str) else [self.catalogue.load(name) for name in names]
