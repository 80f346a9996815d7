"""Tests of verl's importer as a whole: recognising, the family's contract, real logs, damaged files."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from breadth.adapters.verl.importer import (
    IMPORTER,
    VERL_READERS,
    dump_split,
    parse_console_line,
    read_file_log,
    read_rollouts,
    read_verl_console,
    split_metrics,
)
from breadth.base.errors import BreadthError
from breadth.runs.importing import import_files
from breadth.runs.jsonl import BLOCK_BYTES, read_head
from breadth.runs.reader import Run
from breadth.runs.schema import MetricRow, Record, Remark, RolloutBatch
from breadth.runs.writer import problem_id
from breadth.testing.importers import check_importer, check_records

PREFIX = "\x1b[36m(TaskRunner pid=16623)\x1b[0m "


def read_log(folder: Path, text: str | bytes) -> list[Record]:
    path = folder / "log"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return list(read_file_log(path) if b'{"' in path.read_bytes() else read_verl_console(path))


def test_console_rows_stand_between_other_lines(tmp_path: Path) -> None:
    text = (
        f"{PREFIX}{{'actor': {{'step': 3}}}}\r\n{PREFIX}Training Progress:   1%| | 1/300 [00:05]\rstep:1 -"
        " actor/entropy:0.5 - actor/ppo_kl:np.float64(-1.5e-05) - actor/grad_norm:nan\x1b[32m [repeated 2x across"
        f" cluster]\x1b[0m\r\n{PREFIX}step:2 - actor/entropy:1e400 - response/aborted:True -"
        " training/global_step:2\nglobal_step:3 - no metrics\nstep:4 - nothing here\n"
    )
    first, second = read_log(tmp_path, text)
    assert isinstance(first, MetricRow)
    assert first.step == 1
    assert math.isnan(first.values["actor/grad_norm"])
    assert (first.values["actor/entropy"], first.values["actor/ppo_kl"]) == (0.5, -1.5e-05)
    assert second == MetricRow({"actor/entropy": math.inf, "response/aborted": 1.0, "training/global_step": 2.0}, 2)


def test_validation_metrics_are_held_out(tmp_path: Path) -> None:
    text = "step:0 - val-core/openai/gsm8k/acc/mean@1:0.25\nstep:5 - actor/entropy:0.5 - val-aux/a:b/best@4/std:0.1\n"
    assert read_log(tmp_path, text) == [
        MetricRow({"val-core/openai/gsm8k/acc/mean@1": 0.25}, 0, split="eval"),
        MetricRow({"actor/entropy": 0.5}, 5),
        MetricRow({"val-aux/a:b/best@4/std": 0.1}, 5, split="eval"),
    ]


def test_a_row_that_breaks_off_gives_what_stands_before_the_break(tmp_path: Path) -> None:
    assert read_log(tmp_path, "step:3 - actor/entropy:0.5 - actor/grad_no") == [MetricRow({"actor/entropy": 0.5}, 3)]


def test_file_log(tmp_path: Path) -> None:
    opening = '\ufeff{"step":1,"data":{"actor/entropy":0.5,"actor/grad_norm":null,"val-core/x":1}}'
    text = opening + '\r\n\n{"step":2,"data":{"note":"x","a":NaN}}\n'
    first, held_out, second, remark = read_log(tmp_path, text)
    assert isinstance(first, MetricRow)
    assert math.isnan(first.values["actor/grad_norm"]), "orjson writes NaN as null"
    assert held_out == MetricRow({"val-core/x": 1.0}, 1, split="eval")
    assert isinstance(second, MetricRow)
    assert math.isnan(second.values["a"])
    assert remark == Remark("'note' is 'x', not a number, in 1 rows; left out there.", str(tmp_path / "log"), 3)


def test_file_log_with_odd_rows(tmp_path: Path) -> None:
    records = read_log(
        tmp_path, '{"step":"x","data":{"a":1}}\n{"step":2}\n[1]\n{"step":3,"data":{"a":2}}\n{"step":4,"da'
    )
    assert [record for record in records if isinstance(record, MetricRow)] == [
        MetricRow({"a": 1.0}, None),
        MetricRow({"a": 2.0}, 3),
    ]
    said = [(record.row, record.problem) for record in records if isinstance(record, Remark)]
    assert said == [
        (3, "not a JSON object, left out: '[1]'."),
        (5, 'not a JSON object, left out: \'{"step":4,"da\'.'),
        (2, "1 rows have no table 'data'; left out."),
    ]


@pytest.mark.parametrize(
    "line", ["", "step:", "step:1", "step:1 -", "step:99999999999999999999 - a:1", "footstep:1 - a:1"]
)
def test_lines_without_metrics(line: str) -> None:
    assert parse_console_line(line) is None


def test_a_row_without_numbers_is_none() -> None:
    assert list(split_metrics(1, {})) == []


@pytest.mark.parametrize(
    "junk", ["step:1 - " * 100_000, "step:" * 200_000, "step:1 - a" + ":" * 500_000, "step:1 - " + " - " * 300_000]
)
def test_hostile_lines_take_linear_time(tmp_path: Path, junk: str) -> None:
    assert MetricRow({"a": 1.0}, 7) in read_log(tmp_path, junk + "\nstep:7 - a:1\n")


def row(**more: Any) -> dict[str, Any]:
    return {"input": "user: 1+1?", "output": "so \\boxed{2}", "gts": "2", "score": 1.0, "step": 3, **more}


def read_dump(folder: Path, rows: list[Any], name: str = "3.jsonl") -> list[Record]:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(json.dumps(one) if not isinstance(one, str) else one for one in rows) + "\n")
    return list(read_rollouts(path))


def columns_of(records: list[Record]) -> dict[str, list[Any]]:
    tables = [record.table for record in records if isinstance(record, RolloutBatch)]
    found: dict[str, list[Any]] = pa.concat_tables(tables, promote_options="default").to_pydict()
    return found


def said(records: list[Record]) -> list[tuple[int | None, str]]:
    return [(record.row, record.problem) for record in records if isinstance(record, Remark)]


def test_plain_rows(tmp_path: Path) -> None:
    records = read_dump(tmp_path, [row(), row(output="no", score=0)])
    assert said(records) == []
    assert columns_of(records) == {
        "prompt": ["user: 1+1?"] * 2,
        "completion": ["so \\boxed{2}", "no"],
        "reference": ["2", "2"],
        "reward": [1.0, 0.0],
        "step": [3, 3],
        "problem": [problem_id("user: 1+1?")] * 2,
        "answer": ["2", None],
        "sample": [0, 1],
    }


def test_groups_come_from_the_uid(tmp_path: Path) -> None:
    records = read_dump(
        tmp_path,
        [
            row(uid="a_b_0_0"),
            row(uid="a_b_1_0"),
            row(uid="a_b_1_1"),
            row(uid="odd"),
            row(uid=None),
            row(uid="x_y\ud800_z"),
        ],
    )
    found = columns_of(records)
    assert found["group"] == ["a_b", "a_b", "a_b", "odd", None, "x_y?_z"]
    assert found["sample"] == [0, 1, 1, 3, 4, 5]
    assert "extra" not in found
    assert said(records) == [
        (None, "1 rows are further outputs of one rollout (their uid does not end in _0); each is kept as a row.")
    ]


def test_reward_extras(tmp_path: Path) -> None:
    records = read_dump(
        tmp_path,
        [
            row(
                acc=True,
                pred="2",
                format_score=0.5,
                reward=1.0,
                request_id="r1",
                data_source="gsm8k",
                score_text="good",
            ),
            row(
                acc=0,
                pred="[INVALID]",
                format_score=None,
                reward=1.0,
                request_id="r2",
                data_source="gsm8k",
                score_text="bad",
            ),
        ],
    )
    found = columns_of(records)
    assert found["correct"] == [True, False]
    assert found["answer"] == ["2", None]
    assert found["origin"] == ["gsm8k"] * 2
    assert found["reward/format_score"] == [0.5, None]
    assert [json.loads(text) for text in found["extra"]] == [
        {"request_id": "r1", "score_text": "good"},
        {"request_id": "r2", "score_text": "bad"},
    ]
    assert "reward/reward" not in found, "it repeats the score"


def test_a_reward_extra_that_is_not_the_score_is_a_component(tmp_path: Path) -> None:
    assert columns_of(read_dump(tmp_path, [row(reward=0.25)]))["reward/reward"] == [0.25]


def test_a_graded_accuracy_is_no_right_or_wrong(tmp_path: Path) -> None:
    found = columns_of(read_dump(tmp_path, [row(acc=0.5), row(acc=1.0), row(acc="x"), row(acc=0)]))
    assert found["correct"] == [None, True, None, False]
    assert [json.loads(text) for text in found["extra"]] == [{"acc": 0.5}, {"acc": 1.0}, {"acc": "x"}, {"acc": 0}]


def test_odd_scores(tmp_path: Path) -> None:
    rows = [
        row(score={"score": 0.5, "acc": 1}),
        row(score=None),
        row(score="0.25"),
        row(score=[1]),
        '{"input":"a","output":"b","score":NaN,"step":3}',
    ]
    rows += ['{"input":"a","output":"b","score":-Infinity,"step":3}', row(score=True), row(score=10**400)]
    records = read_dump(tmp_path, rows)
    found = columns_of(records)
    assert [value for value in found["reward"] if value is None or not math.isnan(value)] == [
        0.5,
        None,
        0.25,
        None,
        -math.inf,
        1.0,
        None,
    ]
    assert math.isnan(found["reward"][4])
    assert json.loads(found["extra"][0]) == {"score_table": {"score": 0.5, "acc": 1}}
    assert said(records) == [(4, "'score' is [1], not double, in 2 rows; left empty there.")]


def test_the_step_comes_from_the_name_where_rows_have_none(tmp_path: Path) -> None:
    bare = {"input": "a", "output": "b", "score": 1.0}
    records = read_dump(tmp_path, [bare, bare], "12.jsonl")
    assert columns_of(records)["step"] == [12, 12]
    assert said(records) == [(1, "2 rows carry no step; taken as step 12, from the file's name.")]
    records = read_dump(tmp_path, [row(), row(step=None), row(step=-4), row(step="x"), row(step=2.0)], "5.jsonl")
    assert columns_of(records)["step"] == [3, 5, 5, 5, 2]
    assert said(records)[-1] == (1, "3 rows carry no step; taken as step 5, from the file's name.")


def test_mixed_schemas_and_damaged_rows(tmp_path: Path) -> None:
    rows = [row(), {"step": 1, "data": {}}, "{broken", "", "7", row(uid="g_0_0", extra_key=[1]), '{"input": "half']
    records = read_dump(tmp_path, rows)
    found = columns_of(records)
    assert found["group"] == [None, "g"]
    assert found["extra"] == [None, '{"extra_key":[1]}']
    assert [number for number, _ in said(records)] == [3, 5, 7, 2]
    assert said(records)[-1] == (2, "1 rows have no 'input' or no 'output'; left out.")


def test_text_of_every_kind(tmp_path: Path) -> None:
    chat = [{"role": "user", "content": "1+1?"}]
    path = tmp_path / "3.jsonl"
    lines = [
        b"\xef\xbb\xbf" + json.dumps(row(input=chat, gts=[2, "two"])).encode() + b"\r",
        b'{"input":"caf\xe9","output":"\\ud800","gts":null,"score":1,"step":3}',
    ]
    path.write_bytes(b"\n".join(lines))
    found = columns_of(list(read_rollouts(path)))
    assert found["prompt"] == ["user: 1+1?", "caf\ufffd"]
    assert found["reference"] == ['[2,"two"]', None]
    assert found["completion"] == ["so \\boxed{2}", "?"]


@pytest.mark.parametrize(
    ("folder", "split"),
    [
        ("validation", "eval"),
        ("out/val-gsm8k", "eval"),
        ("val_generations/run1", "eval"),
        ("exp_validation_data", "eval"),
        ("Eval", "eval"),
        ("rollouts", "train"),
        ("value_model", "train"),
        ("retrieval", "train"),
        ("val/project/rollouts", "train"),
        ("my-val/rollouts", "train"),
    ],
)
def test_validation_is_known_by_the_folders_name(tmp_path: Path, folder: str, split: str) -> None:
    assert dump_split(tmp_path / folder / "1.jsonl") == split
    (batch,) = read_dump(tmp_path / folder, [row()], "1.jsonl")
    assert isinstance(batch, RolloutBatch)
    assert batch.split == split


def test_a_long_file_comes_in_blocks_and_places_go_on(tmp_path: Path) -> None:
    count = 3 * BLOCK_BYTES // 1000
    path = tmp_path / "1.jsonl"
    with path.open("w") as file:
        for place in range(count):
            file.write(json.dumps(row(output="x" * 1000, input=str(place // 8))) + "\n")
    batches = [record for record in read_rollouts(path) if isinstance(record, RolloutBatch)]
    assert len(batches) >= 3
    assert max(batch.table.nbytes for batch in batches) < 2 * BLOCK_BYTES
    assert columns_of(list(batches))["sample"] == list(range(count))


def test_a_line_of_100_megabytes_is_left_out_with_a_remark(tmp_path: Path) -> None:
    path = tmp_path / "1.jsonl"
    with path.open("wb") as file:
        file.write(json.dumps(row()).encode() + b'\n{"input": "')
        for _ in range(100):
            file.write(b"x" * (1 << 20))
        file.write(
            b'", "output": ""}\n' + json.dumps(row()).encode() + b"\n" + json.dumps(row(score=0)).encode() + b"\n"
        )
    records = list(read_rollouts(path))
    assert columns_of(records)["reward"] == [1.0, 1.0, 0.0]
    assert columns_of(records)["sample"] == [0, 2, 3]
    ((number, problem),) = said(records)
    assert number == 2
    assert problem.startswith("a single row of 105 MB was left out")


@pytest.mark.parametrize("depth", [60, 400, 990])
def test_values_nested_beyond_reason_are_survived(tmp_path: Path, depth: int) -> None:
    nested = "[" * depth + "]" * depth
    line = ", ".join(
        f'"{key}": {nested}'
        for key in ("input", "output", "gts", "score", "reward", "acc", "pred", "uid", "step", "other")
    )
    records = read_dump(tmp_path, [f"{{{line}}}", row()])
    assert columns_of(records)["reward"] == [None, 1.0]


CONSOLE = "".join(
    f"\x1b[36m(TaskRunner pid=7)\x1b[0m step:{step} - actor/entropy:{1 / step} -"
    f" critic/score/mean:np.float64({step / 10}) - x:nan\n"
    for step in range(1, 6)
)
FILE_LOG = "".join(
    json.dumps({"step": step, "data": {"actor/entropy": 1 / step, "critic/score/mean": step / 10}}) + "\n"
    for step in range(1, 6)
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
    check_importer(IMPORTER, list(samples.values()))


def test_each_kind_is_recognised(samples: dict[str, Path]) -> None:
    assert {kind: IMPORTER.recognises(path, read_head(path)) for kind, path in samples.items()} == {
        kind: kind for kind in VERL_READERS
    }
    assert IMPORTER.current(list(samples.values())) == list(samples.values())


def test_rows_longer_than_what_is_seen_are_recognised(tmp_path: Path) -> None:
    path = tmp_path / "4.jsonl"
    path.write_text(json.dumps({"input": "p", "output": "word " * 50_000, "gts": "1", "score": 1.0, "step": 4}))
    assert IMPORTER.recognises(path, read_head(path)) == "rollouts"
    assert IMPORTER.recognises(tmp_path / "other.jsonl", read_head(path)) is None


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
    assert IMPORTER.recognises(Path("x.jsonl"), start) == kind


def test_a_log_is_recognised_behind_a_megabyte_of_noise(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text("(WorkerDict pid=9) loading shards\n" * 40_000 + CONSOLE)
    assert IMPORTER.recognises(path, read_head(path)) == "console log"


def test_a_whole_folder_imports(samples: dict[str, Path], tmp_path: Path) -> None:
    samples["file log"].unlink()
    got = import_files([tmp_path / "out"], tmp_path / "run", importers=[IMPORTER])
    assert (got.metric_rows, got.rollouts, got.problems) == (5, 8, 2)
    run = Run.open(tmp_path / "run")
    assert run.series("reward").values.tolist() == [0.1, 0.2, 0.3, 0.4, 0.5]
    assert run.header.reward_levels == (0.0, 1.0)
    counts = run.query("SELECT split, count(*) AS rows FROM rollouts GROUP BY 1 ORDER BY 1").to_pylist()
    assert counts == [{"split": "eval", "rows": 4}, {"split": "train", "rows": 4}]


def test_duplicate_steps_after_a_resume_count_once(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(CONSOLE + "step:4 - critic/score/mean:9\nstep:5 - critic/score/mean:8\n")
    got = import_files([tmp_path / "train.log"], tmp_path / "run", importers=[IMPORTER])
    assert Run.open(tmp_path / "run").series("reward").values.tolist() == [0.1, 0.2, 0.3, 9.0, 8.0]
    assert any("went back" in remark.problem for remark in got.remarks)


@pytest.mark.parametrize("kind", sorted(VERL_READERS))
def test_an_empty_file_holds_nothing_and_a_folder_is_refused(tmp_path: Path, kind: str) -> None:
    (tmp_path / "empty").write_bytes(b"")
    assert list(IMPORTER.read(tmp_path / "empty", kind)) == []
    with pytest.raises(BreadthError, match="is a folder"):
        list(IMPORTER.read(tmp_path, kind))


@given(st.sampled_from(sorted(VERL_READERS)), st.binary(max_size=300))
@settings(max_examples=150, deadline=None)
def test_arbitrary_bytes_never_raise(tmp_path_factory: pytest.TempPathFactory, kind: str, junk: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "junk"
    path.write_bytes(junk)
    IMPORTER.recognises(path, junk)
    check_records(IMPORTER.read(path, kind))


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


@given(st.sampled_from(sorted(VERL_READERS)), st.data())
@settings(max_examples=200, deadline=None)
def test_mutated_files_never_raise(tmp_path_factory: pytest.TempPathFactory, kind: str, data: st.DataObject) -> None:
    text = TEXTS[kind]
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(start + 12, len(text))))
    path = tmp_path_factory.getbasetemp() / "mutated"
    path.write_text(text[:start] + data.draw(st.sampled_from(JUNK)) + text[end:])
    check_records(IMPORTER.read(path, kind))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
KEYS = st.sampled_from(
    ["input", "output", "gts", "score", "step", "uid", "acc", "pred", "data_source", "reward", "my_score", "\ud800"]
)


@given(st.lists(st.dictionaries(KEYS, VALUES), max_size=4))
@settings(max_examples=80, deadline=None)
def test_rows_of_any_types_give_valid_tables(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, object]]
) -> None:
    path = tmp_path_factory.getbasetemp() / "3.jsonl"
    path.write_text("".join(json.dumps({"input": None, "output": None, **row}) + "\n" for row in rows))
    check_records(IMPORTER.read(path, "rollouts"))


def test_real_logs_import_with_every_row_and_field(fixtures: Path, tmp_path: Path) -> None:
    with (fixtures / "training_logs" / "labels.csv").open() as file:
        labels = [row for row in csv.DictReader(file) if row["format"].startswith("verl")]
    assert len(labels) == 9
    for label in labels:
        target = tmp_path / label["file"]
        got = import_files([fixtures / "training_logs" / label["file"]], target, importers=[IMPORTER])
        run = Run.open(target)
        assert got.remarks == ()
        assert sum(point.split == "train" for point in run.points) == int(label["rows"]), label["file"]
        assert max(point.step for point in run.points) == int(label["last_step"]), label["file"]
        for field in label["fields"].split():
            assert OURS[field] & set(run.metric_names()), f"{label['file']} has no {field}"
        assert run.header.trainer == "verl"


def test_a_real_number_to_the_last_digit(fixtures: Path, tmp_path: Path) -> None:
    import_files([fixtures / "training_logs" / "uqcxu9__logs_grpo_train.log"], tmp_path / "run", importers=[IMPORTER])
    run = Run.open(tmp_path / "run")
    assert run.series("entropy").values[0] == 0.09462128579616547
    assert run.series("grad_norm").values[0] == 0.013598723337054253
