"""Files of episodes and results: which step and split they count in, what is odd about them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from breadth.adapters.prime_rl.rollouts import (
    conversation,
    folder_split,
    folder_step,
    policy_text,
    read_episodes,
    read_results,
    read_token_export,
    result_rows,
    trace_rows,
    turn_text,
)
from breadth.runs.importing import import_files
from breadth.runs.reader import Run
from breadth.runs.schema import EntropyKind, Remark, RolloutBatch


@pytest.mark.parametrize(
    ("turn", "text"),
    [
        ({"role": "assistant", "content": "4"}, "4"),
        ({"role": "assistant", "reasoning_content": "2+2", "content": "4"}, "2+2\n\n4"),
        (
            {
                "role": "user",
                "content": [{"type": "text", "text": "see"}, {"type": "image_url"}, {"type": "text", "text": "this"}],
            },
            "see\nthis",
        ),
        (
            {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "name": "add", "arguments": '{"a": 2}'}]},
            'add({"a": 2})',
        ),
        (
            {"role": "assistant", "content": "so", "tool_calls": [{"function": {"name": "add", "arguments": "{}"}}]},
            "so\n\nadd({})",
        ),
        ({"role": "assistant", "tool_calls": ['{"name": "add"}']}, '{"name": "add"}'),
        ({"role": "assistant"}, ""),
    ],
)
def test_turn_text(turn: dict[str, Any], text: str) -> None:
    assert turn_text(turn) == text


def test_a_conversation_names_its_roles() -> None:
    assert (
        conversation([{"role": "system", "content": "be brief"}, {"role": "user", "content": "2+2?"}, "noise"])
        == "system: be brief\nuser: 2+2?"
    )


def test_spoken_is_what_the_policy_wrote() -> None:
    turns = [
        {"role": "assistant", "content": "look"},
        {"role": "tool", "content": "5"},
        {"role": "assistant", "content": "five"},
    ]
    assert policy_text(turns) == "look\n\nfive"
    assert policy_text("plain") == "plain"
    assert policy_text([]) == ""
    assert policy_text([1]) == "[1]"


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
            node(
                "assistant",
                "let me see",
                1,
                sampled=True,
                token_ids=[4, 5, 6],
                mask=[False, True, True],
                logprobs=[-0.5, -0.25],
            ),
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
    nodes = [
        node("user", "?", None),
        node("assistant", "!", 0, sampled=True, token_ids=[1, 2], mask=[True, True], advantages=[0.5, -0.5]),
    ]
    assert only(episode(trace(nodes=nodes)))["advantages"] == [0.5, -0.5]


def test_a_trace_without_tokens_has_no_token_columns() -> None:
    nodes = [node("user", "?", None), node("assistant", "!", 0, sampled=True)]
    row = only(episode(trace(nodes=nodes, calls=[])))
    assert not {"token_ids", "mask", "old_logprobs"} & row.keys()
    assert row["tokens"] is None


def test_the_last_branch_counts() -> None:
    nodes = [
        node("user", "?", None),
        node("assistant", "first", 0, sampled=True),
        node("assistant", "second", 0, sampled=True),
    ]
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


RECORD = {
    "example_id": 4,
    "prompt": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "2+2?"}],
    "completion": [{"role": "assistant", "content": "4"}],
    "answer": "4",
    "task": "gsm8k",
    "reward": 1.0,
    "is_truncated": False,
    "token_usage": {"input_tokens": 20.0, "output_tokens": 3.0},
    "metrics": {"correct_answer": 1.0},
    "correct_answer": 1.0,
    "timing": {"total_ms": 3},
    "stop_condition": "done",
}


def test_a_result() -> None:
    (row,) = result_rows(RECORD)
    assert row == {
        "metrics": {"correct_answer": 1.0},
        "stop_condition": "done",
        "task": "gsm8k",
        "problem": "gsm8k/4",
        "prompt": "system: be brief\nuser: 2+2?",
        "completion": "4",
        "reference": "4",
        "origin": "gsm8k",
        "reward": 1.0,
        "advantage": None,
        "tokens": 3.0,
        "truncated": False,
        "step": None,
    }


def test_problems_without_environment_or_number() -> None:
    assert result_rows({**RECORD, "task": None})[0]["problem"] == "4"
    nameless = {**RECORD, "example_id": None}
    assert result_rows(nameless)[0]["problem"] == result_rows({**nameless, "completion": "5"})[0]["problem"] != "4"


def test_a_rollout_that_never_began_is_none() -> None:
    assert result_rows({"example_id": 4, "prompt": None, "completion": None, "error": "boom"}) == []


def export(**changes: Any) -> dict[str, Any]:
    """Return a sequence of a prompt of two tokens and a completion of three, the second a tool's."""
    row = {
        "schema_version": 1,
        "step": 4,
        "rank": 0,
        "micro_step": 1,
        "micro_sequence_idx": 0,
        "export_sequence_idx": 5,
        "env_name": "sums",
        "token_ids": [11, 12, 13, 14, 15],
        "position_ids": [0, 1, 2, 3, 4],
        "loss_mask": [False, False, True, False, True],
        "advantages": [0.0, 0.0, 0.5, 0.0, 0.5],
        "inference_logprobs": [0.0, 0.0, -1.0, 0.0, -2.0],
        "trainer_logprobs": [-9.0, -9.0, -1.5, -9.0, -2.5],
        "entropy": [9.0, 9.0, 0.25, 9.0, None],
        "mismatch_kl": [0.0] * 5,
        "importance_ratio": [1.0] * 5,
    }
    return {**row, **changes}


def write(folder: Path, rows: list[dict[str, Any]]) -> Path:
    path = folder / "token_exports/step_4/rank_0.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def rows(folder: Path, exported: list[dict[str, Any]]) -> list[dict[str, Any]]:
    records = read_token_export(write(folder, exported))
    return [row for record in records if isinstance(record, RolloutBatch) for row in record.table.to_pylist()]


def test_columns_start_at_the_first_trained_token(tmp_path: Path) -> None:
    (row,) = rows(tmp_path, [export()])
    assert {name: row[name] for name in ("token_ids", "mask", "advantages", "old_logprobs", "logprobs", "entropy")} == {
        "token_ids": [13, 14, 15],
        "mask": [True, False, True],
        "advantages": [0.5, 0.0, 0.5],
        "old_logprobs": [-1.0, 0.0, -2.0],
        "logprobs": [-1.5, -9.0, -2.5],
        "entropy": [0.25, 9.0, None],
    }
    assert (row["step"], row["origin"], row["tokens"], row["advantage"]) == (4, "sums", 2, 0.5)
    assert json.loads(row["extra"]) == {"export_sequence_idx": 5, "micro_sequence_idx": 0, "micro_step": 1, "rank": 0}


def test_samples_of_one_prompt_share_their_problem(tmp_path: Path) -> None:
    same, other, elsewhere = (
        export(token_ids=[11, 12, 99, 98, 97]),
        export(token_ids=[11, 13, 13, 14, 15]),
        export(env_name="words"),
    )
    names = [row["problem"] for row in rows(tmp_path, [export(), same, other, elsewhere])]
    assert names[0] == names[1]
    assert len(set(names)) == 3
    assert names[0].startswith("sums/")


def test_advantages_that_differ_by_token_give_no_common_one(tmp_path: Path) -> None:
    assert rows(tmp_path, [export(advantages=[0.0, 0.0, 0.5, 0.0, -0.5])])[0]["advantage"] is None


@pytest.mark.parametrize(
    "changes", [{"loss_mask": [False] * 5}, {"entropy": [0.5]}, {"token_ids": None}, {"loss_mask": "text"}]
)
def test_rows_that_cannot_be_lined_up_are_counted(tmp_path: Path, changes: dict[str, Any]) -> None:
    records = list(read_token_export(write(tmp_path, [export(**changes), export()])))
    assert [len(record.table) for record in records if isinstance(record, RolloutBatch)] == [1]
    assert [record.problem for record in records if isinstance(record, Remark)] == [
        "1 rows hold no trained token, or lists of unequal length; left out."
    ]


def test_the_entropy_of_tokens_carries_its_kind(tmp_path: Path) -> None:
    import_files([write(tmp_path, [export()])], tmp_path / "run")
    assert Run.open(tmp_path / "run").header.entropies == {
        "entropy": EntropyKind("exact", None, "token-mean", "response")
    }


def stored_episode(kind: str = "train", step: int = 3, **trace: Any) -> dict[str, Any]:
    nodes = [
        {"parent": None, "message": {"role": "user", "content": "2+2?"}},
        {"parent": 0, "message": {"role": "assistant", "content": "4"}, "sampled": True},
    ]
    made = {"agent": {"name": "agent"}, "nodes": nodes, "rewards": {"right": {"score": 1.0}}, **trace}
    work = {"type": kind, "step": step}
    return {
        "id": "e",
        "env": {"id": "sums"},
        "task": {"data": {"idx": 1}},
        "run": {"type": "train", "work": work},
        "traces": [made],
    }


def write_records(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("path", "step", "split"),
    [
        ("run/rollouts/step_12/train/all/traces.jsonl", 12, "train"),
        ("run/rollouts/step_12/eval/effective/traces.jsonl", 12, "eval"),
        ("step_1/run/rollouts/step_7/train/all/traces.jsonl", 7, "train"),
        ("outputs/evals/train/run/traces.jsonl", None, None),
        ("traces.jsonl", None, None),
    ],
)
def test_folders_say_step_and_split(path: str, step: int | None, split: str | None) -> None:
    assert (folder_step(Path(path)), folder_split(Path(path))) == (step, split)


def test_the_folder_knows_better_than_the_record(tmp_path: Path) -> None:
    path = write_records(tmp_path / "rollouts/step_12/train/all/traces.jsonl", [stored_episode("eval", 10)])
    (batch,) = read_episodes(path)
    assert isinstance(batch, RolloutBatch)
    assert (batch.split, batch.table.column("step").to_pylist()) == ("train", [12])
    assert batch.table.column("reward/right").to_pylist() == [1.0]


def test_a_file_on_its_own_goes_by_its_records(tmp_path: Path) -> None:
    path = write_records(tmp_path / "traces.jsonl", [stored_episode("train", 10), stored_episode("eval", 11)])
    batches = [batch for batch in read_episodes(path) if isinstance(batch, RolloutBatch)]
    assert [(batch.split, batch.table.column("step").to_pylist()) for batch in batches] == [
        ("train", [10]),
        ("eval", [11]),
    ]


def test_an_evaluation_of_verifiers_has_no_step(tmp_path: Path) -> None:
    (batch,) = read_episodes(write_records(tmp_path / "traces.jsonl", [{**stored_episode(), "run": None}]))
    assert isinstance(batch, RolloutBatch)
    assert (batch.split, batch.table.column("step").to_pylist()) == ("eval", [0])


def test_results_are_held_out_and_answers_are_read(tmp_path: Path) -> None:
    rows = [
        {"example_id": n, "prompt": "2+2?", "completion": rf"\boxed{{{n}}}", "answer": "4", "reward": float(n == 4)}
        for n in (3, 4)
    ]
    (batch,) = read_results(write_records(tmp_path / "results.jsonl", rows))
    assert isinstance(batch, RolloutBatch)
    assert batch.split == "eval"
    assert batch.table.select(["problem", "answer", "reference", "reward", "step"]).to_pylist() == [
        {"problem": "3", "answer": "3", "reference": "4", "reward": 0.0, "step": 0},
        {"problem": "4", "answer": "4", "reference": "4", "reward": 1.0, "step": 0},
    ]


@pytest.mark.parametrize(
    ("word", "split"),
    [
        *[(word, "eval") for word in ("test", "val", "validation", "dev", "eval", "Test", "heldout", "", None, 3)],
        *[(word, "train") for word in ("train", "training", "Train")],
        (["test"], "eval"),
    ],
)
def test_any_word_for_a_split_can_be_imported(tmp_path: Path, word: Any, split: str) -> None:
    row = {"example_id": 1, "prompt": "2+2?", "completion": "4", "answer": "4", "reward": 1.0, "split": word}
    import_files([write_records(tmp_path / "results.jsonl", [row])], tmp_path / "run")
    (stored,) = Run.open(tmp_path / "run").query("SELECT split, answer FROM rollouts").to_pylist()
    assert stored == {"split": split, "answer": "4"}


def test_episodes_without_a_rollout_are_counted(tmp_path: Path) -> None:
    path = write_records(tmp_path / "traces.jsonl", [stored_episode(), {**stored_episode(), "traces": []}])
    assert [record.problem for record in read_episodes(path) if isinstance(record, Remark)] == [
        "1 records hold no rollout of a trained agent (failed before the first turn, or judges only)."
    ]
