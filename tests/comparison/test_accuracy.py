"""Which samples are compared, and how accurate they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from breadth.base.errors import BrokenFileError, MeasureError
from breadth.comparison.accuracy import (
    AccuracyCurves,
    ComparedPolicy,
    checkpoints,
    choose_split,
    extrapolate_past_samples,
    find_crossing,
    keep_common_problems,
    measure_curves,
    parse_address,
    read_run_policies,
    recommend,
)
from breadth.runs.reader import Run
from breadth.runs.schema import Header
from breadth.runs.writer import RunWriter


def test_a_checkpoint_by_step_or_the_last(tmp_path: Path, write: Any, replies: Any) -> None:
    run = write(tmp_path / "run", {0: replies["broad"], 50: replies["narrow"]})
    assert [policy.name for policy in read_run_policies(run, "x")] == ["x, step 50"]
    (first,) = read_run_policies(run, "x", (0,))
    drawn, right = first.counts
    assert drawn.tolist() == [4, 4, 4, 4]
    assert right.tolist() == [2, 1, 1, 3]
    assert first.tokens == 10
    assert checkpoints(run) == [0, 50]
    with pytest.raises(BrokenFileError, match="no rollouts at step 7"):
        read_run_policies(run, "x", (7,))


def test_at_most_eight_checkpoints_are_taken_evenly(tmp_path: Path, write: Any, replies: Any) -> None:
    run = write(tmp_path / "run", dict.fromkeys(range(0, 200, 10), replies["broad"]))
    assert checkpoints(run) == [0, 30, 50, 80, 110, 140, 160, 190]


def test_only_common_problems_and_samples_count(tmp_path: Path, broad: Run, write: Any) -> None:
    fewer = write(tmp_path / "fewer", {1: {"a": ["1"] * 3, "b": ["2"] * 5}})
    found, most = keep_common_problems([*read_run_policies(broad, "broad"), *read_run_policies(fewer, "fewer")])
    assert most == 3
    assert [sorted(set(policy.problems.tolist())) for policy in found] == [["a", "b"], ["a", "b"]]
    assert len(found[0].answers) == 8
    alone = write(tmp_path / "alone", {1: {"a": ["1"] * 3}})
    with pytest.raises(MeasureError, match="1 common problems"):
        keep_common_problems([*read_run_policies(broad, "broad"), *read_run_policies(alone, "alone")])


def test_ungraded_rollouts_and_none_at_all_are_refused(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "x", Header(name="x"))
    writer.metrics(1, {"reward": 1.0})
    with pytest.raises(BrokenFileError, match="no rollouts"):
        read_run_policies(Run.open(tmp_path / "x"), "x")
    writer.rollouts({"problem": ["a", "a"], "answer": ["1", "2"]}, 1)
    with pytest.raises(MeasureError, match="neither right nor wrong"):
        read_run_policies(Run.open(tmp_path / "x"), "x")


def test_held_out_problems_are_used_where_all_runs_have_them(tmp_path: Path, broad: Run, replies: Any) -> None:
    writer = RunWriter(tmp_path / "both", Header(name="both"))
    for split, step in (("train", 9), ("eval", 8)):
        rows = [(name, answer) for name, given in replies["narrow"].items() for answer in given]
        table = {"problem": [name for name, _ in rows], "answer": [answer for _, answer in rows]}
        writer.rollouts({**table, "correct": [split == "train"] * len(rows)}, step, split=split)  # type: ignore[arg-type]
    both = Run.open(tmp_path / "both")
    assert choose_split([both, broad]) == "eval"
    (held_out,) = read_run_policies(both, "both", split=choose_split([both, broad]))
    assert (held_out.name, held_out.split, bool(held_out.right.any())) == ("both, step 8", "eval", False)
    RunWriter(tmp_path / "trained", Header(name="trained")).rollouts({"problem": ["a"], "correct": [True]}, 1)
    trained = Run.open(tmp_path / "trained")
    assert choose_split([both, trained]) == "train"
    (seen,) = read_run_policies(both, "both", split=choose_split([both, trained]))
    assert (seen.name, seen.split, bool(seen.right.all())) == ("both, step 9", "train", True)
    assert choose_split([broad, trained]) is None


def test_every_budget_is_a_policy(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "sweep", Header(name="sweep"))
    budgets, right = [None, 500, 500, 8000], [True, True, False, False]
    table = {"problem": ["a"] * 4, "answer": ["1"] * 4, "correct": right, "budget": budgets, "tokens": [9, 5, 7, 80]}
    writer.rollouts(table, 0, split="eval")
    found = read_run_policies(Run.open(tmp_path / "sweep"), "x")
    assert [(policy.name, policy.right.tolist(), policy.tokens) for policy in found] == [
        ("x, no budget", [True], 9.0),
        ("x, budget 500", [True, False], 6.0),
        ("x, budget 8,000", [False], 80.0),
    ]


def test_addresses(tmp_path: Path) -> None:
    (tmp_path / "a@3").mkdir()
    assert parse_address(f"{tmp_path}/b@3") == (tmp_path / "b", (3,))
    assert parse_address(f"{tmp_path}/a@3") == (tmp_path / "a@3", ())
    assert parse_address("runs/a") == (Path("runs/a"), ())
    assert parse_address("a@b") == (Path("a@b"), ())
    place, steps = parse_address("memory://bucket/run@3")
    assert (str(place), steps) == ("memory://bucket/run", (3,))


@pytest.fixture
def pair(broad: Run, narrow: Run) -> tuple[AccuracyCurves, AccuracyCurves]:
    found, most = keep_common_problems([*read_run_policies(broad, "broad"), *read_run_policies(narrow, "narrow")])
    first, second = (measure_curves(policy, most) for policy in found)
    return first, second


def test_pass_and_votes_by_hand(pair: tuple[AccuracyCurves, AccuracyCurves]) -> None:
    broad, narrow = pair
    # Right of four: 2, 1, 1, 3. pass@1 = 7/16; pass@2 = 1 - C(n-c,2)/C(4,2): 5/6, 1/2, 1/2, 1; pass@4: all.
    assert broad.passed.mean(axis=0)[[0, 1, 3]] == pytest.approx([7 / 16, (5 / 6 + 1 / 2 + 1 / 2 + 1) / 4, 1.0])
    assert narrow.passed.mean(axis=0) == pytest.approx([0.5] * 4)
    # maj@4: a has 1,1 against 7,8: right; b: four different, one right: 1/4; c: 8,8 wins: 0; d: right.
    assert broad.voted is not None
    assert broad.voted[:, -1] == pytest.approx([1.0, 0.25, 0.0, 1.0])
    assert broad.vote_at(1) == pytest.approx([0.5, 0.25, 0.25, 0.75])


def test_a_crossing_is_found_and_not_called_sure_on_four_problems(pair: tuple[AccuracyCurves, AccuracyCurves]) -> None:
    broad, narrow = pair
    found = find_crossing(narrow, broad)
    assert found is not None
    assert (found.before, found.after) == (1, 2)
    assert found.ahead.difference.value == pytest.approx(1 / 16)
    assert found.behind.difference.value == pytest.approx(-0.5)
    assert not found.is_significant
    assert find_crossing(broad, broad) is None


def simulated(rates: np.ndarray[tuple[int, ...], np.dtype[np.float64]], samples: int, seed: int) -> AccuracyCurves:
    right = np.random.default_rng(seed).random((len(rates), samples)) < rates[:, None]
    names = np.repeat([f"p{number:03}" for number in range(len(rates))], samples).astype(object)
    answers = tuple("1" if one else str(2 + place % 5) for place, one in enumerate(right.ravel().tolist()))
    return measure_curves(ComparedPolicy("simulated", names, answers, right.ravel(), None), samples)


def test_a_beta_population_is_predicted_by_its_own_half() -> None:
    rates = np.random.default_rng(5).beta(0.6, 2.0, 200)
    found = extrapolate_past_samples(simulated(rates, 32, 1))
    assert found.is_reliable is True
    # The truth at 128 samples, known here because the rates are.
    truth = float(np.mean(1 - (1 - rates) ** 128))
    assert found.fits.zero_inflated_pass[0].low - 0.02 <= truth <= found.fits.beta_pass[0].high + 0.02


def test_a_population_that_is_no_beta_is_caught() -> None:
    # Half of the problems always solved, half at 2 %: no Beta has both a mass at 1 and a rise as late as that.
    rates = np.array([1.0] * 100 + [0.02] * 100)
    assert extrapolate_past_samples(simulated(rates, 64, 2)).is_reliable is False


def test_too_few_samples_are_not_tested() -> None:
    assert extrapolate_past_samples(simulated(np.full(20, 0.4), 4, 3)).is_reliable is None


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
