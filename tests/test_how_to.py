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

from breadth.runs.reader import Run
from breadth.runs.schema import Header
from breadth.runs.writer import RunWriter
from breadth.testing.fake_server import spawn_server

HOW_TO = Path(__file__).parent.parent / "docs" / "how-to"


@pytest.fixture
def example(tmp_path: Path) -> Iterator[Any]:
    """Import the Python of a how-to page as one module."""
    names: list[str] = []

    def load(page: str) -> Any:
        blocks = blocks_of(f"how-to/{page}")
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
    for mechanism in (page.DriftMask, page.DriftShare):
        assert mechanism.__doc__.count("\n") >= 2, "our own must say formula, source and harm"


def test_the_strategy_keeps_the_contract_of_its_page(example: Any) -> None:
    strategy = example("strategy.md").TwoRounds
    assert strategy()
    assert strategy.__doc__
    assert strategy.__call__.__doc__, "our own are refused without it"


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


def blocks_of(page: str) -> list[str]:
    """Return the Python blocks of a page of the documentation."""
    return re.findall(r"^```python\n(.*?)^```", (HOW_TO.parent / page).read_text(encoding="utf-8"), re.S | re.M)


def test_what_the_page_on_writing_runs_shows_is_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first, second = blocks_of("how-to/write.md")
    columns = {"ids": ["a"], "texts": ["\\boxed{1}"], "answers": ["1"], "rewards": [1.0], "grades": [True]}
    names: dict[str, Any] = {"rank": 0, "entropy": 0.5, "reward": 1.0, **columns}
    exec(second, names)  # noqa: S102 - our own page
    exec(first.replace("1001", "4"), names)  # noqa: S102 - our own page
    run = Run.open("runs/my-run")
    assert run.series("entropy").steps.tolist() == [1, 2, 3]
    assert run.header.entropies["entropy"].estimator == "exact"


def test_the_tutorial_and_the_page_on_run_folders_query_as_they_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for place in ("runs/first", "my-run"):
        writer = RunWriter(Path(place))
        writer.metrics(1, {"entropy": 0.5})
        writer.rollouts({"problem": ["a", "a"], "answer": ["1", "2"], "reward": [0.0, 1.0]}, 1)
    for block in (*blocks_of("tutorial.md"), *blocks_of("run-folder.md")):
        exec(block, {})  # noqa: S102 - our own page


def test_the_page_on_policies_solves_from_python(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = blocks_of("how-to/solve.md")
    with spawn_server("--tokens", "3") as url:
        exec(block.replace("http://localhost:8000", url), {})  # noqa: S102 - our own page
    assert capsys.readouterr().out.split()[-1].isdigit()


def test_the_page_on_training_builds_a_chain(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch", reason="the extra 'train' is not installed")
    exec(blocks_of("how-to/train.md")[1], {})  # noqa: S102 - our own page
    assert 'kind = "fork-thermostat"' in capsys.readouterr().out


def test_the_query_of_the_tutorial_counts_the_answers_of_each_problem(tmp_path: Path) -> None:
    (query,) = re.findall(
        r'run\.query\("""(.*?)"""\)', (HOW_TO.parent / "tutorial.md").read_text(encoding="utf-8"), re.S
    )
    writer = RunWriter(tmp_path / "run", Header(name="run"))
    # Three answers to the first problem, one of them also the only one to the second: two a problem, not 3 / 2.
    writer.rollouts({"problem": [*"aaabb"], "answer": [*"12311"]}, 4)
    writer.rollouts({"problem": [*"cc"], "answer": [*"89"]}, 4, split="eval")
    assert Run.open(tmp_path / "run").query(query).to_pylist() == [{"step": 4, "answers_per_problem": 2.0}]
