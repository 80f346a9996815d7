"""Settings round-trip through TOML, and a wrong one is answered with what to write instead."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from breadth.base.catalogue import Catalogue
from breadth.base.errors import BrokenFileError, SettingsError
from breadth.base.settings import dump, dumps, from_table, from_toml, load, loads, to_table


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Rule:
    catalogue: ClassVar[Catalogue] = Catalogue("rules", {"lead": f"{__name__}:Lead", "share": f"{__name__}:Share"})


@dataclass(frozen=True)
class Lead(Rule):
    votes: int = 3


@dataclass(frozen=True)
class Share(Rule):
    at_least: float = 0.8


@dataclass(frozen=True)
class Inner:
    rate: float
    label: str = "x"


@dataclass(frozen=True)
class Outer:
    inner: Inner
    mode: Literal["fast", "slow"] = "fast"
    colour: Colour = Colour.RED
    sizes: tuple[int, ...] = (1, 2)
    pair: tuple[int, float] = (1, 2.0)
    limits: dict[str, float] = field(default_factory=dict)
    note: str | None = None
    folder: Path = Path()
    rules: tuple[Rule, ...] = ()


def test_nested_settings_come_back_equal() -> None:
    outer = Outer(Inner(0.5, "y"), "slow", Colour.BLUE, (3,), (4, 5.5), {"a": 1.0}, "n", Path("p/q"))
    assert loads(Outer, dumps(outer)) == outer


def test_none_is_left_out_and_comes_back() -> None:
    assert "note" not in to_table(Outer(Inner(1.0)))
    assert loads(Outer, dumps(Outer(Inner(1.0)))).note is None


def test_a_family_names_its_member(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, __name__, sys.modules[Lead.__module__])
    outer = Outer(Inner(1.0), rules=(Lead(5), Share(0.9)))
    assert to_table(outer)["rules"] == [{"kind": "lead", "votes": 5}, {"kind": "share", "at_least": 0.9}]
    assert loads(Outer, dumps(outer)) == outer
    with pytest.raises(SettingsError, match="no 'kind'"):
        from_table(Rule, {"votes": 3})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[inner]\nrate = 1.0\nlabl = 'z'", "Did you mean 'label'"),
        ("[inner]\nlabel = 'z'", "'rate' is missing"),
        ("mode = 'fastt'\n[inner]\nrate = 1.0", "Did you mean 'fast'"),
        ("colour = 'green'\n[inner]\nrate = 1.0", "blue, red"),
        ("[inner]\nrate = 'high'", "got 'high', need float"),
        ("[inner]\nrate = true", "got True, need float"),
        (f"[inner]\nrate = {10**400}", "In inner.rate: a whole number has more than 64 bits"),
        (f"limits = {{a = 0x{'9' * 5_000}}}\n[inner]\nrate = 1.0", "In limits.a: a whole number has more than 64"),
        ("sizes = 3\n[inner]\nrate = 1.0", "need a list"),
        ("pair = [1]\n[inner]\nrate = 1.0", "got 1 values, need 2"),
        ("limits = 3\n[inner]\nrate = 1.0", "need a table"),
        ("inner = 3", "need a table of settings"),
        ("inner = ", "not TOML"),
    ],
)
def test_a_wrong_setting_is_answered_with_what_to_write(text: str, says: str) -> None:
    with pytest.raises(SettingsError, match=says.replace("[", "\\[")):
        loads(Outer, text)


def test_the_message_says_where() -> None:
    with pytest.raises(SettingsError, match=r"In inner\.rate"):
        from_table(Outer, {"inner": {"rate": []}})


def test_a_whole_number_is_a_float_but_not_the_reverse() -> None:
    assert loads(Inner, "rate = 1").rate == 1.0
    with pytest.raises(SettingsError):
        loads(Lead, "votes = 1.5")


def test_files_round_trip_and_a_broken_one_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    dump(Inner(2.0), path)
    assert load(Inner, path) == Inner(2.0)
    path.write_text("rate = 'x'")
    with pytest.raises(BrokenFileError, match=r"a\.toml"):
        load(Inner, path)
    path.write_bytes(b"rate = \xff")
    with pytest.raises(BrokenFileError, match="UTF-8"):
        load(Inner, path)


@given(st.floats(allow_nan=False), st.text(st.characters(exclude_categories=["Cs"])))
def test_any_number_and_any_text_survive(rate: float, label: str) -> None:
    assert loads(Inner, dumps(Inner(rate, label))) == Inner(rate, label)


def test_half_a_character_is_written_as_a_question_mark(tmp_path: Path) -> None:
    dump(Inner(1.0, "log-\udcff.json"), tmp_path / "a.toml")  # what Python makes of a file's name that is not UTF-8
    assert load(Inner, tmp_path / "a.toml") == Inner(1.0, "log-?.json")


def test_a_member_that_no_catalogue_lists_is_read_by_its_class() -> None:
    @dataclass(frozen=True)
    class Mine(Rule):
        votes: int = 2

    assert loads(Mine, dumps(Mine(7))) == Mine(7)


def test_a_file_that_is_not_there_is_an_error_of_ours(tmp_path: Path) -> None:
    with pytest.raises(BrokenFileError, match="No such file"):
        load(Inner, tmp_path / "missing.toml")


@pytest.mark.parametrize("text", ["a = " + "9" * 5000, "a = " + "[" * 100_000, "a ="])
def test_text_that_is_no_toml_is_an_error_of_ours(text: str) -> None:
    with pytest.raises(SettingsError, match=r"not TOML|nested too deeply"):
        loads(Inner, text)


def test_a_table_that_is_nested_too_deeply_is_an_error_of_ours() -> None:
    with pytest.raises(SettingsError, match="nested too deeply"):
        from_toml("[config]\n", recurse)


@pytest.mark.parametrize(
    "text",
    [
        ".".join(["a"] * 100_000) + "=1",
        "x = {" + ".".join(["a"] * 100_000) + "=1}",
        "[" + ".".join(["a"] * 3000) + "]\n" + (".".join(["b"] * 3000) + "=1\n") * 3,
    ],
)
def test_keys_of_very_many_parts_are_refused_at_once(text: str) -> None:
    with pytest.raises(SettingsError, match="nested too deeply"):
        from_toml(text, dict)


def test_texts_with_many_dots_are_no_keys() -> None:
    text = 'prompt = "' + "so on... " * 5000 + '"\n' + "".join(f'f{n} = "/a.b/c{n}.jsonl"\n' for n in range(5000))
    assert len(from_toml(text + "files = [\n" + '  "/a.b/c.jsonl",\n' * 5000 + "]\n", dict)) == 5002


def test_a_settings_file_without_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(BrokenFileError, match="more than 16,777,216 characters"):
        load(Inner, path)


def recurse(table: object) -> object:
    return recurse(table)
