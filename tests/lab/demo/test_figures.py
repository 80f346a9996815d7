"""The pictures of a demo draw the numbers of the results and nothing else."""

from __future__ import annotations

from breadth.lab.demo.figures import (
    before_and_after,
    budget_curves,
    coverage_curve,
    role_curve,
    traces,
    training_curves,
)
from breadth.lab.demo.results import DemoResults


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
    training, inference = before_and_after(demo_results)
    assert training.series == coverage_curve(demo_results).series
    assert inference.series == budget_curves(demo_results)[0].series
    assert max(len(one.title) for one in (training, inference)) < 50


def test_traces(demo_results: DemoResults) -> None:
    plain, protected = traces(demo_results)
    assert "".join(token.text for token in plain.tokens) == "<think> add =3"
    assert [token.value for token in plain.tokens] == [0.0, 0.7, 1.2]
    assert "the protected arm to ( 1 + 2 ) * 1 =" in protected.title
