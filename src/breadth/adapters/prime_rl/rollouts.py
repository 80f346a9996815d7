"""Read verifiers' records (episodes, flat results) and prime-rl's token exports into batches of rollouts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from breadth.adapters.parse_values import RowReader, as_number, as_split, as_step, as_text, storable_name
from breadth.runs.jsonl import read_json_rows
from breadth.runs.schema import REWARD_PREFIX, ROLLOUT_COLUMN_NAMES, Record, Remark, RolloutBatch, Split
from breadth.runs.writer import problem_id


def conversation(turns: Iterable[Any]) -> str:
    """Return turns as one text, each under its role."""
    return "\n".join(
        f"{as_text(turn.get('role') or '')}: {turn_text(turn)}" for turn in turns if isinstance(turn, Mapping)
    )


def policy_text(completion: Any) -> str:
    """Return the text of the policy: its own turns of a conversation, or a plain text unchanged."""
    if not isinstance(completion, list) or not all(isinstance(turn, Mapping) for turn in completion):
        return as_text(completion)
    return "\n\n".join(
        text for turn in completion if turn.get("role", "assistant") == "assistant" and (text := turn_text(turn))
    )


def turn_text(turn: Mapping[str, Any]) -> str:
    """Return one turn's text: reasoning first if it is separate, then the reply, then the tools it calls."""
    calls = turn.get("tool_calls")
    parts = [message_content(turn.get("reasoning_content")), message_content(turn.get("content"))]
    return "\n\n".join(part for part in (*parts, *map(call_text, calls if isinstance(calls, list) else ())) if part)


def message_content(content: Any) -> str:
    """Return plain content unchanged, of content in parts the texts."""
    if isinstance(content, list):
        return "\n".join(as_text(part["text"]) for part in content if isinstance(part, Mapping) and "text" in part)
    return "" if content is None else as_text(content)


def call_text(call: Any) -> str:
    """Return a tool call as text."""
    body = call.get("function", call) if isinstance(call, Mapping) else call
    if isinstance(body, Mapping) and "name" in body:
        return f"{as_text(body['name'])}({as_text(body.get('arguments', ''))})"
    return as_text(body)


RolloutRow = dict[str, Any]
"""A rollout under our column names; other keys are kept as they are."""
TRUNCATING_STOPS = ("max_turns", "max_input_tokens", "max_output_tokens", "max_total_tokens", "context_length")
"""Stop conditions under which verifiers calls a trace truncated."""
DIGEST = re.compile(r"[0-9a-f]{32,}")
KEPT_DIGITS = 16
"""Digits of a task's content hash that are kept: enough for 10^8 problems."""


def trace_rows(episode: Mapping[str, Any]) -> list[RolloutRow]:
    """Return a row for each trace of a trained agent; a judge's trace is not a rollout of the policy."""
    traces = episode.get("traces")
    found = [trace for trace in traces if isinstance(trace, Mapping)] if isinstance(traces, list) else []
    return [trace_row(trace, episode) for trace in found if _table(trace, "agent").get("trainable", True)]


def trace_row(trace: Mapping[str, Any], episode: Mapping[str, Any]) -> RolloutRow:
    """Return one trace under our column names."""
    task = _table(trace, "task") or _table(episode, "task")
    env = _table(episode, "env")
    origin = as_text(env.get("name") or env.get("id") or "") or None
    work = _table(_table(episode, "run"), "work")
    branch = last_branch(trace)
    prompt = first_prompt(branch, _table(task, "data"))
    return {
        **token_columns(branch),
        **weighted_rewards(trace),
        **trace_extras(trace, work),
        "step": as_step(work.get("step")),
        "split": work.get("type"),
        "problem": task_id(task, origin, prompt),
        "group": _table(episode, "group").get("id"),
        "prompt": prompt,
        "reference": _table(task, "data").get("answer"),
        "origin": origin,
        "completion": policy_text([node["message"] for node in branch if node.get("sampled")]) if branch else None,
        "advantage": _table(trace, "info").get("advantage"),
        "tokens": count_tokens(trace, branch),
        "truncated": is_truncated(trace),
    }


def _table(parent: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = parent.get(key)
    return value if isinstance(value, Mapping) else {}


def _list(parent: Mapping[str, Any], key: str) -> Sequence[Any]:
    value = parent.get(key)
    return value if isinstance(value, list) else []


def last_branch(trace: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the nodes from the root to the last message; a node's parent comes before it."""
    nodes = _list(trace, "nodes")
    branch: list[Mapping[str, Any]] = []
    place = len(nodes) - 1
    while place >= 0:
        node = nodes[place]
        if isinstance(node, Mapping) and isinstance(node.get("message"), Mapping):
            branch.append(node)
        parent = node.get("parent") if isinstance(node, Mapping) else None
        place = parent if isinstance(parent, int) and parent < place else -1
    return branch[::-1]


def first_prompt(branch: Sequence[Mapping[str, Any]], data: Mapping[str, Any]) -> str | None:
    """Return the prompt before the first reply; of a trace without messages, the task's own prompt."""
    replied = next((place for place, node in enumerate(branch) if node.get("sampled")), len(branch))
    if replied:
        return conversation(node["message"] for node in branch[:replied])
    prompt = data.get("prompt")
    turns = prompt if isinstance(prompt, list) else [{"role": "user", "content": prompt}] if prompt else []
    system = data.get("system_prompt")
    return conversation([*([{"role": "system", "content": system}] if system else []), *turns]) or None


def task_id(task: Mapping[str, Any], origin: str | None, prompt: str | None) -> str:
    """Return the problem of a task: environment and the task's key, hash or index, else a hash of the prompt."""
    names = (task.get("key"), task.get("hash"), _table(task, "data").get("idx"))
    name = next((as_text(name) for name in names if name is not None), None)
    if name is None:
        return problem_id(prompt or "")
    short = name[:KEPT_DIGITS] if DIGEST.fullmatch(name) else name
    return f"{origin}/{short}" if origin else short


def weighted_rewards(trace: Mapping[str, Any]) -> RolloutRow:
    """Return the total and its weighted parts; a part without a score is left out, the total of none is null."""
    parts: RolloutRow = {}
    for name, reward in _table(trace, "rewards").items():
        score = as_number(reward.get("score")) if isinstance(reward, Mapping) else None
        weight = as_number(reward.get("weight", 1.0)) if isinstance(reward, Mapping) else None
        if score is not None and weight is not None:
            parts[f"{REWARD_PREFIX}{storable_name(name)}"] = score * weight
    return {**parts, "reward": sum(parts.values()) if parts else trace.get("reward")}


def token_columns(branch: Sequence[Mapping[str, Any]]) -> RolloutRow:
    """Return the per-token columns from the first sampled token on; empty if the trace holds no tokens."""
    ids: list[Any] = []
    mask: list[bool] = []
    logprobs: list[Any] = []
    advantages: list[Any] = []
    for node in branch:
        own, sampled = _list(node, "token_ids"), [bool(flag) for flag in _list(node, "mask")]
        if len(own) != len(sampled):
            return {}
        ids += own
        mask += sampled
        logprobs += spread_over_mask(_list(node, "logprobs"), sampled)
        advantages += spread_over_mask(_list(node, "advantages"), sampled)
    if True not in mask:
        return {}
    start = mask.index(True)
    columns: RolloutRow = {
        "token_ids": ids[start:],
        "mask": mask[start:],
        "old_logprobs": logprobs[start:],
        "advantages": advantages[start:],
    }
    return {name: values for name, values in columns.items() if any(value is not None for value in values)}


def spread_over_mask(values: Sequence[Any], mask: Sequence[bool]) -> list[Any]:
    """Return values of the sampled tokens at their positions; null elsewhere."""
    following = iter(values)
    return [next(following, None) if sampled else None for sampled in mask]


def count_tokens(trace: Mapping[str, Any], branch: Sequence[Mapping[str, Any]]) -> int | None:
    """Return how many tokens the policy wrote: as counted by the server, else the sampled ones."""
    usages = [_table(call, "usage") for call in _list(trace, "calls") if isinstance(call, Mapping)]
    counts = [as_step(usage["completion_tokens"]) or 0 for usage in usages if "completion_tokens" in usage]
    sampled = sum(bool(flag) for node in branch for flag in _list(node, "mask"))
    return sum(counts) if counts else sampled or None


def is_truncated(trace: Mapping[str, Any]) -> bool | None:
    """Whether a trace was truncated; None if it does not say."""
    calls = [call for call in _list(trace, "calls") if isinstance(call, Mapping) and not call.get("error")]
    if trace.get("stop_condition") is None and not calls:
        return None
    return trace.get("stop_condition") in TRUNCATING_STOPS or bool(calls and calls[-1].get("finish_reason") == "length")


def trace_extras(trace: Mapping[str, Any], work: Mapping[str, Any]) -> RolloutRow:
    """Return the extras worth keeping: not timings, tools and configurations."""
    errors = [
        f"{as_text(error.get('type'))}: {as_text(error.get('message'))}"
        for error in _list(trace, "errors")
        if isinstance(error, Mapping)
    ]
    kept = {
        "trace": trace.get("id"),
        "agent": _table(trace, "agent").get("name"),
        "metrics": trace.get("metrics"),
        "stop_condition": trace.get("stop_condition"),
        "errors": errors,
        "policy": work.get("policy"),
    }
    return {name: value for name, value in kept.items() if value}


ORIGIN_KEYS = ("env_name", "env_id", "task")
"""Where a row names its environment, best first."""
USED_KEYS = frozenset(
    {
        "prompt",
        "completion",
        "answer",
        "reward",
        "advantage",
        "is_truncated",
        "example_id",
        "step",
        "token_usage",
        "timing",
        "tool_defs",
    }
)
"""Keys that have a column, and timings and tools, which do not describe the rollout."""


def result_rows(record: Mapping[str, Any]) -> list[RolloutRow]:
    """Return a row under our column names; its ``answer`` is the reference, and reward parts stay with the metrics."""
    prompt, completion = record.get("prompt"), record.get("completion")
    if prompt is None and completion is None:
        return []
    origin = next((record[name] for name in ORIGIN_KEYS if isinstance(record.get(name), str)), None)
    text = None if prompt is None else conversation(prompt) if isinstance(prompt, list) else as_text(prompt)
    row: RolloutRow = {
        "problem": example_id(record.get("example_id"), origin, text),
        "prompt": text,
        "completion": None if completion is None else policy_text(completion),
        "reference": record.get("answer"),
        "origin": origin,
        "reward": record.get("reward"),
        "advantage": record.get("advantage"),
        "tokens": output_tokens(record),
        "truncated": record.get("is_truncated"),
        "step": as_step(record.get("step")),
    }
    return [{**result_extras(record, row), **row}]


def example_id(example: Any, origin: str | None, prompt: str | None) -> str:
    """Return the problem of a result: environment and example, else a hash of the prompt."""
    if example is None:
        return problem_id(prompt or "")
    return f"{origin}/{as_text(example)}" if origin else as_text(example)


def output_tokens(record: Mapping[str, Any]) -> float | None:
    """Return the output tokens of a result, if it has them."""
    usage = record.get("token_usage")
    return as_number(usage["output_tokens"]) if isinstance(usage, Mapping) and "output_tokens" in usage else None


def result_extras(record: Mapping[str, Any], row: RolloutRow) -> RolloutRow:
    """Return what has no column; the metrics repeated at the top level are dropped."""
    metrics = record.get("metrics")
    twice = metrics if isinstance(metrics, Mapping) else {}
    return {
        name: value for name, value in record.items() if name not in USED_KEYS and name not in row and name not in twice
    }


PER_TOKEN = {
    "token_ids": "token_ids",
    "loss_mask": "mask",
    "advantages": "advantages",
    "inference_logprobs": "old_logprobs",
    "trainer_logprobs": "logprobs",
    "entropy": "entropy",
}
"""Their list -> our column. The export's other lists follow from these."""
TOKEN_COLUMNS = {name: name for name in (*PER_TOKEN.values(), "step", "problem", "origin", "tokens", "advantage")}
KEPT_KEYS = ("rank", "micro_step", "micro_sequence_idx", "export_sequence_idx")


def read_token_export(path: Path) -> Iterator[Record]:
    """Yield the sequences of one rank and step, without prompts, whose tokens identify the problem."""
    bad = 0
    for block in read_json_rows(path):
        if isinstance(block, Remark):
            yield block
            continue
        rows = [row for _, record in block if (row := token_row(record))]
        bad += len(block) - len(rows)
        if rows:
            table, remarks = RowReader(TOKEN_COLUMNS).table(rows, path, block[0][0])
            yield from remarks
            yield RolloutBatch(table)
    if bad:
        yield Remark(f"{bad} rows hold no trained token, or lists of unequal length; left out.", str(path))


def token_row(record: Mapping[str, Any]) -> RolloutRow | None:
    """Return one exported sequence under our column names; None if its lists do not match."""
    columns = {ours: record[theirs] for theirs, ours in PER_TOKEN.items() if isinstance(record.get(theirs), list)}
    if (
        len({len(values) for values in columns.values()}) != 1
        or True not in columns.get("mask", ())
        or "token_ids" not in columns
    ):
        return None
    start = columns["mask"].index(True)
    prompt = as_text(columns["token_ids"][:start])
    env = as_text(record.get("env_name") or "") or None
    return {
        **{name: record[name] for name in KEPT_KEYS if name in record},
        **{name: values[start:] for name, values in columns.items()},
        "step": as_step(record.get("step")) or 0,
        "problem": f"{env}/{problem_id(prompt)}" if env else problem_id(prompt),
        "origin": env,
        "tokens": sum(flag is True for flag in columns["mask"]),
        "advantage": common_advantage(columns.get("advantages"), columns["mask"]),
    }


def common_advantage(advantages: list[Any] | None, mask: list[Any]) -> Any:
    """Return the advantage of the whole rollout if every trained token has the same one."""
    trained = [value for value, counts in zip(advantages or (), mask, strict=False) if counts is True]
    return trained[0] if trained and all(value == trained[0] for value in trained) else None


STEP_FOLDER = re.compile(r"step_(\d{1,15})")
TRACE_COLUMNS = {
    name: name for name in (*ROLLOUT_COLUMN_NAMES, "prompt", "reference", "origin") if name not in ("split", "extra")
}


def read_episodes(path: Path) -> Iterator[Record]:
    """Yield a rollout for each trace of a trained agent."""
    return read_records(path, trace_rows)


def read_results(path: Path) -> Iterator[Record]:
    """Yield a rollout for each row of ``results.jsonl``."""
    return read_records(path, result_rows)


def folder_step(path: Path) -> int | None:
    """Return the step that a folder of the path names (``step_12``), the innermost one."""
    found = (STEP_FOLDER.fullmatch(part) for part in reversed(path.parts))
    return next((int(step[1]) for step in found if step), None)


def folder_split(path: Path) -> Split | None:
    """Return the split that a path names: prime-rl's folders are ``step_N/{train,eval}/{all,effective}``."""
    named = path.parts[-3] if folder_step(path) is not None and len(path.parts) > 2 else None
    return "train" if named == "train" else "eval" if named == "eval" else None


def read_records(path: Path, rows_of: Callable[[Mapping[str, Any]], list[RolloutRow]]) -> Iterator[Record]:
    """Yield the rollouts of a file of records, and how many records had none."""
    empty = 0
    for block in read_json_rows(path):
        if isinstance(block, Remark):
            yield block
            continue
        found = [rows_of(record) for _, record in block]
        empty += sum(not rows for rows in found)
        yield from rollout_batches([row for rows in found for row in rows], path, block[0][0] if block else 1)
    if empty:
        yield Remark(
            f"{empty} records hold no rollout of a trained agent (failed before the first turn, or judges only).",
            str(path),
        )


def rollout_batches(rows: list[RolloutRow], path: Path, first: int) -> Iterator[Record]:
    """Yield a batch for each split; the folder's step and split take precedence over the record's."""
    step, split = folder_step(path), folder_split(path)
    parts: dict[Split, list[RolloutRow]] = {}
    for row in rows:
        own = row.pop("split", None)
        row["step"] = step if step is not None else row["step"] or 0
        parts.setdefault(split or as_split(own or "eval"), []).append(row)
    for where, part in parts.items():
        rewards = {name: name for row in part for name in row if name.startswith(REWARD_PREFIX)}
        table, remarks = RowReader({**TRACE_COLUMNS, **rewards}).table(part, path, first)
        yield from remarks
        yield RolloutBatch(table, where)
