"""The fast demo for real, on the weights that ship: the signs it shows, with margins that noise cannot flip.

Beside each bound stands what seeds 0, 1 and 7 gave. That protected training stays broader, and that thinking longer
hurts, is not asked of so small a run: the one is shown by the corners, the other by the full demo.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("trl", reason="the extra 'train' is not installed")

import breadth
from breadth.doctor.collect import collect_runs
from breadth.lab.demo.page import demo_page
from breadth.lab.demo.plan import FAST_DEMO
from breadth.lab.demo.results import DemoResults
from breadth.lab.demo.run import run_demo
from breadth.report.html_page import render_html


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fast") / "demo"


@pytest.fixture(scope="module")
def found(folder: Path) -> DemoResults:
    return run_demo(replace(FAST_DEMO, seed=7), folder, None, lambda who, said: None)


def test_plain_training_raises_its_score_and_narrows(found: DemoResults) -> None:
    early, late = found.plain_training.reward[:8], found.plain_training.reward[-8:]
    assert sum(late) / 8 > sum(early) / 8 + 0.2  # 0.19 to 0.70, 0.20 to 0.68, 0.19 to 0.59
    assert found.plain.entropy.value < 0.9 * found.base.entropy.value  # 0.77, 0.70, 0.79


def test_a_vote_for_the_same_tokens_beats_one_long_thought(found: DemoResults) -> None:
    assert found.corners.vote_when_plain.value.value > 0.03  # 0.13, 0.28, 0.18
    assert found.corners.vote_when_protected.value.value > 0.03  # 0.23, 0.23, 0.26


def test_the_page_has_it_all(found: DemoResults, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text(render_html(demo_page(found, "breadth demo --fast")), encoding="utf-8")
    assert page.stat().st_size > 50_000


def test_the_tutorials_commands_see_the_runs_of_its_folder_and_nothing_else(
    found: DemoResults, folder: Path, tmp_path: Path
) -> None:
    assert [name for name, _ in collect_runs([folder], tmp_path)[0]] == ["demo/base", "demo/plain", "demo/protected"]
    compared = repr(breadth.compare(folder))
    assert all(name in compared for name in ("demo/base", "demo/plain", "demo/protected"))
