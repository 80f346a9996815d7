"""Read the keywords of calls in Python files and notebooks; the code is parsed, never executed."""

from __future__ import annotations

import ast
import operator
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from breadth.adapters.configs import Computed, read_text
from breadth.base.errors import BrokenFileError

LARGEST_SCRIPT = 1_000_000
"""Bytes of a Python file at most."""
LARGEST_NOTEBOOK = 32_000_000
"""Bytes of a notebook at most: pictures among its outputs are most of it."""
REST = "**"
"""Name under which a call's ``**others`` stand, where nobody can tell what they are."""
OPERATORS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}
"""Arithmetic that settings are written in; no powers, whose results have no bound."""


def call_keywords(path: Path, names: frozenset[str]) -> dict[str, Any]:
    """Return the keywords of the calls of some classes in a Python file or notebook.

    Literals and arithmetic on them are taken, and names that the file assigns such a value exactly once. What else is
    computed, or set differently by two calls, is `Computed`: set, but not known. ``**table`` is unfolded where the
    table stands in the file.
    """
    tree = _notebook(path, names) if path.suffix == ".ipynb" else _parsed(path, read_text(path, LARGEST_SCRIPT))
    known = _constants(tree)
    found: dict[str, Any] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _called(node.func) in names:
            for name, value in _keywords(node, known):
                same = name not in found or found[name] == value
                found[name] = value if same else Computed(f"{found[name]} or {value}")
    return found


def _parsed(path: Path, text: str) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes in somebody else's strings
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        said = " ".join(str(error).split())[:200]
        raise BrokenFileError(
            path, f"is not Python that can be parsed ({said}).", "Give the settings as YAML or JSON."
        ) from error


def _notebook(path: Path, names: frozenset[str]) -> ast.Module:
    """Put the code cells of a notebook together; a cell that is no Python is passed over, unless it makes one of the calls."""
    try:
        document = orjson.loads(read_text(path, LARGEST_NOTEBOOK))
    except orjson.JSONDecodeError as error:
        raise BrokenFileError(
            path, f"is no notebook: {error}.", "Save it again, or export it as a Python file."
        ) from error
    body: list[ast.stmt] = []
    for source in _cells(document):
        try:
            body += _parsed(path, source).body
        except BrokenFileError:
            if any(f"{name}(" in source for name in names):
                raise
    return ast.Module(body, [])


def _cells(document: Any) -> Iterator[str]:
    cells = document.get("cells") if isinstance(document, Mapping) else None
    for cell in cells if isinstance(cells, list) else ():
        if isinstance(cell, Mapping) and cell.get("cell_type") == "code":
            source = cell.get("source")
            text = "".join(str(line) for line in source) if isinstance(source, list) else str(source)
            yield "\n".join(_python(line) for line in text.splitlines())


def _python(line: str) -> str:
    """Replace what only notebooks have, commands of the shell and of the notebook, by a statement that does nothing."""
    bare = line.lstrip()
    return line[: len(line) - len(bare)] + "pass" if bare.startswith(("!", "%")) else line


def _keywords(call: ast.Call, known: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for word in call.keywords:
        value = _value(word.value, known)
        if word.arg is not None:
            yield word.arg, value
        elif isinstance(value, dict):
            yield from ((str(name), inner) for name, inner in value.items())
        else:
            yield REST, Computed(str(value))


def _called(function: ast.expr) -> str:
    return (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )


def _constants(tree: ast.Module) -> dict[str, Any]:
    """Return names that are given a value exactly once, one that can be told without running anything."""
    values: dict[str, list[ast.expr | None]] = {}
    for node in ast.walk(tree):
        for name, value in _bound(node):
            values.setdefault(name, []).append(value)
    once = {name: found[0] for name, found in values.items() if len(found) == 1 and found[0] is not None}
    known: dict[str, Any] = {}
    for _ in range(3):  # a constant may be made of constants, these of others; nobody goes deeper
        known = {name: found for name, value in once.items() if not isinstance(found := _value(value, known), Computed)}
    return known


def _bound(node: ast.AST) -> Iterator[tuple[str, ast.expr | None]]:
    """Yield the names that a statement gives a value, with the value where it is one expression."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Name):
                yield target.id, node.value
            else:
                yield from ((inner.id, None) for inner in ast.walk(target) if isinstance(inner, ast.Name))
    elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and isinstance(node.target, ast.Name):
        yield node.target.id, node.value
    elif isinstance(node, ast.AugAssign | ast.For | ast.comprehension):
        yield from ((inner.id, None) for inner in ast.walk(node.target) if isinstance(inner, ast.Name))
    elif isinstance(node, ast.arg):
        yield node.arg, None


def _value(node: ast.expr, known: Mapping[str, Any]) -> Any:
    """Return what an expression is, without running it; Computed where that cannot be told."""
    try:
        return _told(node, known)
    except (ValueError, TypeError, SyntaxError, ArithmeticError, RecursionError, MemoryError):
        pass
    try:
        return Computed(ast.unparse(node)[:60])
    except (ValueError, RecursionError, MemoryError):
        return Computed("an expression")


def _told(node: ast.expr, known: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Name):
        return known[node.id] if node.id in known else _refuse(node)
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        left, right = _told(node.left, known), _told(node.right, known)
        plain = all(isinstance(side, int | float) and abs(side) < 1e18 for side in (left, right))
        return OPERATORS[type(node.op)](left, right) if plain else _refuse(node)
    if isinstance(node, ast.Call) and _called(node.func) == "dict" and not node.args:
        return dict(_keywords(node, known))
    if isinstance(node, ast.Dict) and all(isinstance(key, ast.Constant) for key in node.keys):
        return {
            key.value: _value(value, known)
            for key, value in zip(node.keys, node.values, strict=True)
            if isinstance(key, ast.Constant)
        }
    return ast.literal_eval(node)


def _refuse(node: ast.expr) -> Any:
    raise ValueError(f"{type(node).__name__} is no literal")
