"""A reasoner is saved and loaded unchanged, or refused with the file to blame; nothing half-made is left."""

from __future__ import annotations

import errno
import hashlib
import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from breadth.base.errors import BrokenFileError, MissingExtraError, SettingsError, WriteError
from breadth.lab.model.reasoner import (
    CHECKSUMS_FILE,
    REQUIRED_FILES,
    TEACHER_FILE,
    Reasoner,
    ReasonerShape,
    build_reasoner,
    check_files,
    load_reasoner,
    save_reasoner,
)
from breadth.lab.task.teacher import ArithmeticFacts, Teacher

torch = pytest.importorskip("torch", reason="the extra 'train' is not installed")
pytest.importorskip("transformers", reason="the extra 'train' is not installed")

TEACHER = Teacher(
    ArithmeticFacts(prime=7, shaky=0.5, right=0.125, believed=0.5, seed=9),
    attempts=2,
    content=0.75,
    careless=0.25,
    cut=0.125,
)
TINY = ReasonerShape(hidden=32, layers=1, heads=2, inner=32, context=64)


@pytest.fixture(scope="module")
def reasoner() -> Reasoner:
    return build_reasoner(TEACHER, TINY, seed=5)


@pytest.fixture(scope="module")
def stored(reasoner: Reasoner, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stored") / "deep" / "reasoner"
    save_reasoner(reasoner, folder)
    return folder


@pytest.fixture
def folder(stored: Path, tmp_path: Path) -> Path:
    """A copy to do harm to."""
    return Path(shutil.copytree(stored, tmp_path / "copy"))


def _logits(reasoner: Reasoner) -> Any:
    ids = reasoner.tokenizer("( 3 + 4 ) * ( 5 + 6 ) = <think> add", return_tensors="pt")["input_ids"]
    with torch.no_grad():
        return reasoner.model(input_ids=ids).logits


def test_what_is_saved_loads_the_same(reasoner: Reasoner, stored: Path) -> None:
    loaded = load_reasoner(stored)
    assert torch.equal(_logits(loaded), _logits(reasoner))
    assert loaded.teacher == TEACHER
    assert loaded.tokenizer.get_vocab() == reasoner.tokenizer.get_vocab()
    assert loaded.tokenizer.padding_side == "left"
    assert not loaded.model.training
    assert loaded.model.dtype == torch.float32


def test_the_shape_is_as_asked(reasoner: Reasoner) -> None:
    # Embedding (tied) 30 words x 32; a block: attention 4 x 32 x 32, feed-forward 3 x 32 x 32, two norms of 32; the
    # last norm 32.
    assert sum(weights.numel() for weights in reasoner.model.parameters()) == 30 * 32 + 7 * 32 * 32 + 3 * 32
    assert reasoner.model.config.eos_token_id == reasoner.tokenizer.eos_token_id
    assert reasoner.model.config.pad_token_id == 0


def test_every_file_is_hashed_and_readable_alike(stored: Path) -> None:
    sums = json.loads((stored / CHECKSUMS_FILE).read_text())
    assert set(sums) == {path.name for path in stored.iterdir()} - {CHECKSUMS_FILE}
    assert set(REQUIRED_FILES) <= set(sums)
    assert len({path.stat().st_mode for path in stored.iterdir()}) == 1
    assert [path.name for path in stored.parent.iterdir()] == [stored.name]


def test_a_changed_byte_in_any_file_is_noticed(folder: Path) -> None:
    for path in [path for path in folder.iterdir() if path.name != CHECKSUMS_FILE]:
        whole = path.read_bytes()
        middle = len(whole) // 2
        for harmed in (whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :], whole[:-1], b""):
            path.write_bytes(harmed)
            with pytest.raises(BrokenFileError, match="does not match its checksum") as caught:
                check_files(folder)
            assert caught.value.path == path
        path.write_bytes(whole)
    check_files(folder)


def test_a_missing_file_is_named(folder: Path) -> None:
    for path in list(folder.iterdir()):
        whole = path.read_bytes()
        path.unlink()
        with pytest.raises(BrokenFileError, match="cannot be read: No such file") as caught:
            check_files(folder)
        assert caught.value.path == path
        path.write_bytes(whole)
    check_files(folder)


@pytest.mark.parametrize(
    "nonsense",
    [
        b"",
        b"hm",
        b"[]",
        b"null",
        b"3",
        b"\xff\xfe",
        b"[" * 100_000,
        b"{}",
        b'{"config.json": "ab"}',
        b'{"../config.json": "ab"}',
    ],
)
def test_checksums_of_nonsense_are_refused(folder: Path, nonsense: bytes) -> None:
    (folder / CHECKSUMS_FILE).write_bytes(nonsense)
    with pytest.raises(BrokenFileError, match="checksum") as caught:
        check_files(folder)
    assert caught.value.path == folder / CHECKSUMS_FILE


@pytest.mark.parametrize("value", [None, 3, ["a"], "ab"])
def test_a_checksum_that_is_none_matches_nothing(folder: Path, value: Any) -> None:
    sums = json.loads((folder / CHECKSUMS_FILE).read_text())
    (folder / CHECKSUMS_FILE).write_text(json.dumps({**sums, TEACHER_FILE: value}))
    with pytest.raises(BrokenFileError, match="does not match") as caught:
        check_files(folder)
    assert caught.value.path == folder / TEACHER_FILE


def test_loading_checks_first(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"cut")
    with pytest.raises(BrokenFileError, match=r"model\.safetensors: does not match"):
        load_reasoner(folder)
    with pytest.raises(BrokenFileError, match="cannot be read"):
        load_reasoner(folder / "nowhere")


def test_a_teacher_of_another_version_is_refused_by_name(reasoner: Reasoner, folder: Path) -> None:
    (folder / TEACHER_FILE).write_text("primes = 7\n")
    sums = json.loads((folder / CHECKSUMS_FILE).read_text())
    (folder / CHECKSUMS_FILE).write_text(
        json.dumps({**sums, TEACHER_FILE: hashlib.sha256(b"primes = 7\n").hexdigest()})
    )
    with pytest.raises(BrokenFileError, match="there is no setting 'primes'") as caught:
        load_reasoner(folder)
    assert caught.value.path == folder / TEACHER_FILE


def test_what_is_there_is_not_overwritten(reasoner: Reasoner, tmp_path: Path) -> None:
    for there in (tmp_path / "folder", tmp_path / "file"):
        there.mkdir() if there.name == "folder" else there.write_text("mine")
        with pytest.raises(WriteError, match="exists already"):
            save_reasoner(reasoner, there)
    assert list((tmp_path / "folder").iterdir()) == []
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize(
    ("failure", "raised"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), WriteError),
        (RuntimeError("hm"), RuntimeError),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ],
)
def test_nothing_is_left_when_saving_fails(
    reasoner: Reasoner,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    failure: BaseException,
    raised: type[BaseException],
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise failure

    monkeypatch.setattr(type(reasoner.tokenizer), "save_pretrained", fail)
    with pytest.raises(raised):
        save_reasoner(reasoner, tmp_path / "reasoner")
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_said(reasoner: Reasoner, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(WriteError, match="could not be written"):
        save_reasoner(reasoner, tmp_path / "file" / "reasoner")


def test_weights_depend_on_the_seed_and_nothing_else(reasoner: Reasoner) -> None:
    torch.manual_seed(77)
    before = torch.random.get_rng_state()
    again, other = build_reasoner(TEACHER, TINY, seed=5), build_reasoner(TEACHER, TINY, seed=6)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(_logits(again), _logits(reasoner))
    assert not torch.equal(_logits(other), _logits(reasoner))
    doubting = replace(TEACHER, content=0.5)
    assert torch.equal(_logits(build_reasoner(doubting, TINY, seed=5)), _logits(reasoner))


@pytest.mark.parametrize(
    "wrong", [{"hidden": 0}, {"layers": 0}, {"heads": 0}, {"inner": -1}, {"context": 0}, {"hidden": 30}, {"heads": 3}]
)
def test_shapes_of_nonsense_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(SettingsError, match=r"Shape got (hidden|layers|heads|inner|context) = "):
        ReasonerShape(**{"hidden": 32, "layers": 1, "heads": 2, "inner": 32, "context": 64, **wrong})


def test_without_the_libraries_it_says_what_to_install(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingExtraError, match="extra 'train'"):
        build_reasoner(TEACHER, TINY)
    with pytest.raises(MissingExtraError, match="extra 'train'"):
        load_reasoner(stored)
