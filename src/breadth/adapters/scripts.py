"""Read settings from launch scripts, Python files and notebooks as data: nothing is executed.

Of a shell script we read the arguments, with its own variables put in; of Python the keywords of calls.
"""

from __future__ import annotations

import ast
import operator
import re
import shlex
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from breadth.adapters.configs import Computed, load_yaml, read_text
from breadth.adapters.notebooks import code_cells, is_notebook
from breadth.base.errors import BrokenFileError

ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
ARGUMENT_NAME = re.compile(r"[A-Za-z_][\w.@/-]*")
PLAIN_WORD = re.compile(r"[A-Za-z_/~][\w./~-]{5,}")
"""A word that YAML reads as text: its keywords have at most five characters."""
REFERENCE = re.compile(r"\$\{(\w+)(?::?[-=]([^${}]*))?\}|\$([A-Za-z_]\w*)")
"""``${name}``, ``${name:-default}`` and ``$name``; the innermost first."""
ARITHMETIC = re.compile(r"\$\(\(([^()$]*(?:\([^()$]*\)[^()$]*)*)\)\)")
COMMAND = re.compile(r"\$\([^()]*\)|`[^`]*`")
"""Commands that a shell would run; we never do."""
DECLARATIONS = frozenset({"export", "local", "declare", "readonly", "set"})
MAX_EXPANSIONS = 20
"""Levels of variables that refer to variables."""
MAX_VALUE_LENGTH = 2_000
"""Characters of a value; one that variables expand beyond this is not known."""


def script_arguments(path: Path) -> dict[str, Any]:
    """Return the ``key=value`` and ``--flag value`` arguments of a script, by the last one that sets each.

    A value from a command, or from a variable set elsewhere, is `Computed`. Several values of one flag become a list;
    a flag without a value is True.
    """
    variables: dict[str, str] = {}
    found: dict[str, Any] = {}
    for line in command_lines(read_text(path)):
        words = split_words(expand_variables(line, variables))
        assigned = parse_assignments(words)
        if assigned is None:
            found |= parse_arguments(words)
        else:
            variables |= {
                name: value if len(value) <= MAX_VALUE_LENGTH else f"${name}" for name, value in assigned.items()
            }
    return found


def command_lines(text: str) -> Iterator[str]:
    """Yield commands: lines that end in a backslash are joined; a comment always ends with its line."""
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


def split_words(line: str) -> list[str]:
    """Split a command as the shell does, or at white space where its quotes do not match."""
    try:
        return shlex.split(line, comments=True)
    except ValueError:
        return line.split()


def parse_assignments(words: list[str]) -> dict[str, str] | None:
    """Return the variables that a line sets; None if it is a command."""
    kept = words[1:] if words and words[0] in DECLARATIONS else words
    pairs = [ASSIGNMENT.fullmatch(word) for word in kept if not word.startswith("-")]
    if not pairs or not all(pairs):
        return None
    return {pair[1]: pair[2].removesuffix(";") for pair in pairs if pair is not None and pair[2] != "("}


def expand_variables(line: str, variables: Mapping[str, str]) -> str:
    """Put in variables and sums; what only a shell could evaluate becomes a word with a ``$`` and no blanks."""
    for _ in range(MAX_EXPANSIONS):
        before = line
        line = REFERENCE.sub(
            lambda match: variables.get(match[1] or match[3], match[2] if match[2] is not None else match[0]), line
        )
        line = ARITHMETIC.sub(lambda match: evaluate_sum(match[1], variables), line)
        line = COMMAND.sub("$command", line)
        if line == before or len(line) > 50 * MAX_VALUE_LENGTH:
            break
    return line


def evaluate_sum(text: str, variables: Mapping[str, str]) -> str:
    """Return a whole-number sum as the shell would; names in it are variables."""
    text = re.sub(r"[A-Za-z_]\w*", lambda match: variables.get(match[0], match[0]), text)
    if len(text) > 200 or not re.fullmatch(r"[\d\s+*/()-]+", text):
        return "$sum"
    try:
        return str(integer_value(ast.parse(text.strip().replace("/", "//"), mode="eval").body))
    except (SyntaxError, ValueError, ArithmeticError, RecursionError, MemoryError):
        return "$sum"


def integer_value(node: ast.expr) -> int:
    """Return the value of an integer expression; ValueError if it is not one or too large."""
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        found = OPERATORS[type(node.op)](integer_value(node.left), integer_value(node.right))
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        found = -integer_value(node.operand)
    else:
        found = ast.literal_eval(node)
    if not isinstance(found, int) or abs(found) > 1e15:
        raise ValueError("no whole number of use")
    return found


def parse_arguments(words: list[str]) -> dict[str, Any]:
    """Return the arguments of one command."""
    found: dict[str, Any] = {}
    place = 0
    while place < len(words):
        word = words[place]
        key, equals, value = word.lstrip("+-").partition("=")
        place += 1
        name = key.replace("-", "_") if word.startswith("--") else key
        if equals and ARGUMENT_NAME.fullmatch(key):
            found[name] = parse_argument(value)
        elif word.startswith("--") and not equals and ARGUMENT_NAME.fullmatch(key):
            values = flag_values(words[place:])
            place += len(values)
            read = [parse_argument(value) for value in values]
            found[name] = True if not read else read[0] if len(read) == 1 else read
    return found


def flag_values(words: list[str]) -> list[str]:
    """Return the words that belong to a flag: up to the next flag, ``key=value`` or end of the command."""
    taken: list[str] = []
    for word in words:
        key, equals, _ = word.lstrip("+").partition("=")
        if (
            word.startswith("--")
            or word in ("|", "||", "&&", ";", "&", ">", "2>&1")
            or (equals and "." in key and ARGUMENT_NAME.fullmatch(key))
        ):
            break
        taken.append(word)
    return taken


def parse_argument(text: str) -> Any:
    """Read an argument as Hydra and most parsers do."""
    if "$" in text or len(text) > MAX_VALUE_LENGTH:
        return Computed(text[:60])
    if PLAIN_WORD.fullmatch(text):
        return text
    try:
        return load_yaml(text, exponents=True)
    except (ValueError, RecursionError):
        return text


MAX_SCRIPT_BYTES = 1_000_000
"""Bytes of a Python file that is read."""
UNPACKED = "**"
"""Name given to a call's ``**others`` where their content is not known."""
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

    Literals, arithmetic on them, and names that the file assigns such a value exactly once are read. Any other value,
    or one that two calls set differently, is `Computed`: set, but not known. ``**table`` is expanded if the table is in
    the file.
    """
    tree = parse_notebook(path, names) if is_notebook(path) else parse_python(path, read_text(path, MAX_SCRIPT_BYTES))
    known = constants_of(tree)
    found: dict[str, Any] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and function_name(node.func) in names:
            for name, value in keyword_values(node, known):
                same = name not in found or found[name] == value
                found[name] = value if same else Computed(f"{found[name]} or {value}")
    return found


def parse_python(path: Path, text: str) -> ast.Module:
    """Parse Python without its warnings; BrokenFileError where that fails."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about escapes in somebody else's strings
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        message = " ".join(str(error).split())[:200]
        raise BrokenFileError(
            path, f"is not Python that can be parsed ({message}).", "Give the settings as YAML or JSON."
        ) from error


def parse_notebook(path: Path, names: frozenset[str]) -> ast.Module:
    """Join the code cells of a notebook; one that is not Python is skipped, unless it makes one of the calls."""
    body: list[ast.stmt] = []
    for source in code_cells(path):
        try:
            body += parse_python(path, source).body
        except BrokenFileError:
            if any(f"{name}(" in source for name in names):
                raise
    return ast.Module(body, [])


def keyword_values(call: ast.Call, known: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the keywords of a call with their values."""
    for word in call.keywords:
        value = static_value(word.value, known)
        if word.arg is not None:
            yield word.arg, value
        elif isinstance(value, dict):
            yield from ((str(name), inner) for name, inner in value.items())
        else:
            yield UNPACKED, Computed(str(value))


def function_name(function: ast.expr) -> str:
    """Return the last name of what is called; empty if it has none."""
    return (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )


def constants_of(tree: ast.Module) -> dict[str, Any]:
    """Return the names that are assigned exactly once, with a value known without running the file."""
    values: dict[str, list[ast.expr | None]] = {}
    for node in ast.walk(tree):
        for name, value in name_bindings(node):
            values.setdefault(name, []).append(value)
    once = {name: found[0] for name, found in values.items() if len(found) == 1 and found[0] is not None}
    known: dict[str, Any] = {}
    for _ in range(3):  # a constant may be made of constants, these of others; nobody goes deeper
        known = {
            name: found for name, value in once.items() if not isinstance(found := static_value(value, known), Computed)
        }
    return known


def name_bindings(node: ast.AST) -> Iterator[tuple[str, ast.expr | None]]:
    """Yield the names that a statement assigns, with the value if it is one expression."""
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


def static_value(node: ast.expr, known: Mapping[str, Any]) -> Any:
    """Return the value of an expression without running it; `Computed` if that is not possible."""
    try:
        return _literal_value(node, known)
    except (ValueError, TypeError, SyntaxError, ArithmeticError, RecursionError, MemoryError):
        pass
    try:
        return Computed(ast.unparse(node)[:60])
    except (ValueError, RecursionError, MemoryError):
        return Computed("an expression")


def _literal_value(node: ast.expr, known: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Name):
        return known[node.id] if node.id in known else _refuse(node)
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        left, right = _literal_value(node.left, known), _literal_value(node.right, known)
        plain = all(isinstance(side, int | float) and abs(side) < 1e18 for side in (left, right))
        return OPERATORS[type(node.op)](left, right) if plain else _refuse(node)
    if isinstance(node, ast.Call) and function_name(node.func) == "dict" and not node.args:
        return dict(keyword_values(node, known))
    if isinstance(node, ast.Dict) and all(isinstance(key, ast.Constant) for key in node.keys):
        return {
            key.value: static_value(value, known)
            for key, value in zip(node.keys, node.values, strict=True)
            if isinstance(key, ast.Constant)
        }
    return ast.literal_eval(node)


def _refuse(node: ast.expr) -> Any:
    raise ValueError(f"{type(node).__name__} is no literal")
