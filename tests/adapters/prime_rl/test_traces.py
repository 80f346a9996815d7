"""Verifiers episodes as rollouts, built as verifiers v1 writes them."""

from __future__ import annotations

from typing import Any

import pytest

from breadth.adapters.prime_rl.traces import trace_rows


def node(role: str, content: str, parent: int | None, *, sampled: bool = False, **tokens: Any) -> dict[str, Any]:
    return {"parent": parent, "message": {"role": role, "content": content}, "sampled": sampled, **tokens}


def trace(**changes: Any) -> dict[str, Any]:
    """Return a trace of two turns with a tool between them."""
    whole = {
        "id": "t1",
        "agent": {"name": "solver", "trainable": True},
        "nodes": [
            node("system", "be brief", None, token_ids=[1, 2], mask=[False, False]),
            node("user", "2+2?", 0, token_ids=[3], mask=[False]),
            node("assistant", "let me see", 1, sampled=True, token_ids=[4, 5, 6], mask=[False, True, True], logprobs=[-0.5, -0.25]),
            node("tool", "4", 2, token_ids=[7], mask=[False]),
            node("assistant", r"\boxed{4}", 3, sampled=True, token_ids=[8], mask=[True], logprobs=[-1.0]),
        ],
        "calls": [
            {"node": 2, "finish_reason": "tool_calls", "usage": {"prompt_tokens": 9, "completion_tokens": 2}},
            {"node": 4, "finish_reason": "stop", "usage": {"prompt_tokens": 12, "completion_tokens": 1}},
        ],
        "rewards": {"correct": {"score": 1.0, "weight": 1.0}, "brevity": {"score": 0.5, "weight": 0.2}, "style": None},
        "metrics": {"turns": 2.0},
        "info": {},
        "stop_condition": "agent_completed",
        "errors": [],
        "ok": True,
    }
    return {**whole, **changes}


def episode(*traces: dict[str, Any], **changes: Any) -> dict[str, Any]:
    whole = {
        "id": "e1",
        "env": {"id": "gsm8k-v1", "name": "gsm8k"},
        "task": {"type": "GsmTask", "data": {"idx": 17, "prompt": "2+2?", "answer": "4"}, "key": "ab" * 32},
        "group": {"id": "g9"},
        "run": {"type": "train", "id": "r", "work": {"type": "train", "step": 12, "policy": {"start": 11, "end": 12}}},
        "ok": True,
        "errors": [],
        "traces": list(traces),
    }
    return {**whole, **changes}


def only(record: dict[str, Any]) -> dict[str, Any]:
    (row,) = trace_rows(record)
    return row


def test_a_trace_of_two_turns() -> None:
    row = only(episode(trace()))
    assert {name: row[name] for name in ("step", "split", "problem", "group", "origin", "reference")} == {
        "step": 12,
        "split": "train",
        "problem": "gsm8k/abababababababab",
        "group": "g9",
        "origin": "gsm8k",
        "reference": "4",
    }
    assert row["prompt"] == "system: be brief\nuser: 2+2?"
    assert row["completion"] == "let me see\n\n\\boxed{4}"
    assert (row["tokens"], row["truncated"], row["advantage"]) == (3, False, None)


def test_rewards_are_weighted_and_add_up() -> None:
    row = only(episode(trace()))
    # 1.0 x 1.0 + 0.5 x 0.2; the style was not scored.
    assert (row["reward/correct"], row["reward/brevity"], row["reward"]) == (1.0, 0.1, 1.1)
    assert "reward/style" not in row


def test_a_reward_whose_name_is_no_text_can_be_stored() -> None:
    assert only(episode(trace(rewards={"a\ud800": {"score": 0.5}})))["reward/a?"] == 0.5


def test_a_trace_nobody_scored_has_no_reward() -> None:
    assert only(episode(trace(rewards={"correct": None})))["reward"] is None


def test_tokens_start_at_the_first_sampled_one_and_prompts_between_are_masked() -> None:
    row = only(episode(trace()))
    assert row["token_ids"] == [5, 6, 7, 8]
    assert row["mask"] == [True, True, False, True]
    assert row["old_logprobs"] == [-0.5, -0.25, None, -1.0]
    assert "advantages" not in row


def test_advantages_are_spread_over_sampled_tokens() -> None:
    nodes = [node("user", "?", None), node("assistant", "!", 0, sampled=True, token_ids=[1, 2], mask=[True, True], advantages=[0.5, -0.5])]
    assert only(episode(trace(nodes=nodes)))["advantages"] == [0.5, -0.5]


def test_a_trace_without_tokens_has_no_token_columns() -> None:
    nodes = [node("user", "?", None), node("assistant", "!", 0, sampled=True)]
    row = only(episode(trace(nodes=nodes, calls=[])))
    assert not {"token_ids", "mask", "old_logprobs"} & row.keys()
    assert row["tokens"] is None


def test_the_last_branch_counts() -> None:
    nodes = [node("user", "?", None), node("assistant", "first", 0, sampled=True), node("assistant", "second", 0, sampled=True)]
    assert only(episode(trace(nodes=nodes)))["completion"] == "second"


@pytest.mark.parametrize(
    ("changes", "cut"),
    [
        ({"stop_condition": "max_turns"}, True),
        ({"stop_condition": None, "calls": []}, None),
        ({"calls": [{"finish_reason": "length"}]}, True),
        ({"calls": [{"finish_reason": "length"}, {"finish_reason": "stop"}]}, False),
        ({"calls": [{"finish_reason": "length"}, {"finish_reason": None, "error": {"type": "Timeout"}}]}, True),
    ],
)
def test_truncation(changes: dict[str, Any], cut: bool | None) -> None:
    assert only(episode(trace(**changes)))["truncated"] is cut


@pytest.mark.parametrize(
    ("task", "problem"),
    [
        ({"data": {"idx": 17}, "key": "mine-3"}, "gsm8k/mine-3"),
        ({"data": {"idx": 17}, "hash": "0123456789abcdef" * 4}, "gsm8k/0123456789abcdef"),
        ({"data": {"idx": 17}}, "gsm8k/17"),
    ],
)
def test_problems_are_named_by_the_best_there_is(task: dict[str, Any], problem: str) -> None:
    assert only(episode(trace(), task=task))["problem"] == problem


def test_a_task_without_name_is_named_by_its_prompt() -> None:
    same = [only(episode(trace(), task={"data": {}}))["problem"] for _ in range(2)]
    other = only(episode(trace(nodes=[node("user", "3+3?", None)]), task={"data": {}}))["problem"]
    assert same[0] == same[1] != other


def test_the_prompt_of_a_trace_without_messages_is_the_tasks() -> None:
    task = {"data": {"prompt": [{"role": "user", "content": "hi"}], "system_prompt": "be brief"}}
    row = only(episode(trace(nodes=[]), task=task))
    assert (row["prompt"], row["completion"]) == ("system: be brief\nuser: hi", None)


def test_judges_are_no_rollouts_and_failures_leave_none() -> None:
    assert trace_rows(episode(trace(agent={"name": "judge", "trainable": False}))) == []
    assert trace_rows(episode()) == []
    assert trace_rows({"traces": None}) == []


def test_what_went_wrong_is_kept() -> None:
    row = only(episode(trace(errors=[{"type": "ToolError", "message": "no such tool", "traceback": "..."}])))
    assert row["errors"] == ["ToolError: no such tool"]
    assert row["policy"] == {"start": 11, "end": 12}
    assert row["metrics"] == {"turns": 2.0}


def test_a_graph_that_bites_its_tail_ends() -> None:
    nodes = [node("user", "?", 2), node("assistant", "!", 0, sampled=True), node("tool", "x", 1)]
    assert only(episode(trace(nodes=nodes)))["completion"] == "!"
