"""Tests of reading saved training arguments."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from breadth.adapters.trl.arguments import SAVED, read_arguments, refuse_pickle, reward_weights
from breadth.base.errors import BrokenFileError, UnsafeFileError
from breadth.runs.records import SeenSettings


def test_saved_arguments_are_settings(tmp_path: Path) -> None:
    path = tmp_path / SAVED
    path.write_text(json.dumps({"temperature": 0.9, "num_generations": 8, "output_dir": "out"}))
    assert list(read_arguments(path)) == [SeenSettings({"temperature": 0.9, "num_generations": 8, "output_dir": "out"})]


@pytest.mark.parametrize(
    ("text", "problem"), [("{", "is not JSON"), ("[1]", "holds no settings"), ('{"a":' * 200 + "1" + "}" * 200, "holds no settings")]
)
def test_broken_arguments_are_refused(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / SAVED).write_text(text)
    with pytest.raises(BrokenFileError, match=problem):
        list(read_arguments(tmp_path / SAVED))


def test_the_pickle_is_refused_with_the_safe_way_named() -> None:
    with pytest.raises(UnsafeFileError) as caught:
        list(refuse_pickle(Path("training_args.bin")))
    assert "args.to_json_string()" in caught.value.remedy


@pytest.mark.parametrize(
    ("document", "weights"),
    [('{"reward_weights": [1, 0.5]}', [1, 0.5]), ('{"reward_weights": null}', None), ('{"reward_weights": ["a"]}', None), ("{", None)],
)
def test_weights_are_read_where_they_are_numbers(tmp_path: Path, document: str, weights: list[float] | None) -> None:
    (tmp_path / SAVED).write_text(document)
    assert reward_weights(tmp_path) == weights
    assert reward_weights(tmp_path / "absent") is None
