"""Every error says what is wrong, where, and what to do."""

from __future__ import annotations

import inspect
import pickle
from dataclasses import dataclass

import pytest

from breadth.base import errors
from breadth.base.errors import (
    BreadthError,
    BrokenFileError,
    MeasureError,
    MissingExtraError,
    SettingsError,
    nearest_name,
    require,
    suggestion,
)

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


@dataclass(frozen=True)
class Cup:
    size: float = 0.2


def test_what_holds_passes() -> None:
    require(Cup(), "size", True, "a number above 0")


def test_what_does_not_is_named() -> None:
    with pytest.raises(SettingsError) as caught:
        require(Cup(-1.5), "size", False, "a number above 0")
    assert caught.value.problem == "Cup got size = -1.5; it needs a number above 0."
    assert caught.value.remedy == "Set size to a number above 0."


def test_nearest_ignores_case_and_small_slips() -> None:
    assert nearest_name("Entropi", ["entropy", "reward"]) == "entropy"
    assert nearest_name("zzz", ["entropy", "reward"]) is None


def test_suggestion_always_lists_what_there_is() -> None:
    assert (
        suggestion("rewrd", ["entropy", "reward"], "metrics")
        == "Did you mean 'reward'? The metrics are: entropy, reward."
    )
    assert suggestion("zzz", ["b", "a"], "metrics") == "Use one of the metrics: a, b."
    assert "none are registered" in suggestion("x", [], "metrics")
