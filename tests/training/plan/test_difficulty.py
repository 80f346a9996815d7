"""Difficulty: every way through the state machine, by hand; nothing is deleted, nothing stalls."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from breadth.base import settings
from breadth.base.errors import MechanismError, SettingsError
from breadth.testing.mechanisms import check_edges, check_mechanism
from breadth.training.chain import Chain
from breadth.training.mechanism import Regime
from breadth.training.objective import Objective
from breadth.training.plan.difficulty import Difficulty, DifficultyState, ProblemState, problem_uniform, status_shares
from breadth.training.records import Plan


def test_two_failures_in_a_row_flag_a_problem() -> None:
    standings = DifficultyState(
        {
            "c": ProblemState("deferred", failures=2),
            "a": ProblemState("deferred", failures=3),
            "b": ProblemState("deferred", failures=1),
        }
    )
    assert standings.problems_to_rewrite() == ("a", "c")


def test_shares_of_the_stages_by_hand() -> None:
    shares = status_shares(
        [ProblemState(), ProblemState("active"), ProblemState("active"), ProblemState("deferred", failures=2)]
    )
    assert {name: share.value for name, share in shares.items()} == {
        "candidate": 0.25,
        "active": 0.5,
        "deferred": 0.25,
        "easy": 0.0,
        "flagged": 0.25,
    }
    assert status_shares([])["active"].count == 0


def test_standings_survive_json_with_odd_names() -> None:
    standings = DifficultyState({'a.b "c"\n\\': ProblemState("easy", 3, 2, 0, 7), "": ProblemState()})
    assert settings.from_table(DifficultyState, json.loads(json.dumps(settings.to_table(standings)))) == standings


def test_lots_are_uniform_and_depend_on_everything() -> None:
    lots = [problem_uniform(f"problem {number}", 0, 0) for number in range(4000)]
    assert all(0 <= one < 1 for one in lots)
    assert abs(sum(lots) / len(lots) - 0.5) < 0.02  # four standard errors are 0.018
    assert abs(sum(one < 0.02 for one in lots) / len(lots) - 0.02) < 0.009
    assert (
        len(
            {
                problem_uniform("a", 0, 0),
                problem_uniform("b", 0, 0),
                problem_uniform("a", 1, 0),
                problem_uniform("a", 0, 1),
            }
        )
        == 4
    )
    assert problem_uniform("a", 0, 0) == problem_uniform("a", 0, 0)
    assert 0 <= problem_uniform("\ud800", 0, 0) < 1  # a name that UTF-8 cannot hold


Seen = Mapping[str, tuple[int, int]]


class Run:
    """An objective fed generation by generation."""

    def __init__(self, mechanism: Difficulty, problems: str = "abcdef", seed: int = 0) -> None:
        self.objective = Objective(Chain((mechanism,), seed=seed))
        self.problems = tuple(problems)
        self.metrics: dict[str, float] = {}

    def plan(self, seen: Seen | None = None) -> str:
        """Return the problems that are sampled next."""
        plan = Plan(self.problems, (8,) * len(self.problems), results=seen or {})
        after, self.metrics = self.objective.plan(plan)
        self.objective.generation += 1
        assert set(after.samples) <= {0, 8}
        return "".join(problem for problem, count in zip(after.problems, after.samples, strict=True) if count)

    @property
    def standings(self) -> Mapping[str, ProblemState]:
        told: DifficultyState = self.objective.states[0]
        return told.problems


def test_a_pilot_sorts_problems_by_the_band() -> None:
    run = Run(Difficulty(pilot=8, review=0.0))
    assert run.plan() == "abcdef"
    # 0/8 is too hard; 1/8 = low and 6/8 = high are inside; 7/8 is easy; f was not sampled.
    assert run.plan({"a": (8, 0), "b": (8, 1), "c": (8, 4), "d": (8, 6), "e": (8, 7)}) == "bcdf"
    stages = {problem: one.status for problem, one in run.standings.items()}
    assert stages == {"a": "deferred", "b": "active", "c": "active", "d": "active", "e": "easy"}
    shares = {name.removeprefix("difficulty/"): value for name, value in run.metrics.items()}
    assert shares == {
        "candidate": 1 / 6,
        "active": 0.5,
        "deferred": 1 / 6,
        "easy": 1 / 6,
        "flagged": 0.0,
        "exhausted": 0.0,
    }


def test_a_pilot_is_filled_over_several_generations() -> None:
    run = Run(Difficulty(pilot=16), "ab")
    assert run.plan({"a": (8, 0), "b": (8, 8)}) == "ab"  # half a pilot decides nothing
    assert run.standings["a"] == ProblemState("candidate", rollouts=8)
    assert run.plan({"a": (8, 4), "b": (4, 4)}) == "ab"
    assert run.standings["a"] == ProblemState("active", since=1)  # 4 of 16
    assert run.standings["b"] == ProblemState("candidate", rollouts=12, correct=12)


def test_deferred_problems_come_back_and_are_flagged_after_two_failures() -> None:
    run = Run(Difficulty(pilot=8, retry=3), "ab")
    sampled = [run.plan({"a": (8, 0), "b": (8, 4)})]
    sampled += [run.plan() for _ in range(3)]
    assert sampled == ["b", "b", "b", "ab"]
    assert run.standings["a"] == ProblemState("deferred", failures=1, since=0)
    assert run.objective.states[0].problems_to_rewrite() == ()
    assert run.plan({"a": (8, 0)}) == "b"
    assert run.objective.states[0].problems_to_rewrite() == ("a",)
    assert run.metrics["difficulty/flagged"] == 0.5
    assert [run.plan() for _ in range(3)] == ["b", "b", "ab"]  # flagged, and still retried
    assert run.plan({"a": (8, 3)}) == "ab"
    assert run.standings["a"] == ProblemState("active", since=8)
    assert run.objective.states[0].problems_to_rewrite() == ()


def test_a_retry_goes_on_until_its_pilot_is_full() -> None:
    run = Run(Difficulty(pilot=16, retry=2), "ab")
    assert run.plan({"a": (16, 0), "b": (16, 8)}) == "b"
    assert [run.plan(), run.plan()] == ["b", "ab"]
    assert run.plan({"a": (8, 0)}) == "ab"
    assert run.plan({"a": (8, 8)}) == "ab"
    assert run.standings["a"].status == "active"


def test_active_problems_are_judged_again() -> None:
    run = Run(Difficulty(pilot=8, review=0.0), "abc")
    assert run.plan({"a": (8, 4), "b": (8, 4), "c": (8, 4)}) == "abc"
    assert run.plan({"a": (8, 8), "b": (8, 0), "c": (8, 5)}) == "c"
    assert run.standings["b"].failures == 1


def test_easy_problems_are_reviewed_by_the_seed_and_can_return() -> None:
    names = "".join(chr(0x4E00 + place) for place in range(400))
    seen = dict.fromkeys(names[1:], (8, 8))
    told = []
    for seed in (0, 0, 1):
        run = Run(Difficulty(pilot=8, review=0.02), names, seed)
        told.append(run.plan(seen))
    assert told[0] == told[1] != told[2]
    reviewed = len(told[0]) - 1
    assert 1 <= reviewed <= 20  # 8 expected of 399; 1 in 3000 are outside
    run = Run(Difficulty(pilot=8, review=1.0), "ab")
    assert run.plan({"a": (8, 8)}) == "ab"
    run.plan({"a": (8, 4)})
    assert run.standings["a"].status == "active"


def test_a_review_goes_on_until_its_pilot_is_full() -> None:
    state = DifficultyState({"a": ProblemState("easy", rollouts=4, correct=4), "b": ProblemState("easy")})
    plan = Plan(("a", "b", "c"), (8, 8, 8))
    assert Difficulty(pilot=8, review=0.0).apply(plan, state, None).after.samples == (8, 0, 8)


def test_when_nothing_is_left_the_plan_stays_as_it_was() -> None:
    run = Run(Difficulty(pilot=8, review=0.0), "ab")
    assert run.plan({"a": (8, 0), "b": (8, 8)}) == "ab"
    assert run.metrics["difficulty/exhausted"] == 1.0
    assert {one.status for one in run.standings.values()} == {"deferred", "easy"}


def test_counts_of_the_trainer_are_kept() -> None:
    effect = Difficulty(pilot=8).apply(
        Plan(("a", "b", "c"), (4, 0, 16), results={"c": (8, 0)}), DifficultyState(), None
    )
    assert effect.after.samples == (4, 0, 0)


def test_a_resumed_run_goes_on_as_if_it_had_not_stopped() -> None:
    first, second = Run(Difficulty(pilot=8, retry=4)), Run(Difficulty(pilot=8, retry=4))
    seen = {"a": (8, 0), "b": (8, 8), "c": (4, 2)}
    first.plan(seen)
    second.objective.restore(json.loads(json.dumps(first.objective.state())))
    assert second.standings == first.standings
    assert [first.plan({"c": (4, 2)}), *(first.plan() for _ in range(6))] == [
        second.plan({"c": (4, 2)}),
        *(second.plan() for _ in range(6)),
    ]


def test_bad_input_is_refused_or_neutral() -> None:
    mechanism = Difficulty()
    for seen in ({"a": (4, 5)}, {"a": (-1, -1)}, {"a": (4, -1)}):
        with pytest.raises(MechanismError, match=r"correct rollouts of .* for 'a'"):
            mechanism.apply(Plan(("a",), (8,), results=seen), DifficultyState(), None)
    assert mechanism.update(DifficultyState(), {}) == DifficultyState()
    assert Run(mechanism, "a").plan({"a": (0, 0)}) == "a"
    assert Run(mechanism, "").plan() == ""


@pytest.mark.parametrize(
    "bad", [{"pilot": 0}, {"low": 0.9}, {"low": -0.1}, {"high": 1.1}, {"retry": 0}, {"review": 1.5}]
)
def test_bad_settings_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(SettingsError, match=next(iter(bad))):
        Difficulty(**bad)  # type: ignore[arg-type]  # what a user may write


def test_a_band_of_everything_is_inert() -> None:
    assert Difficulty(low=0.0, high=1.0).no_effect(Regime()) is not None
    assert Difficulty().no_effect(Regime()) is None


def test_the_contract() -> None:
    check_mechanism(Difficulty(pilot=8, retry=3, review=0.3))
    check_mechanism(Difficulty(), neutral=Difficulty(pilot=1, low=0.0, high=1.0))


def test_the_defaults_and_the_edges_of_the_settings() -> None:
    check_edges(
        Difficulty,
        {"pilot": 16, "low": 0.125, "high": 0.75, "retry": 100, "review": 0.02},
        accepted=[
            {"pilot": 1},
            {"low": 0.0},
            {"low": 0.75},
            {"high": 1.0},
            {"retry": 1},
            {"review": 0.0},
            {"review": 1.0},
        ],
        refused=[
            {"pilot": 0},
            {"low": -0.1},
            {"low": 0.76},
            {"high": 1.1},
            {"retry": 0},
            {"review": -0.1},
            {"review": 1.1},
        ],
    )


def test_nothing_is_left_only_where_something_was_planned() -> None:
    nothing_planned = Difficulty().apply(Plan(("a",), (0,)), DifficultyState(), None)
    assert nothing_planned.stats["exhausted"].value == 0.0
    # The second problem was not planned, and the first is deferred: the plan stays as it was.
    effect = Difficulty(pilot=8).apply(Plan(("a", "b"), (4, 0), results={"a": (8, 0)}), DifficultyState(), None)
    assert effect.stats["exhausted"].value == 1.0
    assert effect.after.samples == (4, 0)


def test_an_easy_problem_is_reviewed_below_its_chance_and_not_at_it() -> None:
    lot, state = problem_uniform("a", 0, 5), DifficultyState({"a": ProblemState("easy")})
    plan = Plan(("a", "b"), (8, 8), step=5, seed=0)
    for review, samples in ((lot, (0, 8)), (min(1.0, lot + 1e-9), (8, 8))):
        assert Difficulty(review=review).apply(plan, state, None).after.samples == samples


def test_a_problem_starts_as_a_candidate_without_rollouts() -> None:
    assert ProblemState() == ProblemState("candidate", rollouts=0, correct=0, failures=0, since=0)
    assert not ProblemState().is_flagged
