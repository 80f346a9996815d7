"""The examples of the how-to pages are run as they are printed, and held to the contracts their pages name."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

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
    verl = Path(find_spec("breadth.adapters.verl").submodule_search_locations[0])  # type: ignore[union-attr,index]
    code = "".join(file.read_text(encoding="utf-8") for file in verl.glob("c*.py"))
    for condition in hook.VERL_CONDITIONS.values():
        assert all(name in code for name in re.findall(r"`(\w+)`", condition)), condition
