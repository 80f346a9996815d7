"""Configurations are read as data: a value, not known, or a clear error; never a hang, never code."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from breadth.adapters.configs import (
    DUPLICATE_KEYS,
    MAX_CONFIG_BYTES,
    MAX_YAML_NODES,
    Computed,
    Settings,
    check_evaluation,
    count_updates,
    duplicate_conflicts,
    find_unread_settings,
    flatten_table,
    is_expression,
    load_yaml,
    read_table,
    read_text,
    render_setting,
    render_yaml,
    resolve_references,
    shallowest_leaves,
)
from breadth.base.errors import BrokenFileError


def file(folder: Path, text: str | bytes, name: str = "config.yaml") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_byte_order_mark_is_no_part_of_the_first_name(tmp_path: Path) -> None:
    assert read_table(file(tmp_path, "\ufeffbeta: 0.04\n")) == {"beta": 0.04}


def test_hydra_agrees(tmp_path: Path) -> None:
    omegaconf = pytest.importorskip("omegaconf")
    for text in ("1e-6", "5e-06", "1E3", "1.0e6", "1.0e-6", "8", "0.2", "1e", "true", "null", "[1, 2]", "'1e-6'"):
        path = file(tmp_path, f"x: {text}\n")
        assert read_table(path, exponents=True) == omegaconf.OmegaConf.to_container(omegaconf.OmegaConf.load(path)), (
            text
        )


def test_json_is_read_as_json(tmp_path: Path) -> None:
    assert read_table(file(tmp_path, '{\n\t"a": 1e-6}', "config.json")) == {"a": 1e-6}  # a tab is an error in YAML
    with pytest.raises(BrokenFileError, match="is not JSON"):
        read_table(file(tmp_path, "{a: 1", "config.json"))


def test_a_file_of_100_mb_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "huge.yaml"
    with path.open("wb") as sparse:
        sparse.truncate(100_000_000)
    begun = time.process_time()
    with pytest.raises(BrokenFileError, match=f"is larger than {MAX_CONFIG_BYTES:,} bytes"):
        read_table(path)
    assert time.process_time() - begun < 1


def test_a_file_that_may_not_be_read_is_an_error_that_says_so(tmp_path: Path) -> None:
    with pytest.raises(BrokenFileError, match="cannot be read"):
        read_text(tmp_path / "absent.yaml")


BOMBS = {
    "tables": (
        "a0: &a0 {x: 1}\n"
        + "".join(f"a{i}: &a{i} {{{', '.join(f'k{j}: *a{i - 1}' for j in range(9))}}}\n" for i in range(1, 10))
    ),
    "lists": "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 10)),
    "merges": (
        "a0: &a0 {x: 1, y: 2}\n"
        + "".join(f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 3)}]}}\n" for i in range(1, 30))
    ),
    "itself": "a: &a {b: *a}",
    "deep": "[" * 50_000,
    "deep table": "{a: " * 20_000,
    "tag": "a: !!python/object/apply:os.system ['true']",
    "object": "a: !!python/object:object {}",
    "two documents": "a: 1\n---\nb: 2\n",
    "tab": "a:\n\t- 1",
    "control": "a: \x01",
}


@pytest.mark.parametrize("name", BOMBS)
def test_hostile_yaml_is_refused_in_time(tmp_path: Path, name: str) -> None:
    begun = time.process_time()
    with pytest.raises(BrokenFileError, match="is not YAML"):
        read_table(file(tmp_path, BOMBS[name]))
    assert time.process_time() - begun < 10


def test_anchors_that_are_used_decently_are_fine(tmp_path: Path) -> None:
    text = "base: &base {lr: 0.1, n: 2}\nmine: {<<: *base, n: 4}\nyours: *base\n"
    assert read_table(file(tmp_path, text)) == {
        "base": {"lr": 0.1, "n": 2},
        "mine": {"lr": 0.1, "n": 4},
        "yours": {"lr": 0.1, "n": 2},
    }


@settings(max_examples=60, deadline=None)
@given(some.binary(max_size=200))
def test_any_bytes_are_a_value_or_a_clear_error(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    for name in ("config.yaml", "config.json"):
        path = file(tmp_path_factory.mktemp("bytes"), raw, name)
        with suppress(BrokenFileError):
            read_table(path, exponents=True)


def test_leaves_by_path_and_what_a_file_computes() -> None:
    table = {"GRPOConfig": {"n": {"expr": "args.n"}, "kwargs": {"a": 1}, "empty": {}, "list": [{"x": 1}]}, 3: True}
    assert dict(flatten_table(table)) == {
        "GRPOConfig.n": Computed("args.n"),
        "GRPOConfig.kwargs.a": 1,
        "GRPOConfig.empty": {},
        "GRPOConfig.list": [{"x": 1}],
        "3": True,
    }
    assert list(flatten_table([1, 2])) == []
    itself: dict[str, Any] = {}
    itself["again"] = itself
    assert list(flatten_table(itself)) == []  # ends


def test_the_least_deep_of_a_name_counts_and_of_two_neither() -> None:
    table = {"beta": 0.1, "old": {"beta": 0.2, "lr": 1}, "new": {"lr": 2, "n": 8}, "other": {"n": 8}}
    assert shallowest_leaves(table) == {"beta": 0.1, "lr": Computed("1 or 2"), "n": 8}


def test_what_settings_borrow_from_one_another() -> None:
    own = {"a": "${b.c}", "b.c": "${d}", "d": 512, "x": "${x}", "y": "${unknown}", "z": "${mul:${d},2}", "s": "in ${d}"}
    assert resolve_references(own) == {**own, "a": 512, "b.c": 512}


class TestSettings:
    """A value by its type, else the default where nothing is set, else not known."""

    own: Settings = Settings(
        {
            "n": 8,
            "share": 0.5,
            "text": "1e-6",
            "flag": "True",
            "computed": Computed("f()"),
            "null": None,
            "half": 8.5,
            "one": 1,
            "nan": float("nan"),
        },
        {"n": 4, "missing": 3, "computed": 7, "null": 9, "word": "vanilla"},
    )

    def test_numbers(self) -> None:
        names = ("n", "share", "text", "missing", "computed", "null", "flag", "nan", "absent")
        assert [self.own.number(name) for name in names] == [8.0, 0.5, 1e-6, 3.0, None, None, None, None, None]
        assert [self.own.whole(name) for name in ("n", "half", "missing", "computed")] == [8, None, 3, None]

    def test_switches_and_words(self) -> None:
        assert [self.own.switch(name) for name in ("flag", "one", "n", "computed", "absent")] == [
            True,
            True,
            None,
            None,
            None,
        ]
        assert Settings({"a": False, "b": "false", "c": []}).switch("a") is False
        assert Settings({"b": "false"}).switch("b") is False
        assert Settings({"c": []}).switch("c") is None
        assert self.own.text("word") == "vanilla"
        assert Settings({"a": "${oc.env:X}"}).text("a") is None

    def test_known_to_be_off(self) -> None:
        read = Settings({"a": None, "b": "null", "c": "token", "d": Computed("$X")}, {"e": None})
        assert [read.is_off(name) for name in "abcdef"] == [True, True, False, False, True, False]

    def test_as_the_file_spells_them(self) -> None:
        assert self.own.describe("n", "missing", "text") == "n=8, text='1e-6'"


def test_a_number_that_cannot_be_printed_is_described() -> None:
    assert render_setting("beta", 1 << 20_000) == "beta=a number of thousands of digits"
    assert render_setting("beta", [1 << 20_000]) == "beta=a number of thousands of digits"


def test_what_is_shown_of_a_file_is_short_and_plain() -> None:
    assert render_setting("actor.loss", "vanilla") == "actor.loss=vanilla"
    assert render_setting("loss_type", "grpo") == "loss_type='grpo'"
    assert render_setting("n", Computed("args.n")) == "n=args.n"
    assert "\x1b" not in render_setting("a.b", "\x1b[31mred\n" * 50)
    assert len(render_setting("a", "x" * 5000)) == 100


@pytest.mark.parametrize(
    ("text", "plain", "hydra"),
    [
        ("1e-6", "1e-6", 1e-6),
        ("5e-06", "5e-06", 5e-6),
        ("1E3", "1E3", 1000.0),
        ("1.0e6", "1.0e6", 1e6),  # PyYAML wants a sign in the exponent too
        ("1.0e-6", 1e-6, 1e-6),
        (".5e-1", 0.05, 0.05),
        ("8", 8, 8),
        ("0.2", 0.2, 0.2),
        ("1e", "1e", "1e"),
        ("e5", "e5", "e5"),
    ],
)
def test_yaml_1_1_reads_an_exponent_without_dot_and_sign_as_text_and_hydra_does_not(
    text: str, plain: Any, hydra: Any
) -> None:
    assert load_yaml(text) == plain
    assert type(load_yaml(text)) is type(plain)
    assert load_yaml(text, exponents=True) == hydra


def test_a_long_table_without_anchors_has_a_bound_too() -> None:
    with pytest.raises(ValueError, match="50,000 values"):
        load_yaml("[" + "1," * MAX_YAML_NODES + "1]")


@pytest.mark.parametrize("text", ["a: [", "a: \x01", "a: 1\n---\nb: 2\n", "a: !!python/object:object {}"])
def test_what_is_no_plain_yaml_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"line|special"):
        load_yaml(text)


@pytest.mark.parametrize(
    ("numbers", "updates"),
    [((64, 16), 4.0), ((65, 16, 2), 10.0), ((1e308 * 8, 16), None), ((1e308, 1e-10), None), ((1e300, 1, 1e300), None)],
)
def test_updates_are_counted_or_not_known(numbers: tuple[float, ...], updates: float | None) -> None:
    assert count_updates(*numbers) == updates


TWICE = """
grpo:
  beta: 0.04
  num_generations: 8
  sampling: {temperature: 0.9, top_p: 1.0}
model: a
grpo:
  num_generations: 8
  sampling: {temperature: 1.0, top_p: 1.0}
model: a
"""


def test_keys_that_stand_twice_are_noted_with_their_lines_and_what_is_lost(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(TWICE)
    found = read_table(tmp_path / "a.yaml")
    assert found["grpo"] == {"num_generations": 8, "sampling": {"temperature": 1.0, "top_p": 1.0}}
    assert found[DUPLICATE_KEYS] == [
        ["grpo (lines 2 and 7)", "beta, sampling.temperature under the first"],
        ["model (lines 6 and 10)", ""],
    ]
    conflicts = list(duplicate_conflicts(found))
    assert [conflict.consequence for conflict in conflicts] == ["wrong", "slight"]
    assert conflicts[0].why.endswith("PyYAML keeps only the second: beta, sampling.temperature under the first is lost")
    refused = list(duplicate_conflicts(found, "OmegaConf"))
    assert [conflict.consequence for conflict in refused] == ["refused", "refused"]
    assert {conflict.since for conflict in refused} == {"OmegaConf 2.0"}


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("a: 1\nb: 2\n", None),
        ("- a: 1\n- a: 2\n", None),  # two tables of a list
        ("a: {b: 1}\nc: {b: 2}\n", None),  # at two places
        ("x: &x {a: 1}\ny:\n  <<: *x\n  a: 2\n", None),  # an anchor overridden on purpose
        ("a: 1\na: 2\n", [["a (lines 1 and 2)", "1 of the first"]]),
        ("l:\n  - a: 1\n    a: 2\n", [["l.a (lines 2 and 3)", "1 of the first"]]),
        ('"a\\u001b": 1\n"a\\u001b": 2\n', [["a  (lines 1 and 2)", "1 of the first"]]),
    ],
    ids=str,
)
def test_only_one_level_counts(tmp_path: Path, text: str, pairs: list[list[str]] | None) -> None:
    (tmp_path / "a.yaml").write_text(text)
    found = read_table(tmp_path / "a.yaml")
    assert (found.get(DUPLICATE_KEYS) if isinstance(found, dict) else None) == pairs


@pytest.mark.parametrize("value", ["${a.b}", "$LR", "$(nproc)", "{{ lr }}", Computed("args.lr"), "os.environ['LR']"])
def test_an_expression_is_no_value(value: Any) -> None:
    assert is_expression(value)
    assert find_unread_settings({"lr": value, "n": 8}, {"learning_rate": "lr", "group": "n"}, ["lr"]).keys() == {
        "learning_rate"
    }


@pytest.mark.parametrize("value", [1, 1e-6, None, True, "grpo", "costs 5$", ["$LR"]])
def test_a_plain_value_is_no_expression(value: Any) -> None:
    assert not is_expression(value)


@pytest.mark.parametrize(
    ("own", "intended"),
    [
        ({"val": "test.parquet", "freq": -1}, False),
        ({"val": "test.parquet", "freq": 0}, False),
        ({"val": "test.parquet"}, True),
        ({"val": "test.parquet", "freq": 5}, None),
        ({"val": "test.parquet", "freq": "$FREQ"}, None),
        ({"val": None, "freq": -1}, None),
        ({"freq": -1}, None),
    ],
    ids=str,
)
def test_held_out_problems_without_an_evaluation(own: dict[str, Any], intended: bool | None) -> None:
    found = list(check_evaluation(Settings(own, {"freq": -1}), "val", "freq"))
    assert [unused.intended for unused in found] == ([] if intended is None else [intended])


@pytest.mark.parametrize(("written", "value"), [(-1, 0), (0, 0), (None, 0), (50, 50), ("-1", 0), ("all", None)])
def test_all_tokens_have_several_spellings(written: Any, value: int | None) -> None:
    assert Settings({"top_k": written}).top_k("top_k") == value
    assert Settings({}).top_k("top_k") is None


def test_yaml_is_read_back_as_it_was_meant() -> None:
    settings = {"a.lr": 1e-6, "b": True, "a.c.d": 0.28, "e": None, "a.n": 8, "f": "dapo", "g": 0.0000125}
    lines = render_yaml(settings)
    assert load_yaml("\n".join(lines)) == {
        "a": {"lr": 1e-6, "c": {"d": 0.28}, "n": 8},
        "b": True,
        "e": None,
        "f": "dapo",
        "g": 1.25e-5,
    }
