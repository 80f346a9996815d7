"""The catalogue of importers is complete, documented and asked in order."""

from __future__ import annotations

from pathlib import Path

import pytest

from breadth.base.errors import UnsafeFileError
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
