"""Files of questions to tune or measure on: JSON lines, CSV or Parquet, with right answers where they are known."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from breadth.base.errors import BrokenFileError, UnknownFormatError
from breadth.inference.records import Prompt, text_of
from breadth.measure.answers import reference_key
from breadth.runs.jsonl import read_error, read_json_rows, require_regular_file
from breadth.runs.parquet import read_parquet_rows
from breadth.runs.schema import Remark
from breadth.runs.writer import problem_id

QUESTION_FIELDS = ("question", "prompt", "messages", "problem")
"""Fields that may hold the question; the first one present is used."""
ANSWER_FIELDS = ("answer", "reference", "ground_truth")
"""Fields that may hold the right answer."""
ID_FIELDS = ("id", "name")
"""Fields that may hold the question's id."""
FORMAT_BY_SUFFIX = {
    ".jsonl": "JSON lines",
    ".json": "JSON lines",
    ".ndjson": "JSON lines",
    ".csv": "CSV",
    ".parquet": "Parquet",
}

NumberedRow = tuple[int, Mapping[str, Any]]


@dataclass(frozen=True)
class Question:
    """One question of a file."""

    name: str
    """Its id: the file's own, or one made from its text, the same every time."""
    prompt: Prompt
    """A text, or a chat."""
    reference: str | None = None
    """Its right answer; None where the file has none."""

    @property
    def key(self) -> str | None:
        """Canonical key of the right answer: the one marked in the reference (``#### 42``, a box), else all of it."""
        return reference_key(self.reference)


def read_questions(path: Path) -> tuple[Question, ...]:
    """Read the questions of a file, in its order.

    A question is in ``question``, ``prompt``, ``problem`` (a text or a list of messages) or ``messages``; its right
    answer in ``answer``, ``reference`` or ``ground_truth``, or missing; an ``id`` is optional. A row without a
    question, a repeated id or question, and a file without questions are errors that name the row.
    """
    questions: list[Question] = []
    rows_of: dict[object, int] = {}
    for row, fields in iterate_rows(path):
        question = read_question(path, row, fields)
        refuse_repeats(path, row, question, rows_of)
        questions.append(question)
    if not questions:
        raise BrokenFileError(
            path, "has no questions.", 'Write one a row, as in {"question": "What is 6 times 7?", "answer": "42"}.'
        )
    return tuple(questions)


def keep_labelled(questions: Sequence[Question]) -> tuple[Question, ...]:
    """Return the questions whose right answer is known, or all when none is: the two kinds do not mix."""
    known = tuple(question for question in questions if question.key is not None)
    return known or tuple(questions)


def shuffle_questions(questions: Sequence[Question], seed: int) -> tuple[Question, ...]:
    """Shuffle questions by the seed and their ids only, so that any number from the start is a fair sample."""
    return tuple(
        sorted(questions, key=lambda question: blake2b(f"{seed}\0{question.name}".encode("utf-8", "replace")).digest())
    )


def hash_questions(questions: Sequence[Question]) -> str:
    """Return a hash of all questions and their right answers, whatever their order."""
    lines = sorted(f"{question.name}\0{question.prompt!r}\0{question.reference}" for question in questions)
    return blake2b("\0".join(lines).encode("utf-8", "replace"), digest_size=12).hexdigest()


def iterate_rows(path: Path) -> Iterator[NumberedRow]:
    """Yield the rows of a file, whatever its format, with their numbers."""
    kind = FORMAT_BY_SUFFIX.get(path.suffix.lower())
    if kind is None:
        raise UnknownFormatError(
            path, f"is not a file of questions (its name ends in '{path.suffix}').", "Give .jsonl, .csv or .parquet."
        )
    require_regular_file(path)
    if not path.is_file():
        raise BrokenFileError(path, "is not there.", "Check the path after --tasks.")
    readers = {"JSON lines": _json_rows, "CSV": _csv_rows, "Parquet": _parquet_rows}
    yield from readers[kind](path)


def _json_rows(path: Path) -> Iterator[NumberedRow]:
    for block in read_json_rows(path):
        if isinstance(block, Remark):
            raise BrokenFileError(
                path,
                block.problem.replace(", left out", ""),
                "Write one JSON object a line; for a JSON list, one element a line.",
                row=block.row,
            )
        yield from block


def _csv_rows(path: Path) -> Iterator[NumberedRow]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            for fields in reader:
                yield (
                    reader.line_num,
                    {name: value for name, value in fields.items() if name is not None and value not in (None, "")},
                )
    except UnicodeDecodeError as error:
        raise BrokenFileError(
            path, f"is not UTF-8: {error.reason} at byte {error.start}.", "Save the file as UTF-8."
        ) from error
    except csv.Error as error:
        raise BrokenFileError(path, f"is not CSV: {error}.", "Quote fields that hold commas or line breaks.") from error
    except OSError as error:
        raise read_error(path, error) from error


def _parquet_rows(path: Path) -> Iterator[NumberedRow]:
    yield from enumerate((row for rows in read_parquet_rows(path) for row in rows), 1)


def read_question(path: Path, row: int, fields: Mapping[str, Any]) -> Question:
    """Return one row as a question."""
    field = next((name for name in QUESTION_FIELDS if fields.get(name) not in (None, "", [])), None)
    if field is None:
        names = ", ".join(map(str, fields)) or "nothing"
        raise BrokenFileError(
            path,
            f"has no question: its fields are {names}; need one of {', '.join(QUESTION_FIELDS)}.",
            "Rename the field that holds it.",
            row=row,
        )
    prompt = read_question_prompt(path, row, field, fields[field])
    name = next((str(fields[name]) for name in ID_FIELDS if fields.get(name) not in (None, "")), None)
    answer = next((fields[name] for name in ANSWER_FIELDS if fields.get(name) is not None), None)
    return Question(
        name or problem_id(prompt if isinstance(prompt, str) else repr(prompt)),
        prompt,
        read_reference(path, row, answer),
    )


def read_question_prompt(path: Path, row: int, field: str, value: Any) -> Prompt:
    """Return a field as a prompt: a text, or a chat with a message of the user."""
    if isinstance(value, str) and value.strip():
        return value
    if isinstance(value, (list, tuple)) and all(isinstance(part, Mapping) and "role" in part for part in value):
        chat = tuple({str(name): item for name, item in part.items() if item is not None} for part in value)
        if any(part.get("role") == "user" and text_of(part.get("content")).strip() for part in chat):
            return chat
    raise BrokenFileError(
        path,
        f"'{field}' holds {str(value)[:60]!r}; need a text, or messages with role and content of which one is the"
        " user's.",
        'Write it as "6 times 7?" or as [{"role": "user", "content": "6 times 7?"}].',
        row=row,
    )


def read_reference(path: Path, row: int, answer: Any) -> str | None:
    """Return the right answer as text; None without one."""
    if answer is None or (isinstance(answer, str) and not answer.strip()):
        return None
    if isinstance(answer, (str, int, float)):
        return str(answer)
    raise BrokenFileError(
        path,
        f"its answer is {str(answer)[:60]!r}; need a text or a number.",
        "Give the one right answer, or leave it out.",
        row=row,
    )


def refuse_repeats(path: Path, row: int, question: Question, rows_of: dict[object, int]) -> None:
    """Refuse a question or an id that an earlier row has."""
    for what, value in (("question", ("question", repr(question.prompt))), ("id", ("id", question.name))):
        before = rows_of.setdefault(value, row)
        if before != row:
            shown = question.name if what == "id" else str(question.prompt)[:60]
            raise BrokenFileError(
                path,
                f"has the same {what} as row {before}: {shown!r}.",
                "Remove one: a repeated question would count twice.",
                row=row,
            )
