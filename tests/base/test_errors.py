"""Every error says what is wrong, where, and what to do."""

from __future__ import annotations

import inspect
import pickle

import pytest

from breadth.base import errors
from breadth.base.errors import BreadthError, BrokenFileError, MeasureError, MissingExtraError

CLASSES = [thing for _, thing in inspect.getmembers(errors, inspect.isclass) if thing.__module__ == errors.__name__]


@pytest.mark.parametrize("cls", CLASSES)
def test_the_tree_drawn_at_the_top_is_the_tree(cls: type) -> None:
    assert issubclass(cls, BreadthError)
    assert f"{cls.__name__} " in str(errors.__doc__)


def test_a_file_error_names_file_row_and_remedy() -> None:
    error = BrokenFileError("a/b.jsonl", "is not JSON.", "Delete the line.", row=7)
    assert str(error) == "a/b.jsonl, row 7: is not JSON.\n  -> Delete the line."
    assert (error.row, error.path.name) == (7, "b.jsonl")


def test_ours_are_also_what_python_programmers_catch() -> None:
    assert issubclass(MeasureError, ValueError)
    assert issubclass(MissingExtraError, ImportError)
    assert 'pip install "breadth[math]"' in str(MissingExtraError("Symbolic equivalence", "math"))


@pytest.mark.parametrize(
    "error", [BrokenFileError("x", "p", "r", row=3), MissingExtraError("Job", "math"), MeasureError("p", "r")]
)
def test_errors_cross_process_boundaries(error: BreadthError) -> None:
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
