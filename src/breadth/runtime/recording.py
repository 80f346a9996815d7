"""A run folder written by the inference loop: replies at once, for a resume; candidates as rollouts at the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import orjson

from breadth.base.settings import to_table
from breadth.inference.policy import Policy
from breadth.inference.records import Candidate, Task, text_of
from breadth.measure.answers import reference_key
from breadth.runs.schema import SCHEMA_VERSION, Header
from breadth.runs.writer import RunWriter
from breadth.runtime.driver import SolveResult
from breadth.runtime.journal import Journal


class Recording:
    """Records prompts, samples and answers in a run folder.

    Every reply is in ``replies.jsonl`` the moment it arrives; the same folder opened again resumes a killed run.
    Candidates become rollouts (split eval, one step per policy or setting) when the recording is closed, with
    ``correct`` where the right answer is known; each task becomes a row of metrics.
    """

    def __init__(
        self, folder: Path, policy: Policy | None = None, *, name: str = "", config: Mapping[str, Any] | None = None
    ) -> None:
        settings = dict(config or {}) | ({"policy": to_table(policy)} if policy is not None else {})
        self.writer = RunWriter(folder, Header(SCHEMA_VERSION, name or folder.name, config=settings))
        """Writes the folder."""
        self.journal = Journal.open(folder)
        """Replies of this attempt and earlier ones: give it to the driver."""
        self._rows: dict[int, list[dict[str, Any]]] = {}
        self._problems: dict[str, dict[str, Any]] = {}
        self._tasks = 0

    def add(
        self,
        result: SolveResult,
        *,
        truth: str | None = None,
        problem: str | None = None,
        step: int = 0,
        label: str = "",
    ) -> None:
        """Add the result of a task; ``truth`` is its right answer.

        ``problem`` is its id where several tasks ask the same question; ``step`` and ``label`` separate the settings
        of a sweep.
        """
        task = replace(result.task, name=problem or result.task.name)
        key = reference_key(truth)
        self._problems[task.name] = {
            "problem": task.name,
            "prompt": prompt_text(task),
            "reference": truth,
            "origin": None,
        }
        rows = self._rows.setdefault(step, [])
        for number, candidate in enumerate(result.arrived):
            rows.append(
                rollout_row(task, candidate, number, label, None if key is None else candidate.key == key, result.trace)
            )
        self._write_metrics(result, None if key is None else result.answer.key == key)

    def close(self) -> None:
        """Write rollouts and problems; whole or not at all."""
        for step, rows in self._rows.items():
            if rows:
                self.writer.rollouts({name: [row[name] for row in rows] for name in rows[0]}, step, split="eval")
        if self._problems:
            rows = list(self._problems.values())
            self.writer.problems({name: [row[name] for row in rows] for name in rows[0]})
        self._rows, self._problems = {}, {}

    def __enter__(self) -> Recording:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _write_metrics(self, result: SolveResult, correct: bool | None) -> None:
        values = {
            "inference/drawn": result.started,
            "inference/failed": result.failed,
            "inference/discarded": result.discarded,
            "inference/unread": result.answer.unread,
            "inference/output_tokens": result.spend.output_tokens,
            "inference/input_tokens": result.spend.input_tokens,
            "inference/seconds": result.seconds,
        }
        optional = {"inference/confidence": result.answer.confidence, "inference/correct": correct}
        known = {name: float(value) for name, value in optional.items() if value is not None}
        self.writer.metrics(self._tasks, values | known, split="eval")
        self._tasks += 1


def prompt_text(task: Task) -> str:
    """Return a task's prompt as text: the messages with their roles, or the text as it is."""
    if isinstance(task.prompt, str):
        return task.prompt
    return "\n\n".join(f"{message.get('role', '')}: {text_of(message.get('content'))}" for message in task.prompt)


def rollout_row(
    task: Task, candidate: Candidate, number: int, label: str, correct: bool | None, trace: str
) -> dict[str, Any]:
    """Return a candidate as a rollout."""
    extra = {
        "place": candidate.draw_id,
        "finish": candidate.finish,
        "independent": candidate.independent,
        "prompt_tokens": candidate.prompt_tokens,
        "cached_tokens": candidate.cached_tokens,
        "thinking_tokens": candidate.thinking_tokens,
        "seconds": round(candidate.seconds, 4),
        "seed": candidate.seed,
        "model": candidate.model or task.model,
        "trace": trace,
        "confidence": (
            None
            if candidate.confidences is None or not len(candidate.confidences)
            else float(candidate.confidences.mean())
        ),
        "score": candidate.score,
        "label": label,
    }
    completion = candidate.reasoning + "\n" + candidate.full_text if candidate.reasoning else candidate.full_text
    return {
        "problem": task.name,
        "group": f"{task.name} {label}".strip(),
        "sample": number,
        "completion": completion,
        "answer": candidate.answer,
        "correct": correct,
        "tokens": candidate.tokens,
        "truncated": candidate.finish == "length",
        "old_logprobs": None if candidate.logprobs is None else candidate.logprobs.tolist(),
        "extra": orjson.dumps(extra).decode(),
    }
