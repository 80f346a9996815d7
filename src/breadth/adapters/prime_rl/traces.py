"""Make rollouts of verifiers episodes: one row for each trace of a trained agent."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from breadth.adapters.prime_rl.turns import conversation, spoken
from breadth.adapters.printed import as_number, as_step
from breadth.adapters.rows import as_text
from breadth.adapters.scalars import storable_name
from breadth.runs.problems import problem_id
from breadth.runs.schema import REWARD_PREFIX

Row = dict[str, Any]
"""A rollout under our column names; other keys are kept as they are."""
CUT = ("max_turns", "max_input_tokens", "max_output_tokens", "max_total_tokens", "context_length")
"""Stop conditions under which verifiers calls a trace truncated."""
DIGEST = re.compile(r"[0-9a-f]{32,}")
KEPT_DIGITS = 16
"""Of a task's content hash: enough to tell 10^8 problems apart."""


def trace_rows(episode: Mapping[str, Any]) -> list[Row]:
    """Return a row for each trace whose agent is trained; a judge's trace is no rollout of the policy."""
    traces = episode.get("traces")
    found = [trace for trace in traces if isinstance(trace, Mapping)] if isinstance(traces, list) else []
    return [_row(trace, episode) for trace in found if _table(trace, "agent").get("trainable", True)]


def _row(trace: Mapping[str, Any], episode: Mapping[str, Any]) -> Row:
    task = _table(trace, "task") or _table(episode, "task")
    env = _table(episode, "env")
    origin = as_text(env.get("name") or env.get("id") or "") or None
    work = _table(_table(episode, "run"), "work")
    branch = _branch(trace)
    prompt = _prompt(branch, _table(task, "data"))
    return {
        **_tokens(branch),
        **_rewards(trace),
        **_rest(trace, work),
        "step": as_step(work.get("step")),
        "split": work["type"] if work.get("type") in ("train", "eval") else None,
        "problem": _problem(task, origin, prompt),
        "group": _table(episode, "group").get("id"),
        "prompt": prompt,
        "reference": _table(task, "data").get("answer"),
        "origin": origin,
        "completion": spoken([node["message"] for node in branch if node.get("sampled")]) if branch else None,
        "advantage": _table(trace, "info").get("advantage"),
        "tokens": _written(trace, branch),
        "truncated": _truncated(trace),
    }


def _table(parent: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = parent.get(key)
    return value if isinstance(value, Mapping) else {}


def _list(parent: Mapping[str, Any], key: str) -> Sequence[Any]:
    value = parent.get(key)
    return value if isinstance(value, list) else []


def _branch(trace: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the nodes from the root to the last message; a node's parent stands before it."""
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


def _prompt(branch: Sequence[Mapping[str, Any]], data: Mapping[str, Any]) -> str | None:
    """Return what the policy saw before its first reply; of a trace without messages, the task's own prompt."""
    replied = next((place for place, node in enumerate(branch) if node.get("sampled")), len(branch))
    if replied:
        return conversation(node["message"] for node in branch[:replied])
    prompt = data.get("prompt")
    turns = prompt if isinstance(prompt, list) else [{"role": "user", "content": prompt}] if prompt else []
    system = data.get("system_prompt")
    return conversation([*([{"role": "system", "content": system}] if system else []), *turns]) or None


def _problem(task: Mapping[str, Any], origin: str | None, prompt: str | None) -> str:
    names = (task.get("key"), task.get("hash"), _table(task, "data").get("idx"))
    name = next((as_text(name) for name in names if name is not None), None)
    if name is None:
        return problem_id(prompt or "")
    short = name[:KEPT_DIGITS] if DIGEST.fullmatch(name) else name
    return f"{origin}/{short}" if origin else short


def _rewards(trace: Mapping[str, Any]) -> Row:
    """Return the total and its weighted parts; a part that was not scored is left out, a total of none is null."""
    parts: Row = {}
    for name, reward in _table(trace, "rewards").items():
        score = as_number(reward.get("score")) if isinstance(reward, Mapping) else None
        weight = as_number(reward.get("weight", 1.0)) if isinstance(reward, Mapping) else None
        if score is not None and weight is not None:
            parts[f"{REWARD_PREFIX}{storable_name(name)}"] = score * weight
    return {**parts, "reward": sum(parts.values()) if parts else trace.get("reward")}


def _tokens(branch: Sequence[Mapping[str, Any]]) -> Row:
    """Return the per-token columns from the first sampled token on; nothing where the trace holds no tokens."""
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
        logprobs += _spread(_list(node, "logprobs"), sampled)
        advantages += _spread(_list(node, "advantages"), sampled)
    if True not in mask:
        return {}
    start = mask.index(True)
    columns: Row = {"token_ids": ids[start:], "mask": mask[start:], "old_logprobs": logprobs[start:], "advantages": advantages[start:]}
    return {name: values for name, values in columns.items() if any(value is not None for value in values)}


def _spread(values: Sequence[Any], mask: Sequence[bool]) -> list[Any]:
    """Put a value that exists for sampled tokens only in its places; null elsewhere."""
    following = iter(values)
    return [next(following, None) if sampled else None for sampled in mask]


def _written(trace: Mapping[str, Any], branch: Sequence[Mapping[str, Any]]) -> int | None:
    """Return how many tokens the policy wrote: as the server counted them, else the sampled ones."""
    usages = [_table(call, "usage") for call in _list(trace, "calls") if isinstance(call, Mapping)]
    counts = [as_step(usage["completion_tokens"]) or 0 for usage in usages if "completion_tokens" in usage]
    sampled = sum(bool(flag) for node in branch for flag in _list(node, "mask"))
    return sum(counts) if counts else sampled or None


def _truncated(trace: Mapping[str, Any]) -> bool | None:
    calls = [call for call in _list(trace, "calls") if isinstance(call, Mapping) and not call.get("error")]
    if trace.get("stop_condition") is None and not calls:
        return None
    return trace.get("stop_condition") in CUT or bool(calls and calls[-1].get("finish_reason") == "length")


def _rest(trace: Mapping[str, Any], work: Mapping[str, Any]) -> Row:
    """Return what has no column and is worth keeping; timings, tools and configurations are not."""
    errors = [
        f"{as_text(error.get('type'))}: {as_text(error.get('message'))}" for error in _list(trace, "errors") if isinstance(error, Mapping)
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
