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
from breadth.doctor.evidence import sweeps
from breadth.doctor.evidence.record import Evidence
from breadth.doctor.evidence.sweeps import (
    MeasuredPolicy,
    PlainSamples,
    Spending,
    arm_texts,
    measure_plain_vote,
    measure_policy,
    parse_extra,
    plain_samples,
    policy_in_use,
    policy_spending,
    sampling_differences,
    sweep,
)
from breadth.doctor.finding import CannotTell
from breadth.inference.policy import Policy
from breadth.inference.records import Sampling
from breadth.inference.stopping.rule import Never
from breadth.inference.strategies.adaptive_vote import AdaptiveVote
from breadth.inference.strategies.best_of_n import BestOfN
from breadth.inference.strategies.budget_forcing import BudgetForcing
from breadth.inference.strategies.confidence_vote import ConfidenceVote
from breadth.inference.strategies.online_confidence_vote import OnlineConfidenceVote
from breadth.inference.strategies.parallel_thinking import ParallelThinking
from breadth.inference.strategies.single import Single
from breadth.inference.strategies.vote import Vote
from breadth.inference.strategy import Strategy
from breadth.inference.sweep_plan import SweepPlan, forced_arms, plain_arm
from breadth.inference.thinking import UNMARKED_THINKING
from breadth.measure.validate import IntArray
from breadth.runs.reader import Run
from breadth.runs.schema import Header, to_toml_value
from breadth.runs.writer import RunWriter
from breadth.tuning.choice import bonferroni_intervals

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
    arms = (plain_arm((len(plain[0]),)), *forced_arms([64], UNMARKED_THINKING, len(forced[0])))
    table = config(to_toml_value({"plan": to_table(SweepPlan(Policy(), arms, (1, min(2, len(plain[0]))), len(plain)))}))
    writer = RunWriter(folder, Header(name="x", config=table))
    for step, answers in enumerate((plain, forced)):
        writer.rollouts(rollouts(answers, "0"), step, split="eval")
    return Evidence("x", Run.open(folder))


def test_plain_draws_of_a_sweep(tmp_path: Path) -> None:
    found = plain_samples(swept(tmp_path / "run", [["0", "0", "1"], ["1", None, "0"]] * 6, [["0"]] * 12), "x")
    assert isinstance(found, PlainSamples)
    assert (found.num_questions, found.num_samples, found.widths, found.labelled) == (12, 3, (1, 2), True)
    assert found.unread_share == pytest.approx(6 / 36)
    assert found.where == "12 questions x 3 plain samples"
    assert found.confidences[0, 0] == 2.5
    np.testing.assert_array_equal(found.scores[:2], [[1, 1, 0], [0, 0, 1]])
    # 0, 0, 1: one draw is right in 2 of 3; of the three pairs one is 0, 0 and two are a tie. All three: right.
    np.testing.assert_allclose(found.vote_scores([1, 2, 3])[0], [2 / 3, 2 / 3, 1])
    # One right of three: two draws hold it in 2 of 3 pairs.
    np.testing.assert_allclose(found.pass_at(2)[:2], [1, 2 / 3])


def test_a_recorded_vote_leaves_out_questions_whose_draws_failed(tmp_path: Path) -> None:
    answers: Answers = [*[["0", "1", "1"]] * 13, ["0", "0"]]
    found = plain_samples(recorded(tmp_path / "run", answers, Policy(strategy=Vote(3))), "x")
    assert isinstance(found, PlainSamples)
    assert (found.num_questions, found.num_samples, found.widths) == (13, 3, (1, 2, 3))
    np.testing.assert_array_equal(found.tokens[0], [10, 11, 12])


def test_a_vote_that_stops_early_is_read_as_far_as_every_question_goes(tmp_path: Path) -> None:
    answers: Answers = [*[["0", "0", "0", "1", "1"]] * 11, ["1", "1"]]
    found = plain_samples(recorded(tmp_path / "run", answers, Policy(strategy=AdaptiveVote(40))), "x")
    assert isinstance(found, PlainSamples)
    assert (found.num_questions, found.num_samples) == (12, 2)
    assert found.scores.mean() == pytest.approx(11 / 12)


def test_draws_that_saw_others_are_left_out(tmp_path: Path) -> None:
    policy = Policy(strategy=Vote(2))
    writer = RunWriter(tmp_path / "run", Header(name="x", config={"policy": to_table(policy)}))
    writer.rollouts(rollouts([["0", "0"]] * 12, "0", independent=False), 0, split="eval")
    found = plain_samples(Evidence("x", Run.open(tmp_path / "run")), "x")
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
    found = plain_samples(recorded(tmp_path / "run", [given_all] * 12, Policy(strategy=Vote(4)), truth=None), "x")
    assert isinstance(found, PlainSamples)
    assert not found.labelled
    np.testing.assert_allclose(found.scores[0], worth)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.integers(-1, 3), min_size=5, max_size=5), min_size=1, max_size=6))
def test_votes_lie_between_none_and_what_a_perfect_choice_reaches(table: list[list[int]]) -> None:
    classes: IntArray = np.asarray(table, dtype=np.int64)
    right = (classes == 0).astype(np.float64)
    drawn = PlainSamples(classes, right, right, right, (1, 5), True, Sampling(), "made")
    for width in (1, 3, 5):
        votes, reached = drawn.vote_scores([width])[:, 0], drawn.pass_at(width)
        assert (votes >= -1e-12).all()
        assert (votes <= reached + 1e-12).all()


def test_another_kind_of_run_is_none(make: Any) -> None:
    training = make(
        reward=np.linspace(0, 1, 20), held_out={1: {"problem": ["a"], "completion": ["x"], "correct": [True]}}
    )
    assert plain_samples(training, "x") is None
    assert arm_texts(training) == ()
    assert plain_samples(Evidence("nothing"), "x") is None


@pytest.mark.parametrize("plan", ["junk", 3, {}, {"policy": "junk"}, {"arms": [{"name": "x"}]}])
def test_a_plan_that_cannot_be_read_is_no_crash(tmp_path: Path, plan: Any) -> None:
    evidence = swept(tmp_path / "run", [["0"]] * 12, [["0"]] * 12, lambda table: table | {"plan": plan})
    assert sweep(evidence) is None
    assert isinstance(plain_samples(evidence, "x"), CannotTell)


def test_samples_without_their_extra_are_no_crash(tmp_path: Path) -> None:
    evidence = swept(tmp_path / "run", [["0"]] * 12, [["0"]] * 12)
    rows = rollouts([["0"]] * 12, "0") | {"extra": ["not JSON"] * 12}
    RunWriter(evidence.run.folder).rollouts(rows, 0, split="eval")  # type: ignore[union-attr]
    again = Evidence("x", Run.open(tmp_path / "run"))
    assert sweep(again) is None
    assert isinstance(plain_samples(again, "x"), CannotTell)


def test_a_recorded_policy_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    RunWriter(tmp_path / "run", Header(name="x", config={"policy": {"strategy": "junk"}}))
    found = plain_samples(Evidence("x", Run.open(tmp_path / "run")), "x")
    assert isinstance(found, CannotTell)
    assert "cannot be read" in found.missing


def test_texts_are_bounded_and_spread_over_the_same_questions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evidence = swept(tmp_path / "run", [["0", "1"]] * 12, [["2"]] * 12)
    plain, forced = arm_texts(evidence)
    assert (len(plain.texts), len(forced.texts), forced.budget) == (24, 12, 64)
    assert plain.texts[:2] == ("The answer is 0.", "The answer is 1.")
    monkeypatch.setattr(sweeps, "MAX_ARM_TEXTS", 6)
    plain, forced = arm_texts(evidence)
    assert forced.questions.tolist() == [
        0,
        5,
        11,
    ]  # six texts of two a question are three questions, from the first to the last
    assert plain.questions.tolist() == [0, 0, 5, 5, 11, 11]
    assert plain.tokens.tolist() == [10, 11] * 3


def test_texts_of_a_recorded_run_bring_their_right_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evidence = recorded(tmp_path / "run", [["0", "1"]] * 12, Policy(strategy=Vote(2)))
    (found,) = arm_texts(evidence)
    assert len(found.texts) == 24
    assert set(found.references) == {"0"}
    monkeypatch.setattr(sweeps, "MAX_ARM_TEXTS", 5)
    assert len(arm_texts(evidence)[0].texts) == 5


def test_intervals_hold_together() -> None:
    gaps = np.random.default_rng(0).normal(0, 0.1, (50, 3))
    several, alone = bonferroni_intervals(gaps, seed=0), bonferroni_intervals(gaps[:, :1], seed=0)
    assert several[0].high - several[0].low > alone[0].high - alone[0].low
    assert several[0].level == pytest.approx(1 - 0.05 / 3)
    assert bonferroni_intervals(np.empty((5, 0)), seed=0) == ()


def test_extras_are_read() -> None:
    assert parse_extra('{"a": 1}') == {"a": 1}
    assert parse_extra(None) == parse_extra("[1]") == parse_extra("{") == {}


@pytest.mark.parametrize(
    ("strategy", "paid", "name"),
    [
        (Single(), Spending(), "one plain sample"),
        (Vote(8), Spending(8), "a vote of 8"),
        (ConfidenceVote(16), Spending(16), "a vote of 16"),
        (AdaptiveVote(40), Spending(40, early=True), "a vote of up to 40 that stops early"),
        (AdaptiveVote(1), Spending(1), "one plain sample"),
        (OnlineConfidenceVote(most=64), Spending(64, early=True), "a vote of up to 64 that stops early"),
        (ParallelThinking(tokens=1000), Spending(5), "a vote of 5"),  # 1,000 tokens at 200 a draw
        (ParallelThinking(tokens=100), Spending(1), "one plain sample"),
        (ParallelThinking(tokens=10_000, most=7), Spending(7), "a vote of 7"),
        (BudgetForcing(cues=0, minimum=512, maximum=1024), Spending(budget=1024), "1,024 thinking tokens"),
        (BudgetForcing(cues=0, minimum=512), Spending(budget=512), "512 thinking tokens"),
    ],
)
def test_what_a_policy_pays_for(strategy: Strategy, paid: Spending, name: str) -> None:
    found = policy_spending(Policy(strategy=strategy), 200.0)
    assert found == paid
    assert found.name == name


@pytest.mark.parametrize("strategy", [BestOfN(8), BudgetForcing(), BudgetForcing(cues=0, maximum=512)])
def test_what_is_no_vote_and_forces_nothing(strategy: Strategy) -> None:
    assert policy_spending(Policy(strategy=strategy), 200.0) is None


def test_a_policy_that_was_given_counts_more_than_the_recorded_one(tmp_path: Path) -> None:
    recorded, given = Policy(strategy=Vote(4)), Policy(strategy=Vote(8))
    RunWriter(tmp_path / "run", Header(name="x", config={"policy": to_table(recorded)}))
    run = Run.open(tmp_path / "run")
    assert policy_in_use(Evidence("x", run)) == recorded
    assert policy_in_use(Evidence("x", run, policy=given)) == given
    assert policy_in_use(Evidence("x")) is None


@pytest.mark.parametrize("strategy", [{"kind": "no such"}, {"kind": "vote", "n": -1}, "vote", 3])
def test_a_recorded_policy_that_cannot_be_read_is_none(tmp_path: Path, strategy: object) -> None:
    RunWriter(tmp_path / "run", Header(name="x", config={"policy": {"strategy": strategy}}))
    assert policy_in_use(Evidence("x", Run.open(tmp_path / "run"))) is None


def test_what_is_drawn_otherwise_is_named() -> None:
    measured = Policy(sampling=Sampling(temperature=0.7, top_logprobs=20), model="small")
    assert sampling_differences(Policy(model=""), measured) == []
    other = Policy(sampling=Sampling(temperature=1.0, thinking_tokens=64), model="large", system="Be brief.")
    assert sampling_differences(other, measured) == [
        "temperature 1.0 in use, 0.7 measured",
        "thinking tokens 64 in use, None measured",
        "another model",
        "another system prompt",
    ]


def draws(classes: npt.ArrayLike, tokens: float = 100.0) -> PlainSamples:
    table = np.asarray(classes, dtype=np.int64)
    right = (table == 0).astype(np.float64)
    return PlainSamples(table, right, np.full(table.shape, tokens), right * np.nan, (1, 4, 8), True, Sampling(), "made")


SAME = draws(np.tile(np.arange(20)[:, None] % 2, (1, 8)))
MIXED = draws(np.tile([0, 0, 0, 0, 0, 1, 2, 3], (20, 1)))


def used(strategy: Strategy, drawn: PlainSamples) -> MeasuredPolicy | CannotTell | None:
    return measure_policy(Evidence("x", policy=Policy(strategy=strategy)), drawn, "finding")


def test_no_policy_is_none() -> None:
    assert measure_policy(Evidence("x"), SAME, "finding") is None


def test_a_vote_costs_its_width() -> None:
    found = used(Vote(8), MIXED)
    assert isinstance(found, MeasuredPolicy)
    assert (found.score, found.tokens, found.spending.width) == (1.0, 800.0, 8)
    assert measure_plain_vote(MIXED, 1).score == pytest.approx(5 / 8)


def test_a_vote_that_stops_early_is_charged_what_it_draws() -> None:
    # Unanimous draws one after the other: the Beta rule at 0.95 stops at four.
    found = used(AdaptiveVote(8, width=1), SAME)
    assert isinstance(found, MeasuredPolicy)
    assert (found.score, found.tokens) == (0.5, 400.0)
    never = used(AdaptiveVote(8, stop=Never()), MIXED)
    assert isinstance(never, MeasuredPolicy)
    assert (never.score, never.tokens) == (1.0, 800.0)


def test_a_vote_by_confidence_that_stops_early_counts_as_a_plain_one() -> None:
    found = used(OnlineConfidenceVote(warm_up=2, most=8), SAME)
    assert isinstance(found, MeasuredPolicy)
    assert found.score == 0.5


@pytest.mark.parametrize(
    ("strategy", "missing", "switch"),
    [
        (BestOfN(8), "the policy in use (best-of-n) is neither", ""),
        (Vote(12), "draws up to 12; each question has 8 comparable samples", "--widths 1,4,8,12"),
        (
            BudgetForcing(cues=0, minimum=64, maximum=64),
            "forces 64 thinking tokens; budgets measured: none",
            "--budgets 64",
        ),
    ],
)
def test_what_was_not_measured_is_said(strategy: Strategy, missing: str, switch: str) -> None:
    found = used(strategy, SAME)
    assert isinstance(found, CannotTell)
    assert found.name == "finding"
    assert missing in found.missing
    assert found.switch_on.endswith(switch)
