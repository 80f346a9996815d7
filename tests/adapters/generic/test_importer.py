"""The generic importer as a whole: the contract, mappings, real files, bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from breadth.adapters.generic.importer import IMPORTER, GenericImporter
from breadth.base.errors import BreadthError, BrokenFileError, SettingsError, UnknownFormatError
from breadth.runs.importer import all_importers, recognise
from breadth.runs.importing import import_files
from breadth.runs.reader import Run
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
        "JSONL rollouts": jsonl(folder / "votes.jsonl", VOTES),
        "CSV metrics": as_csv(folder / "log.csv", METRICS),
        "CSV rollouts": as_csv(folder / "votes.csv", VOTES, ";"),
        "JSON metrics": as_json(folder / "log.json", METRICS),
        "JSON rollouts": as_json(folder / "votes.json", VOTES),
        "Parquet metrics": parquet(folder / "log.parquet", METRICS),
        "Parquet rollouts": parquet(folder / "votes.parquet", VOTES),
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
        "openai_gsm_4models": (5276, 1319, 0.3793, 0.6725),
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
    check_records(IMPORTER.read(path, "JSONL rollouts"))
    if column == "model" and depth < 5000:  # deeper rows cannot even be parsed
        with pytest.raises(UnknownFormatError, match="several runs"):
            check_records(IMPORTER.read(path, "JSONL metrics"))
    else:
        check_records(IMPORTER.read(path, "JSONL metrics"))


def test_a_hundred_megabytes_in_one_cell(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    with path.open("wb") as file:
        file.write(b"step,reward\n1,0.5\n2," + b"9" * (100 << 20) + b"\n3,0.75\n")
    import_files([path], tmp_path / "run")
    run = Run.open(tmp_path / "run")
    assert run.series("reward").steps.tolist() == [1, 3]
    assert any("105 MB" in remark.problem for remark in run.header.remarks)


KINDS = [f"{form} {content}" for form in ("JSONL", "JSON", "CSV", "Parquet") for content in ("metrics", "rollouts")]


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
