"""Run folders written by the inference loop: every reply at once, for a resume; samples as rollouts at the end."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

import orjson
import pyarrow as pa

from breadth.base.errors import BrokenFileError
from breadth.base.settings import from_table, to_table
from breadth.base.system import atomic_file, refuse_address, write_error
from breadth.inference.confidence import Gauge
from breadth.inference.policy import Policy
from breadth.inference.records import Candidate, Task, text_of
from breadth.inference.sweep_plan import DEFAULT_WIDTHS, SweepPlan
from breadth.measure.answers import reference_key
from breadth.runs.reader import Run
from breadth.runs.schema import HEADER_FILE, SCHEMA_VERSION, Header, read_header, to_toml_value, write_header
from breadth.runs.writer import RunWriter
from breadth.runtime.driver import SolveResult
from breadth.runtime.journal import JOURNAL_FILE, Journal
from breadth.runtime.questions import Question


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


CONFIDENCE_GAUGE = Gauge()
"""Computes the confidence of a sample with log-probs."""


@dataclass(frozen=True)
class SweepOptions:
    """What to measure; a folder belongs to one set of options and is resumed only with the same."""

    policy: Policy = Policy()
    """How to sample and read answers."""
    widths: tuple[int, ...] = DEFAULT_WIDTHS
    """Votes to measure."""
    budgets: tuple[int, ...] | None = None
    """Thinking budgets to force; None derives them from the model's usual thinking, an empty list forces none."""
    draws: int = 4
    """Samples of each question at each budget."""
    seed: int = 0
    """Random seed."""


class SweepFolder:
    """Stores a sweep; the same folder opened again resumes it where it was killed."""

    def __init__(self, path: Path, options: SweepOptions, questions: str) -> None:
        refuse_address(path, "a sweep is kept in a folder of this machine")
        self.path = path
        """Its path."""
        self._request = {"asked": to_table(options), "questions": questions}
        self.plan = self.read_plan()
        """The plan of an earlier attempt; None before there is one."""
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise write_error(path, error) from error
        if not (path / HEADER_FILE).exists():
            write_header(Header(name=path.name, config=to_toml_value(self._request)), path)
        reset_failed_tasks(path)
        self.journal = Journal.open(path)
        """Replies of this attempt and earlier ones."""

    def save_plan(self, plan: SweepPlan) -> None:
        """Write the plan to the folder."""
        self.plan = plan
        header = read_header(self.path)
        write_header(replace(header, config=to_toml_value({**self._request, "plan": to_table(plan)})), self.path)

    def write_samples(
        self, rows: Mapping[int, Sequence[Mapping[str, Any]]], questions: Sequence[Question], policy: Policy
    ) -> None:
        """Write the samples of each arm as one step of rollouts, and the questions; nothing is written twice."""
        writer = RunWriter(self.path)
        run = Run.open(self.path)
        for step, samples in rows.items():
            if samples and count_rows(run, step) != len(samples):
                writer.rollouts({name: [row[name] for row in samples] for name in samples[0]}, step, split="eval")
        texts = [prompt_text(policy.task(question.prompt)) for question in questions]
        names, references = [question.name for question in questions], [question.reference for question in questions]
        writer.problems({"problem": names, "prompt": texts, "reference": pa.array(references, pa.string())})

    def read_plan(self) -> SweepPlan | None:
        """Return the plan of an earlier attempt; refuse a folder of another sweep, or of none."""
        if not (self.path / HEADER_FILE).exists():
            if self.path.exists() and any(self.path.iterdir()):
                raise BrokenFileError(
                    self.path, "is a folder with other files in it.", "Choose a folder that is new or empty."
                )
            return None
        config = read_header(self.path).config
        if "asked" not in config:
            raise BrokenFileError(
                self.path / HEADER_FILE, "is of a run that is no sweep.", "Choose another folder for --out."
            )
        for part, what in (("questions", "other questions"), ("asked", "other settings")):
            if config.get(part) != to_toml_value(self._request)[part]:
                differing = describe_differences(config.get(part), to_toml_value(self._request)[part])
                raise BrokenFileError(
                    self.path / HEADER_FILE,
                    f"was started with {what}{differing}.",
                    "Choose another folder, or repeat the command as it was.",
                )
        return from_table(SweepPlan, config["plan"], "plan") if "plan" in config else None


def sample_row(question: Question, number: int, label: str, result: SolveResult) -> dict[str, Any]:
    """Return one sample as a rollout: text with all thinking, answer, whether it is right, and cost.

    What failed samples used is only in the ledger: it describes the server's bad minute, not the policy.
    """
    answer, chosen, pieces = result.answer, result.answer.chosen, result.answer.candidates
    assert chosen is not None  # noqa: S101 - the caller has looked
    confidence = CONFIDENCE_GAUGE.confidence_of(chosen) if len(pieces) == 1 else math.nan
    extra = {
        "label": label,
        "calls": len(pieces),
        "input_tokens": sum(piece.prompt_tokens for piece in pieces),
        "cached_tokens": sum(piece.cached_tokens for piece in pieces),
        "thinking_tokens": int(answer.figures.get("thinking_tokens", chosen.thinking_tokens)),
        "seconds": round(sum(piece.seconds for piece in pieces), 4),
        "confidence": None if math.isnan(confidence) else confidence,
        "model": chosen.model or result.task.model,
    }
    return {
        "problem": question.name,
        "sample": number,
        "completion": f"{chosen.reasoning}\n{chosen.full_text}" if chosen.reasoning else chosen.full_text,
        "answer": chosen.answer,
        "correct": None if question.key is None else chosen.key == question.key,
        "tokens": sum(piece.tokens for piece in pieces),
        "truncated": chosen.finish == "length",
        "extra": orjson.dumps(extra).decode(),
    }


def reset_failed_tasks(folder: Path) -> None:
    """Let tasks whose last sample failed be sampled again; what they used stays charged, as discarded samples.

    Otherwise a server that was down for a minute would leave holes for good.
    """
    path = folder / JOURNAL_FILE
    if not path.exists():
        return
    lines = path.read_bytes().split(b"\n")
    rows = [read_row(line) for line in lines]
    last = {row["task"]: row["kind"] for row in rows if "kind" in row}
    failed = {task for task, kind in last.items() if kind == "failed"}
    if not failed:
        return
    with atomic_file(path) as temporary:
        kept = [
            to_discarded_line(row) if row.get("task") in failed and "kind" in row else line
            for row, line in zip(rows, lines, strict=True)
        ]
        temporary.write_bytes(b"\n".join(kept))


def read_row(line: bytes) -> dict[str, Any]:
    """Return a line of the journal as a row; empty for one that is none."""
    try:
        row = orjson.loads(line)
    except ValueError:
        return {}  # the journal reports what is wrong with it
    return row if isinstance(row, dict) and "task" in row else {}


def to_discarded_line(row: Mapping[str, Any]) -> bytes:
    """Return an event of the journal as that of a discarded sample."""
    return orjson.dumps(
        {name: row[name] for name in ("task", "path", "place", "spend") if name in row} | {"kind": "discarded"}
    )


def count_rows(run: Run, step: int) -> int:
    """Return the rollouts of a step that a run has."""
    if not run.rollout_files:
        return 0
    return int(
        run.query("SELECT count(*) AS rows FROM rollouts WHERE split = 'eval' AND step = ?", step)["rows"][0].as_py()
    )


def describe_differences(before: Any, now: Any) -> str:
    """Name the settings that differ, where they have names."""
    if not isinstance(before, Mapping) or not isinstance(now, Mapping):
        return ""
    names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    return f" ({', '.join(names)})" if names else ""
