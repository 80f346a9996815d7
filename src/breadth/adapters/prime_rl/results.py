"""Make rollouts of the flat rows that ``vf-eval --save-results`` writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from breadth.adapters.prime_rl.traces import Row
from breadth.adapters.prime_rl.turns import conversation, spoken
from breadth.adapters.printed import as_number, as_step
from breadth.adapters.rows import as_text
from breadth.runs.problems import problem_id

ORIGINS = ("env_name", "env_id", "task")
"""Where a row names its environment, best first."""
USED = frozenset(
    {"prompt", "completion", "answer", "reward", "advantage", "is_truncated", "example_id", "step", "token_usage", "timing", "tool_defs"}
)
"""Keys that have a column, and timings and tools, which say nothing about the rollout."""


def result_rows(record: Mapping[str, Any]) -> list[Row]:
    """Return a row under our column names; its ``answer`` is the reference, and reward parts stay with the metrics."""
    prompt, completion = record.get("prompt"), record.get("completion")
    if prompt is None and completion is None:
        return []
    origin = next((record[name] for name in ORIGINS if isinstance(record.get(name), str)), None)
    text = None if prompt is None else conversation(prompt) if isinstance(prompt, list) else as_text(prompt)
    row: Row = {
        "problem": _problem(record.get("example_id"), origin, text),
        "prompt": text,
        "completion": None if completion is None else spoken(completion),
        "reference": record.get("answer"),
        "origin": origin,
        "reward": record.get("reward"),
        "advantage": record.get("advantage"),
        "tokens": _output_tokens(record),
        "truncated": record.get("is_truncated"),
        "step": as_step(record.get("step")),
    }
    return [{**_rest(record, row), **row}]


def _problem(example: Any, origin: str | None, prompt: str | None) -> str:
    if example is None:
        return problem_id(prompt or "")
    return f"{origin}/{as_text(example)}" if origin else as_text(example)


def _output_tokens(record: Mapping[str, Any]) -> float | None:
    usage = record.get("token_usage")
    return as_number(usage["output_tokens"]) if isinstance(usage, Mapping) and "output_tokens" in usage else None


def _rest(record: Mapping[str, Any], row: Row) -> Row:
    """Return what has no column; metrics stand a second time at the top level, which is once too often."""
    metrics = record.get("metrics")
    twice = metrics if isinstance(metrics, Mapping) else {}
    return {name: value for name, value in record.items() if name not in USED and name not in row and name not in twice}
