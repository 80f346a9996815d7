"""The summary of a solve: what scripts and clients read."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import orjson

from breadth.base.errors import ServerError
from breadth.inference.records import Answer, Ask, Candidate, Run, Task
from breadth.inference.strategies.adaptive_vote import AdaptiveVote
from breadth.inference.strategy import Strategy
from breadth.runtime.driver import Driver
from breadth.runtime.samplers.scripted import Said, ScriptedSampler
from breadth.runtime.summary import strategy_name, summary

CHAT = ({"role": "user", "content": "6 x 7?"},)


def test_it_holds_votes_cost_and_failures_and_is_json() -> None:
    replies: list[Said] = ["The answer is 42.", ServerError("status 500", "again"), "The answer is 41.", "The answer is 42.", "Hm."]
    strategy = AdaptiveVote(most=4, width=1)
    solved = asyncio.run(Driver(ScriptedSampler(replies)).solve(strategy, Task(CHAT)))
    said = orjson.loads(orjson.dumps(summary(solved, strategy)))
    assert said["strategy"] == "adaptive-vote"
    assert said["answer"] == "42"
    assert said["votes"] == [{"answer": "42", "votes": 2.0, "share": 2 / 3}, {"answer": "41", "votes": 1.0, "share": 1 / 3}]
    assert (said["drawn"], said["arrived"], said["failed"], said["unread"]) == (5, 4, 1, 1)
    assert said["errors"] == [{"problem": "status 500", "times": 1}]
    assert said["cost"]["output_tokens"] == 3 * 4 + 1
    assert said["stopped"] == "most"


def test_a_strategy_of_a_third_party_goes_by_its_class() -> None:
    @dataclass(frozen=True)
    class Mine(Strategy):
        def __call__(self, task: Task) -> Run:
            yield Ask()
            return Answer()

    assert strategy_name(Mine()) == "Mine"


def test_a_server_that_does_not_keep_to_caps_is_named() -> None:
    strategy = AdaptiveVote(most=2)
    told = Candidate("The answer is 42.", message={"cap_ignored": {"tokens": 9, "cap": 4}})
    solved = asyncio.run(Driver(ScriptedSampler([told, "The answer is 42."])).solve(strategy, Task(CHAT)))
    (note,) = summary(solved, strategy)["notes"]
    assert "in 1 of 2 completions" in note
