"""Tables that are no run are refused with the reason."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from breadth.adapters.generic.files import FILES
from breadth.adapters.generic.several import MOST, RUNS, Several, refuse_summaries, stacked
from breadth.base.errors import UnknownFormatError
from breadth.runs.records import MetricRow


def test_one_run_passes_and_a_second_is_refused() -> None:
    several = Several(["Run", "step"], RUNS, Path("table.csv"))
    several.add([{"Run": "a", "step": 1}, {"Run": None, "step": 2}, {"step": 3}])
    several.refuse_several()
    assert several.found == ""
    several.add([{"Run": "b"}])
    with pytest.raises(UnknownFormatError, match=r"rows of several runs \('Run': a, b"):
        several.refuse_several()


def test_columns_of_another_kind_are_not_looked_at() -> None:
    several = Several(["seed"], RUNS, Path("table.csv"))
    several.add([{"seed": 1}, {"seed": 2}])
    assert several.found == ""


def test_summaries_are_refused() -> None:
    refuse_summaries(["question_id", "answer"], Path("votes.csv"))
    with pytest.raises(UnknownFormatError, match="one row for many samples"):
        refuse_summaries(["question_id", "Num_Votes"], Path("votes.csv"))


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_the_runs_of_a_table_can_be_read_one_by_one(tmp_path: Path, form: str) -> None:
    rows = [{"step": step // 2, "run": "ab"[step % 2], "entropy": step / 10} for step in range(8)]
    path = tmp_path / f"both.{form}"
    lines = (
        [json.dumps(row) for row in rows] if form == "jsonl" else ["step,run,entropy", *(",".join(map(str, row.values())) for row in rows)]
    )
    path.write_text("\n".join(lines) + "\n")
    kind = FILES.recognises(path, path.read_bytes())
    assert kind is not None
    with pytest.raises(UnknownFormatError, match="several runs"):
        list(FILES.read(path, kind))
    apart = FILES.apart(path, kind)
    assert list(apart) == ["a", "b"]
    found = [record.values["entropy"] for record in apart["b"].read(path, kind) if isinstance(record, MetricRow)]
    assert found == [0.1, 0.3, 0.5, 0.7]


def test_one_run_and_too_many_are_not_read_apart() -> None:
    assert stacked([[(1, {"run": "a"}), (2, {"run": "a"})]])[1] == []
    assert stacked([[(row, {"run": row}) for row in range(MOST + 1)]])[1] == []
    assert stacked([[(row, {"run": row}) for row in range(MOST)]])[1] == [str(row) for row in range(MOST)]
    assert stacked([[(1, {"step": 1})]]) == ("", [])
