"""Mutation testing: which mutants there are, that noticed ones are killed, and that the tree is left alone."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

TOOL = Path(__file__).parent.parent / "tools" / "mutate.py"
SOURCE = '''
"""A tiny module: 1 + 1 in its docstring is not mutated."""

from typing import TypeAlias

Number: TypeAlias = int | float


class Vote:
    example: dict[str, int] = {"n": 4}


def is_adult(age: int) -> bool:
    """Return whether somebody is an adult: age >= 18."""
    return age >= 18


def count_down(start: int) -> int:
    steps = 0
    while start > 0:
        start -= 1
        steps += 1
    return steps


def describe(number: int) -> str:
    return f"{number + 1}"
'''
TESTS = """
from tiny.numbers import count_down, is_adult


def test_is_adult():
    assert is_adult(30)
    assert not is_adult(3)


def test_count_down():
    assert count_down(3) == 3
"""
CONFIG = """
bar = 0.9
spare_cpu_seconds = 1
modules = ["tiny/*.py"]

[[equivalent]]
module = "tiny/numbers.py"
function = "count_down"
before = "while start > 0:"
after = "while start > 1:"
reason = "For the sake of the test."
"""


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = spec_from_file_location("mutate_script", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in {
        "src/tiny/__init__.py": "",
        "src/tiny/numbers.py": SOURCE,
        "tests/test_numbers.py": TESTS,
        "tools/mutate.toml": CONFIG,
        "pyproject.toml": '[tool.pytest.ini_options]\naddopts = ["--import-mode=importlib"]\n',
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def changes(tool: ModuleType, source: str) -> set[tuple[str, str]]:
    return {(mutant.before, mutant.after) for mutant in tool.find_mutants("m.py", textwrap.dedent(source))}


@pytest.mark.parametrize(
    ("source", "after"),
    [
        ("x = a < b <= c", {"x = a <= b <= c", "x = a < b < c"}),
        ("x = a is None or not b", {"x = a is not None or not b", "x = a is None and (not b)", "x = a is None or b"}),
        ("x = a + b * -c", {"x = a - b * -c", "x = a + b / -c", "x = a + b * c"}),
        ("x += 2", {"x -= 2", "x += 3"}),
        ("x = max(a, True)", {"x = min(a, True)", "x = max(a, False)"}),
        ("x = a.clamp(min=0.5)", {"x = a.clamp(max=0.5)", "x = a.clamp(min=1.5)"}),
        ("x = 1e300", {"x = 2e+300"}),
        ("x = 'a' + b", set()),
        ("x = zip(a, b, strict=True)", set()),
        ("logger.info(a + b)", set()),
        ("assert a < b", set()),
    ],
)
def test_what_a_statement_becomes(tool: ModuleType, source: str, after: set[str]) -> None:
    assert {change for _, change in changes(tool, source)} == after


def test_early_returns_defaults_and_jumps_are_mutated_and_what_only_describes_is_not(tool: ModuleType) -> None:
    source = '''
        @cache(maxsize=8)
        def find(rows: "list[1]", most: int = 3) -> "Literal[1]":
            """Text with 1 < 2."""
            for row in rows:
                if not row:
                    continue
                return row
            return None

        class Thing:
            size: int = 4

            def __repr__(self):
                return f"{1 + 1}" * 2
    '''
    assert changes(tool, source) == {
        (
            "def find(rows: 'list[1]', most: int=3) -> 'Literal[1]':",
            "def find(rows: 'list[1]', most: int=4) -> 'Literal[1]':",
        ),
        ("if not row:", "if row:"),
        ("continue", "break"),
        ("return row", "return None"),
        ("return row", "pass"),
        ("size: int = 4", "size: int = 5"),
    }


def test_a_mutant_differs_in_one_place_and_the_next_is_not_affected(tool: ModuleType) -> None:
    first, second = tool.find_mutants("m.py", "x = a + b\ny = a - b\n")
    assert (first.line, first.render()) == (1, "x = a - b\ny = a - b")
    assert (second.line, second.render()) == (2, "x = a + b\ny = a + b")
    assert first.render() == "x = a - b\ny = a - b"


def run(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(TOOL), "--root", str(project), *arguments], capture_output=True, text=True, check=False
    )


def test_what_the_tests_notice_is_killed_and_the_rest_is_named(project: Path) -> None:
    before = {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}
    done = run(project, "--each", "0", "--out", str(project / "out.json"))
    assert done.returncode == 1, done.stderr
    result = json.loads((project / "out.json").read_text())
    (module,) = result["modules"]
    survivors = {(mutant["function"], mutant["after"]) for mutant in module["survivors"]}
    # Nobody asks at 18 or 19, nobody calls describe; ``start >= 0`` takes a step more.
    assert survivors == {
        ("is_adult", "return age > 18"),
        ("is_adult", "return age >= 19"),
        ("describe", "return None"),
    }
    assert module["timed_out"] == 1, "counting up from 3 never ends"
    assert module["tried"] == module["possible"] == module["killed"] + 3
    assert "return age >= 18` -> `return age > 18" in done.stdout
    (project / "out.json").unlink()
    assert {path: path.read_bytes() for path in project.rglob("*") if path.is_file()} == before, "nothing is left"


def test_a_seed_chooses_the_sample_and_a_met_bar_is_a_success(tool: ModuleType, project: Path) -> None:
    (project / "tools" / "mutate.toml").write_text(CONFIG.replace("0.9", "0.0"))
    done = run(project, "--each", "1", "--seed", "5", "--module", "numbers")
    assert done.returncode == 0, done.stderr
    assert "of   1 killed" in done.stdout
    chosen = [
        [mutant.line for mutant in tool.choose_mutants(project, "tiny/numbers.py", (), tool.Options(4, seed, 1))[0]]
        for seed in (5, 5, 6)
    ]
    assert chosen[0] == chosen[1] != chosen[2]


def test_tests_that_fail_without_any_change_are_an_error(project: Path) -> None:
    (project / "tests" / "test_numbers.py").write_text("def test_wrong():\n    assert 1 == 2\n")
    done = run(project)
    assert done.returncode == 1
    assert "fail without any change" in done.stderr
