"""Settings as frozen dataclasses, and the same settings as TOML: both ways, strictly.

A dataclass is a table, a nested dataclass a nested table, a tuple or list an array. ``None`` is written by leaving the
key out. Where a field's type is a family (a class with a ``catalogue`` class variable), the table names its member
under ``kind``. An unknown key, a missing key and a value outside its allowed ones are errors that say what to write
instead.
"""

from __future__ import annotations

import dataclasses
import tomllib
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from breadth.base.catalogue import Catalogue
from breadth.base.errors import BrokenFileError, SettingsError, suggestion
from breadth.base.system import write_text_file

T = TypeVar("T")
KIND = "kind"


def to_table(settings: Any) -> dict[str, Any]:
    """Return a dataclass as a plain table that TOML can hold."""
    table = {}
    for spec in dataclasses.fields(settings):
        value = getattr(settings, spec.name)
        if value is not None:
            table[spec.name] = to_toml(value)
    name = catalogue_name(type(settings))
    return {KIND: name, **table} if name else table


def from_table(cls: type[T], table: Mapping[str, Any], where: str = "") -> T:
    """Build ``cls`` from a table; ``where`` names the table in error messages."""
    chosen, rest = _choose_member(cls, table, where)
    hints = get_type_hints(chosen)
    specs = {spec.name: spec for spec in dataclasses.fields(chosen) if spec.init}
    for key in rest:
        if key not in specs:
            raise SettingsError(f"{_location(where)}there is no setting '{key}'.", suggestion(key, specs, "settings"))
    values = {key: read_value(hints[key], value, f"{where}.{key}" if where else key) for key, value in rest.items()}
    for key, spec in specs.items():
        has_default = spec.default is not dataclasses.MISSING or spec.default_factory is not dataclasses.MISSING
        if not has_default and key not in values:
            raise SettingsError(
                f"{_location(where)}the setting '{key}' is missing.", f"Add {key} = <{_type_name(hints[key])}>."
            )
    return typing.cast("T", chosen(**values))


def dumps(settings: Any) -> str:
    """Return settings as TOML text."""
    import tomli_w

    return tomli_w.dumps(to_table(settings))


def loads(cls: type[T], text: str) -> T:
    """Build ``cls`` from TOML text."""
    return from_toml(text, lambda table: from_table(cls, table))


MAX_KEY_DOTS = 10_000_000
"""Dots in all keys, times those of the key with most: tomllib takes eight bytes for each pair of them."""


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML; raises ValueError where it is none, and RecursionError where it is nested too deeply."""
    dots = [count_key_dots(line) for line in text.splitlines()]
    if max(dots, default=0) * sum(dots) > MAX_KEY_DOTS:
        raise RecursionError
    return tomllib.loads(text)


def count_key_dots(line: str) -> int:
    """Return the dots in the key of a line of TOML; all dots where tables inside it may have keys of their own."""
    if "{" in line:
        return line.count(".")
    key, equals, _ = line.partition("=")
    return key.count(".") if equals or key.lstrip().startswith("[") else 0


def from_toml(text: str, build: Callable[[dict[str, Any]], T]) -> T:
    """Parse TOML text and build something from its table; SettingsError where it is no TOML or nested too deeply."""
    try:
        try:
            table = parse_toml(text)
        except ValueError as error:  # TOMLDecodeError is one, and so is a number of 5,000 digits
            raise SettingsError(f"This is not TOML: {error}.", "Correct the line it names.") from error
        return build(table)
    except RecursionError as error:
        raise SettingsError(
            "This TOML is nested too deeply.", "Write fewer tables or lists inside one another."
        ) from error


def dump(settings: Any, path: Path) -> None:
    """Write settings to a TOML file, whole or not at all; a lone surrogate becomes a question mark."""
    write_text_file(path, dumps(settings))


def load(cls: type[T], path: Path) -> T:
    """Build ``cls`` from a TOML file."""
    return parse_file(lambda text: loads(cls, text), path)


MAX_FILE_CHARACTERS = 1 << 24
"""Characters of a settings file that is read; a run's own has a few thousand."""


def parse_file(parse: Callable[[str], T], path: Path, remedy: str | None = None) -> T:
    """Read a text file by a parser that raises SettingsError; every error names the file.

    ``remedy`` replaces what the parser advises, for files that no one writes by hand.
    """
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(MAX_FILE_CHARACTERS + 1)
        if len(text) <= MAX_FILE_CHARACTERS:
            return parse(text)
        problem = f"It has more than {MAX_FILE_CHARACTERS:,} characters."
    except OSError as error:
        raise BrokenFileError(
            path, f"cannot be read: {error.strerror or error}.", "Check the path and its permissions."
        ) from error
    except SettingsError as error:
        raise BrokenFileError(path, error.problem, remedy or error.remedy) from error
    except UnicodeDecodeError as error:
        raise BrokenFileError(path, str(error), remedy or "Save the file as UTF-8.") from error
    raise BrokenFileError(path, problem, "Check that this is the right file.")


def to_toml(value: Any) -> Any:
    """Return a field's value as TOML holds it."""
    if dataclasses.is_dataclass(value):
        return to_table(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): to_toml(item) for key, item in value.items() if item is not None}
    if isinstance(value, (tuple, list)):
        return [to_toml(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    return value


def catalogue_name(cls: type) -> str | None:
    """Return the name of a class in its family's catalogue; None when it has none."""
    catalogue = getattr(cls, "catalogue", None)
    return catalogue.name_of(cls) if isinstance(catalogue, Catalogue) else None


def _choose_member(cls: Any, table: Mapping[str, Any], where: str) -> tuple[Any, dict[str, Any]]:
    """Choose the class a table describes and strip its ``kind``."""
    rest = dict(table)
    catalogue = getattr(cls, "catalogue", None)
    if not isinstance(catalogue, Catalogue):
        return cls, rest
    own = catalogue_name(cls)
    kind = rest.pop(KIND, own)
    if kind is None and dataclasses.is_dataclass(cls) and "catalogue" not in vars(cls):
        return cls, rest  # a member of the family that no catalogue lists, asked for by its class
    if kind is None:
        raise SettingsError(
            f"{_location(where)}the table has no '{KIND}'.", suggestion("", catalogue.names(), catalogue.family)
        )
    return catalogue.load(str(kind)), rest


def read_value(hint: Any, value: Any, where: str) -> Any:
    """Read a TOML value as the type a field has; ``where`` names the field in errors."""
    refuse_huge_numbers(value, where)
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return value
    if origin in (Union, types.UnionType):
        return _read_union(arguments, value, where)
    if origin is Literal:
        return _check_choice(value, arguments, where)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint(_check_choice(value, [member.value for member in hint], where))
    if isinstance(getattr(origin, "catalogue", None), Catalogue):
        hint, origin = origin, None
    if origin is not None:
        return read_collection(origin, arguments, value, where)
    if dataclasses.is_dataclass(hint) or isinstance(getattr(hint, "catalogue", None), Catalogue):
        if isinstance(value, Mapping):
            return from_table(hint, value, where)
        raise SettingsError(f"{_location(where)}got {value!r}, need a table of settings.", f"Write it as [{where}].")
    return read_scalar(hint, value, where)


def refuse_huge_numbers(value: Any, where: str) -> None:
    """Raise for a whole number beyond TOML's 64 bits: Python cannot even print one of thousands of digits."""
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise SettingsError(f"{_location(where)}a whole number has more than 64 bits.", "Write a smaller one.")
    for key, part in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        refuse_huge_numbers(part, f"{where}.{key}")


def _read_union(arguments: Sequence[Any], value: Any, where: str) -> Any:
    problems = []
    for option in arguments:
        if option is type(None):
            continue
        try:
            return read_value(option, value, where)
        except SettingsError as error:
            problems.append(error)
    raise problems[0]


def read_collection(origin: Any, arguments: Sequence[Any], value: Any, where: str) -> Any:
    """Read a TOML table or array as a mapping, tuple or list."""
    if issubclass(origin, Mapping):
        if not isinstance(value, Mapping):
            raise SettingsError(f"{_location(where)}got {value!r}, need a table.", f"Write it as [{where}].")
        item = arguments[1] if len(arguments) == 2 else Any
        return {key: read_value(item, part, f"{where}.{key}") for key, part in value.items()}
    if not isinstance(value, (list, tuple)):
        raise SettingsError(f"{_location(where)}got {value!r}, need a list.", "Put it in square brackets.")
    items = (
        list(arguments)
        if origin is tuple and arguments and arguments[-1] is not Ellipsis
        else [arguments[0]] * len(value)
    )
    if len(items) != len(value):
        raise SettingsError(
            f"{_location(where)}got {len(value)} values, need {len(items)}.", "Give one value for each place."
        )
    parts = [
        read_value(item, part, f"{where}[{place}]") for place, (item, part) in enumerate(zip(items, value, strict=True))
    ]
    return tuple(parts) if origin in (tuple, Sequence) else origin(parts)


def read_scalar(hint: Any, value: Any, where: str) -> Any:
    """Read a TOML value as a plain type."""
    if hint is Path and isinstance(value, str):
        return Path(value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(hint, type) and (not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool)):
        raise SettingsError(
            f"{_location(where)}got {value!r}, need {_type_name(hint)}.", f"Write a value of type {_type_name(hint)}."
        )
    return value


def _check_choice(value: Any, choices: Sequence[Any], where: str) -> Any:
    if value in choices:
        return value
    raise SettingsError(
        f"{_location(where)}{value!r} is not allowed.", suggestion(str(value), map(str, choices), "allowed values")
    )


def _type_name(hint: Any) -> str:
    return str(getattr(hint, "__name__", hint))


def _location(where: str) -> str:
    return f"In {where}: " if where else ""
