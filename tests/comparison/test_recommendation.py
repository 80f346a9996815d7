"""What to use for a budget: by draws all get the same, by tokens shorter replies buy more votes."""

from __future__ import annotations

import pytest

from breadth.base.errors import MeasureError
from breadth.comparison.accuracy_curves import AccuracyCurves, measure_curves
from breadth.comparison.policies import keep_common_problems, read_run_policies
from breadth.comparison.recommendation import recommend
from breadth.runs.reader import Run


@pytest.fixture
def both(broad: Run, narrow: Run) -> list[AccuracyCurves]:
    found, most = keep_common_problems([*read_run_policies(broad, "broad"), *read_run_policies(narrow, "narrow")])
    return [measure_curves(policy, most) for policy in found]


def test_by_draws(both: list[AccuracyCurves]) -> None:
    advice = recommend(both, draws=4)
    assert [policy.curves.policy.name for policy in advice.choices] == ["broad, step 0", "narrow, step 50"]
    # broad by votes of four: (1 + 1/4 + 0 + 1) / 4 = 0.5625; narrow: 2 of 4.
    assert [policy.score.value for policy in advice.choices] == pytest.approx([0.5625, 0.5])
    assert advice.choices[0].method == "a vote of 4"
    assert not advice.is_significant


def test_by_tokens_a_shorter_reply_buys_more(both: list[AccuracyCurves]) -> None:
    advice = recommend(both, tokens=15)  # broad writes 10 a reply, narrow 5
    assert {policy.curves.policy.name: policy.draws for policy in advice.choices} == {
        "broad, step 0": 1,
        "narrow, step 50": 3,
    }
    assert recommend(both, tokens=7).choices[0].curves.policy.name == "narrow, step 50"
    assert len(recommend(both, tokens=7).choices) == 1
    assert recommend(both, tokens=1000).choices[0].cut
    with pytest.raises(MeasureError, match="pay for no sample"):
        recommend(both, tokens=3)
