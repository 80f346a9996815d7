"""Plain samples and texts come out of sweeps and recorded runs alike; what is broken or of another kind is said."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from breadth.base.settings import to_table
from breadth.doctor.evidence import Evidence
from breadth.doctor.finding import CannotTell
from breadth.doctor.signs import sweeps
from breadth.doctor.signs.sweeps import Draws, extra, looked_at, sweep, together, written
from breadth.inference.policy import Policy
from breadth.inference.records import Sampling
from breadth.inference.strategies.adaptive_vote import AdaptiveVote
from breadth.inference.strategies.vote import Vote
from breadth.inference.sweep_plan import SweepPlan, forced_arms, plain_arm
from breadth.inference.thinking import PLAIN
from breadth.runs.reader import Run
from breadth.runs.schema import Header, storable
from breadth.runs.writer import RunWriter

Answers = Sequence[Sequence[str | None]]


def rollouts(answers: Answers, truth: str | None, **more: Any) -> dict[str, list[Any]]:
    rows = [
        (f"q{number:02d}", place, given)
        for number, given_all in enumerate(answers)
        for place, given in enumerate(given_all)
    ]
    other = {"input_tokens": 1, "cached_tokens": 0, "seconds": 0.1, "confidence": 2.5} | more
    return {
        "problem": [name for name, _, _ in rows],
        "sample": [place for _, place, _ in rows],
        "completion": [f"The answer is {given}." for _, _, given in rows],
        "answer": [given for _, _, given in rows],
        "correct": [None if truth is None else given == truth for _, _, given in rows],
        "tokens": [10 + place for _, place, _ in rows],
        "truncated": [False for _ in rows],
        "extra": [orjson.dumps(other).decode() for _ in rows],
    }


def recorded(folder: Path, answers: Answers, policy: Policy, truth: str | None = "0") -> Evidence:
    writer = RunWriter(folder, Header(name="x", config={"policy": to_table(policy)}))
    writer.rollouts(rollouts(answers, truth, independent=True), 0, split="eval")
    names = [f"q{number:02d}" for number in range(len(answers))]
    writer.problems({"problem": names, "prompt": names, "reference": [truth] * len(names)})
    return Evidence("x", Run.open(folder))


def swept(
    folder: Path, plain: Answers, forced: Answers, config: Callable[[Any], Any] = lambda table: table
) -> Evidence:
    arms = (plain_arm((len(plain[0]),)), *forced_arms([64], PLAIN, len(forced[0])))
    table = config(storable({"plan": to_table(SweepPlan(Policy(), arms, (1, min(2, len(plain[0]))), len(plain)))}))
    writer = RunWriter(folder, Header(name="x", config=table))
    for step, answers in enumerate((plain, forced)):
        writer.rollouts(rollouts(answers, "0"), step, split="eval")
    return Evidence("x", Run.open(folder))


def test_plain_draws_of_a_sweep(tmp_path: Path) -> None:
    found = looked_at(swept(tmp_path / "run", [["0", "0", "1"], ["1", None, "0"]] * 6, [["0"]] * 12), "x")
    assert isinstance(found, Draws)
    assert (found.questions, found.each, found.widths, found.labelled) == (12, 3, (1, 2), True)
    assert found.unread == pytest.approx(6 / 36)
    assert found.where == "12 questions x 3 plain draws"
    assert found.confidences[0, 0] == 2.5
    np.testing.assert_array_equal(found.worth[:2], [[1, 1, 0], [0, 0, 1]])
    # 0, 0, 1: one draw is right in 2 of 3; of the three pairs one is 0, 0 and two are a tie. All three: right.
    np.testing.assert_allclose(found.votes([1, 2, 3])[0], [2 / 3, 2 / 3, 1])
    # One right of three: two draws hold it in 2 of 3 pairs.
    np.testing.assert_allclose(found.reached(2)[:2], [1, 2 / 3])


def test_a_recorded_vote_leaves_out_questions_whose_draws_failed(tmp_path: Path) -> None:
    answers: Answers = [*[["0", "1", "1"]] * 13, ["0", "0"]]
    found = looked_at(recorded(tmp_path / "run", answers, Policy(strategy=Vote(3))), "x")
    assert isinstance(found, Draws)
    assert (found.questions, found.each, found.widths) == (13, 3, (1, 2, 3))
    np.testing.assert_array_equal(found.tokens[0], [10, 11, 12])


def test_a_vote_that_stops_early_is_read_as_far_as_every_question_goes(tmp_path: Path) -> None:
    answers: Answers = [*[["0", "0", "0", "1", "1"]] * 11, ["1", "1"]]
    found = looked_at(recorded(tmp_path / "run", answers, Policy(strategy=AdaptiveVote(40))), "x")
    assert isinstance(found, Draws)
    assert (found.questions, found.each) == (12, 2)
    assert found.worth.mean() == pytest.approx(11 / 12)


def test_draws_that_saw_others_are_left_out(tmp_path: Path) -> None:
    policy = Policy(strategy=Vote(2))
    writer = RunWriter(tmp_path / "run", Header(name="x", config={"policy": to_table(policy)}))
    writer.rollouts(rollouts([["0", "0"]] * 12, "0", independent=False), 0, split="eval")
    found = looked_at(Evidence("x", Run.open(tmp_path / "run")), "x")
    assert isinstance(found, CannotTell)
    assert found.missing.startswith("0 questions")


@pytest.mark.parametrize(
    ("given_all", "worth"),
    [
        (["1", "1", "2", "3"], [1, 1, 0, 0]),
        (["1", "1", "2", "2"], [0.5, 0.5, 0.5, 0.5]),
        (["1", "2", "3", "4"], [0.25] * 4),
        ([None, None, "5", None], [0, 0, 1, 0]),
        ([None] * 4, [0] * 4),
    ],
)
def test_without_right_answers_the_commonest_counts(
    tmp_path: Path, given_all: list[str | None], worth: list[float]
) -> None:
    found = looked_at(recorded(tmp_path / "run", [given_all] * 12, Policy(strategy=Vote(4)), truth=None), "x")
    assert isinstance(found, Draws)
    assert not found.labelled
    np.testing.assert_allclose(found.worth[0], worth)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.integers(-1, 3), min_size=5, max_size=5), min_size=1, max_size=6))
def test_votes_lie_between_none_and_what_a_perfect_choice_reaches(table: list[list[int]]) -> None:
    classes: npt.NDArray[np.int64] = np.asarray(table, dtype=np.int64)
    right = (classes == 0).astype(np.float64)
    drawn = Draws(classes, right, right, right, (1, 5), True, Sampling(), "made")
    for width in (1, 3, 5):
        votes, reached = drawn.votes([width])[:, 0], drawn.reached(width)
        assert (votes >= -1e-12).all()
        assert (votes <= reached + 1e-12).all()


def test_another_kind_of_run_is_none(make: Any) -> None:
    training = make(
        reward=np.linspace(0, 1, 20), held_out={1: {"problem": ["a"], "completion": ["x"], "correct": [True]}}
    )
    assert looked_at(training, "x") is None
    assert written(training) == ()
    assert looked_at(Evidence("nothing"), "x") is None


@pytest.mark.parametrize("plan", ["junk", 3, {}, {"policy": "junk"}, {"arms": [{"name": "x"}]}])
def test_a_plan_that_cannot_be_read_is_no_crash(tmp_path: Path, plan: Any) -> None:
    evidence = swept(tmp_path / "run", [["0"]] * 12, [["0"]] * 12, lambda table: table | {"plan": plan})
    assert sweep(evidence) is None
    assert isinstance(looked_at(evidence, "x"), CannotTell)


def test_samples_without_their_extra_are_no_crash(tmp_path: Path) -> None:
    evidence = swept(tmp_path / "run", [["0"]] * 12, [["0"]] * 12)
    rows = rollouts([["0"]] * 12, "0") | {"extra": ["not JSON"] * 12}
    RunWriter(evidence.run.folder).rollouts(rows, 0, split="eval")  # type: ignore[union-attr]
    again = Evidence("x", Run.open(tmp_path / "run"))
    assert sweep(again) is None
    assert isinstance(looked_at(again, "x"), CannotTell)


def test_a_recorded_policy_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    RunWriter(tmp_path / "run", Header(name="x", config={"policy": {"strategy": "junk"}}))
    found = looked_at(Evidence("x", Run.open(tmp_path / "run")), "x")
    assert isinstance(found, CannotTell)
    assert "cannot be read" in found.missing


def test_texts_are_bounded_and_spread_over_the_same_questions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evidence = swept(tmp_path / "run", [["0", "1"]] * 12, [["2"]] * 12)
    plain, forced = written(evidence)
    assert (len(plain.texts), len(forced.texts), forced.budget) == (24, 12, 64)
    assert plain.texts[:2] == ("The answer is 0.", "The answer is 1.")
    monkeypatch.setattr(sweeps, "MOST_TEXTS", 6)
    plain, forced = written(evidence)
    assert forced.owners.tolist() == [
        0,
        5,
        11,
    ]  # six texts of two a question are three questions, from the first to the last
    assert plain.owners.tolist() == [0, 0, 5, 5, 11, 11]
    assert plain.tokens.tolist() == [10, 11] * 3


def test_texts_of_a_recorded_run_bring_their_right_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evidence = recorded(tmp_path / "run", [["0", "1"]] * 12, Policy(strategy=Vote(2)))
    (found,) = written(evidence)
    assert len(found.texts) == 24
    assert set(found.truths) == {"0"}
    monkeypatch.setattr(sweeps, "MOST_TEXTS", 5)
    assert len(written(evidence)[0].texts) == 5


def test_intervals_hold_together() -> None:
    gaps = np.random.default_rng(0).normal(0, 0.1, (50, 3))
    several, alone = together(gaps), together(gaps[:, :1])
    assert several[0].high - several[0].low > alone[0].high - alone[0].low
    assert several[0].level == pytest.approx(1 - 0.05 / 3)
    assert together(np.empty((5, 0))) == ()


def test_extras_are_read() -> None:
    assert extra('{"a": 1}') == {"a": 1}
    assert extra(None) == extra("[1]") == extra("{") == {}
