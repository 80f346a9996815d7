"""The layout: who may import whom, how long a function may be, where tests live, what must be documented."""

from __future__ import annotations

import ast
import json
import math
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from breadth.doctor.finding import FINDINGS
from breadth.inference.catalogue import ALLOCATORS, STOP_RULES, STRATEGIES
from breadth.inference.policy import Policy
from breadth.runs.importer import IMPORTERS
from breadth.training.catalogue import MECHANISMS

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "breadth"
TESTS = ROOT / "tests"

MAY_IMPORT = {
    "base": set(),
    "measure": {"base"},
    "runs": {"base"},
    "report": {"base"},
    "training": {"base", "measure"},
    "inference": {"base", "measure"},
    "runtime": {"base", "inference", "runs", "measure"},
    "doctor": {"base", "tuning", "inference", "report", "runs", "measure"},
    "tuning": {"base", "inference", "report", "runs", "measure"},
    "comparison": {"base", "inference", "report", "runs", "measure"},
    "adapters": {"base", "training", "inference", "runtime", "doctor", "runs", "measure"},
    "dashboard": {"base", "doctor", "comparison", "tuning", "report", "runs", "measure"},
    "lab": {
        "base",
        "adapters",
        "runtime",
        "doctor",
        "comparison",
        "tuning",
        "training",
        "inference",
        "report",
        "runs",
        "measure",
    },
    "cli": {"*"},
    "testing": {"*"},
}
"""Package -> packages it may import. This is the only copy of the table."""

HEAVY = ("torch", "duckdb", "fastapi", "starlette", "aiohttp", "scipy", "pyarrow", "numpy", "typer", "rich")
MAX_FUNCTION_LINES = 60
FILES = sorted(SOURCE.rglob("*.py"))
EVERY_FILE = sorted(
    file for folder in ("src", "tests", "benchmarks", "tools", "docs") for file in (ROOT / folder).rglob("*.py")
)


def short(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imported(path: Path) -> Iterator[str]:
    """Yield the modules of ours that a file imports, wherever in it."""
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("breadth"))
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{short(path)}:{node.lineno} imports relatively"
            if node.module and node.module.split(".")[0] == "breadth":
                yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_imports_point_the_allowed_way() -> None:
    wrong = []
    for path in FILES:
        package = path.relative_to(SOURCE).parts[0]
        if package not in ("__init__.py", "__main__.py", "api.py"):
            allowed = MAY_IMPORT[package] | {package, "__version__"}
            wrong += [
                f"{short(path)} imports {module}"
                for module in imported(path)
                if not allowed & {"*", module.split(".")[1]}
            ]
    assert wrong == [], "move the code to a package that may import it (MAY_IMPORT above)"


def test_every_package_is_in_the_table() -> None:
    assert {path.name for path in SOURCE.iterdir() if path.is_dir() and path.name != "__pycache__"} <= MAY_IMPORT.keys()


def test_importing_breadth_loads_nothing_heavy() -> None:
    script = "import sys, breadth; print([name for name in sys.argv[1].split() if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script, " ".join(HEAVY)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_tests_mirror_the_source() -> None:
    sources = {file.relative_to(SOURCE) for file in FILES if file.name not in ("__init__.py", "__main__.py")}
    tests = {file.relative_to(TESTS) for file in TESTS.rglob("test_*.py")}
    wanted = {source.with_name(f"test_{source.name}") for source in sources}
    assert wanted - tests == set(), "a source file has no test file"
    extra = {test for test in tests - wanted if len(test.parts) > 1 and not test.name.startswith("test_real")}
    assert extra == set(), "a test file has no source file (end-to-end tests are called test_real*.py)"


def test_every_file_starts_with_its_purpose() -> None:
    purposes = {short(path): (ast.get_docstring(parse(path)) or "").splitlines() for path in EVERY_FILE}
    assert [path for path, lines in purposes.items() if not lines or not lines[0].endswith((".", ":"))] == []


def test_no_function_is_long() -> None:
    functions = [
        (path, node)
        for path in EVERY_FILE
        for node in ast.walk(parse(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    lengths = {
        f"{short(path)}:{node.lineno} {node.name}": (node.end_lineno or 0) - node.lineno for path, node in functions
    }
    assert {name: length for name, length in lengths.items() if length >= MAX_FUNCTION_LINES} == {}


@cache
def load_module(path: Path) -> ModuleType:
    """Load a script of the documentation or the tools, so that it and the tests hold one rule."""
    spec = spec_from_file_location(f"{path.stem}_script", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def hook(name: str) -> ModuleType:
    return load_module(ROOT / "docs" / "hooks" / f"{name}.py")


def test_every_public_name_is_documented() -> None:
    names = {short(path): list(hook("reference").undocumented(parse(path))) for path in FILES}
    assert {path: missing for path, missing in names.items() if missing} == {}


def own_test(place: str) -> str:
    """Return the text of the test file of a part that a catalogue lists."""
    *rooms, file = place.partition(":")[0].split(".")[1:]
    return TESTS.joinpath(*rooms, f"test_{file}.py").read_text(encoding="utf-8")


@pytest.mark.parametrize(("name", "place"), IMPORTERS.entries.items())
def test_every_importer_is_documented_and_held_to_the_contract(name: str, place: str) -> None:
    assert "check_importer(IMPORTER" in own_test(place)
    assert type(IMPORTERS.load(name)).__doc__


@pytest.mark.parametrize("place", STRATEGIES.entries.values())
def test_every_strategy_is_held_to_the_contract(place: str) -> None:
    assert "check_strategy(" in own_test(place)


def test_an_effect_counts_as_measured_only_if_its_runs_show_it() -> None:
    pytest.importorskip("torch", reason="the extra 'train' is not installed")
    results = json.loads((ROOT / "docs" / "data" / "effects.json").read_text(encoding="utf-8"))
    page = hook("mechanisms").page()
    for effect in results["effects"]:
        runs, number = effect["runs"], effect["number"]
        control = results["controls"][effect["against"]]
        assert runs.keys() == control.keys()
        assert len(runs) >= 3
        gaps = [runs[seed][number] - control[seed][number] for seed in runs]
        mean = sum(gaps) / len(gaps)
        spread = math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / (len(gaps) - 1))
        half = 4.302653 * spread / math.sqrt(len(gaps))  # Student's t at 97.5 % with two degrees of freedom
        assert effect["interval"] == pytest.approx([mean - half, mean + half], abs=1e-5)
        assert effect["measured"] == (mean - half > 0 if effect["expected"] == "up" else mean + half < 0)
    measured = sum(effect["measured"] for effect in results["effects"])
    assert page.count("**effect measured**") == measured > 0
    assert all(f"[`{name}`](reference/" in page for name in MECHANISMS.entries)


def test_the_pages_of_parts_are_made_from_their_classes() -> None:
    pytest.importorskip("torch", reason="the extra 'train' is not installed")
    from breadth.training.recipes import RECIPES

    strategies, papers = hook("strategies"), "\n".join(hook("papers").rows())
    page = strategies.page()
    for catalogue in (STRATEGIES, STOP_RULES, ALLOCATORS):
        assert all(f"[`{name}`](reference/" in page for name in catalogue.entries)
    for name, kind in STRATEGIES:
        if strategies.in_words(kind.example):
            text = strategies.policy_text(name, kind.example)
            assert f"`{text}`" in page
            assert Policy.parse(text).strategy == kind.make_example()
    for catalogue in (MECHANISMS, STRATEGIES, STOP_RULES, ALLOCATORS):
        for _, kind in catalogue:
            assert kind.paper is None or kind.paper.source in papers
    marked = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
    assert marked.count(hook("papers").MARK) == 1
    mechanisms = hook("mechanisms").page()
    assert all(f"`{recipe}`" in mechanisms and f"`{recipe}`" in papers for recipe in RECIPES)


def test_the_project_names_no_machine() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    for name in listed:
        path = ROOT / name
        if path.suffix in {".py", ".md", ".toml", ".yml", ".yaml", ".txt", ""} and path.is_file() and name != "LICENSE":
            text = path.read_text(encoding="utf-8", errors="ignore")
            assert "/" + "work/" not in text, name
            assert "/" + "root/" not in text, name
            assert "/" + "home/" not in text, name


def test_the_pages_of_results_are_what_the_data_gives() -> None:
    tool = load_module(ROOT / "tools" / "write_results.py")
    for name, text in tool.pages().items():
        written = (ROOT / "docs" / "results" / f"{name}.md").read_text(encoding="utf-8")
        assert written == text, "run: python tools/write_results.py"


def test_prose_is_no_wider_than_code() -> None:
    wide = []
    for path in [*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md"))]:
        is_code = False
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            is_code ^= line.lstrip().startswith("```")
            if len(line) > 120 and not is_code and not line.startswith(("|", "![")):
                wide.append(f"{short(path)}:{number}")
    assert wide == [], "break the line at 120 columns"


def test_the_page_of_findings_has_every_finding_and_what_to_do() -> None:
    page = load_module(ROOT / "docs" / "hooks" / "findings.py").page()
    rows = re.findall(r"^\| `([a-z-]+)` \| (.+) \| (.+) \|$", page, re.MULTILINE)
    assert sorted(name for name, _, __ in rows) == sorted(FINDINGS.entries)
    assert all(meaning[0].islower() and step[0].islower() for _, meaning, step in rows)  # parts of a line
