"""Files are put together by run, and no two runs share a name."""

from __future__ import annotations

from pathlib import Path

from breadth.adapters.generic.importer import IMPORTER
from breadth.adapters.trl.importer import IMPORTER as TRL
from breadth.runs.grouping import folder_name, group_by_run, make_unique, name_sources
from breadth.runs.importer import RecognisedFile


def files(tmp_path: Path, **kinds: str) -> list[RecognisedFile]:
    return [RecognisedFile(tmp_path / name, IMPORTER, kind) for name, kind in kinds.items()]


def test_logs_and_evaluations_are_runs_and_dumps_go_with_a_log(tmp_path: Path) -> None:
    found = files(tmp_path, train_log="JSONL metrics", dump="JSONL rollouts", votes="JSONL evaluation")
    assert [(name, [file.path.name for file in group]) for name, group in group_by_run(found)] == [
        ("train_log", ["train_log", "dump"]),
        ("votes", ["votes"]),
    ]
    two = files(tmp_path, a="JSONL evaluation", b="JSONL evaluation")
    assert [name for name, _ in group_by_run(two)] == ["a", "b"]


def test_a_console_log_and_the_state_it_saved_are_one_run(tmp_path: Path) -> None:
    output = tmp_path / "mine"
    found = [
        RecognisedFile(output / "train.log", TRL, "console log"),
        RecognisedFile(output / "checkpoint-5" / "trainer_state.json", TRL, "trainer state"),
        RecognisedFile(output / "completions" / "completions_00001.parquet", TRL, "completions"),
    ]
    ((name, group),) = group_by_run([*found])
    assert (name, group) == ("mine", found)
    other = RecognisedFile(output / "again.log", TRL, "console log")
    assert [name for name, _ in group_by_run([*found[:2], other])] == [
        f"{tmp_path.name}/mine",
        "mine/checkpoint-5",
        "again",
    ]
    assert [name for name, _ in group_by_run([found[1]])] == ["mine"]


def test_dumps_without_a_log_are_one_run(tmp_path: Path) -> None:
    dumps = files(tmp_path / "dumps", one="JSONL rollouts", two="JSONL rollouts")
    ((name, group),) = group_by_run(dumps)
    assert (name, len(group)) == ("dumps", 2)


def test_runs_of_one_name_are_called_by_more_of_their_paths() -> None:
    places = ["/x/a/seed/out/trainer_state.json", "/x/b/seed/out/trainer_state.json", "/x/c/log.jsonl", "/x/votes.csv"]
    assert name_sources([Path(place) for place in places]) == ["a/seed/out", "b/seed/out", "c", "votes"]


def test_names_of_folders_cannot_clash_or_escape() -> None:
    assert make_unique(["a", "A", "a", "a-2"]) == ["a", "A-2", "a-3", "a-2-2"]
    assert make_unique(["a"], taken=["A"]) == ["a-2"]
    assert [folder_name(name) for name in ("../../x", "a/b, run 1 of 2", "...", "model=m 1")] == [
        "x",
        "a-b-run-1-of-2",
        "run",
        "model=m-1",
    ]
    assert len(folder_name("x" * 300)) == 100
