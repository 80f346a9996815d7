"""The cascade: on to the next stage only when not sure, votes kept apart."""

from __future__ import annotations

import pytest

from breadth.base.errors import SettingsError
from breadth.base.settings import dumps, loads
from breadth.inference.records import Ask, Candidate, Task
from breadth.inference.strategies.adaptive_vote import AdaptiveVote
from breadth.inference.strategies.best_of_n import BestOfN
from breadth.inference.strategies.budget_forcing import BudgetForcing
from breadth.inference.strategies.cascade import Cascade, CascadeStage
from breadth.inference.strategies.revision import Revision
from breadth.inference.strategies.split import Split
from breadth.inference.strategies.vote import Vote
from breadth.testing.strategies import check_strategy, drive

TASK = Task(({"role": "user", "content": "6 * 7?"},), model="medium")
TWO = Cascade((CascadeStage(Vote(4), "small"), CascadeStage(Vote(3), "large")))


def by_model(small: str, large: str) -> dict[str, list[str]]:
    return {"small": list(small), "large": list(large), "medium": list("7777777")}


def run(
    strategy: Cascade, small: str, large: str, budget: int | None = None
) -> tuple[str | None, list[str], dict[str, float]]:
    left = by_model(small, large)

    def reply(ask: Ask, number: int) -> Candidate:
        model = ask.model or TASK.model
        key = left[model].pop(0)
        return Candidate(key, None if key == "?" else key, None if key == "?" else key, tokens=1, model=model)

    answer = drive(strategy, TASK, reply, budget=budget).answer
    return answer.key, [candidate.model for candidate in answer.candidates], dict(answer.votes)


def test_a_sure_first_stage_ends_it() -> None:
    # Four that agree: 0.96875.
    assert run(TWO, "1111", "222") == ("1", ["small"] * 4, {"1": 4})


def test_an_unsure_one_goes_on_and_its_votes_are_not_mixed_in() -> None:
    # Three to one: P(3, 1) = 0.8125 is below 0.95; the large model's votes stand alone, though fewer.
    assert run(TWO, "1112", "233") == ("3", ["small"] * 4 + ["large"] * 3, {"3": 2, "2": 1})


def test_the_threshold_is_the_stages_own() -> None:
    lenient = Cascade((CascadeStage(Vote(4), "small", 0.8), CascadeStage(Vote(3), "large")))
    assert run(lenient, "1112", "233")[0] == "1"
    exact = Cascade((CascadeStage(Vote(4), "small", 0.96875), CascadeStage(Vote(3), "large")))
    assert run(exact, "1111", "222")[0] == "1"


def test_an_answer_without_confidence_goes_on() -> None:
    cascade = Cascade((CascadeStage(Revision(rounds=2), "small", 0.0), CascadeStage(Vote(3), "large")))
    assert run(cascade, "11", "233")[0] == "3"


@pytest.mark.parametrize(("budget", "key"), [(0, None), (3, "1"), (4, "1"), (5, "2"), (7, "3")])
def test_the_latest_answer_stands_when_the_budget_dies(budget: int, key: str | None) -> None:
    assert run(TWO, "1112", "233", budget)[0] == key


def test_a_stage_that_cannot_be_read_does_not_replace_one_that_can() -> None:
    assert run(TWO, "1112", "???")[0] == "1"
    assert run(TWO, "????", "???")[0] is None


def test_forked_runs_ask_the_stages_model_too() -> None:
    cascade = Cascade((CascadeStage(Split(2, Revision(rounds=2)), "small", 1.0), CascadeStage(Vote(1))))
    assert run(cascade, "1111", "")[1] == ["small"] * 4 + ["medium"]


def test_the_stages_used_are_told() -> None:
    answer = drive(TWO, TASK, [Candidate(key, key, key) for key in "1112233"]).answer
    assert answer.figures["stages"] == 2


def test_when_nothing_comes_it_says_why() -> None:
    answer = drive(TWO, TASK, []).answer
    assert (answer.chosen, answer.stopped, answer.figures["stages"]) == (None, "budget", 2)


def test_it_needs_what_its_stages_need() -> None:
    assert TWO.needs == frozenset()
    assert Cascade((CascadeStage(BestOfN()), CascadeStage(BudgetForcing()))).needs == {"judge", "prefix"}


def test_it_is_written_as_a_table_of_stages() -> None:
    text = dumps(TWO)
    assert 'kind = "cascade"' in text
    assert loads(Cascade, text) == TWO


@pytest.mark.parametrize("strategy", [TWO, Cascade((CascadeStage(AdaptiveVote(3)), CascadeStage(Split())))])
def test_the_contract(strategy: Cascade) -> None:
    check_strategy(strategy)


def test_bad_settings_are_refused() -> None:
    with pytest.raises(SettingsError, match="stages"):
        Cascade(())
    with pytest.raises(SettingsError, match="confidence"):
        CascadeStage(Vote(), confidence=1.5)
