"""``breadth compare`` as it is typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from breadth.base.errors import BreadthError
from breadth.cli.main import app
from breadth.runs.schema import Header
from breadth.runs.writer import RunWriter


def write_run(folder: Path, at: dict[int, list[str]]) -> None:
    """Write held-out replies to two problems whose right answer is 1."""
    writer = RunWriter(folder, Header(name=folder.name))
    for step, answers in at.items():
        rows = {
            "problem": ["a"] * 4 + ["b"] * 4,
            "answer": answers,
            "correct": [answer == "1" for answer in answers],
            "tokens": [9] * 8,
        }
        writer.rollouts(rows, step, split="eval")


BROAD, NARROW = [*"12341235"], [*"11112222"]


def run(*words: object) -> str:
    result = CliRunner().invoke(app, ["compare", *map(str, words)])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.stdout


def test_checkpoints_of_one_run_and_two_runs(tmp_path: Path) -> None:
    write_run(tmp_path / "a", {0: BROAD, 50: NARROW})
    write_run(tmp_path / "b", {9: NARROW})
    one = json.loads(run(tmp_path / "a", "--json"))
    assert one["subtitle"].count("step") == 2
    two = json.loads(
        run(f"{tmp_path / 'a'}@0", tmp_path / "b", "--samples", 4, "--json", "--html", tmp_path / "x.html")
    )
    assert two["subtitle"].endswith("b, step 9")
    assert (tmp_path / "x.html").exists()


def test_files_and_their_arms_are_compared_without_importing_them(tmp_path: Path) -> None:
    votes = tmp_path / "votes.jsonl"
    rows = [
        {"question_id": question, "arm": arm, "answer": answer, "correct": answer == "1", "n_tokens": 9}
        for arm, answers in (("base", BROAD), ("trained", NARROW))
        for question, answer in zip("aaaabbbb", answers, strict=True)
    ]
    votes.write_text("".join(json.dumps(row) + "\n" for row in rows))
    page = json.loads(run(votes, "--json"))
    assert page["subtitle"] == "votes, arm=base against votes, arm=trained"
    scores = next(section for section in page["sections"] if section.get("title") == "Scores")
    # Base: one of four right for each question. Trained: all four of one, and none of the other.
    assert [row[0] for row in scores["rows"]] == ["votes, arm=base", "votes, arm=trained"]
    assert [row[1]["value"] for row in scores["rows"]] == pytest.approx([0.25, 0.5])
    assert [row[3]["value"] for row in scores["rows"]] == pytest.approx([1.0, 0.5])
    assert {"name": "common problems", "value": "2, held-out", "unit": "", "note": ""} in page["provenance"]
    write_run(tmp_path / "folder", {3: NARROW})
    mixed = json.loads(run(votes, tmp_path / "folder", "--json"))
    assert mixed["subtitle"].endswith("against folder, step 3")
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["folder", "votes.jsonl"]


def test_problems_that_were_trained_on_are_said(tmp_path: Path) -> None:
    for name, answers in (("a", BROAD), ("b", NARROW)):
        table = {"problem": [*"aaaabbbb"], "answer": answers, "correct": [answer == "1" for answer in answers]}
        RunWriter(tmp_path / name, Header(name=name)).rollouts(table, 7)
    page = json.loads(run(tmp_path / "a", tmp_path / "b", "--json"))
    warning = page["sections"][1]
    assert warning["severity"] == "warning"
    assert "problems that were trained on" in warning["headline"]
    assert any(fact["value"] == "2, trained on" for fact in page["provenance"])


def test_what_cannot_be_compared_is_said(tmp_path: Path) -> None:
    write_run(tmp_path / "a", {0: BROAD})
    with pytest.raises(BreadthError, match="one policy only"):
        run(tmp_path / "a")
    with pytest.raises(BreadthError, match="Both"):
        run(tmp_path / "a", tmp_path / "a", "--samples", 2, "--tokens", 2)
    with pytest.raises(BreadthError, match="does not exist"):
        run(tmp_path / "nothing", tmp_path / "a")
