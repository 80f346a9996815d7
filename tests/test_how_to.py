"""The examples of the how-to pages are run as they are printed, and held to the contracts their pages name."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from breadth.runs.reader import Run
from breadth.runs.schema import Header
from breadth.runs.writer import RunWriter

HOW_TO = Path(__file__).parent.parent / "docs" / "how-to"


@pytest.fixture
def example(tmp_path: Path) -> Iterator[Any]:
    """Import the Python of a how-to page as one module."""
    names: list[str] = []

    def load(page: str) -> Any:
        blocks = re.findall(r"^```python\n(.*?)^```", (HOW_TO / page).read_text(encoding="utf-8"), re.S | re.M)
        name = f"how_to_{Path(page).stem}"
        file = tmp_path / f"{name}.py"
        file.write_text("\n\n".join(blocks), encoding="utf-8")
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        names.append(name)
        spec.loader.exec_module(module)
        return module

    yield load
    for name in names:
        del sys.modules[name]


def test_the_importer_keeps_the_contract_of_its_page(example: Any, tmp_path: Path) -> None:
    example("importer.md").test_contract(tmp_path)


def test_the_mechanisms_keep_the_contract_of_their_page(example: Any) -> None:
    pytest.importorskip("torch", reason="the extra 'train' is not installed")
    page = example("mechanism.md")
    page.test_contract()
    assert page.DriftShare().needs
    assert page.DriftShare().surveys


def test_the_strategy_keeps_the_contract_of_its_page(example: Any) -> None:
    assert example("strategy.md").TwoRounds()


def test_the_finding_keeps_the_contract_of_its_page(example: Any, tmp_path: Path) -> None:
    example("finding.md").test_contract(tmp_path)


def test_the_table_of_fields_is_what_the_trainers_provide() -> None:
    pytest.importorskip("torch", reason="the extra 'train' is not installed")
    pytest.importorskip("mkdocs", reason="the documentation's dependencies are not installed")
    spec = importlib.util.spec_from_file_location("mechanisms_hook", HOW_TO.parent / "hooks" / "mechanisms.py")
    assert spec is not None
    assert spec.loader is not None
    hook = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hook)
    assert hook.render_fields() in (HOW_TO / "mechanism.md").read_text(encoding="utf-8")


def test_the_query_of_the_tutorial_counts_the_answers_of_each_problem(tmp_path: Path) -> None:
    (query,) = re.findall(
        r'run\.query\("""(.*?)"""\)', (HOW_TO.parent / "tutorial.md").read_text(encoding="utf-8"), re.S
    )
    writer = RunWriter(tmp_path / "run", Header(name="run"))
    # Three answers to the first problem, one of them also the only one to the second: two a problem, not 3 / 2.
    writer.rollouts({"problem": [*"aaabb"], "answer": [*"12311"]}, 4)
    writer.rollouts({"problem": [*"cc"], "answer": [*"89"]}, 4, split="eval")
    assert Run.open(tmp_path / "run").query(query).to_pylist() == [{"step": 4, "answers_per_problem": 2.0}]
