"""An error about one file becomes a remark on the rest of the run."""

from __future__ import annotations

from breadth.base.errors import BrokenFileError
from breadth.runs.records import Remark


def test_a_remark_keeps_file_row_and_remedy() -> None:
    remark = Remark.of(BrokenFileError("a/b.jsonl", "is cut: badly.", "Copy it.", row=4))
    assert remark == Remark("is cut: badly.", "a/b.jsonl", 4, "Copy it.")
