"""run.toml holds any trainer's configuration and comes back equal."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from breadth.base import settings
from breadth.base.errors import BrokenFileError
from breadth.runs.header import Header, read_header, storable, write_header
from breadth.runs.records import Remark
from breadth.runs.schema import EntropyKind

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), inner, max_size=3)
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
    header = Header(config=storable(config))
    assert settings.loads(Header, settings.dumps(header)) == header


def test_a_damaged_header_is_named(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text("schema = [")
    with pytest.raises(BrokenFileError, match=r"run\.toml"):
        read_header(tmp_path)
