"""Every error breadth raises on purpose, as one tree.

    BreadthError                 catch this to catch all of ours
    ├── SettingsError            a setting is unknown, misspelt or outside its allowed values
    ├── CatalogueError           a name is in no catalogue, or its entry cannot be loaded
    ├── MeasureError             numbers that this instrument must not be used on
    ├── MechanismError           a training mechanism or chain that cannot run as it is composed or on what it got
    ├── StrategyError            a strategy that this sampler, store or task cannot run
    ├── ServerError              a model server refused, broke or cannot be reached; carries its status
    ├── MissingExtraError        the job needs an optional dependency that is not installed
    └── FileError                something about a file or folder; carries its path
        ├── UnknownFormatError   no importer recognises it
        ├── UnsafeFileError      reading it would execute code (pickles)
        ├── BrokenFileError      recognised, but damaged at a place the error names
        ├── NotARunError         the folder is not a run folder
        └── WriteError           the disk refused: full, read-only, no permission

Each carries two sentences: what is wrong (what we got and what we need) and what to do about it.
Here are also the check of settings at construction, and the nearest spelling of a name.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any


class BreadthError(Exception):
    """Base of every error breadth raises on purpose."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(problem, remedy)
        self.problem = problem
        """What we got and what we need."""
        self.remedy = remedy
        """What to do about it."""

    def __str__(self) -> str:
        return f"{self.problem}\n  -> {self.remedy}"

    def __reduce__(self) -> tuple[Any, ...]:
        # Subclasses take other arguments than ``args`` holds; worker processes send errors back by pickle.
        return rebuild_error, (type(self), self.args), self.__dict__


class SettingsError(BreadthError):
    """A setting is unknown, misspelt or outside its allowed values."""


class CatalogueError(BreadthError):
    """A name is in no catalogue, or its entry cannot be loaded."""


class MeasureError(BreadthError, ValueError):
    """Numbers that this instrument must not be used on."""


class MechanismError(BreadthError, ValueError):
    """A training mechanism or chain that cannot run as it is composed or on what it got."""


class StrategyError(BreadthError, ValueError):
    """A strategy that this sampler, store or task cannot run."""


class ServerError(BreadthError):
    """A model server refused a request, broke while answering it or cannot be reached."""

    def __init__(
        self,
        problem: str,
        remedy: str,
        *,
        status: int | None = None,
        fatal: bool = False,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(problem, remedy)
        self.status = status
        """HTTP status, where there was one."""
        self.fatal = fatal
        """Whether every other request of the kind will fail as well: wrong model, wrong key, prompt too long."""
        self.retry_after = retry_after
        """Seconds the server asked to wait."""


class MissingExtraError(BreadthError, ImportError):
    """The job needs an optional dependency that is not installed."""

    def __init__(self, job: str, extra: str) -> None:
        BreadthError.__init__(
            self,
            f"{job} needs the optional dependencies of the extra '{extra}'.",
            f'Install them with: pip install "breadth[{extra}]"',
        )
        self.extra = extra
        """The extra that brings what is missing."""


TRAIN_PACKAGES = frozenset({"torch", "transformers", "trl"})
"""Packages of the extra ``train``, which the core does without."""


class FileError(BreadthError):
    """Something about a file or folder; carries its path."""

    def __init__(self, path: Path | str, problem: str, remedy: str, *, row: int | None = None) -> None:
        where = f"{path}" if row is None else f"{path}, row {row}"
        super().__init__(f"{where}: {problem}", remedy)
        self.path = Path(str(path))
        """The file or folder in question."""
        self.row = row
        """Its 1-based row (line), where one is to blame."""


class UnknownFormatError(FileError):
    """No importer recognises the file or folder."""


class UnsafeFileError(FileError):
    """Reading the file would execute code stored in it."""


class BrokenFileError(FileError):
    """The file is of a known kind but damaged."""


class NotARunError(FileError):
    """The folder is not a run folder."""


class WriteError(FileError):
    """The disk refused a write: full, read-only or not permitted."""


def rebuild_error(cls: type[BreadthError], args: tuple[str, ...]) -> BreadthError:
    """Make an error from its class and ``args``, without calling its ``__init__``: how one is unpickled."""
    error = cls.__new__(cls, *args)
    error.args = args
    return error


def require(settings: Any, field: str, condition: bool, requirement: str) -> None:
    """Raise a SettingsError that names the class, the field, what it got and what it needs."""
    if not condition:
        value = getattr(settings, field)
        raise SettingsError(
            f"{type(settings).__name__} got {field} = {value!r}; it needs {requirement}.",
            f"Set {field} to {requirement}.",
        )


def nearest_name(word: str, known: Iterable[str]) -> str | None:
    """Return the known name closest to ``word``, or None when nothing is close."""
    from difflib import get_close_matches  # only when there is an error to report

    folded = {name.casefold(): name for name in known}
    found = get_close_matches(word.casefold(), folded, n=1, cutoff=0.6)
    return folded[found[0]] if found else None


def suggestion(word: str, known: Iterable[str], kind: str) -> str:
    """Say what to write instead of ``word``: the nearest known name, or the whole list."""
    names = sorted(known)
    close = nearest_name(word, names)
    listing = ", ".join(names) if names else "none are registered"
    if close is None:
        return f"Use one of the {kind}: {listing}."
    return f"Did you mean '{close}'? The {kind} are: {listing}."
