"""Tests of verl's importer as a whole: recognising, the family's contract, real logs, damaged files."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from breadth.adapters.verl.files import FILES, READERS
from breadth.base.errors import BreadthError
from breadth.runs.ingest import import_files
from breadth.runs.lines import head
from breadth.runs.reader import Run
from breadth.testing.importers import check_importer, check_records

CONSOLE = "".join(
    f"\x1b[36m(TaskRunner pid=7)\x1b[0m step:{step} - actor/entropy:{1 / step} - critic/score/mean:np.float64({step / 10}) - x:nan\n"
    for step in range(1, 6)
)
FILE_LOG = "".join(
    json.dumps({"step": step, "data": {"actor/entropy": 1 / step, "critic/score/mean": step / 10}}) + "\n" for step in range(1, 6)
)
DUMP = "".join(
    json.dumps(
        {
            "input": f"p{place // 2}",
            "output": f"so \\boxed{{{place}}}",
            "gts": "1",
            "score": float(place == 1),
            "step": 4,
            "uid": f"u_{place}_0",
        }
    )
    + "\n"
    for place in range(4)
)
TEXTS = {"console log": CONSOLE, "file log": FILE_LOG, "rollouts": DUMP, "validation rollouts": DUMP}
OURS = {
    "entropy": {"entropy"},
    "reward": {"reward"},
    "clip": {"truncated"},
    "len": {"length"},
    "kl": {"kl_reference", "kl_old"},
    "gn": {"grad_norm"},
}


@pytest.fixture
def samples(tmp_path: Path) -> dict[str, Path]:
    """One small file of each kind."""
    names = {
        "console log": "train.log",
        "file log": "experiment.jsonl",
        "rollouts": "rollouts/4.jsonl",
        "validation rollouts": "val/4.jsonl",
    }
    paths = {kind: tmp_path / "out" / name for kind, name in names.items()}
    for kind, path in paths.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(TEXTS[kind])
    return paths


def test_contract(samples: dict[str, Path]) -> None:
    check_importer(FILES, list(samples.values()))


def test_each_kind_is_recognised(samples: dict[str, Path]) -> None:
    assert {kind: FILES.recognises(path, head(path)) for kind, path in samples.items()} == {kind: kind for kind in READERS}
    assert FILES.current(list(samples.values())) == list(samples.values())


def test_rows_longer_than_what_is_seen_are_recognised(tmp_path: Path) -> None:
    path = tmp_path / "4.jsonl"
    path.write_text(json.dumps({"input": "p", "output": "word " * 50_000, "gts": "1", "score": 1.0, "step": 4}))
    assert FILES.recognises(path, head(path)) == "rollouts"
    assert FILES.recognises(tmp_path / "other.jsonl", head(path)) is None


@pytest.mark.parametrize(
    ("start", "kind"),
    [
        (b'\xef\xbb\xbf{"input": "p", "output": "x", "score": NaN, "step": 1}\r\n', "rollouts"),
        (b'\n{"input":"p","output":"x","gts":null,"score":1}\n', "rollouts"),
        (b'{"input":"p","output":"x"}\n', None),
        (b'{"input":"p","output":"x","score":1}\n', None),
        (b'{"step": 1, "data": {"a": 1}}', "file log"),
        (b'{"step": 1, "data": 3}', None),
        (b"noise\nstep:1 - a/b:0.5 - c:1\n", "console log"),
        (b"\x1b[0mstep:12 - actor/entropy:0.5", "console log"),
        (b"step:1 - no metrics", None),
        (b"footstep:1 - a:1", None),
    ],
)
def test_recognising_by_the_start(start: bytes, kind: str | None) -> None:
    assert FILES.recognises(Path("x.jsonl"), start) == kind


def test_a_log_is_recognised_behind_a_megabyte_of_noise(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text("(WorkerDict pid=9) loading shards\n" * 40_000 + CONSOLE)
    assert FILES.recognises(path, head(path)) == "console log"


def test_a_whole_folder_imports(samples: dict[str, Path], tmp_path: Path) -> None:
    samples["file log"].unlink()
    got = import_files([tmp_path / "out"], tmp_path / "run", importers=[FILES])
    assert (got.metric_rows, got.rollouts, got.problems) == (5, 8, 2)
    run = Run.open(tmp_path / "run")
    assert run.series("reward").values.tolist() == [0.1, 0.2, 0.3, 0.4, 0.5]
    assert run.header.reward_levels == (0.0, 1.0)
    counts = run.query("SELECT split, count(*) AS rows FROM rollouts GROUP BY 1 ORDER BY 1").to_pylist()
    assert counts == [{"split": "eval", "rows": 4}, {"split": "train", "rows": 4}]


def test_duplicate_steps_after_a_resume_count_once(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(CONSOLE + "step:4 - critic/score/mean:9\nstep:5 - critic/score/mean:8\n")
    got = import_files([tmp_path / "train.log"], tmp_path / "run", importers=[FILES])
    assert Run.open(tmp_path / "run").series("reward").values.tolist() == [0.1, 0.2, 0.3, 9.0, 8.0]
    assert any("went back" in remark.problem for remark in got.remarks)


@pytest.mark.parametrize("kind", sorted(READERS))
def test_an_empty_file_holds_nothing_and_a_folder_is_refused(tmp_path: Path, kind: str) -> None:
    (tmp_path / "empty").write_bytes(b"")
    assert list(FILES.read(tmp_path / "empty", kind)) == []
    with pytest.raises(BreadthError, match="cannot be read"):
        list(FILES.read(tmp_path, kind))


@given(st.sampled_from(sorted(READERS)), st.binary(max_size=300))
@settings(max_examples=150, deadline=None)
def test_arbitrary_bytes_never_raise(tmp_path_factory: pytest.TempPathFactory, kind: str, junk: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "junk"
    path.write_bytes(junk)
    FILES.recognises(path, junk)
    check_records(FILES.read(path, kind))


JUNK = [
    "",
    "{",
    "}",
    "[",
    "'",
    '"',
    ",",
    "NaN",
    "1e999",
    "-",
    "\x1b[0m",
    "\0",
    "\\ud800",
    "null",
    "9" * 400,
    '"acc":2,',
    '"score":{},',
    ":",
    " - ",
]


@given(st.sampled_from(sorted(READERS)), st.data())
@settings(max_examples=200, deadline=None)
def test_mutated_files_never_raise(tmp_path_factory: pytest.TempPathFactory, kind: str, data: st.DataObject) -> None:
    text = TEXTS[kind]
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(start + 12, len(text))))
    path = tmp_path_factory.getbasetemp() / "mutated"
    path.write_text(text[:start] + data.draw(st.sampled_from(JUNK)) + text[end:])
    check_records(FILES.read(path, kind))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
KEYS = st.sampled_from(["input", "output", "gts", "score", "step", "uid", "acc", "pred", "data_source", "reward", "my_score", "\ud800"])


@given(st.lists(st.dictionaries(KEYS, VALUES), max_size=4))
@settings(max_examples=80, deadline=None)
def test_rows_of_any_types_give_valid_tables(tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, object]]) -> None:
    path = tmp_path_factory.getbasetemp() / "3.jsonl"
    path.write_text("".join(json.dumps({"input": None, "output": None, **row}) + "\n" for row in rows))
    check_records(FILES.read(path, "rollouts"))


def test_real_logs_import_with_every_row_and_field(fixtures: Path, tmp_path: Path) -> None:
    with (fixtures / "training_logs" / "labels.csv").open() as file:
        labels = [row for row in csv.DictReader(file) if row["format"].startswith("verl")]
    assert len(labels) == 9
    for label in labels:
        target = tmp_path / label["file"]
        got = import_files([fixtures / "training_logs" / label["file"]], target, importers=[FILES])
        run = Run.open(target)
        assert got.remarks == ()
        assert sum(point.split == "train" for point in run.points) == int(label["rows"]), label["file"]
        assert max(point.step for point in run.points) == int(label["last_step"]), label["file"]
        for field in label["fields"].split():
            assert OURS[field] & set(run.metric_names()), f"{label['file']} has no {field}"
        assert run.header.trainer == "verl"


def test_a_real_number_to_the_last_digit(fixtures: Path, tmp_path: Path) -> None:
    import_files([fixtures / "training_logs" / "uqcxu9__logs_grpo_train.log"], tmp_path / "run", importers=[FILES])
    run = Run.open(tmp_path / "run")
    assert run.series("entropy").values[0] == 0.09462128579616547
    assert run.series("grad_norm").values[0] == 0.013598723337054253
