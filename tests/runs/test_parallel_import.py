"""One process or several bring in the same run; a process that fails or is left alone harms nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from breadth.adapters.generic.importer import GenericImporter
from breadth.adapters.verl.importer import IMPORTER
from breadth.base.errors import BrokenFileError
from breadth.runs import parallel_import
from breadth.runs.importer import RecognisedFile
from breadth.runs.importing import ImportSummary, Progress, Share, import_files, import_share
from breadth.runs.parallel_import import divide_files, import_parallel
from breadth.runs.reader import Run


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    """A verl dump of six steps, with one row that is no JSON and prompts that come back."""
    folder = tmp_path / "dump"
    folder.mkdir()
    for step in range(1, 7):
        rows = [
            {
                "input": f"problem {row % 5}",
                "output": f"so \\boxed{{{row}}}",
                "gts": "1",
                "score": float(row == 1),
                "step": step,
            }
            for row in range(10 * step)
        ]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{step}.jsonl").write_text(text + ("half a row" if step == 3 else ""))
    (folder / "log.jsonl").write_text(
        json.dumps({"step": 1, "data": {"actor/entropy": 0.5, "critic/score/mean": 0.1}}) + "\n"
    )
    return folder


def content(folder: Path) -> dict[str, object]:
    run = Run.open(folder)
    rollouts = run.query("SELECT step, problem, sample, answer, reward FROM rollouts ORDER BY ALL").to_pylist()
    problems = run.query("SELECT * FROM problems ORDER BY ALL").to_pylist()
    said = [(Path(remark.file).name, remark.row, remark.problem) for remark in run.header.remarks]
    return {
        "rollouts": rollouts,
        "problems": problems,
        "points": run.points,
        "said": said,
        "levels": run.header.reward_levels,
        "names": run.header.names,
    }


def test_the_result_does_not_depend_on_how_many_take_part(
    dump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = import_files([dump], tmp_path / "alone")
    monkeypatch.setattr(parallel_import, "MIN_PARALLEL_BYTES", 0)
    monkeypatch.setattr(parallel_import, "HEAD_START_BYTES", 0)
    monkeypatch.setattr(parallel_import, "available_cores", lambda: 3)
    shares: list[int] = []

    def counted(share: Share, folder: Path, progress: Progress) -> ImportSummary:
        shares.append(len(share))
        return import_share(share, folder, progress)

    monkeypatch.setattr(parallel_import, "import_share", counted)
    together = import_files([dump], tmp_path / "together")
    assert (
        (together.rollouts, together.problems, together.metric_rows)
        == (alone.rollouts, alone.problems, alone.metric_rows)
        == (210, 5, 1)
    )
    assert content(tmp_path / "together") == content(tmp_path / "alone")
    assert len(shares) == 1, "the other processes failed and their shares were done here"
    assert not list((tmp_path / "together").glob(".part*"))


def files(dump: Path, importer: object = IMPORTER) -> list[tuple[int, RecognisedFile]]:
    paths = sorted(path for path in dump.iterdir() if path.stem.isdecimal())
    return [(place, RecognisedFile(path, importer, "rollouts")) for place, path in enumerate(paths)]  # type: ignore[arg-type]  # any importer


def test_shares_are_about_equal_and_keep_the_order(dump: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel_import, "MIN_PARALLEL_BYTES", 0)
    monkeypatch.setattr(parallel_import, "HEAD_START_BYTES", 0)
    monkeypatch.setattr(parallel_import, "available_cores", lambda: 2)
    first, second = divide_files(files(dump))
    # sizes go like the step: 6 + 4 + 1 against 5 + 3 + 2 (the half row makes 3 a little longer)
    assert sorted(place + 1 for place, _ in first) == [place + 1 for place, _ in first]
    totals = [sum(place + 1 for place, _ in share) for share in (first, second)]
    assert sorted(totals) == [10, 11]


def test_small_imports_and_importers_of_ones_own_stay_in_one_process(
    dump: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(divide_files(files(dump))) == 1
    monkeypatch.setattr(parallel_import, "MIN_PARALLEL_BYTES", 0)
    assert len(divide_files(files(dump, GenericImporter(mapping={"step": "step"})))) == 1


def test_a_process_that_fails_is_stepped_in_for(dump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel_import, "MIN_PARALLEL_BYTES", 0)
    monkeypatch.setattr(parallel_import, "HEAD_START_BYTES", 0)
    monkeypatch.setattr(parallel_import, "available_cores", lambda: 2)
    monkeypatch.setattr(sys, "executable", "false")
    summary = import_parallel([one for _, one in files(dump)], tmp_path / "work", lambda _: None)
    assert summary.rollouts == 210


def test_a_file_that_vanishes_is_a_failure_among_the_rest(dump: Path, tmp_path: Path) -> None:
    found = [one for _, one in files(dump)]
    gone = [*found, RecognisedFile(dump / "7.jsonl", IMPORTER, "rollouts")]
    for is_folder in (False, True):
        if is_folder:
            (dump / "7.jsonl").mkdir()
        (failure,) = import_parallel(gone, tmp_path / str(is_folder), lambda _: None).failures
        assert failure.error.path.name == "7.jsonl"
    with pytest.raises(BrokenFileError, match="cannot be read"):
        import_files([dump / "8.jsonl"], tmp_path / "c")


PARENT = """
    import sys, time
    from pathlib import Path
    from breadth.runs import parallel_import
    from breadth.adapters.verl.importer import IMPORTER
    from breadth.runs.importer import RecognisedFile
    share = [(0, RecognisedFile(Path(sys.argv[1]), IMPORTER, "rollouts"))]
    print(parallel_import.start_worker(share, Path(sys.argv[2])).pid, flush=True)
    time.sleep(60)
"""


def test_a_process_leaves_when_its_parent_is_killed(tmp_path: Path) -> None:
    endless = tmp_path / "1.jsonl"
    os.mkfifo(endless)  # its reader waits for a writer that never comes
    command = [sys.executable, "-c", textwrap.dedent(PARENT), str(endless), str(tmp_path / "part")]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert parent.stdout is not None
    worker = int(parent.stdout.readline())
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    for _ in range(200):
        if not Path(f"/proc/{worker}").exists() or Path(f"/proc/{worker}/stat").read_text().split()[2] == "Z":
            return
        time.sleep(0.1)
    raise AssertionError("the worker is still there")
