"""The words: functions are verbs, a public class is defined once, loop variables are nouns, no private dialect."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "breadth"
FILES = sorted(SOURCE.rglob("*.py"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]

MAX_PRIVATE = 0.30
"""Share of functions that may be private: more, and a file is read by jumping about in it."""


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


IRREGULAR = words(
    "told said heard begun given taken drawn fed spoken written known shown sent left held kept made found lost "
    "gone put cut chosen broken seen done got grown meant met paid run set shut spent stood thought torn worn won "
    "bound built bought brought caught dealt driven eaten fallen felt flown forgotten frozen hidden hit hung laid "
    "led lent lit ridden risen sold shaken shot slept slid split spread struck sung sunk sworn swept swum taught "
    "thrown understood woken worth"
) - words("put cut set run split spread hit shut")  # the same word is the verb
PREPOSITIONS = words(
    "of by at in into beside besides within without between among along across apart together after before behind "
    "beyond over under through toward until up down off out about against again anew"
)
NOT_PARTICIPLES = words(
    "embed feed seed need speed proceed exceed bleed breed heed weed shed wed string ring king thing bring sing spring "
    "swing wing ping fling cling"
)
ADJECTIVES = words(
    "masked weighted expected paired unbiased signed named nested wrapped shared trailing leading missing remaining "
    "running rolling thinking sampling training stopping streaming recorded logged measured stated forced padded "
    "truncated required allowed used unused known unknown matching decoding chosen closed fixed mixed generated "
    "reported supported timed seeded scaled merged sorted forking planning stopped given embedded pooled"
)
"""Participles that may qualify a noun behind them (``masked_mean``); alone they are no name for a function."""
STOP_LIST = {
    r"told|said|heard": "the result, the reply, the message",
    r"judged": "evaluated, diagnosed, graded",
    r"beside": "next to; for a data set: validation",
    r"stands? (?:beside|still|there|here|in)|stands": "is, holds",
    r"anew": "again",
    r"dearer": "more expensive",
    r"for want of": "without, because there is no",
    r"foretold|foretells?|foretelling": "predicted",
    r"reckon\w*": "count, assume",
    r"whoever": "the user, anyone who",
    r"in the place of": "instead of",
    r"knobs?": "setting, field of the config",
    r"starved": "zero-variance (groups)",
    r"inert": "without effect",
    r"coursework": "GRPO run",
    r"lot": "batch",
}
"""Words of no codebase of the field -> what to write instead."""
OLD_METRIC = "starved_groups"
"""A metric's name in run folders that were written before; they still open."""


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def short(path: Path) -> str:
    return str(path.relative_to(ROOT))


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield the functions and methods of a file that are not Python's own hooks."""
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not re.fullmatch("__.*__", node.name):
            yield node


def is_participle(word: str) -> bool:
    return word in IRREGULAR or (word not in NOT_PARTICIPLES and len(word) > 4 and word.endswith(("ed", "ing")))


def is_no_verb(name: str) -> bool:
    """Whether a function is named by a participle or a preposition."""
    first, *rest = name.strip("_").split("_")
    if first in PREPOSITIONS or (not rest and first in {"from", "to", "with", "as", "on", "for"}):
        return True
    return is_participle(first) and not (rest and first in ADJECTIVES)


def loop_targets(path: Path) -> Iterator[ast.Name]:
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            yield from (name for name in ast.walk(node.target) if isinstance(name, ast.Name))


def words_found(path: Path) -> Iterator[str]:
    pattern = re.compile(rf"(?<![a-zA-Z])(?:{'|'.join(STOP_LIST)})(?![a-zA-Z])", re.IGNORECASE)
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        for match in pattern.finditer(line.replace(OLD_METRIC, "")):
            advice = next(text for word, text in STOP_LIST.items() if re.fullmatch(word, match[0], re.IGNORECASE))
            yield f"{short(path)}:{number} {match[0]!r}: say {advice}"


def test_functions_are_verbs() -> None:
    wrong = [
        f"{short(path)}:{node.lineno} {node.name}"
        for path in FILES
        for node in functions(path)
        if is_no_verb(node.name)
    ]
    assert wrong == [], "name the function by what it does: render_patch, not worded; split_runs, not apart"


def test_a_participle_alone_is_no_verb() -> None:
    assert all(map(is_no_verb, ("told", "_worded", "beside", "of", "resting", "runs_apart_".replace("runs_", ""))))
    assert not any(map(is_no_verb, ("render_patch", "masked_mean", "to_json", "from_row", "feed", "set_seed", "embed")))


def test_a_public_class_is_defined_once() -> None:
    places: dict[str, list[str]] = {}
    for path in FILES:
        for node in parse(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(short(path))
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}, "rename all but one, or merge them"


def test_loop_variables_are_nouns() -> None:
    wrong = [f"{short(path)}:{name.lineno}" for path in FILES for name in loop_targets(path) if name.id == "one"]
    assert wrong == [], "name what is looped over: for finding in findings"


def test_no_word_of_the_stop_list_is_used() -> None:
    assert [found for path in (*FILES, *PAGES) for found in words_found(path)] == []


def test_few_functions_are_private() -> None:
    names = [node.name for path in FILES for node in functions(path)]
    share = sum(name.startswith("_") for name in names) / len(names)
    assert share <= MAX_PRIVATE, f"{share:.1%} are private: put those called once back into their caller"
