"""The page of a demo: every part is there, its numbers are the results', and it fits a terminal of eighty columns."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from rich.console import Console

from breadth.lab.demo.page import (
    budget_curves,
    corners_spending_table,
    corners_table,
    coverage_curve,
    coverage_table,
    demo_page,
    demo_trainer_config,
    diagnosis_table,
    effects_table,
    headline_curves,
    policy_breadth_table,
    role_curve,
    sample_traces,
    short_page,
    training_curves,
)
from breadth.lab.demo.plan import ANCHOR, FULL_DEMO
from breadth.lab.demo.results import DemoResults
from breadth.report.html_page import render_html
from breadth.report.jsonable import render_json
from breadth.report.sections import Curve, Table, Trace, Verdict
from breadth.report.terminal import render_terminal
from breadth.runs.schema import EntropyKind, Header
from breadth.runs.writer import RunWriter


def test_every_part_is_there(demo_results: DemoResults) -> None:
    page = demo_page(demo_results, "breadth demo --seed 3")
    kinds = [type(part) for part in page.sections]
    assert kinds[:2] == [Verdict, Table]
    assert (kinds.count(Verdict), kinds.count(Table), kinds.count(Curve), kinds.count(Trace)) == (5, 5, 6, 2)
    facts = {fact.name: fact.value for fact in page.provenance}
    assert facts["command"] == "breadth demo --seed 3"
    assert facts["versions"] == "breadth 1.0, torch 2.0"
    html = render_html(page)
    assert "The four corners" in html
    assert render_json(page)


def test_the_two_by_two_has_the_corners(demo_results: DemoResults) -> None:
    table = demo_results.corners
    assert [list(row[1:]) for row in corners_table(table).rows] == [
        [table.plain_extended.accuracy, table.plain_parallel.accuracy],
        [table.protected_extended.accuracy, table.protected_parallel.accuracy],
    ]
    assert [row[1] for row in effects_table(table).rows] == [
        table.vote_when_plain.value,
        table.vote_when_protected.value,
        table.protection_when_parallel.value,
        table.protection_when_extended.value,
        table.interaction.value,
    ]
    assert [row[1] for row in corners_spending_table(table).rows] == [66.0, 60.0, 66.0, 60.0]


def test_the_policies(demo_results: DemoResults) -> None:
    assert [[cell.value for cell in row[1:]] for row in coverage_table(demo_results).rows] == [  # type: ignore[union-attr]  # all intervals
        [0.25, 1.0, 1.0],
        [0.5, 0.5, 0.5],
        [0.5, 15 / 16, 15 / 16],
    ]
    assert [row[1] for row in policy_breadth_table(demo_results).rows] == [
        one.planning for one in (demo_results.base, demo_results.plain, demo_results.protected)
    ]


def test_it_fits_eighty_columns_as_tables(demo_results: DemoResults) -> None:
    console = Console(file=io.StringIO(), width=80, force_terminal=False)
    render_terminal(short_page(demo_results), console)
    text = console.file.getvalue()  # type: ignore[attr-defined]  # it is the text file above
    assert max(map(len, text.splitlines())) <= 80
    assert "training       one long thought                 vote" in text
    assert "plain GRPO  0.25 (0.06 to 0.50)" in text


def test_training(demo_results: DemoResults) -> None:
    entropy, score = training_curves(demo_results)
    assert [one.y for one in entropy.series] == [
        demo_results.plain_training.entropy,
        demo_results.protected_training.entropy,
    ]
    assert [one.y for one in score.series] == [
        demo_results.plain_training.reward,
        demo_results.protected_training.reward,
    ]
    roles = role_curve(demo_results)
    assert [one.name for one in roles.series] == [
        "forks, plain GRPO",
        "mechanical, plain GRPO",
        "forks, protected",
        "mechanical, protected",
    ]
    assert roles.series[0].y == demo_results.plain_training.planning


def test_coverage(demo_results: DemoResults) -> None:
    plain, protected, base = coverage_curve(demo_results).series
    assert base.x == (1.0, 4.0, 8.0)
    assert (base.y, plain.y, protected.y) == ((0.25, 1.0, 1.0), (0.5, 0.5, 0.5), (0.5, 0.9375, 0.9375))
    assert base.low[0] < 0.25 < base.high[0]


def test_budgets(demo_results: DemoResults) -> None:
    accuracy, entropy = budget_curves(demo_results)
    thought, vote, kept = accuracy.series
    assert (thought.x, thought.y) == ((8.0, 16.0, 64.0), (0.25, 0.75, 0.0))
    assert (vote.x, vote.y) == ((64.0,), (0.5,))
    assert (kept.x, kept.y) == ((64.0,), (demo_results.corners.protected_parallel.accuracy.value,))
    assert entropy.series[0].y == (0.5, 0.5, 0.5)
    assert accuracy.events[0].x == 64


def test_before_and_after_are_the_same_curves_under_short_headings(demo_results: DemoResults) -> None:
    training, inference = headline_curves(demo_results)
    assert training.series == coverage_curve(demo_results).series
    assert inference.series == budget_curves(demo_results)[0].series
    assert max(len(one.title) for one in (training, inference)) < 50


def test_traces(demo_results: DemoResults) -> None:
    plain, protected = sample_traces(demo_results)
    assert "".join(token.text for token in plain.tokens) == "<think> add =3"
    assert [token.value for token in plain.tokens] == [0.0, 0.7, 1.2]
    assert "the protected arm to ( 1 + 2 ) * 1 =" in protected.title


def write(folder: Path, left: float) -> None:
    kind = EntropyKind("exact", 1.0, "token-mean", "response")
    writer = RunWriter(folder, Header(name="run", trainer="trl", entropies={"entropy": kind}))
    noise = np.random.default_rng(0).normal(0, 0.005, (2, 100))
    for step in range(100):
        writer.metrics(
            step + 1, {"entropy": 0.5 * left ** (step / 99) + noise[0, step], "reward": 0.4 + noise[1, step]}
        )


def test_each_arm_has_its_findings_or_none(tmp_path: Path) -> None:
    write(tmp_path / "plain" / "run", 0.05)
    write(tmp_path / "protected" / "run", 0.9)
    rows = diagnosis_table(tmp_path, FULL_DEMO).rows
    collapsed = [tuple(row[:2]) for row in rows if row[2] == "entropy-collapse"]
    assert collapsed == [("plain", "critical")]
    assert any(row[0] == "protected" for row in rows)


def test_an_arm_in_doubt_is_not_called_sound(tmp_path: Path) -> None:
    for arm in ("plain", "protected"):
        writer = RunWriter(tmp_path / arm / "run", Header(name="run", trainer="trl"))
        for step in (1, 2, 3):
            writer.metrics(step, {"reward": 0.5})
    for row in diagnosis_table(tmp_path, FULL_DEMO).rows:
        assert str(row[3]).endswith("The numbers do not show that all is well.")


def test_the_doctor_is_told_the_settings() -> None:
    assert demo_trainer_config(FULL_DEMO, "plain").kl == 0
    assert demo_trainer_config(FULL_DEMO, "protected").kl == ANCHOR
    assert demo_trainer_config(FULL_DEMO, "plain").on_policy
