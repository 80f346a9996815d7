"""The generic importer as a whole: the contract, mappings, real files, bad input."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from breadth.adapters.generic.importer import (
    IMPORTER,
    MAX_STACKED_RUNS,
    RUN_COLUMNS,
    DistinctValues,
    GenericImporter,
    MetricTable,
    RolloutTable,
    describe_run,
    find_stacked_runs,
    refuse_summaries,
    unix_time,
)
from breadth.adapters.generic.layout import choose_layout
from breadth.base.errors import BreadthError, BrokenFileError, SettingsError, UnknownFormatError
from breadth.runs.importer import all_importers, recognise
from breadth.runs.importing import import_files
from breadth.runs.reader import Run
from breadth.runs.schema import MetricRow, Remark, RolloutBatch
from breadth.runs.writer import problem_id
from breadth.testing.importers import check_importer, check_records

METRICS: list[dict[str, Any]] = [{"step": step, "reward": 0.1 * step, "entropy": 1.0 / step} for step in range(1, 6)]
VOTES: list[dict[str, Any]] = [
    {"question_id": n // 4, "sample_index": n % 4, "answer": str(n % 3), "correct": n % 3 == 0} for n in range(12)
]


def jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def as_csv(path: Path, rows: list[dict[str, Any]], delimiter: str = ",") -> Path:
    lines = [delimiter.join(rows[0]), *(delimiter.join(str(value) for value in row.values()) for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def parquet(path: Path, rows: list[dict[str, Any]]) -> Path:
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def as_json(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    return path


def samples(folder: Path) -> dict[str, Path]:
    return {
        "JSONL metrics": jsonl(folder / "log.jsonl", METRICS),
        "JSONL evaluation": jsonl(folder / "votes.jsonl", VOTES),
        "CSV metrics": as_csv(folder / "log.csv", METRICS),
        "CSV evaluation": as_csv(folder / "votes.csv", VOTES, ";"),
        "JSON metrics": as_json(folder / "log.json", METRICS),
        "JSON evaluation": as_json(folder / "votes.json", VOTES),
        "Parquet metrics": parquet(folder / "log.parquet", METRICS),
        "Parquet evaluation": parquet(folder / "votes.parquet", VOTES),
    }


def test_contract(tmp_path: Path) -> None:
    check_importer(IMPORTER, list(samples(tmp_path).values()), last_resort=True)


def test_every_form_gives_the_same_run(tmp_path: Path) -> None:
    for kind, path in samples(tmp_path).items():
        assert recognise(path, all_importers()).kind == kind
        import_files([path], tmp_path / kind)
        run = Run.open(tmp_path / kind)
        assert run.header.trainer == "generic"
        if "metrics" in kind:
            assert run.series("reward").steps.tolist() == [1, 2, 3, 4, 5]
            assert run.series("entropy").values.tolist() == [1.0, 1 / 2, 1 / 3, 1 / 4, 1 / 5]
            assert run.header.entropies["entropy"].estimator == "unknown"
        else:
            found = run.query(
                "SELECT problem, sum(correct::INT)::INT AS right FROM rollouts GROUP BY problem ORDER BY problem"
            ).to_pylist()
            # Samples 0..11 are right where divisible by 3: 0, 3 of the first four; 6 of the next; 9 of the last.
            assert found == [{"problem": "0", "right": 2}, {"problem": "1", "right": 1}, {"problem": "2", "right": 1}]


def test_a_mapping_reads_names_of_ones_own(tmp_path: Path) -> None:
    path = as_csv(tmp_path / "mine.csv", [{"it": 1, "score": 0.5, "h": 2.0}, {"it": 2, "score": 0.75, "h": 1.0}])
    with pytest.raises(UnknownFormatError):
        import_files([path], tmp_path / "run")
    import_files(
        [path], tmp_path / "run", importers=[GenericImporter({"step": "it", "reward": "score", "entropy": "h"})]
    )
    run = Run.open(tmp_path / "run")
    assert run.series("reward").values.tolist() == [0.5, 0.75]
    assert run.series("entropy").values.tolist() == [2.0, 1.0]


def test_a_misspelt_column_stops_with_the_nearest_and_leaves_nothing(tmp_path: Path) -> None:
    path = as_csv(tmp_path / "mine.csv", [{"iteration": 1, "score": 0.5}])
    with pytest.raises(SettingsError, match="no column 'scores'") as error:
        import_files([path], tmp_path / "run", importers=[GenericImporter({"reward": "scores"})])
    assert "Did you mean 'score'?" in error.value.remedy
    assert not (tmp_path / "run").exists()
    with pytest.raises(SettingsError, match="'stepp'"):
        GenericImporter({"stepp": "iteration"})


def test_a_mapping_of_the_step_alone_leaves_rollouts_what_they_are(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "votes.jsonl", [{**row, "round": 7} for row in VOTES])
    imported = import_files([path], tmp_path / "run", importers=[GenericImporter({"step": "round"})])
    assert imported.rollouts == 12
    assert Run.open(tmp_path / "run").query("SELECT DISTINCT step, split FROM rollouts").to_pylist() == [
        {"step": 7, "split": "train"}
    ]


def test_a_mapping_passes_over_what_it_cannot_mean(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    as_csv(folder / "mine.csv", [{"it": 1, "score": 0.5}])
    (folder / "README.md").write_text("Notes, and more\nof them, here\n", encoding="utf-8")
    (folder / "config.json").write_text('{"lr": 1e-5, "beta": 0.1}', encoding="utf-8")
    imported = import_files([folder], tmp_path / "run", importers=[GenericImporter({"step": "it", "reward": "score"})])
    assert imported.metric_rows == 1
    assert [remark.problem for remark in imported.remarks] == [
        "2 files were passed over as of no kind we know: README.md, config.json."
    ]


def test_a_column_that_is_empty_at_first_can_be_mapped(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("it,score\n1,\n2,0.5\n", encoding="utf-8")
    import_files([path], tmp_path / "run", importers=[GenericImporter({"step": "it", "reward": "score"})])
    assert Run.open(tmp_path / "run").series("reward").steps.tolist() == [2]


@pytest.mark.parametrize(
    "content",
    [
        b'{"name": "000020", "batch": 20, "state_path": "somewhere"}\n',
        b'{"step": 0, "spans": [{"name": "sample", "duration": 1.0}]}\n',
        b'{"learning_rate": 1e-5, "beta": 0.1}\n',
        b"source,model_name,wait,accuracy\na,b,0,0.5\n",
        b"# A title, with a comma\n\nand text\n",
    ],
)
def test_other_files_beside_a_run_are_not_claimed(content: bytes) -> None:
    assert IMPORTER.recognises(Path("other.jsonl"), content) is None


def test_votes_of_real_models(fixtures: Path, tmp_path: Path) -> None:
    # Samples, questions, mean and any-correct share as their README gives them (majority is the instruments' business).
    expected = {
        "consol_gpt4omini_gsm8k_vote40": (52720, 1318, 0.8885, 0.9833),
        "consol_o3mini_low_aime24_vote40": (1200, 30, 0.6125, 0.9),
        "consol_o3mini_high_aime24_vote40": (1200, 30, 0.88, 1.0),
        "qwen25math_rm_example_math100x8": (800, 100, 0.91, 0.96),
    }
    for name, (count, problems, mean, anyone) in expected.items():
        imported = import_files([fixtures / f"votes/{name}.parquet"], tmp_path / name)
        assert (imported.rollouts, imported.problems) == (count, problems)
        query = (
            "SELECT avg(share), avg((share > 0)::INT) FROM (SELECT avg(correct::INT) AS share FROM rollouts GROUP BY"
            " problem)"
        )
        found = [column.to_pylist()[0] for column in Run.open(tmp_path / name).query(query).columns]
        assert found == pytest.approx([mean, anyone], abs=5e-5)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("votes/openai_gsm_4models.parquet", "several conditions .'model'"),
        ("votes/deepconf_512votes_methods.csv", "one row for many samples"),
        ("budgets/overthinking_hazard_by_step.csv", "several runs"),
        ("budgets/overthinking_trace_steps_small.parquet", "several runs"),
        ("budgets/overthinking_trace_runs.parquet", "is of no kind we know"),
        ("budgets/wait_extrapolation_accuracy.csv", "is of no kind we know"),
        ("law/kg_grpo_entropy_kl.parquet", "several runs"),
        ("law/kg_grpo_entropy_vs_eval.csv", "several runs"),
        ("law/entropy_score.parquet", "several runs"),
        ("training_logs/labels.csv", "is of no kind we know"),
    ],
)
def test_real_tables_that_are_no_run_are_refused_with_the_reason(
    fixtures: Path, tmp_path: Path, name: str, reason: str
) -> None:
    with pytest.raises(UnknownFormatError, match=reason):
        import_files([fixtures / name], tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_one_run_of_a_stacked_table_imports(fixtures: Path, tmp_path: Path) -> None:
    rows = [
        row
        for row in pq.read_table(fixtures / "law/kg_grpo_entropy_kl.parquet").to_pylist()
        if row["run"] == "E1_outcome"
    ]
    import_files([parquet(tmp_path / "one.parquet", rows)], tmp_path / "run")
    run = Run.open(tmp_path / "run")
    logged = {row["step"]: row["actor/entropy"] for row in rows if row["actor/entropy"] is not None}
    assert dict(zip(run.series("entropy").steps.tolist(), run.series("entropy").values.tolist(), strict=True)) == logged


def test_cut_parquet_is_called_broken(tmp_path: Path) -> None:
    path = parquet(tmp_path / "votes.parquet", VOTES)
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(BrokenFileError, match="Parquet"):
        import_files([path], tmp_path / "run")


def test_mixed_rows_in_one_file(tmp_path: Path) -> None:
    path = jsonl(
        tmp_path / "log.jsonl", [{"step": 1, "reward": 0.5}, {"step": 2, "loss": 0.1, "note": "x"}, {"other": 1}]
    )
    imported = import_files([path], tmp_path / "run")
    assert imported.metric_rows == 2
    assert sorted(remark.problem.split(";")[0] for remark in imported.remarks) == [
        "'note' is 'x', not a number, in 1 rows",
        "1 rows have no step under 'step'",
    ]


@pytest.mark.parametrize("depth", [300, 990, 1020, 5000])
@pytest.mark.parametrize("column", ["x", "answer", "correct", "prompt", "question_id", "split", "model", "step"])
def test_rows_nested_beyond_reason_are_survived(tmp_path: Path, depth: int, column: str) -> None:
    path = tmp_path / "rows.jsonl"
    row = json.dumps({"question_id": 1, "answer": "a", "model": "m"})
    path.write_text(row + "\n" + row[:-1] + f', "{column}": ' + "[" * depth + "]" * depth + "}\n", encoding="utf-8")
    for kind, words in (("JSONL evaluation", "several conditions"), ("JSONL metrics", "several runs")):
        if column == "model" and depth < 5000:  # deeper rows cannot even be parsed
            with pytest.raises(UnknownFormatError, match=words):
                check_records(IMPORTER.read(path, kind))
        else:
            check_records(IMPORTER.read(path, kind))


def test_a_hundred_megabytes_in_one_cell(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    with path.open("wb") as file:
        file.write(b"step,reward\n1,0.5\n2," + b"9" * (100 << 20) + b"\n3,0.75\n")
    import_files([path], tmp_path / "run")
    run = Run.open(tmp_path / "run")
    assert run.series("reward").steps.tolist() == [1, 3]
    assert any("105 MB" in remark.problem for remark in run.header.remarks)


KINDS = [f"{form} {content}" for form in ("JSONL", "JSON", "CSV", "Parquet") for content in ("metrics", "evaluation")]


@settings(max_examples=150, deadline=None)
@given(kind=st.sampled_from(KINDS), junk=st.binary(max_size=40), place=st.integers(0, 800), cut=st.integers(0, 60))
def test_any_bytes_give_records_or_our_errors(
    tmp_path_factory: pytest.TempPathFactory, kind: str, junk: bytes, place: int, cut: int
) -> None:
    folder = tmp_path_factory.mktemp("fuzz")
    path = samples(folder)[kind]
    whole = path.read_bytes()
    path.write_bytes(whole[:place] + junk + whole[place + cut :])
    try:
        IMPORTER.recognises(path, path.read_bytes())
        check_records(IMPORTER.read(path, kind))
    except BreadthError:
        return


VALUES = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=5,
)
COLUMNS = st.sampled_from(
    [
        "step",
        "time",
        "reward",
        "prompt",
        "completion",
        "answer",
        "correct",
        "question_id",
        "token_ids",
        "split",
        "model",
        "x",
    ]
)


@settings(max_examples=100, deadline=None)
@given(rows=st.lists(st.dictionaries(COLUMNS, VALUES, max_size=6), min_size=1, max_size=4))
def test_any_rows_give_records_or_our_errors(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]]
) -> None:
    path = jsonl(tmp_path_factory.mktemp("fuzz") / "rows.jsonl", rows)
    kind = IMPORTER.recognises(path, path.read_bytes())
    try:
        check_records(IMPORTER.read(path, kind or "JSONL metrics"))
    except BreadthError:
        return


def test_one_run_passes_and_a_second_is_refused() -> None:
    several = DistinctValues(["Run", "step"], RUN_COLUMNS, Path("table.csv"))
    several.add([{"Run": "a", "step": 1}, {"Run": None, "step": 2}, {"step": 3}])
    several.refuse_several()
    assert several.description == ""
    several.add([{"Run": "b"}])
    with pytest.raises(UnknownFormatError, match=r"rows of several runs \('Run': a, b"):
        several.refuse_several()


def test_columns_of_another_kind_are_not_looked_at() -> None:
    several = DistinctValues(["seed"], RUN_COLUMNS, Path("table.csv"))
    several.add([{"seed": 1}, {"seed": 2}])
    assert several.description == ""


def test_summaries_are_refused() -> None:
    refuse_summaries(["question_id", "answer"], Path("votes.csv"))
    with pytest.raises(UnknownFormatError, match="one row for many samples"):
        refuse_summaries(["question_id", "Num_Votes"], Path("votes.csv"))


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_the_runs_of_a_table_can_be_read_one_by_one(tmp_path: Path, form: str) -> None:
    rows = [{"step": step // 2, "run": "ab"[step % 2], "entropy": step / 10} for step in range(8)]
    path = tmp_path / f"both.{form}"
    lines = (
        [json.dumps(row) for row in rows]
        if form == "jsonl"
        else ["step,run,entropy", *(",".join(map(str, row.values())) for row in rows)]
    )
    path.write_text("\n".join(lines) + "\n")
    kind = IMPORTER.recognises(path, path.read_bytes())
    assert kind is not None
    with pytest.raises(UnknownFormatError, match="several runs"):
        list(IMPORTER.read(path, kind))
    apart = IMPORTER.split_stacked_runs(path, kind)
    assert list(apart) == ["a", "b"]
    found = [record.values["entropy"] for record in apart["b"].read(path, kind) if isinstance(record, MetricRow)]
    assert found == [0.1, 0.3, 0.5, 0.7]


def test_one_run_and_too_many_are_not_read_apart() -> None:
    def names(rows: list[dict[str, Any]]) -> list[str]:
        runs = find_stacked_runs([enumerate(rows)], RUN_COLUMNS, ("model", "max_tokens"))
        return [describe_run(run) for run in runs]

    assert names([{"run": "a"}, {"run": "a"}]) == []
    assert names([{"run": row} for row in range(MAX_STACKED_RUNS + 1)]) == []
    assert names([{"run": row} for row in range(MAX_STACKED_RUNS)]) == [str(row) for row in range(MAX_STACKED_RUNS)]
    assert names([{"step": 1}]) == []
    # Two columns that both identify the run are one; conditions are combinations; numbers of tokens are budgets.
    rows = [{"run": n % 2, "exp_name": f"e{n % 2}", "model": f"m{n // 2}", "max_tokens": n} for n in range(4)]
    assert names(rows) == ["0, model=m0", "1, model=m0", "0, model=m1", "1, model=m1"]
    assert names([{"max_tokens": "low"}, {"max_tokens": "high"}]) == ["max_tokens=low", "max_tokens=high"]


PATH = Path("table.csv")
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp()


def metric_table(
    rows: list[dict[str, Any]], mapping: dict[str, str] | None = None
) -> tuple[list[MetricRow], list[str]]:
    columns = dict.fromkeys(name for row in rows for name in row)
    made = MetricTable(choose_layout(columns, mapping or {}, "metrics"), columns, PATH)
    found = [record for record in made.records(list(enumerate(rows, 1))) if isinstance(record, MetricRow)]
    return found, [remark.problem for remark in made.remarks()]


def test_weights_and_biases_history() -> None:
    rows = [
        {
            "_step": "0",
            "_timestamp": "1700000000.5",
            "_runtime": "3",
            "train/global_step": "10",
            "train/reward": "0.25",
            "eval/reward": None,
        },
        {
            "_step": "1",
            "_timestamp": "1700000001.5",
            "_runtime": "4",
            "train/global_step": "10",
            "train/reward": None,
            "eval/reward": "0.5",
        },
    ]
    found, remarks = metric_table(rows)
    assert found == [
        MetricRow({"_step": 0.0, "_runtime": 3.0, "train/reward": 0.25}, 10, 1700000000.5),
        MetricRow({"_step": 1.0, "_runtime": 4.0}, 10, 1700000001.5),
        MetricRow({"reward": 0.5}, 10, 1700000001.5, "eval"),
    ]
    assert remarks == []


def test_an_exported_chart_loses_its_runs_name_and_its_band() -> None:
    found, _ = metric_table(
        [
            {
                "Step": "5",
                "lr-3 - train/reward": "0.5",
                "lr-3 - train/reward__MIN": "0.4",
                "lr-3 - train/reward__MAX": "0.6",
            }
        ]
    )
    assert found == [MetricRow({"train/reward": 0.5}, 5)]


def test_a_chart_of_several_runs_is_refused() -> None:
    with pytest.raises(UnknownFormatError, match=r"several runs \(a, b"):
        metric_table([{"Step": 1, "a - reward": 0.5, "b - reward": 0.6}])


@pytest.mark.parametrize("column", ["run", "run_id", "model"])
def test_stacked_runs_are_refused_and_one_is_not(column: str) -> None:
    found, remarks = metric_table([{column: "a", "step": 1, "reward": 0.5}, {column: "a", "step": 2, "reward": 0.5}])
    assert [dict(row.values) for row in found] == [{"reward": 0.5}, {"reward": 0.5}]
    assert remarks == []
    with pytest.raises(UnknownFormatError, match="several runs"):
        metric_table([{column: "a", "step": 1, "reward": 0.5}, {column: "b", "step": 1, "reward": 0.5}])


def test_a_mapping_renames_and_a_lookalike_steps_aside() -> None:
    found, _ = metric_table([{"it": 3, "score": 0.5, "reward": 9.0}], {"step": "it", "reward": "score"})
    assert found == [MetricRow({"reward": 0.5, "raw/reward": 9.0}, 3)]


def test_without_a_step_column_rows_are_numbered_later() -> None:
    assert metric_table([{"score": 0.5}], {"reward": "score"})[0] == [MetricRow({"reward": 0.5}, None)]


def test_rows_without_their_step_are_left_out_and_told() -> None:
    found, remarks = metric_table(
        [{"step": 1, "a": 1}, {"step": None, "a": 2}, {"step": "x", "a": 3}, {"step": -1, "a": 4}]
    )
    assert [row.step for row in found] == [1]
    assert remarks == ["3 rows have no step under 'step'; left out."]


def test_text_is_told_once_for_each_column_and_nan_is_kept() -> None:
    found, remarks = metric_table([{"step": 1, "a": "text", "b": "NaN"}, {"step": 2, "a": "more", "b": "inf"}])
    assert math.isnan(found[0].values["b"])
    assert found[1].values == {"b": math.inf}
    assert remarks == ["'a' is 'text', not a number, in 2 rows; left out there."]


def test_a_split_column_tells_evaluation_apart() -> None:
    found, _ = metric_table(
        [
            {"step": 1, "split": "train", "reward": 0.1},
            {"step": 1, "split": "Validation", "reward": 0.2},
            {"step": 2, "reward": 0.3},
        ]
    )
    assert [(row.step, row.split, dict(row.values)) for row in found] == [
        (1, "train", {"reward": 0.1}),
        (1, "eval", {"reward": 0.2}),
        (2, "train", {"reward": 0.3}),
    ]


def test_a_column_of_seconds_since_the_start_stays_a_metric() -> None:
    assert metric_table([{"step": 1, "time": 12.5, "reward": 0.5}])[0] == [MetricRow({"time": 12.5, "reward": 0.5}, 1)]


def test_columns_that_come_later_are_metrics_too() -> None:
    made = MetricTable(choose_layout(["step", "a"], {}, "metrics"), ["step", "a"], PATH)
    assert list(made.records([(1, {"step": 1, "b": 2.0})])) == [MetricRow({"b": 2.0}, 1)]


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (NOON, NOON),
        (str(NOON), NOON),
        ("2026-03-01T12:00:00", NOON),
        ("2026-03-01T13:00:00+01:00", NOON),
        ("2026-03-01 12:00:00Z", NOON),
        (datetime(2026, 3, 1, 12), NOON),
        (datetime(2026, 3, 1, 12, tzinfo=UTC), NOON),
        (12.5, None),
        (math.nan, None),
        (None, None),
        ("soon", None),
        ([], None),
        ("1e400", None),
    ],
)
def test_moments(value: Any, seconds: float | None) -> None:
    assert unix_time(value) == seconds


ROLLOUT_PATH = Path("table.jsonl")


def rollout_table(
    rows: list[dict[str, Any]], mapping: dict[str, str] | None = None
) -> tuple[list[RolloutBatch], list[str]]:
    batch = list(enumerate(rows, 1))
    columns = dict.fromkeys(name for row in rows for name in row)
    made = RolloutTable(choose_layout(columns, mapping or {}, "rollouts"), batch, ROLLOUT_PATH)
    records = list(made.records(batch))
    odd = [record.problem for record in (*records, *made.remarks()) if isinstance(record, Remark)]
    return [record for record in records if isinstance(record, RolloutBatch)], odd


def only(rows: list[dict[str, Any]], mapping: dict[str, str] | None = None) -> list[dict[str, Any]]:
    (batch,), _ = rollout_table(rows, mapping)
    found: list[dict[str, Any]] = batch.table.to_pylist()
    return found


VOTE: dict[str, Any] = {
    "question_id": 7,
    "sample_index": 3,
    "answer": "18",
    "correct": True,
    "n_tokens": 107,
    "confidence": 0.5,
}


def test_a_vote_is_a_rollout_of_one_evaluation() -> None:
    (batch,), remarks = rollout_table([VOTE])
    assert batch.split == "eval"
    assert batch.table.to_pylist() == [
        {
            "problem": "7",
            "answer": "18",
            "correct": True,
            "tokens": 107,
            "sample": 3,
            "step": 0,
            "extra": '{"confidence":0.5}',
        }
    ]
    assert remarks == ["rows carry no step; they were read as one evaluation, at step 0."]


def test_prompts_name_problems_and_answers_are_read() -> None:
    rows = [{"step": step, "prompt": "2+2?", "completion": r"so \boxed{4}", "reward": 1.0} for step in (1, 2)]
    (batch,), remarks = rollout_table(rows)
    assert batch.split == "train"
    found = batch.table.to_pylist()
    assert [row["step"] for row in found] == [1, 2]
    assert {row["problem"] for row in found} == {problem_id("2+2?")}
    assert {row["answer"] for row in found} == {"4"}
    assert remarks == []


def test_truth_as_text_counts_only_where_truth_is_meant() -> None:
    rows = [
        {"question_id": "1", "answer": "No", "is_correct": "False"},
        {"question_id": "2", "answer": "true", "is_correct": "yes"},
    ]
    assert [(row["answer"], row["correct"]) for row in only(rows)] == [("No", False), ("true", True)]


def test_nan_for_missing_is_null_but_a_reward_may_be_nan() -> None:
    whole = {"question_id": "1", "answer": "4", "n_tokens": 9.0, "reward": 0.5, "correct": 1}
    first, second = only(
        [whole, {**whole, "answer": math.nan, "n_tokens": math.nan, "reward": math.nan, "correct": math.nan}]
    )
    assert (first["answer"], first["tokens"], first["correct"]) == ("4", 9, True)
    assert (second["answer"], second["tokens"], second["correct"]) == (None, None, None)
    assert math.isnan(second["reward"])


def test_a_split_column_parts_the_rows() -> None:
    batches, _ = rollout_table([{**VOTE, "split": "train"}, {**VOTE, "split": "test"}, VOTE])
    assert [(batch.split, len(batch.table)) for batch in batches] == [("train", 1), ("eval", 2)]
    assert "split" not in json.loads(batches[0].table.column("extra").to_pylist()[0])


def test_rows_without_problem_or_step_are_kept_and_told() -> None:
    rows: list[dict[str, Any]] = [
        {"step": 5, "prompt": None, "response": "a"},
        {"step": "x", "prompt": "p", "response": "b"},
    ]
    (batch,), remarks = rollout_table(rows)
    assert batch.table.select(["step", "problem"]).to_pylist() == [
        {"step": 5, "problem": "unknown"},
        {"step": 0, "problem": problem_id("p")},
    ]
    assert remarks == [
        "1 rows have no step under 'step'; they were put at step 0.",
        "1 rows do not say which problem they are about; they share the problem 'unknown'.",
    ]


def test_a_missing_id_falls_back_on_the_prompt() -> None:
    rows: list[dict[str, Any]] = [
        {"question_id": "q1", "prompt": "p", "answer": "1"},
        {"question_id": None, "prompt": "p", "answer": "2"},
    ]
    assert [row["problem"] for row in only(rows)] == ["q1", problem_id("p")]


def test_a_batch_without_any_prompt_still_has_problems() -> None:
    made = RolloutTable(
        choose_layout(["prompt", "response"], {}, "rollouts"), [(1, {"prompt": "p", "response": "r"})], ROLLOUT_PATH
    )
    (batch,) = made.records([(2, {"response": "later"})])
    assert isinstance(batch, RolloutBatch)
    assert batch.table.column("problem").to_pylist() == ["unknown"]


def test_a_mean_entropy_is_kept_and_not_taken_for_tokens() -> None:
    (row,) = only([{**VOTE, "entropy": 0.4}])
    assert "entropy" not in row
    assert json.loads(row["extra"])["entropy"] == 0.4
    (row,) = only([{**VOTE, "entropy": [0.5, 0.25]}])
    assert row["entropy"] == [0.5, 0.25]


def test_several_runs_in_rollouts_are_refused() -> None:
    with pytest.raises(UnknownFormatError, match="several runs"):
        rollout_table([{**VOTE, "step": 1, "run_id": "a"}, {**VOTE, "step": 1, "run_id": "b"}])


@pytest.mark.parametrize("column", ["model", "arm", "temperature", "dataset", "decile", "policy", "Mine"])
def test_conditions_are_never_pooled(tmp_path: Path, column: str) -> None:
    rows = [{**VOTE, "question_id": n % 4, column: 0.5 + n // 4, "correct": n < 4} for n in range(8)]
    importer = GenericImporter({"arm": "Mine"} if column == "Mine" else {})
    path = jsonl(tmp_path / "votes.jsonl", rows)
    kind = importer.recognises(path, path.read_bytes())
    assert kind == "JSONL evaluation"
    with pytest.raises(UnknownFormatError, match=f"several conditions .'{column}': 0.5, 1.5") as refused:
        list(importer.read(path, kind))
    assert f"--map budget={column}" in refused.value.remedy
    assert f"--map origin={column}" in refused.value.remedy
    apart = importer.split_stacked_runs(path, kind)
    assert list(apart) == [f"{column}=0.5", f"{column}=1.5"]
    tables = [
        record.table for part in apart.values() for record in part.read(path, kind) if isinstance(record, RolloutBatch)
    ]
    assert [table["correct"].to_pylist() for table in tables] == [[True] * 4, [False] * 4]


def test_a_budget_is_a_column_of_one_run(tmp_path: Path) -> None:
    rows = [{**VOTE, "max_tokens": 500 * (1 + n)} for n in range(2)]
    assert [row["budget"] for row in only(rows)] == [500, 1000]
    assert [row["budget"] for row in only([{**VOTE, "decile": 3.0}], {"budget": "decile"})] == [3]
    (named,) = only([{**VOTE, "budget": "low"}])
    assert "budget" not in named
    assert json.loads(named["extra"])["budget"] == "low"


def test_summaries_of_rollouts_are_refused() -> None:
    with pytest.raises(UnknownFormatError, match="'num_votes'"):
        rollout_table([{**VOTE, "num_votes": 512}])


def test_a_mapping_of_everything() -> None:
    rows = [{"it": 4, "q": "7", "text": "x", "final": "18", "ok": 1, "fmt": 0.5, "step": 9}]
    mapping = {
        "step": "it",
        "problem": "q",
        "completion": "text",
        "answer": "final",
        "correct": "ok",
        "reward/format": "fmt",
    }
    (row,) = only(rows, mapping)
    assert row == {
        "step": 4,
        "problem": "7",
        "completion": "x",
        "answer": "18",
        "correct": True,
        "reward/format": 0.5,
        "sample": 0,
        "extra": '{"step":9}',
    }


def test_wrong_types_are_left_empty_and_told() -> None:
    (batch,), remarks = rollout_table([VOTE, {**VOTE, "n_tokens": "many", "correct": 0.5}])
    assert batch.table.column("tokens").to_pylist() == [107, None]
    assert batch.table.column("correct").to_pylist() == [True, None]
    assert sum("left empty there" in remark for remark in remarks) == 2


def test_a_column_without_a_name_is_no_problem(tmp_path: Path) -> None:
    rows = [{"step": 1, "prompt": "p", "completion": "c"}, {"step": 2, "prompt": "p", "completion": "c", "": 1}]
    records = list(IMPORTER.read(jsonl(tmp_path / "rollouts.jsonl", rows), "JSONL rollouts"))
    check_records(records)
    (batch,) = (record for record in records if isinstance(record, RolloutBatch))
    assert batch.table.column("problem").to_pylist() == [problem_id("p")] * 2


def test_long_figures_at_repeated_steps_are_no_completions(tmp_path: Path) -> None:
    table = [{"step": n // 4, "mean_reward": f"0.0578258928571428{n}", "loss": f"-0.{n:020}"} for n in range(40)]
    run = Run.open(import_files([as_csv(tmp_path / "run.csv", table)], tmp_path / "run").folder)
    assert run.series("reward").steps.tolist() == list(range(10))
    assert run.series("reward").values[-1] == float("0.057825892857142839")
