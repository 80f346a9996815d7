"""The catalogue of importers is complete, documented and asked in order."""

from __future__ import annotations

from pathlib import Path

import pytest

from breadth.base.errors import UnknownFormatError, UnsafeFileError
from breadth.runs.importer import IMPORTERS, PICKLES, all_importers, recognise


@pytest.mark.parametrize("name", IMPORTERS.names())
def test_every_importer_is_documented_and_says_what_to_switch_on(name: str) -> None:
    importer = IMPORTERS.load(name)
    assert importer.trainer == name
    assert type(importer).__doc__
    assert all(setting.strip() for setting in importer.switches.values())


@pytest.mark.parametrize("suffix", PICKLES)
def test_pickles_are_refused_by_name_and_by_content(tmp_path: Path, suffix: str) -> None:
    for path, content in ((tmp_path / f"a{suffix}", b"{}"), (tmp_path / "a.jsonl", b"\x80\x04\x95")):
        path.write_bytes(content)
        with pytest.raises(UnsafeFileError, match="run whatever code"):
            recognise(path, all_importers())


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"\x1f\x8b\x08\x00", "gunzip"),
        (b"PK\x03\x04\x14", "unzip"),
        (b"\x00" * 100, "nothing but zeros"),
        (b"hello", "starts with 'hello'"),
    ],
)
def test_what_nobody_reads_is_described_by_how_it_starts(content: bytes, says: str, tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_bytes(content)
    with pytest.raises(UnknownFormatError, match=says):
        recognise(tmp_path / "log.jsonl", all_importers())
