"""Read the arguments of launch scripts as data, their own variables put in; nothing is run."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from breadth.adapters.calls import OPERATORS
from breadth.adapters.configs import Computed, read_text

ASSIGNED = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
KEYED = re.compile(r"[A-Za-z_][\w.@/-]*")
WORD = re.compile(r"[A-Za-z_/~][\w./~-]{5,}")
"""What is a word whatever it says: YAML's own have five signs at most."""
REFERENCE = re.compile(r"\$\{(\w+)(?::?[-=]([^${}]*))?\}|\$([A-Za-z_]\w*)")
"""``${name}``, ``${name:-default}`` and ``$name``; the innermost first."""
ARITHMETIC = re.compile(r"\$\(\(([^()$]*(?:\([^()$]*\)[^()$]*)*)\)\)")
COMMAND = re.compile(r"\$\([^()]*\)|`[^`]*`")
"""What a shell would run: never here."""
DECLARING = frozenset({"export", "local", "declare", "readonly", "set"})
DEEPEST = 20
"""How often variables may stand in one another."""
LONGEST = 2_000
"""Signs of a value at most; what variables unfold to beyond is not known."""


def script_arguments(path: Path) -> dict[str, Any]:
    """Return the ``key=value`` and ``--flag value`` arguments of a script, by the last one that sets each.

    What a command, or a variable from outside, would fill in is `Computed`. Several values of one flag become a list,
    none is True.
    """
    variables: dict[str, str] = {}
    found: dict[str, Any] = {}
    for line in _lines(read_text(path)):
        words = _words(_resolved(line, variables))
        assigned = _assigned(words)
        if assigned is None:
            found |= _arguments(words)
        else:
            variables |= {name: value if len(value) <= LONGEST else f"${name}" for name, value in assigned.items()}
    return found


def _lines(text: str) -> Iterator[str]:
    """Yield commands: lines joined where a backslash ends them; a comment ends with its line, whatever it ends in."""
    held = ""
    for line in text.splitlines():
        bare = line.strip()
        if bare.startswith("#"):
            continue
        if bare.endswith("\\"):
            held += bare[:-1] + " "
            continue
        if held or bare:
            yield held + bare
        held = ""
    if held:
        yield held


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line, comments=True)
    except ValueError:
        return line.split()


def _assigned(words: list[str]) -> dict[str, str] | None:
    """Return the variables that a line sets; None where it is a command."""
    kept = words[1:] if words and words[0] in DECLARING else words
    pairs = [ASSIGNED.fullmatch(word) for word in kept if not word.startswith("-")]
    if not pairs or not all(pairs):
        return None
    return {pair[1]: pair[2].removesuffix(";") for pair in pairs if pair is not None and pair[2] != "("}


def _resolved(line: str, variables: Mapping[str, str]) -> str:
    """Put variables and sums in; what only a shell could tell becomes a word with a ``$`` and no blanks."""
    for _ in range(DEEPEST):
        before = line
        line = REFERENCE.sub(
            lambda match: variables.get(match[1] or match[3], match[2] if match[2] is not None else match[0]), line
        )
        line = ARITHMETIC.sub(lambda match: _sum(match[1], variables), line)
        line = COMMAND.sub("$command", line)
        if line == before or len(line) > 50 * LONGEST:
            break
    return line


def _sum(text: str, variables: Mapping[str, str]) -> str:
    """Return a whole-number sum as the shell would; names stand for variables there."""
    text = re.sub(r"[A-Za-z_]\w*", lambda match: variables.get(match[0], match[0]), text)
    if len(text) > 200 or not re.fullmatch(r"[\d\s+*/()-]+", text):
        return "$sum"
    try:
        return str(_whole(ast.parse(text.strip().replace("/", "//"), mode="eval").body))
    except (SyntaxError, ValueError, ArithmeticError, RecursionError, MemoryError):
        return "$sum"


def _whole(node: ast.expr) -> int:
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        found = OPERATORS[type(node.op)](_whole(node.left), _whole(node.right))
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        found = -_whole(node.operand)
    else:
        found = ast.literal_eval(node)
    if not isinstance(found, int) or abs(found) > 1e15:
        raise ValueError("no whole number of use")
    return found


def _arguments(words: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    place = 0
    while place < len(words):
        word = words[place]
        key, equals, value = word.lstrip("+-").partition("=")
        place += 1
        if equals and KEYED.fullmatch(key):
            found[_name(word, key)] = _value(value)
        elif word.startswith("--") and not equals and KEYED.fullmatch(key):
            values = _values(words[place:])
            place += len(values)
            read = [_value(one) for one in values]
            found[_name(word, key)] = True if not read else read[0] if len(read) == 1 else read
    return found


def _name(word: str, key: str) -> str:
    return key.replace("-", "_") if word.startswith("--") else key


def _values(words: list[str]) -> list[str]:
    """Return the words that belong to a flag: up to the next flag, ``key=value`` or end of the command."""
    taken: list[str] = []
    for word in words:
        key, equals, _ = word.lstrip("+").partition("=")
        if (
            word.startswith("--")
            or word in ("|", "||", "&&", ";", "&", ">", "2>&1")
            or (equals and "." in key and KEYED.fullmatch(key))
        ):
            break
        taken.append(word)
    return taken


def _value(text: str) -> Any:
    """Read an argument as Hydra and most parsers do."""
    if "$" in text or len(text) > LONGEST:
        return Computed(text[:60])
    if WORD.fullmatch(text):
        return text
    from breadth.adapters.yaml_values import (
        loaded,
    )  # PyYAML is slow to load, and most files that the doctor is shown are no scripts

    try:
        return loaded(text, exponents=True)
    except (ValueError, RecursionError):
        return text
