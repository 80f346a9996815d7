"""Files of questions: three formats, whichever field holds the question, and errors that name the row."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from breadth.base.errors import BrokenFileError, UnknownFormatError
from breadth.runtime.questions import Question, hash_questions, keep_labelled, read_questions, shuffle_questions

CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2 + 2?"}]


def lines(path: Path, *rows: object) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


def test_the_three_formats_give_the_same_questions(tmp_path: Path) -> None:
    rows = [
        {"id": "a", "question": "1 + 1?", "answer": "2"},
        {"id": "b", "question": "What is, say, 2 + 1?", "answer": "3"},
    ]
    jsonl = lines(tmp_path / "q.jsonl", *rows)
    table = tmp_path / "q.csv"
    table.write_text('id,question,answer\na,1 + 1?,2\nb,"What is, say, 2 + 1?",3\n', encoding="utf-8-sig")
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "q.parquet")
    expected = (Question("a", "1 + 1?", "2"), Question("b", "What is, say, 2 + 1?", "3"))
    assert read_questions(jsonl) == read_questions(table) == read_questions(tmp_path / "q.parquet") == expected


@pytest.mark.parametrize("field", ["question", "prompt", "problem"])
def test_the_question_may_stand_under_several_names(tmp_path: Path, field: str) -> None:
    (question,) = read_questions(lines(tmp_path / "q.jsonl", {field: "1 + 1?"}))
    assert question.prompt == "1 + 1?"
    assert question.reference is None


def test_chats_are_kept_as_chats(tmp_path: Path) -> None:
    path = lines(tmp_path / "q.jsonl", {"messages": CHAT, "ground_truth": 4}, {"prompt": CHAT[1:], "reference": "4"})
    first, second = read_questions(path)
    assert first.prompt == tuple(CHAT)
    assert second.prompt == tuple(CHAT[1:])
    assert first.reference == second.reference == "4"


def test_an_id_is_made_from_the_text_and_stays_the_same(tmp_path: Path) -> None:
    one = read_questions(lines(tmp_path / "one.jsonl", {"question": "1 + 1?"}, {"question": "1 + 2?"}))
    two = read_questions(lines(tmp_path / "two.jsonl", {"question": "1 + 2?", "answer": "3"}))
    assert one[1].name == two[0].name != one[0].name


@pytest.mark.parametrize(
    ("reference", "key"), [("3 + 4 = 7\n#### 7", "7"), ("1,000", "1000"), (r"so \boxed{12}", "12"), ("", None)]
)
def test_the_key_of_a_reference_is_that_of_the_answer_it_states(reference: str, key: str | None) -> None:
    assert Question("q", "?", reference).key == key


@pytest.mark.parametrize(
    ("rows", "row", "said"),
    [
        ([{"question": "1?"}, {"text": "2?", "answer": 3}], 2, "its fields are text, answer"),
        ([{"question": "   "}], 1, "'question' holds '   '"),
        ([{"question": 7}], 1, "need a text"),
        ([{"messages": [{"role": "system", "content": "hi"}]}], 1, "one is the user's"),
        ([{"question": "1?", "answer": ["2"]}], 1, "need a text or a number"),
        ([{"question": "1?"}, {"question": "2?"}, {"question": "1?"}], 3, "same question as row 1"),
        ([{"question": "1?", "id": 5}, {"question": "2?", "id": 5}], 2, "same id as row 1"),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, rows: list[object], row: int, said: str) -> None:
    with pytest.raises(BrokenFileError, match=said) as caught:
        read_questions(lines(tmp_path / "q.jsonl", *rows))
    assert caught.value.row == row


@pytest.mark.parametrize("text", ["", "\n\n"])
def test_an_empty_file_is_an_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "q.jsonl").write_text(text)
    with pytest.raises(BrokenFileError, match="no questions"):
        read_questions(tmp_path / "q.jsonl")


def test_what_is_no_file_of_questions_is_refused(tmp_path: Path) -> None:
    (tmp_path / "q.xlsx").write_text("x")
    with pytest.raises(UnknownFormatError, match="xlsx"):
        read_questions(tmp_path / "q.xlsx")
    with pytest.raises(BrokenFileError, match="not there"):
        read_questions(tmp_path / "absent.jsonl")
    (tmp_path / "q.parquet").write_bytes(b"PAR?")
    with pytest.raises(BrokenFileError, match="not readable Parquet"):
        read_questions(tmp_path / "q.parquet")
    (tmp_path / "q.json").write_text('[{"question": "1?"}]')
    with pytest.raises(BrokenFileError, match="one element a line") as caught:
        read_questions(tmp_path / "q.json")
    assert caught.value.row == 1
    (tmp_path / "q.csv").write_bytes(b"question\n\xff\xfe\n")
    with pytest.raises(BrokenFileError, match="UTF-8"):
        read_questions(tmp_path / "q.csv")


def test_a_pipe_of_questions_is_called_one(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "tasks.jsonl")
    with pytest.raises(BrokenFileError, match="pipe or a device"):
        read_questions(tmp_path / "tasks.jsonl")


def test_questions_with_and_without_answers_are_not_mixed() -> None:
    some = (Question("a", "1?", "1"), Question("b", "2?"))
    assert keep_labelled(some) == some[:1]
    assert keep_labelled(some[1:]) == some[1:]


def test_the_random_order_depends_on_seed_and_ids_only() -> None:
    questions = [Question(str(number), f"{number}?") for number in range(20)]
    assert shuffle_questions(questions, 1) == shuffle_questions(questions[::-1], 1)
    assert shuffle_questions(questions, 1) != shuffle_questions(questions, 2)
    assert hash_questions(questions) == hash_questions(questions[::-1]) != hash_questions(questions[1:])
