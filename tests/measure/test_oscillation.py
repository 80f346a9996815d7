"""Answers that change inside a trace: by hand, as properties, and against 3,600 real runs re-asked at ten steps."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from breadth.base.errors import MeasureError
from breadth.measure.oscillation import (
    Restatements,
    extract_restatements,
    neighbour_pairs,
    oscillation_by_position,
    oscillation_by_step,
    trace_oscillations,
)
from breadth.measure.validate import BoolArray


def test_statements_found_in_texts() -> None:
    texts = [
        "First I get \\boxed{3}. Wait. The answer is 0.5. So \\boxed{\\frac{1}{2}}",
        "I do not know.",
        "<answer>7</answer>",
    ]
    found = extract_restatements(texts, ["1/2", "2", "8"])
    assert found.traces.tolist() == [0, 0, 0, 2]
    assert found.correct.tolist() == [False, True, True, False]
    # 0.5 and 1/2 are one answer, 3 and 7 are others.
    assert found.classes[1] == found.classes[2]
    assert len({found.classes[0], found.classes[1], found.classes[3]}) == 3
    assert found.positions[0] == texts[0].index("\\boxed{3}") / len(texts[0])
    assert (np.diff(found.positions[:3]) > 0).all()


def test_an_unreadable_truth_makes_nothing_right() -> None:
    found = extract_restatements(["The answer is n/a. \\boxed{3}"], ["n/a"])
    assert not found.correct.any()


def test_pairs_by_hand_whatever_the_order_of_rows() -> None:
    # Trace a in order: right, right, wrong 2, wrong 3, none, wrong 3, right. Trace b: wrong 5.
    classes, correct = [1, 1, 2, 3, -1, 3, 1, 5], [1, 1, 0, 0, 0, 0, 1, 0]
    traces, positions = ["a"] * 7 + ["b"], [1, 2, 3, 4, 5, 6, 7, 1]
    shuffle = np.random.default_rng(0).permutation(8)
    statements = Restatements(*(np.asarray(column)[shuffle] for column in (traces, positions, classes, correct)))
    pairs = neighbour_pairs(statements)
    assert statements.positions[pairs.rows].tolist() == [1, 2, 3, 4, 5, 6]
    assert pairs.stays_right.tolist() == [True, False, False, False, False, False]
    assert pairs.right_to_wrong.tolist() == [False, True, False, False, False, False]
    assert pairs.wrong_to_other.tolist() == [False, False, True, False, False, False]
    assert pairs.stays_wrong.tolist() == [False, False, False, True, True, False]
    assert pairs.wrong_to_right.tolist() == [False, False, False, False, False, True]
    assert pairs.changes.tolist() == [False, True, True, False, False, True]


def test_bad_columns_are_refused() -> None:
    with pytest.raises(MeasureError, match="Lengths differ"):
        Restatements(["a", "b"], [1], [1], [True])
    with pytest.raises(MeasureError, match="positions is empty"):
        Restatements([], [], [], [])
    with pytest.raises(MeasureError, match="whole numbers from -1"):
        Restatements(["a"], [1], [-2], [True])
    with pytest.raises(MeasureError, match="order is unknown"):
        neighbour_pairs(Restatements(["a", "a"], [1, 1], [1, 2], [True, False]))
    with pytest.raises(MeasureError, match="2 texts and 1 right answers"):
        extract_restatements(["a", "b"], ["1"])
    with pytest.raises(MeasureError, match="None of the 1 texts states"):
        extract_restatements(["I do not know."], ["1"])


MODELS = {
    "deepseek_1p5b": "deepseek_r1_distill_1p5b",
    "mistral_7b": "mistral_7b_instruct_v0p3",
    "qwen_0p5b": "qwen2p5_0p5b",
    "qwen_7b_4bit": "qwen2p5_7b",
}


def chains(*answers: list[int]) -> Restatements:
    """Return one trace per list of answers at steps 1, 2, ...; answer 0 is right."""
    rows = [(trace, step, answer) for trace, chain in enumerate(answers) for step, answer in enumerate(chain, start=1)]
    traces, steps, classes = (np.array(column) for column in zip(*rows, strict=True))
    return Restatements(traces, steps, classes, classes == 0)


def test_traces_by_hand() -> None:
    #   3 0 0 4 5 0: found, kept, lost, moved, found.   7 7 -1 7: never right, nothing new.   0: right at once, no pair.
    found = trace_oscillations(chains([3, 0, 0, 4, 5, 0], [7, 7, -1, 7], [0]))
    assert found.statements.tolist() == [6, 4, 1]
    assert found.first_right.tolist() == [2, 0, 1]
    assert found.oracle_stop.tolist() == [2, 1, 1]
    assert found.ever_right.tolist() == [True, False, True]
    assert found.final_right.tolist() == [True, False, True]
    assert found.changes.tolist() == [4, 0, 0]
    assert found.flip_matrix.tolist() == [[1, 1], [2, 4]]


def test_curve_by_hand() -> None:
    # Step 1: 0 0 1 1 -> 0 1 0 2: one right kept, one lost, one found, one moved. Step 2: 0 1 0 2 -> all right.
    first, second = oscillation_by_step(chains([0, 0, 0], [0, 1, 0], [1, 0, 0], [1, 2, 0]))
    assert (first.at, first.pairs, first.right, first.right_to_wrong, first.wrong_to_right, first.wrong_to_other) == (
        1,
        4,
        2,
        1,
        1,
        1,
    )
    assert (first.loss.value, first.repair.value, first.change.value) == (0.5, 0.5, 0.75)
    assert first.loss.method == "wilson"
    # Wilson for 1 of 2: 0.5 -+ z / (1 + z^2 / 2) sqrt(1/8 + z^2 / 16) with z = 1.959964.
    assert (first.loss.low, first.loss.high) == pytest.approx((0.094531, 0.905469), abs=1e-5)
    assert (second.at, second.right, second.right_to_wrong, second.wrong_to_right) == (2, 2, 0, 2)
    assert second.loss.value == 0
    assert second.repair.value == 1


def test_nobody_right_leaves_the_hazard_unknown() -> None:
    (point,) = oscillation_by_step(chains([1, 2], [3, 3]))
    assert math.isnan(point.loss.value)
    assert (point.loss.low, point.loss.high) == (0, 1)
    assert point.change.value == 0.5


def test_traces_of_one_statement_make_no_curve() -> None:
    assert oscillation_by_step(chains([1], [0])) == ()


def test_shared_problems_widen_the_interval() -> None:
    rng = np.random.default_rng(0)
    fate = rng.integers(0, 2, 30)
    statements = chains(*[[0, int(flip)] for flip in np.repeat(fate, 10)])
    problems = np.repeat(np.arange(30), 20)
    (naive,), (honest,) = oscillation_by_step(statements), oscillation_by_step(statements, problems=problems)
    assert honest.loss.value == pytest.approx(naive.loss.value)
    assert naive.loss.value == pytest.approx(fate.mean())
    assert honest.loss.high - honest.loss.low > 2.5 * (naive.loss.high - naive.loss.low)
    with pytest.raises(MeasureError, match="Lengths differ"):
        oscillation_by_step(statements, problems=[1])


def test_positions_in_stretches() -> None:
    traces, positions = np.array([0, 0, 0, 1, 1]), np.array([0.0, 0.45, 1.0, 0.5, 0.99])
    statements = Restatements(traces, positions, np.array([0, 1, 0, 0, 0]), np.array([1, 0, 1, 1, 1]))
    early, late = oscillation_by_position(statements, bins=2)
    assert (early.at, late.at) == (0.25, 0.75)
    assert (early.pairs, early.right_to_wrong, early.wrong_to_right) == (2, 1, 1)
    assert (late.pairs, late.right, late.right_to_wrong) == (1, 1, 0)
    assert early.loss.method.startswith("cluster bootstrap")
    with pytest.raises(MeasureError, match="run from 1 to 2, for 10 bins"):
        oscillation_by_position(chains([0, 1]))


def test_from_texts_to_a_curve() -> None:
    wavering = (
        "The answer is 5."
        + " " * 20
        + "The answer is 6."
        + " " * 20
        + "The answer is 5."
        + " " * 20
        + "The answer is 7."
    )
    steady = "The answer is 5." + " " * 90 + "The answer is 5."
    statements = extract_restatements([wavering, steady], ["5", "5"])
    found = trace_oscillations(statements)
    assert found.changes.tolist() == [3, 0]
    assert found.final_right.tolist() == [False, True]
    assert found.ever_right.all()
    assert sum(point.right_to_wrong for point in oscillation_by_position(statements)) == 2
    assert sum(point.wrong_to_right for point in oscillation_by_position(statements)) == 1


@settings(max_examples=80, deadline=None)
@given(st.lists(st.lists(st.integers(-1, 3), min_size=1, max_size=8), min_size=1, max_size=5))
def test_what_must_hold_in_every_chain(answers: list[list[int]]) -> None:
    statements = chains(*answers)
    found = trace_oscillations(statements)
    lengths = [len(chain) for chain in answers]
    assert found.flip_matrix.sum() == sum(lengths) - len(lengths)
    pairs = found.right_to_wrong + found.wrong_to_right + found.wrong_to_other + found.stays_right + found.stays_wrong
    assert (pairs == np.array(lengths) - 1).all()
    # An oracle over the chain is at least as good as any fixed place in it, the last included.
    assert (found.ever_right >= found.final_right).all()
    # Losses and finds alternate, so they differ by at most one, and by the ends of the chain.
    starts = np.array([chain[0] == 0 for chain in answers], dtype=int)
    assert (found.wrong_to_right - found.right_to_wrong == found.final_right.astype(int) - starts).all()
    points = oscillation_by_step(statements)
    assert sum(point.right_to_wrong for point in points) == found.right_to_wrong.sum()
    assert sum(point.pairs for point in points) == (np.array(lengths) - 1).sum()


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.integers(-1, 3), min_size=1, max_size=6), min_size=1, max_size=4))
def test_order_of_rows_does_not_matter(answers: list[list[int]]) -> None:
    statements = chains(*answers)
    shuffle = np.random.default_rng(len(answers)).permutation(len(statements.traces))
    shuffled = Restatements(
        *(
            column[shuffle]
            for column in (statements.traces, statements.positions, statements.classes, statements.correct)
        )
    )
    assert trace_oscillations(shuffled).first_right.tolist() == trace_oscillations(statements).first_right.tolist()
    assert oscillation_by_step(shuffled) == oscillation_by_step(statements)


def test_a_million_statements_are_followed() -> None:
    rng = np.random.default_rng(0)
    traces, steps = np.repeat(np.arange(100_000), 10), np.tile(np.arange(10), 100_000)
    classes = rng.integers(0, 4, 1_000_000)
    found = trace_oscillations(Restatements(traces, steps, classes, classes == 0))
    points = oscillation_by_step(Restatements(traces, steps, classes, classes == 0))
    # Answers at random: a right one is lost with chance 3/4, a wrong one moves to another wrong one with chance 2/4.
    assert found.right_to_wrong.sum() / (found.right_to_wrong.sum() + found.stays_right.sum()) == pytest.approx(
        0.75, abs=0.01
    )
    assert points[4].loss.value == pytest.approx(0.75, abs=0.02)


def test_step_rows_of_real_probes(fixtures: Path) -> None:
    steps = pd.read_parquet(fixtures / "budgets" / "overthinking_trace_steps_small.parquet")
    # The probes overlap in run names, so a trace is a run of a probe.
    names = (steps["probe"].astype(str) + "/" + steps["run_id"].astype(str)).to_numpy(dtype=str)
    classes = pd.factorize(steps["answer_normalized"])[0]
    correct = steps["correct"].to_numpy(dtype=bool)
    statements = Restatements(names, steps["step"].to_numpy(dtype=float), classes, correct)
    found = trace_oscillations(statements)
    table = steps.assign(trace=names).sort_values(["trace", "step"]).groupby("trace")
    assert found.traces.tolist() == list(table.groups)
    assert found.changes.tolist() == table["answer_changed"].sum().tolist()
    assert found.changes.sum() > 10
    assert found.ever_right.tolist() == (table["correct"].max() == 1).tolist()
    assert found.final_right.tolist() == (table["correct"].last() == 1).tolist()
    # Their utility is right or not, less 0.05 a step: its best place is where an oracle stops.
    best = [int(rows["step"].iloc[int(rows["utility"].argmax())]) for _, rows in table]
    assert found.oracle_stop.tolist() == best


def test_run_columns_of_real_runs(fixtures: Path) -> None:
    runs = pd.read_parquet(fixtures / "budgets" / "overthinking_trace_runs.parquet")
    first, ever, final = (runs[name].to_numpy() for name in ("first_correct_step", "ever_correct", "final_correct"))
    # What is known of each run's ten steps: wrong before the first right one, right there, right or not at the end.
    steps = np.arange(1, 11)
    right = (ever[:, None] == 1) & ((steps == first[:, None]) | ((steps == 10) & (final[:, None] == 1)))
    traces = np.repeat(np.arange(len(runs)), 10)
    found = trace_oscillations(Restatements(traces, np.tile(steps, len(runs)), 1 - right.ravel(), right.ravel()))
    # Their first_correct_step is the last step, 10, in runs that were never right; ours is 0.
    assert np.where(found.ever_right, found.first_right, 10).tolist() == first.tolist()
    assert found.ever_right.tolist() == (ever == 1).tolist()
    assert found.final_right.tolist() == (final == 1).tolist()
    assert found.oracle_stop.tolist() == runs["oracle_stop"].tolist()


def rebuilt(rows: pd.DataFrame) -> BoolArray:
    """Return traces x 10 outcomes with the right answers, repairs and corruptions counted at each step."""
    right = np.zeros((int(rows["n_transitions"].iloc[0]), 10), dtype=bool)
    right[: round(rows["q_t"].iloc[0] * len(right)), 0] = True
    for place, step in enumerate(rows.itertuples()):
        right[:, place + 1] = right[:, place]
        right[np.flatnonzero(right[:, place])[: step.n_corruptions], place + 1] = False
        right[np.flatnonzero(~right[:, place])[: step.n_repairs], place + 1] = True
    return right


@pytest.mark.parametrize("model", sorted(MODELS))
def test_hazard_per_step_of_real_runs(fixtures: Path, model: str) -> None:
    hazards = pd.read_csv(fixtures / "budgets" / "overthinking_hazard_by_step.csv")
    rows = hazards[hazards["model"] == model].sort_values("step")
    right = rebuilt(rows)
    traces, steps = np.repeat(np.arange(len(right)), 10), np.tile(np.arange(1, 11), len(right))
    statements = Restatements(traces, steps, 1 - right.ravel(), right.ravel())
    points = oscillation_by_step(statements)
    assert [point.at for point in points] == rows["step"].tolist()
    assert [point.right / point.pairs for point in points] == pytest.approx(rows["q_t"].tolist())
    assert [point.loss.value for point in points] == pytest.approx(rows["corruption_rate"].tolist())
    assert [point.repair.value for point in points] == pytest.approx(rows["repair_rate"].tolist())
    # Their hazard_mu is the gain in accuracy less 0.05 a step; they leave it out where too few change.
    gain = [(point.wrong_to_right - point.right_to_wrong) / point.pairs - 0.05 for point in points]
    known = rows["hazard_mu"].notna().to_numpy()
    assert np.array(gain)[known] == pytest.approx(rows["hazard_mu"].to_numpy()[known])
    # The other file, made per run, must end where the steps end.
    runs = pd.read_parquet(fixtures / "budgets" / "overthinking_trace_runs.parquet")
    final = runs.loc[runs["model_alias"] == MODELS[model], "final_correct"].mean()
    assert trace_oscillations(statements).final_right.mean() == pytest.approx(final)
