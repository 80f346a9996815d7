"""The model file: known by its hash, refused when it is none, unpacked once, and ending its replies with the line."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from breadth.base.errors import BreadthError, BrokenFileError, MissingExtraError, SettingsError, WriteError
from breadth.lab.rung import model as module
from breadth.lab.rung.model import Policy, check_libraries, fingerprint, load, save, unpack


def test_the_fingerprint_of_a_file_is_its_hash(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF and more")
    assert fingerprint(file) == hashlib.sha256(b"GGUF and more").hexdigest()


def test_the_fingerprint_of_a_folder_is_of_all_its_files(base: Path, tmp_path: Path) -> None:
    copied = tmp_path / "copy"
    copied.mkdir()
    for path in base.iterdir():
        (copied / path.name).write_bytes(path.read_bytes())
    assert fingerprint(copied) == fingerprint(base)
    (copied / "config.json").write_bytes((base / "config.json").read_bytes() + b"\n")
    assert fingerprint(copied) != fingerprint(base)


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"<html>")
    for place in (file, tmp_path / "missing.gguf", tmp_path):
        with pytest.raises(BrokenFileError):
            fingerprint(place)


@pytest.mark.parametrize(
    ("missing", "error", "words"),
    [("trl", MissingExtraError, r"breadth\[train\]"), ("gguf", SettingsError, "pip install .gguf")],
)
def test_missing_libraries_are_named(
    missing: str, error: type[BreadthError], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None if name == missing else object())
    with pytest.raises(error, match=words):
        check_libraries(Path("model.gguf"))


def test_a_folder_needs_no_gguf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None if name == "gguf" else object())
    check_libraries(tmp_path)


def test_a_reply_ends_with_its_line(policy: Policy) -> None:
    end = policy.tokenizer("\n")["input_ids"]
    assert [policy.end] == end
    assert policy.model.generation_config.eos_token_id == policy.end
    assert policy.tokenizer.pad_token_id == policy.model.config.pad_token_id != policy.end
    ids = policy.tokenizer("85+25=110\n")["input_ids"]
    assert policy.said(ids) == policy.said(ids[:-1]) == "85+25=110"


def test_unpacked_once_and_the_same_again(base: Path, policy: Policy, tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "model"
    unpack(base, folder)
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    unpack(base, folder)
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before
    again = load(folder)
    assert again.end == policy.end
    assert again.tokenizer("12 + 3 =\n")["input_ids"] == policy.tokenizer("12 + 3 =\n")["input_ids"]
    weights = dict(policy.model.named_parameters())
    assert all(bool((weight == weights[name]).all()) for name, weight in again.model.named_parameters())


def test_nothing_is_written_over(policy: Policy, tmp_path: Path) -> None:
    with pytest.raises(WriteError, match="there already"):
        save(policy, tmp_path)
