"""Schema: column types, comparable entropies, records, and the header file."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from breadth.base import settings
from breadth.base.errors import BrokenFileError
from breadth.runs import schema
from breadth.runs.schema import (
    PROBLEM_COLUMNS,
    ROLLOUT_COLUMNS,
    EntropyKind,
    Header,
    MetricNames,
    Remark,
    column_type,
    read_header,
    to_toml_value,
    write_header,
)

EXACT = EntropyKind("exact", 1.0, "token-mean", "response")


def test_only_like_is_compared_with_like() -> None:
    assert EXACT.is_comparable(EntropyKind("exact", 1.0, "token-mean", "response"))
    assert not EXACT.is_comparable(EntropyKind("exact", 0.7, "token-mean", "response"))
    assert not EXACT.is_comparable(EntropyKind("exact", 1.0, "loss-mode", "response"))
    assert not EXACT.is_comparable(EntropyKind("sampled", 1.0, "token-mean", "response"))
    assert not EntropyKind().is_comparable(EntropyKind())


def test_every_column_says_what_it_means() -> None:
    for column in (*ROLLOUT_COLUMNS, *PROBLEM_COLUMNS):
        assert column.meaning.endswith(".")


def test_reward_components_are_numbers_and_unknown_columns_are_none() -> None:
    assert column_type("reward/format") == pa.float64()
    assert column_type("entropy") == pa.list_(pa.float32())
    assert column_type("colour") is None


def test_a_remark_keeps_file_row_and_remedy() -> None:
    remark = Remark.from_error(BrokenFileError("a/b.jsonl", "is cut: badly.", "Copy it.", row=4))
    assert remark == Remark("is cut: badly.", "a/b.jsonl", 4, "Copy it.")


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


def test_a_full_header_comes_back_equal(tmp_path: Path) -> None:
    header = Header(
        name="a",
        created="2026-01-01T00:00:00+00:00",
        trainer="trl",
        files=("x", "y"),
        names={"entropy": "actor/entropy"},
        entropies={"entropy": EntropyKind("exact", 1.0, "token-mean", "response")},
        reward_levels=(0.0, 1.0),
        config={"lr": 1e-6, "nested": {"on": True, "list": [1, 2]}},
        remarks=(Remark("odd", "x", 3, "do"),),
        remarks_left_out=4,
    )
    write_header(header, tmp_path)
    assert read_header(tmp_path) == header


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), VALUES, max_size=4))
def test_any_configuration_can_be_stored(config: dict[str, object]) -> None:
    header = Header(config=to_toml_value(config))
    assert settings.loads(Header, settings.dumps(header)) == header


def test_a_damaged_header_is_named(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text("schema = [")
    with pytest.raises(BrokenFileError, match=r"run\.toml"):
        read_header(tmp_path)


def test_a_name_is_in_memory_once() -> None:
    names = MetricNames()
    rows = [{"a" * length: 1.0 for length in (2, 3)} for _ in range(3)]
    kept = [names.keep_known(row) for row in rows]
    assert kept == rows
    assert len({id(name) for row in kept for name in row}) == 2


def test_metrics_over_the_limit_are_left_out_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "MAX_METRICS", 2)
    names = MetricNames()
    rows = [{"a": 1.0}, {"a": 2.0, "b": 3.0, "c": 4.0}, {"c": 5.0, "a": 6.0}]
    assert [names.keep_known(row) for row in rows] == [{"a": 1.0}, {"a": 2.0, "b": 3.0}, {"a": 6.0}]
    (remark,) = names.remarks("f")
    assert "2 values of further ones" in remark.problem
    assert MetricNames().remarks("f") == []
