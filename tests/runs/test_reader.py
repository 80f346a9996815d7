"""Reader: series with restarts resolved, several runs in one log, queries, and folders in which something is broken."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from breadth.base.errors import BrokenFileError, NotARunError, SettingsError
from breadth.runs import reader
from breadth.runs.reader import MIN_RUN_ROWS, Run, collect_series, is_narrow, split_concatenated_runs
from breadth.runs.schema import Header, MetricPoint
from breadth.runs.writer import RunWriter


def rows(steps: range, attempt: int, source: int = 0, split: str = "train") -> list[MetricPoint]:
    return [MetricPoint(step, {"entropy": 0.5}, split, attempt=attempt, source=source) for step in steps]


def spans(points: list[MetricPoint]) -> list[tuple[int, int, int]]:
    """First step, last step and rows of each run."""
    return [(one[0].step, one[-1].step, len(one)) for one in split_concatenated_runs(points)]


def test_a_run_that_begins_where_the_first_began_is_another() -> None:
    assert spans([*rows(range(1, 31), 0), *rows(range(1, 11), 1)]) == [(1, 30, 30), (1, 10, 10)]


def test_a_restart_from_a_checkpoint_is_the_same_run() -> None:
    assert spans([*rows(range(1, 31), 0), *rows(range(21, 41), 1)]) == [(1, 40, 50)]


def test_a_false_start_is_not_a_run() -> None:
    assert spans([*rows(range(1, MIN_RUN_ROWS), 0), *rows(range(1, 31), 1)]) == [(1, 30, 30 + MIN_RUN_ROWS - 1)]
    assert spans([*rows(range(1, MIN_RUN_ROWS + 1), 0), *rows(range(1, 31), 1)]) == [
        (1, MIN_RUN_ROWS, MIN_RUN_ROWS),
        (1, 30, 30),
    ]


def test_after_a_false_start_the_next_run_counts_from_its_own_beginning() -> None:
    points = [*rows(range(5, 8), 0), *rows(range(1, 31), 1), *rows(range(3, 20), 2), *rows(range(1, 9), 3)]
    assert spans(points) == [(5, 19, 3 + 30 + 17), (1, 8, 8)]


def test_steps_that_are_printed_twice_are_one_run() -> None:
    points = [
        point
        for step in range(1, 31)
        for point in rows(range(step, step + 1), step - 1) + rows(range(step, step + 1), step)
    ]
    assert len(split_concatenated_runs(points)) == 1


def test_several_files_are_one_run_and_scores_stay_where_they_stand() -> None:
    assert spans([*rows(range(1, 31), 0), *rows(range(1, 11), 1, source=1)]) == [(1, 10, 40)]
    points = [
        *rows(range(1, 31), 0),
        *rows(range(30, 31), 0, split="eval"),
        *rows(range(1, 11), 1),
        *rows(range(10, 11), 1, split="eval"),
    ]
    assert spans(points) == [(1, 30, 31), (1, 10, 11)]
    assert split_concatenated_runs([]) == [()]


def point(step: int, value: float, *, attempt: int = 0, source: int = 0, split: str = "train") -> MetricPoint:
    return MetricPoint(step, {"x": value}, split, 0, attempt, source)


def test_the_newest_attempt_of_each_step_counts() -> None:
    points = [
        point(1, 1.0),
        point(2, 2.0),
        point(3, 3.0),
        point(2, 20.0, attempt=1),
        point(3, 30.0, attempt=1),
        point(4, 40.0, attempt=1),
    ]
    series = collect_series(points, "x", "train")
    assert series.steps.tolist() == [1, 2, 3, 4]
    assert series.values.tolist() == [1.0, 20.0, 30.0, 40.0]
    assert series.superseded == 2


def test_order_in_the_file_does_not_decide_between_attempts() -> None:
    assert collect_series([point(1, 9.0, attempt=1), point(1, 1.0)], "x", "train").values.tolist() == [9.0]


def test_a_later_file_wins_and_splits_stay_apart() -> None:
    points = [point(1, 1.0, attempt=5), point(1, 2.0, source=1), point(1, 3.0, split="eval")]
    assert collect_series(points, "x", "train").values.tolist() == [2.0]
    assert collect_series(points, "x", "eval").values.tolist() == [3.0]
    assert len(collect_series(points, "y", "train")) == 0


def test_finite_drops_nan_and_infinity() -> None:
    series = collect_series([point(1, math.nan), point(2, math.inf), point(3, 1.0)], "x", "train")
    assert series.finite.steps.tolist() == [3]


def test_a_stored_row_is_read_and_a_null_is_nan() -> None:
    read = MetricPoint.from_row({"step": 3, "values": {"a": None, "b": "inf", "c": 2}, "time": 5})
    assert (read.step, read.values["b"], read.values["c"], read.time) == (3, math.inf, 2.0, 5.0)
    assert math.isnan(read.values["a"])
    with pytest.raises(KeyError):
        MetricPoint.from_row({"values": {}})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    writer = RunWriter(tmp_path / "run [1]*")
    for step in (1, 2):
        writer.metrics(step, {"entropy": 1.0 / step})
        writer.rollouts({"problem": ["a", "b"], "reward": [0.0, 1.0], "completion": ["x", "y"]}, step)
    return writer.folder


def test_a_folder_that_is_no_run_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(NotARunError, match="breadth import"):
        Run.open(tmp_path)


def test_folder_names_are_not_patterns(folder: Path) -> None:
    assert Run.open(folder).query("SELECT count(*) n FROM rollouts")["n"].to_pylist() == [4]


def test_a_cut_parquet_file_is_named_and_the_rest_opens(folder: Path) -> None:
    victim = sorted((folder / "rollouts").iterdir())[0]
    victim.write_bytes(victim.read_bytes()[:50])
    run = Run.open(folder)
    assert [(Path(remark.file).name, "Delete the file" in remark.remedy) for remark in run.broken] == [
        (victim.name, True)
    ]
    assert run.query("SELECT DISTINCT step FROM rollouts")["step"].to_pylist() == [2]


@pytest.mark.parametrize(
    ("columns", "says"),
    [({"x": [1]}, "no column 'step'"), ({"step": ["one"], "problem": ["a"]}, "'step' is string, not int64")],
)
def test_a_foreign_parquet_file_is_named(folder: Path, columns: dict[str, list[object]], says: str) -> None:
    pq.write_table(pa.table(columns), folder / "rollouts" / "other.parquet")
    run = Run.open(folder)
    assert len(run.broken) == 1
    assert says in run.broken[0].problem
    assert len(run.rollout_files) == 2


@pytest.mark.parametrize(
    "line",
    [
        '{"step": "x", "values": {}}',
        '{"values": {}}',
        '{"step": 1, "values": 3}',
        "[1]",
        "half",
        '{"step": 1, "values": {"a": "b"}}',
    ],
)
def test_a_bad_metric_row_is_named_and_the_rest_opens(folder: Path, line: str) -> None:
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(line + "\n")
    run = Run.open(folder)
    assert [remark.row for remark in run.broken] == [3]
    assert run.series("entropy").steps.tolist() == [1, 2]


def test_a_newer_layout_is_refused_with_the_remedy(folder: Path) -> None:
    header = folder / "run.toml"
    header.write_text(header.read_text().replace("schema = 1", "schema = 99"))
    with pytest.raises(BrokenFileError, match="Upgrade breadth"):
        Run.open(folder)


def test_mixed_columns_are_united_with_nulls(folder: Path) -> None:
    RunWriter(folder, rank=1).rollouts({"problem": ["c"], "correct": [True], "reward/format": [0.5]}, 3)
    run = Run.open(folder)
    assert {"correct", "reward/format", "reward"} <= run.columns
    rows = run.query('SELECT problem, reward, correct, "reward/format" f FROM rollouts WHERE step = 3').to_pylist()
    assert rows == [{"problem": "c", "reward": None, "correct": True, "f": 0.5}]


def test_a_query_that_cannot_be_answered_says_what_there_is(tmp_path: Path) -> None:
    RunWriter(tmp_path).metrics(1, {"entropy": 0.5})
    run = Run.open(tmp_path)
    assert run.query("SELECT name, value FROM metrics").to_pylist() == [{"name": "entropy", "value": 0.5}]
    with pytest.raises(BrokenFileError, match=r"has the views metrics\. It has no rollouts and no problems") as raised:
        run.query("SELECT * FROM rollouts")
    assert "pg_" not in str(raised.value)
    with pytest.raises(BrokenFileError, match="Correct the query"):
        run.query("SELECT nonsense FROM metrics")
    for nothing in ("", " ", "-- SELECT 1"):
        with pytest.raises(SettingsError, match="The query is empty"):
            run.query(nothing)


def test_text_is_not_read_unless_asked_for(folder: Path) -> None:
    plan = Run.open(folder).query("EXPLAIN SELECT sum(reward) FROM rollouts").to_pylist()
    assert "completion" not in str(plan)


def test_an_empty_run_opens(tmp_path: Path) -> None:
    RunWriter(tmp_path)
    run = Run.open(tmp_path)
    assert (run.attempts, run.metric_names(), len(run.series("entropy"))) == (1, (), 0)
    assert run.query("SELECT count(*) n FROM metrics")["n"].to_pylist() == [0]


def test_metric_names_keep_their_order_and_split(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path)
    writer.metrics(1, {"b": 1.0, "a": 2.0})
    writer.metrics(1, {"c": 3.0}, split="eval")
    run = Run.open(tmp_path)
    assert (run.metric_names(), run.metric_names("eval")) == (("b", "a"), ("c",))
    assert run.series("c", "eval").values.tolist() == [3.0]


def test_a_column_nobody_wrote_is_null_and_can_be_asked_for(folder: Path) -> None:
    (row,) = Run.open(folder).query("SELECT truncated, entropy, answer, tokens FROM rollouts LIMIT 1").to_pylist()
    assert set(row.values()) == {None}


def test_a_live_run_is_read_by_our_names_and_an_import_is_left_alone(tmp_path: Path) -> None:
    values = {
        "completions/clipped_ratio": 0.25,
        "frac_reward_zero_std": 0.5,
        "entropy": 0.4,
        "breadth/entropy-bonus/entropy": 9.0,
        "kl": 0.1,
    }
    live = RunWriter(tmp_path / "live", Header(name="live", trainer="trl"))
    live.metrics(1, values)
    run = Run.open(tmp_path / "live")
    assert run.series("truncated").values.tolist() == [0.25]
    assert run.series("zero_variance_groups").values.tolist() == [0.5]
    assert run.series("entropy").values.tolist() == [0.4]
    assert run.header.names["truncated"] == "completions/clipped_ratio"
    assert run.query("SELECT value FROM metrics WHERE name = 'kl_reference'")["value"].to_pylist() == [0.1]
    imported = RunWriter(tmp_path / "imported", Header(name="imported", files=("a.log",)))
    imported.metrics(1, {"kl_reference": 0.2, "kl": 7.0})
    assert Run.open(tmp_path / "imported").series("kl_reference").values.tolist() == [0.2]


def test_a_metric_that_was_renamed_is_read_under_its_new_name(tmp_path: Path) -> None:
    names = {"starved_groups": "frac_reward_zero_std", "reward": "reward"}
    writer = RunWriter(tmp_path / "old", Header(name="old", files=("a.log",), names=names))
    writer.metrics(1, {"starved_groups": 0.5, "reward": 0.25})
    run = Run.open(tmp_path / "old")
    assert run.metric_names() == ("zero_variance_groups", "reward")
    assert run.series("zero_variance_groups").values.tolist() == [0.5]
    assert run.header.names == {"zero_variance_groups": "frac_reward_zero_std", "reward": "reward"}
    assert run.query("SELECT DISTINCT name FROM metrics ORDER BY name")["name"].to_pylist() == [
        "reward",
        "zero_variance_groups",
    ]
    live = RunWriter(tmp_path / "live")
    live.metrics(1, {"starved_groups": 0.75})
    assert Run.open(tmp_path / "live").series("zero_variance_groups").values.tolist() == [0.75]


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ('{"step": 1e400, "values": {}}', "infinity"),
        ('{"step": 9223372036854775808, "values": {}}', "64 bits"),
        ('{"step": 3, "rank": 2147483648, "values": {}}', "32 bits"),
        ('{"step": 3, "values": {"\\ud800": 1}}', "surrogates"),
        ('{"step": 3, "split": "\\udfff", "values": {}}', "surrogates"),
    ],
)
def test_a_bad_metric_row_is_a_remark_and_the_rest_opens(folder: Path, row: str, says: str) -> None:
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(row + "\n")
    run = Run.open(folder)
    assert [(remark.row, says in remark.problem) for remark in run.broken] == [(3, True)]
    assert run.query("SELECT count(*) n FROM metrics")["n"].to_pylist() == [2]
    assert run.series("entropy").values.tolist() == [1.0, 0.5]


def test_an_attempt_stopped_inside_a_step_does_not_hide_the_whole_step(tmp_path: Path) -> None:
    rows = {"problem": ["a", "b"]}
    first = RunWriter(tmp_path)
    for _ in range(2):
        first.rollouts(rows, 5)
    resumed = RunWriter(tmp_path)
    resumed.rollouts(rows, 5)
    run = Run.open(tmp_path)
    assert run.query("SELECT count(*) n FROM rollouts")["n"].to_pylist() == [4]
    assert ["stopped inside this step" in remark.problem for remark in run.broken] == [True]
    resumed.metrics(6, {"entropy": 0.5})  # logged while step 5 is being written
    assert Run.open(tmp_path).broken == run.broken
    resumed.metrics(7, {"entropy": 0.5})  # it went on: what it has of step 5 is all there is
    run = Run.open(tmp_path)
    assert [path.name for path in run.rollout_files] == ["train-00000005-r0-a1-p0.parquet"]
    assert not run.broken


def write_attempt(folder: Path, name: str, steps: range, ranks: range) -> None:
    writers = [RunWriter(folder, rank=rank, flush=False) for rank in ranks]
    for step in steps:
        for writer in writers:
            writer.rollouts({"problem": [f"{name}-{writer.rank}"]}, step)


def rows_by_step(folder: Path) -> dict[int, list[str]]:
    table = Run.open(folder).query("SELECT step, list(problem ORDER BY problem) p FROM rollouts GROUP BY step")
    return dict(zip(table["step"].to_pylist(), table["p"].to_pylist(), strict=True))


def test_a_resume_on_fewer_ranks_leaves_the_others_rows_behind(tmp_path: Path) -> None:
    write_attempt(tmp_path, "a", range(3), range(4))
    write_attempt(tmp_path, "b", range(1, 3), range(2))
    assert rows_by_step(tmp_path) == {0: ["a-0", "a-1", "a-2", "a-3"], 1: ["b-0", "b-1"], 2: ["b-0", "b-1"]}
    (remark,) = Run.open(tmp_path).broken
    assert "2 ranks took no part in the newest attempt; of steps that it has, from 1 on" in remark.problem
    write_attempt(tmp_path, "c", range(2, 4), range(4))  # and on more ranks again
    assert rows_by_step(tmp_path)[2] == rows_by_step(tmp_path)[3] == ["c-0", "c-1", "c-2", "c-3"]


def test_a_rank_that_wrote_nothing_in_one_attempt_still_counts(tmp_path: Path) -> None:
    write_attempt(tmp_path, "a", range(4), range(2))
    write_attempt(tmp_path, "b", range(2, 3), range(1))  # killed inside its first step, before rank 1 wrote
    write_attempt(tmp_path, "c", range(2, 5), range(2))
    assert rows_by_step(tmp_path) == {step: ["ac"[step > 1] + "-0", "ac"[step > 1] + "-1"] for step in range(5)}


def test_a_file_whose_name_is_no_text_is_left_out(folder: Path) -> None:
    source = next((folder / "rollouts").glob("*.parquet"))
    try:
        Path(os.fsdecode(os.fsencode(folder / "rollouts") + b"/x\xff.parquet")).write_bytes(source.read_bytes())
    except OSError:
        pytest.skip("this file system has no such names")
    run = Run.open(folder)
    assert ["its name is no text" in remark.problem for remark in run.broken] == [True]
    assert run.query("SELECT count(*) FROM rollouts").num_rows == 1
    str(run.broken[0]).encode()


def test_as_many_files_of_a_newer_attempt_replace_a_step(tmp_path: Path) -> None:
    for attempt in range(2):
        writer = RunWriter(tmp_path)
        for _ in range(2):
            writer.rollouts({"problem": [f"of {attempt}"]}, 5)
    assert Run.open(tmp_path).query("SELECT DISTINCT problem FROM rollouts")["problem"].to_pylist() == ["of 1"]


@pytest.mark.parametrize("name", ["rollouts/train-00000009-r0-a0-p0.parquet", "problems.parquet"])
@pytest.mark.parametrize("is_pipe", [True, False])
def test_a_pipe_or_device_in_a_run_is_named_and_not_opened(folder: Path, name: str, is_pipe: bool) -> None:
    os.mkfifo(folder / name) if is_pipe else (folder / name).symlink_to("/dev/zero")
    run = Run.open(folder)
    assert ["a pipe or a device" in remark.problem for remark in run.broken] == [True]
    assert len(run.rollout_files) == 2


def test_metrics_that_are_a_pipe_are_refused(folder: Path) -> None:
    (folder / "metrics.jsonl").unlink()
    os.mkfifo(folder / "metrics.jsonl")
    with pytest.raises(BrokenFileError, match="pipe or a device"):
        Run.open(folder)


@pytest.mark.parametrize("name", ["rollouts/train-00000001-r0-a0-p0.parquet", "problems.parquet"])
def test_a_damaged_column_name_is_a_remark(folder: Path, name: str) -> None:
    RunWriter(folder).problems({"problem": ["a"], "prompt": ["1 + 1?"]})
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content.replace(b"problem", b"\x86roblem"))
    run = Run.open(folder)
    assert [Path(remark.file).name for remark in run.broken] == [Path(name).name]
    assert run.query("SELECT count(*) n FROM rollouts")["n"].to_pylist() == [4 if name == "problems.parquet" else 2]


def test_a_result_too_large_for_memory_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "MAX_RESULT_BYTES", 1 << 16)
    with pytest.raises(BrokenFileError, match="fewer columns"):
        Run.open(folder).query("SELECT range, completion FROM range(100000), rollouts")


def test_many_files_answer_as_few_do_and_are_opened_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    RunWriter(folder).rollouts({"problem": ["c"], "reward/style": [0.25], "completion": ["z"]}, 7)
    narrow = 'SELECT step, split, problem, reward, "reward/style" FROM rollouts ORDER BY step, problem'
    wide = "SELECT completion FROM rollouts WHERE step BETWEEN 2 AND 7 ORDER BY completion"
    few = Run.open(folder)
    monkeypatch.setattr(reader, "MIN_FILES_HELD", 2)
    monkeypatch.setattr(reader, "FILES_PER_READ", 1)
    many = Run.open(folder)
    assert many.query(narrow).equals(few.query(narrow))
    assert many.query(wide, steps=(2, 7)).equals(few.query(wide))
    assert many.query(wide, steps=(99, 99)).num_rows <= 3
    for path in (folder / "rollouts").glob("*"):
        path.unlink()
    assert many.query(narrow).num_rows == 5
    with pytest.raises(BrokenFileError):
        many.query(wide, steps=(2, 7))


def test_what_may_read_long_texts_is_not_narrow() -> None:
    assert is_narrow("SELECT count( * ), avg(reward) FROM rollouts")
    assert not is_narrow("SELECT * FROM rollouts")
    assert not is_narrow("SELECT len(token_ids) FROM rollouts")


def test_of_very_many_metrics_the_first_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = RunWriter(tmp_path / "run").folder
    row = b'{"step":%d,"values":{"entropy":0.5}}\n'
    (folder / "metrics.jsonl").write_bytes(b"".join(row % step for step in range(60_000)) + b'{"step":1}\n' * 300)
    run = Run.open(folder)
    assert (len(run.points), len(run.broken)) == (60_000, 101)
    assert run.broken[-1].problem == "200 more rows are no metric rows; left out."
    monkeypatch.setattr(reader, "MAX_POINTS_BYTES", 1 << 20)
    run = Run.open(folder)
    assert 1000 < len(run.points) < 2000
    assert "more metrics than fit into 1 MB" in run.broken[0].problem


def test_a_problem_stored_twice_does_not_double_its_rollouts(folder: Path) -> None:
    pq.write_table(pa.table({"problem": ["a", "a", "b"], "reference": ["1", "1", "2"]}), folder / "problems.parquet")
    run = Run.open(folder)
    rollouts = run.query("SELECT count(*) AS n FROM rollouts")["n"].to_pylist()
    joined = run.query("SELECT count(*) AS n FROM rollouts LEFT JOIN problems USING (problem)")
    assert joined["n"].to_pylist() == rollouts
    assert run.query("SELECT reference FROM problems ORDER BY problem")["reference"].to_pylist() == ["1", "2"]


def test_ids_of_problems_that_cannot_be_read_leave_the_other_queries_alone(folder: Path) -> None:
    half = pa.StringArray.from_buffers(1, pa.array([0, 3], pa.int32()).buffers()[1], pa.py_buffer(b"\xed\xa0\x80"))
    pq.write_table(pa.table({"problem": half}), folder / "problems.parquet")
    run = Run.open(folder)
    assert len(run.query("SELECT * FROM rollouts"))
    with pytest.raises(BrokenFileError, match=r"problems\.parquet"):
        run.query("SELECT * FROM problems")


def test_a_link_to_a_file_that_is_gone_is_a_remark(folder: Path) -> None:
    (folder / "rollouts" / "train-00000099-r0-a0-p0.parquet").symlink_to(folder / "moved.parquet")
    (folder / "problems.parquet").unlink(missing_ok=True)
    (folder / "problems.parquet").symlink_to("problems.parquet")
    problems = {Path(remark.file).name: remark.problem for remark in Run.open(folder).broken}
    assert "No such file" in problems["train-00000099-r0-a0-p0.parquet"]
    assert "symbolic links" in problems["problems.parquet"]
    (folder / "metrics.jsonl").unlink()
    (folder / "metrics.jsonl").symlink_to(folder / "moved.jsonl")
    with pytest.raises(BrokenFileError, match=r"metrics\.jsonl: cannot be read: No such file"):
        Run.open(folder)


def test_a_query_of_rollouts_does_not_spread_out_the_metrics(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Run] = []
    make_table = Run._metric_table

    def count_and_make(run: Run) -> pa.Table:
        made.append(run)
        return make_table(run)

    monkeypatch.setattr(Run, "_metric_table", count_and_make)
    run = Run.open(folder)
    run.query("SELECT count(*) FROM rollouts")
    assert made == []
    for _ in range(2):
        assert "metrics" in run.query("SELECT view_name AS name FROM duckdb_views()")["name"].to_pylist()
        (name,) = run.query("SELECT DISTINCT name FROM Metrics, rollouts")["name"].to_pylist()
        assert name == "entropy"
    assert len(made) == 1
