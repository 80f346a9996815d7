"""The catalogue of importers is complete, documented and asked in order."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from breadth.base.errors import UnknownFormatError, UnsafeFileError
from breadth.runs.importer import (
    IMPORTERS,
    MAX_SNIFFED_BYTES,
    PICKLES,
    all_importers,
    first_objects,
    leading_keys,
    read_long_head,
    recognise,
)
from breadth.runs.jsonl import HEAD_BYTES


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


def test_first_objects_pass_over_what_is_none() -> None:
    start = b'\xef\xbb\xbf{"a": 1}\r\nnoise\n[1]\n{"b": NaN}\n{"half": '
    first, second = first_objects(start)
    assert first == {"a": 1}
    assert math.isnan(second["b"])


def test_first_objects_stop_at_the_number_asked_for() -> None:
    assert first_objects(b'{"a": 1}\n{"a": 2}\n{"a": 3}\n', limit=2) == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize(
    ("start", "keys"),
    [
        (b'{"a": {"inner": 1}, "b": ["x", {"y": 2}], "c": "', {"a", "b", "c"}),
        (b'\xef\xbb\xbf {"a":1,"b":"quote \\" and : {"', {"a", "b"}),
        (b'{"text": "never ends, \\"key\\": 1 {', {"text"}),
        (b'{"a": 1}\n{"b": 2}', {"a"}),
        (b'["a", {"b": 1}]', set()),
        (b"a,b,c", set()),
        (b"", set()),
    ],
)
def test_leading_keys(start: bytes, keys: set[str]) -> None:
    assert leading_keys(start) == keys


def test_a_long_string_full_of_quotes_is_scanned_once() -> None:
    # 64 KB of escaped quotes without an end: a scanner that starts again at each would take minutes.
    assert leading_keys(b'{"completion": "' + b'\\"' * 32_000) == {"completion"}


@settings(max_examples=40)
@given(
    st.dictionaries(
        st.text(max_size=5),
        st.recursive(st.none() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=3)),
        max_size=4,
    )
)
def test_leading_keys_are_the_keys(row: dict[str, object]) -> None:
    # Escapes in keys are left as they are written: no importer looks for a key that has one.
    plain = {key for key in row if json.dumps(key, ensure_ascii=False) == f'"{key}"'}
    assert leading_keys(json.dumps(row, ensure_ascii=False).encode("utf-8", errors="replace")) >= plain


@settings(max_examples=60)
@given(st.binary(max_size=80))
def test_nothing_raises(start: bytes) -> None:
    assert isinstance(leading_keys(start), frozenset)
    assert all(isinstance(row, dict) for row in first_objects(start))


def test_far_start_reads_on_only_in_long_text(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_bytes(b"x" * (MAX_SNIFFED_BYTES + 10))
    assert read_long_head(log, b"x" * HEAD_BYTES) == b"x" * MAX_SNIFFED_BYTES
    assert read_long_head(log, b"short") == b"short"
    assert read_long_head(log, b"\0" * HEAD_BYTES) == b"\0" * HEAD_BYTES
    assert len(read_long_head(log, b"x" * 5000 + b"\0" * (HEAD_BYTES - 5000))) == MAX_SNIFFED_BYTES
    assert read_long_head(tmp_path / "absent.log", b"y" * HEAD_BYTES) == b"y" * HEAD_BYTES
