"""Read configuration files as data: text, YAML and JSON tables, and settings by type; nothing is executed."""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from breadth.base.errors import BrokenFileError, is_secret_name
from breadth.doctor.trainer_config import Conflict, UnusedSetting
from breadth.runs.jsonl import read_error

if TYPE_CHECKING:
    import yaml

MAX_CONFIG_BYTES = 200_000
"""Bytes of a configuration: verl's whole tree has 40,000; a larger file is data, or an attack on the slow parser."""
MAX_TABLE_DEPTH = 50
"""Levels of nested tables that are read."""
MAX_YAML_NODES = 50_000
"""Values a YAML table may expand to: each use of an anchor repeats what it holds."""
DUPLICATE_KEYS = "(duplicate keys)"
"""Where `read_table` leaves the keys that appear twice at one level: a list of pairs, the key with its lines, and what
is lost."""
MAX_NAMED_KEYS = 6
"""Lost keys that are named."""
EXPRESSION = re.compile(r"\$\{|\$\(|\$[A-Za-z_]|\{\{|\bos\.environ\b|<%")
"""A text that is put together when the trainer starts: a reference, a variable, a template."""
EXPONENT = re.compile(r"[-+]?(\d[\d_]*)(\.\d*)?[eE][-+]?\d+|[-+]?\.\d+[eE][-+]?\d+")
"""A number in scientific notation, as in YAML 1.2 and Hydra; PyYAML reads YAML 1.1, which needs a dot and a sign."""


@dataclass(frozen=True)
class Computed:
    """A value that is known only by running the file."""

    text: str
    """The expression in the file."""

    def __str__(self) -> str:
        return self.text


def read_text(path: Path, largest: int = MAX_CONFIG_BYTES) -> str:
    """Return a configuration's text; refuse a file that is too large to be one."""
    try:
        if path.stat().st_size > largest:
            raise BrokenFileError(
                path, f"is larger than {largest:,} bytes: no configuration is.", "Name the configuration alone."
            )
        return path.read_text(encoding="utf-8-sig", errors="replace")
    except OSError as error:
        raise read_error(path, error) from error


def read_table(path: Path, *, exponents: bool = False) -> Any:
    """Return what a YAML or JSON file holds: plain values only; keys that appear twice are under `DUPLICATE_KEYS`.

    ``exponents`` reads ``1e-6`` as a number, as Hydra does; PyYAML, which most scripts use, reads it as text.
    """
    text = read_text(path)
    try:
        if path.suffix == ".json":
            return orjson.loads(text)
        return load_yaml(text, exponents=exponents, note_duplicates=True)
    except (RecursionError, ValueError) as error:
        kind = "JSON" if path.suffix == ".json" else "YAML"
        raise BrokenFileError(
            path, f"is not {kind} ({' '.join(str(error).split())[:200]}).", "Correct the place it names."
        ) from error


def load_yaml(text: str, *, exponents: bool = False, note_duplicates: bool = False) -> Any:
    """Return what a YAML text holds; ValueError if it is not YAML or its anchors expand without end."""
    import yaml  # slow to load, and most files that the doctor reads are logs

    try:
        loader = yaml_loader(exponents=exponents)(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            if count_nodes(node, {}) > MAX_YAML_NODES:
                raise ValueError(f"it unfolds to more than {MAX_YAML_NODES:,} values")
            twice = list(duplicate_keys(node)) if note_duplicates else []
            found = loader.construct_document(node)
            return {**found, DUPLICATE_KEYS: twice} if twice and isinstance(found, dict) else found
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


@cache
def yaml_loader(*, exponents: bool) -> type[yaml.SafeLoader]:
    """Return PyYAML's safe loader (no tag makes an object), with Hydra's numbers in scientific notation if asked."""
    import yaml

    class Loader(yaml.SafeLoader):
        pass

    if exponents:
        pattern = re.compile(rf"^(?:{EXPONENT.pattern})$")
        Loader.add_implicit_resolver("tag:yaml.org,2002:float", pattern, list("-+.0123456789"))
    return Loader


def count_nodes(node: yaml.Node, counts: dict[int, int]) -> int:
    """Count the values in a node, every use of an anchor again."""
    import yaml

    known = counts.get(id(node))
    if known is not None:
        if known < 0:
            raise ValueError("an anchor contains itself")
        return known
    counts[id(node)] = -1
    children: list[yaml.Node] = []
    if isinstance(node, yaml.SequenceNode):
        children = node.value
    elif isinstance(node, yaml.MappingNode):
        children = [child for pair in node.value for child in pair]
    total = 1
    for child in children:
        total = min(total + count_nodes(child, counts), MAX_YAML_NODES + 1)
    counts[id(node)] = total
    return total


def duplicate_keys(node: yaml.Node, prefix: str = "") -> Iterator[list[str]]:
    """Yield each key that appears twice at one level, with both lines, and what is lost with the first."""
    import yaml

    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from duplicate_keys(item, prefix)
    if not isinstance(node, yaml.MappingNode):
        return
    last: dict[str, tuple[yaml.Node, yaml.Node]] = {}
    for key, value in node.value:
        name = str(key.value) if isinstance(key, yaml.ScalarNode) else ""
        if name in last and name != "<<":
            before_key, before = last[name]
            where = f"{prefix}{name} (lines {before_key.start_mark.line + 1} and {key.start_mark.line + 1})"
            lost = "a secret of the first" if is_secret_name(name) else describe_loss(before, value)
            yield [plain_text(where), plain_text(lost, 200)]
        last[name] = (key, value)
        yield from duplicate_keys(value, f"{prefix}{name}.")


def describe_loss(first: yaml.Node, second: yaml.Node) -> str:
    """Return what a second value under the same key overrides; empty where the two are the same."""
    kept, lost = node_leaves(second), node_leaves(first)
    if "" in lost:
        return "" if lost == kept else f"{lost['']} of the first"
    names = [name for name, value in lost.items() if kept.get(name) != value]
    more = f" and {len(names) - MAX_NAMED_KEYS} more" if len(names) > MAX_NAMED_KEYS else ""
    return f"{', '.join(names[:MAX_NAMED_KEYS])}{more} under the first" if names else ""


def node_leaves(node: yaml.Node, prefix: str = "") -> dict[str, str]:
    """Return the scalars under a node by dotted path; a scalar itself has the path ""."""
    import yaml

    if isinstance(node, yaml.MappingNode):
        return {
            path: value
            for key, inner in node.value
            for path, value in node_leaves(inner, f"{prefix}{'.' if prefix else ''}{key.value}").items()
        }
    return {prefix: str(node.value) if isinstance(node, yaml.ScalarNode) else f"{len(node.value)} values"}


def duplicate_conflicts(config: Mapping[str, Any], reader: str = "PyYAML") -> Iterator[Conflict]:
    """Yield the keys of a file that appear twice at one level; OmegaConf refuses them, PyYAML keeps the last."""
    pairs = config.get(DUPLICATE_KEYS)
    for where, lost in pairs if isinstance(pairs, list) else ():
        if reader == "OmegaConf":
            yield Conflict(where, "the key appears twice at one level", consequence="refused", since="OmegaConf 2.0")
        else:
            why = f"the key appears twice at one level, and {reader} keeps only the second"
            yield Conflict(where, why + (f": {lost} is lost" if lost else ""), "wrong" if lost else "slight")


def is_expression(value: Any) -> bool:
    """Say whether a value is known only when the trainer starts: code, a shell's variable, a reference."""
    return isinstance(value, Computed) or (isinstance(value, str) and EXPRESSION.search(value) is not None)


def find_unread_settings(
    own: Mapping[str, Any], fields: Mapping[str, str], others: Sequence[str] | Mapping[str, Any] = ()
) -> dict[str, str]:
    """Return the settings whose values are expressions: our name, or the trainer's for ``others`` -> as spelled."""
    found = {field: name for field, name in fields.items() if is_expression(own.get(name))}
    found |= {name: name for name in others if name not in found.values() and is_expression(own.get(name))}
    return {field: render_setting(name, own[name]) for field, name in found.items()}


def check_evaluation(read: Settings, problems: str, interval: str) -> Iterator[UnusedSetting]:
    """Yield held-out problems that are named but never evaluated on, since the interval is off."""
    given, every = read.own.get(problems), read.number(interval)
    off = every is not None and every <= 0
    if given in (None, "", [], "null") or not (off or read.is_off(interval)):
        return
    yield UnusedSetting(
        read.describe(problems, interval),
        f"they are not evaluated on while training: {interval} is off"
        + ("" if interval in read.own else " unless it is set"),
        intended=interval not in read.own,
    )


def flatten_table(table: Any, prefix: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield the leaves of nested tables by dotted path; ``{"expr": ...}`` marks a value that the file computes."""
    if depth > MAX_TABLE_DEPTH:
        return
    for key, value in table.items() if isinstance(table, Mapping) else ():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping) and set(value) == {"expr"}:
            yield path, Computed(str(value["expr"]))
        elif isinstance(value, Mapping) and value:
            yield from flatten_table(value, f"{path}.", depth + 1)
        else:
            yield path, value


def resolve_references(own: Mapping[str, Any]) -> dict[str, Any]:
    """Replace values that are a whole reference, ``${path.of.another}``; any other reference stays as it is."""
    found = dict(own)
    for name, value in own.items():
        for _ in range(MAX_TABLE_DEPTH):
            borrowed = re.fullmatch(r"\$\{([\w.]+)\}", value) if isinstance(value, str) else None
            if borrowed is None or borrowed[1] not in own:
                break
            value = own[borrowed[1]]
        found[name] = value
    return found


def shallowest_leaves(table: Any) -> dict[str, Any]:
    """Return the leaves of nested tables by last name: the shallowest wins, two that differ are `Computed`."""
    found: dict[str, tuple[int, Any]] = {}
    for path, value in flatten_table(table):
        depth, name = path.count("."), path.rpartition(".")[2]
        before = found.get(name)
        if before is None or depth < before[0]:
            found[name] = (depth, value)
        elif depth == before[0] and value != before[1]:
            found[name] = (depth, Computed(f"{before[1]} or {value}"))
    return {name: value for name, (_, value) in found.items()}


@dataclass(frozen=True)
class Settings:
    """The settings of a file, with the trainer's defaults for the rest, each read by its expected type.

    A value that is computed, or of another type, is None (not known), never the default.
    """

    own: Mapping[str, Any]
    """What the file sets, as spelled there."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """The trainer's defaults for the rest."""

    def number(self, name: str) -> float | None:
        """Return a number; text that spells a number counts."""
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
        """Return a word; one that refers to other settings is not known."""
        value = self.own.get(name, self.defaults.get(name))
        return value if isinstance(value, str) and value and "$" not in value else None

    def top_k(self, name: str) -> int | None:
        """Return top-k, 0 for all tokens: vLLM, verl, SkyRL and slime write that as -1, Hugging Face as 0 or null."""
        if name in self.own and self.is_off(name):
            return 0
        found = self.whole(name)
        return found if found is None else max(found, 0)

    def is_off(self, name: str) -> bool:
        """Whether something is known to be off: null, empty, false, or absent with such a default."""
        return self.own.get(name, self.defaults.get(name, name)) in (None, "null", "None", "", False)

    def describe(self, *names: str) -> str:
        """Return those settings that the file sets, spelled as there, for a sentence."""
        return ", ".join(render_setting(name, self.own[name]) for name in names if name in self.own)


def count_updates(rollouts: float, batch: float, epochs: float = 1.0) -> float | None:
    """Return the updates made of some rollouts in batches; None for numbers whose quotient no float holds."""
    batches = rollouts / batch
    updates = math.ceil(batches) * epochs if math.isfinite(batches) else math.inf
    return updates if math.isfinite(updates) else None


def render_setting(name: str, value: Any) -> str:
    """Return a setting with its value, short and without control characters, since the file is not ours.

    Hydra's dotted names take no quotes.
    """
    try:
        shown = str(value) if isinstance(value, Computed) or (isinstance(value, str) and "." in name) else repr(value)
    except ValueError:
        shown = "a number of thousands of digits"
    return plain_text(f"{name}={shown}")


def plain_text(text: str, longest: int = 100) -> str:
    """Return a text of somebody else's file short and without control characters."""
    plain = "".join(sign if sign.isprintable() else " " for sign in text)
    return plain if len(plain) <= longest else plain[: longest - 3] + "..."


def render_yaml(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Return settings by dotted path as lines of YAML to merge into a file, each section once."""
    tree: dict[str, Any] = {}
    for path, value in settings.items():
        *parents, name = path.split(".")
        inner = tree
        for parent in parents:
            inner = inner.setdefault(parent, {})
        inner[name] = value
    return tuple(yaml_lines(tree, ""))


def yaml_lines(tree: Mapping[str, Any], indent: str) -> Iterator[str]:
    """Yield the lines of nested tables."""
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield f"{indent}{name}:"
            yield from yaml_lines(value, f"{indent}  ")
        else:
            yield f"{indent}{name}: {yaml_scalar(value)}"


def yaml_scalar(value: Any) -> str:
    """Return a value as YAML 1.1 reads it; a number in scientific notation needs a dot and a sign."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if not isinstance(value, float):
        return str(value)
    digits, exponent, power = f"{value:.6g}".partition("e")
    return digits if not exponent else f"{digits if '.' in digits else digits + '.0'}e{power}"
