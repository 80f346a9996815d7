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

Each carries two sentences: what is wrong (what we got and what we need) and what to do about it. Passwords and keys in
the addresses they name are left out.
Here are also addresses without what opens them, the check of settings at construction, and the nearest spelling of a
name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


class BreadthError(Exception):
    """Base of every error breadth raises on purpose."""

    def __init__(self, problem: str, remedy: str) -> None:
        self.problem = redact_text(problem)
        """What we got and what we need."""
        self.remedy = redact_text(remedy)
        """What to do about it."""
        super().__init__(self.problem, self.remedy)

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
        where = redact_address(str(path)) + ("" if row is None else f", row {row}")
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


HIDDEN = "***"
_SCHEME_END = re.compile(r"(?<=[A-Za-z0-9+.-]{2}):/+")
"""Also one slash: pathlib makes one of two."""
_ADDRESS_IN_TEXT = re.compile(_SCHEME_END.pattern + r"\S+?(?=[:;,.'\")]*(?:\s|$))")
_SECRET_PARAMETER = re.compile(
    r"([?&;#][\w.%-]{0,64}(?:key|token|secret|passw|pwd|sig|auth|cred)[\w.%-]{0,64}=)[^\s&]+", re.IGNORECASE
)
_PASSWORD_IN_TEXT = re.compile(
    rf"({_SCHEME_END.pattern}|(?<![^\s'\"(])//)" + r"[^\s/@:]*:(?!\d*(?:[\s/?#,.;:)'\"]|$))[^\s@][^\n@]{0,200}@"
)
"""An address up to an @, also with a blank in the password, or without scheme; a number behind the colon is a port."""
_SECRET_NAME = re.compile(
    r"(?:passw|passphrase|secret|credential|authorization|(?<![a-z])pwd(?![a-z])"
    r"|(?:api|access|private|auth|account|ssh|wandb)[_-]?key"
    r"|(?:hf|hub|api|access|auth|refresh|bearer|session|login|wandb|github|gitlab|huggingface)[ _-]?token(?!\w)"
    r"|(?<!\w)token(?=[\"']?[ \t]{0,3}[:=][ \t]{0,3}[\"']?\S{16}))",
    re.IGNORECASE,
)
"""Part of a setting's name that makes its value a secret; ``pad_token`` and ``prompt_key`` are none."""
_SECRET_SETTING = re.compile(
    _SECRET_NAME.pattern
    + r"[\w.-]{0,64}(?P<sign>[\"']?[ \t]{0,3}[:=][ \t]{0,3}[\"']?(?:(?:Bearer|Basic) )?)(?!\*\*\*)[^\s\"',}\]]+",
    re.IGNORECASE,
)
"""A secret setting with its value, as YAML, JSON, a command line or the environment writes it."""


def redact_address(address: str) -> str:
    """Return an address for people: without user name, password, query and fragment, which may hold a key.

    A path or an address without a scheme only loses parameters that are called key, token and the like.
    """
    if mark := _SCHEME_END.search(address):
        before, rest = address[: mark.end()], address[mark.end() :]
        if has_credentials(rest):
            rest = f"{HIDDEN}@{rest.rpartition('@')[2]}"
        address = before + re.sub(r"([?#]).*", rf"\1{HIDDEN}", rest, count=1, flags=re.DOTALL)
    return _SECRET_PARAMETER.sub(rf"\1{HIDDEN}", address)


def redact_text(text: str) -> str:
    """Return a text whose addresses are as `redact_address` gives them, and whose secret settings have no value.

    An address ends at the next blank, but for one in its password.
    """
    text = _PASSWORD_IN_TEXT.sub(rf"\1{HIDDEN}@", text)
    text = _ADDRESS_IN_TEXT.sub(lambda found: redact_address(f"xx{found[0]}")[2:], text)
    text = _SECRET_PARAMETER.sub(rf"\1{HIDDEN}", text)
    return _SECRET_SETTING.sub(lambda found: f"{found[0][: found.end('sign') - found.start()]}{HIDDEN}", text)


def is_secret_name(name: str) -> bool:
    """Say whether a setting of this name holds a password or a key."""
    return name.casefold() == "token" or _SECRET_NAME.search(name) is not None


def redact_settings(value: Any) -> Any:
    """Return settings without passwords and keys, which are known by their names and in addresses; also in names."""
    if isinstance(value, Mapping):
        pairs = [(redact_text(name), item) for name, item in value.items()]
        return {
            name: HIDDEN
            if is_secret_name(name) and item is not None and not isinstance(item, bool)
            else redact_settings(item)
            for name, item in pairs
        }
    if isinstance(value, list):
        return [redact_settings(item) for item in value]
    return redact_text(value) if isinstance(value, str) else value


def has_credentials(address: str) -> bool:
    """Say whether an address, with a scheme or without, has a user name or a password in it."""
    mark = _SCHEME_END.search(address)
    rest = address[mark.end() :] if mark else address.lstrip(" /")
    authority = re.split(r"[/?#]", rest)[0]
    port = authority.rpartition(":")[2]
    return "@" in authority or ("@" in rest and ":" in authority and not port.isdigit())  # a password may have a slash


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
