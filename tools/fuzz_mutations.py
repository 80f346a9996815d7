"""Seeded mutations for ``tools/fuzz.py``: bytes, lines, JSON values, whole tables; no state, no clock.

A mutation is a function of the bytes and a ``random.Random``; the same seed gives the same input on every machine.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

MAX_INPUT_BYTES = 100_000
"""Bytes of one input at most: larger ones would measure the disk."""
NESTING = (40, 260, 1_100, 20_000)
"""Depths of nested brackets: below and above what parsers and Python's stack take."""
ODD_NUMBERS = (
    "1e400", "-1e400", "NaN", "Infinity", "-Infinity", "9223372036854775807", "9223372036854775808",
    "-9223372036854775809", "2147483648", "18446744073709551616", "1e308", "5e-324", "-0.0", "0", "-1", "1.5",
    "1e18", "9007199254740993", "0x10", "1_000", ".5", "+1", "00", "9" * 400, "9" * 5_000, "1" + "0" * 320,
)  # fmt: skip
"""Numbers as text, of which JSON, TOML and YAML each take some."""
ODD_VALUES: tuple[Any, ...] = (
    None,
    True,
    "",
    [],
    {},
    [None],
    {"": None},
    float("nan"),
    float("inf"),
    -float("inf"),
    2**31,
    2**53 + 1,
    2**63,
    -(2**63) - 1,
    10**400,
    -1,
    0,
    0.5,
    1e308,
    5e-324,
    "nan",
    "1e400",
    "\ud800",
    "\udfff x",
    "\x00",
    "a\x00b",
    "\u202e",
    "é" * 50,
    "x" * 5_000,
    "\\boxed{" * 50,
    "{" * 300,
    "train",
    "test",
    ["a", 1, None, {}],
    [[1], [2, [3]]],
    {"role": "user", "content": None},
    {"a": {"b": {"c": [1, {"d": 2}]}}},
    [{"role": 5, "content": [{"type": "text", "text": 3}]}],
)
"""Values that a field may hold instead of its own: wrong types, extremes, halves of surrogate pairs, long texts."""
TOKENS = (
    b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\r\n", b"\r", b"\xe2\x80\xa8", b"\x1b[31m", b'"', b"'",
    b"{", b"}", b"[", b"]", b",", b":", b"=", b"#", b"\\", b"\\ud800", b"null", b"&a [*a]", b"*a", b"!!python/none",
    b"---\n", b"${x}", b"$((1/0))", b"$(x)", b"PAR1", b"%s", b"%(x)d", b"{0}", b"../..", b"\t", b" " * 300,
)  # fmt: skip
"""Pieces that parsers of some format treat in their own way."""

Mutation = Callable[[bytes, random.Random], bytes]


def place_in(data: bytes, rng: random.Random) -> int:
    """Return a place in the data, its end included."""
    return rng.randrange(len(data) + 1)


def flip_bits(data: bytes, rng: random.Random) -> bytes:
    """Flip up to eight bits."""
    changed = bytearray(data or b"\0")
    for _ in range(rng.randint(1, 8)):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def truncate(data: bytes, rng: random.Random) -> bytes:
    """Keep the start only, as a killed writer does."""
    return data[: place_in(data, rng)]


def delete_span(data: bytes, rng: random.Random) -> bytes:
    """Leave out some bytes."""
    start = place_in(data, rng)
    return data[:start] + data[start + rng.choice((1, 2, 8, 64, 512)) :]


def repeat_span(data: bytes, rng: random.Random) -> bytes:
    """Write some bytes several times."""
    start = place_in(data, rng)
    span = data[start : start + rng.choice((1, 4, 32, 256))]
    return data[:start] + span * rng.choice((2, 3, 50)) + data[start:]


def insert_token(data: bytes, rng: random.Random) -> bytes:
    """Insert a piece that some parser treats in its own way."""
    start = place_in(data, rng)
    return data[:start] + rng.choice(TOKENS) + data[start:]


def nest_deeply(data: bytes, rng: random.Random) -> bytes:
    """Insert many brackets, closed or not."""
    start, depth = place_in(data, rng), rng.choice(NESTING)
    opened, inside, closed = rng.choice(
        ((b"[", b"", b"]"), (b'{"a":', b"1", b"}"), (b"(", b"1", b")"), (b"- ", b"", b""))
    )
    middle = opened * depth + inside + (closed * depth if rng.random() < 0.7 else b"")
    return data[:start] + middle + data[start:]


def replace_number(data: bytes, rng: random.Random) -> bytes:
    """Put an extreme number where a digit is."""
    digits = [place for place, byte in enumerate(data) if 48 <= byte <= 57]
    if not digits:
        return insert_token(data, rng)
    start = end = rng.choice(digits)
    while end < len(data) and (48 <= data[end] <= 57 or data[end] in b".eE-+"):
        end += 1
    return data[:start] + rng.choice(ODD_NUMBERS).encode() + data[end:]


def shuffle_lines(data: bytes, rng: random.Random) -> bytes:
    """Duplicate, drop, swap or join lines."""
    lines = data.split(b"\n")
    first, second = rng.randrange(len(lines)), rng.randrange(len(lines))
    how = rng.randrange(4)
    if how == 0:
        lines.insert(second, lines[first])
    elif how == 1:
        del lines[first]
    elif how == 2:
        lines[first], lines[second] = lines[second], lines[first]
    else:
        lines[first : first + 2] = [b"".join(lines[first : first + 2])]
    return b"\n".join(lines)


def encode_otherwise(data: bytes, rng: random.Random) -> bytes:
    """Write the text as Windows does, with another encoding or a byte order mark."""
    text = data.decode("utf-8", errors="replace")
    how = rng.randrange(6)
    if how == 0:
        return data.replace(b"\n", b"\r\n")
    if how == 1:
        return b"\xef\xbb\xbf" + data
    if how == 5:
        return data.replace(b"\n", b"\r")
    return text.encode(("utf-16", "utf-32", "latin-1")[how - 2], errors="replace")


def replace_value(data: bytes, rng: random.Random) -> bytes:
    """Change one value or key of a JSON document, or of one row of JSON lines."""
    document = parse_or_none(data)
    if document is not None:
        return dump_json(change_tree(document, rng))
    lines = data.split(b"\n")
    place = rng.randrange(len(lines))
    row = parse_or_none(lines[place])
    if row is None:
        return replace_number(data, rng)
    lines[place] = dump_json(change_tree(row, rng))
    return b"\n".join(lines)


def replace_field_everywhere(data: bytes, rng: random.Random) -> bytes:
    """Give one field of every row of JSON lines another value: a column of the wrong type."""
    rows = [parse_or_none(line) for line in data.split(b"\n")]
    keys = sorted({key for row in rows if isinstance(row, dict) for key in row})
    if not keys:
        return replace_value(data, rng)
    key, value = rng.choice(keys), rng.choice(ODD_VALUES)
    changed = [{**row, key: value} if isinstance(row, dict) else row for row in rows]
    return b"\n".join(b"" if row is None else dump_json(row) for row in changed)


def parse_or_none(data: bytes) -> Any:
    """Return what a JSON text holds; None when it is not JSON."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def dump_json(value: Any) -> bytes:
    """Write JSON as Python does: NaN, huge integers and lone surrogates included."""
    return json.dumps(value).encode("utf-8", errors="surrogatepass")


def change_tree(tree: Any, rng: random.Random) -> Any:
    """Return a JSON value with one place changed, at any depth."""
    if not isinstance(tree, dict | list) or not tree or rng.random() < 0.1:
        return rng.choice(ODD_VALUES)
    if isinstance(tree, list):
        place = rng.randrange(len(tree))
        return [*tree[:place], *change_item(tree[place], rng), *tree[place + 1 :]]
    key = rng.choice(list(tree))
    how = rng.randrange(8)
    if how == 0:
        return {name: value for name, value in tree.items() if name != key}
    if how == 1:
        odd = rng.choice(("", "\ud800", "a.b", "x" * 3_000, "reward/" + key, key + " ", "__proto__", "\x00"))
        return {odd if name == key else name: value for name, value in tree.items()}
    return {**tree, key: change_tree(tree[key], rng)}


def change_item(item: Any, rng: random.Random) -> list[Any]:
    """Return what becomes of one item of a list: gone, twice, or changed."""
    how = rng.randrange(6)
    return [] if how == 0 else [item, item] if how == 1 else [change_tree(item, rng)]


MUTATIONS: tuple[Mutation, ...] = (
    flip_bits,
    truncate,
    delete_span,
    repeat_span,
    insert_token,
    nest_deeply,
    replace_number,
    replace_number,
    shuffle_lines,
    encode_otherwise,
    replace_value,
    replace_value,
    replace_value,
    replace_value,
    replace_field_everywhere,
)
"""Mutations of text; those that keep a file readable are drawn more often, because they get deeper."""


def mutate_text(data: bytes, other: bytes, rng: random.Random) -> bytes:
    """Mutate a file once to three times; now and then splice it with another one first."""
    if rng.random() < 0.05:
        data = data[: place_in(data, rng)] + other[place_in(other, rng) :]
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        data = rng.choice(MUTATIONS)(data, rng)[:MAX_INPUT_BYTES]
    return data


BYTE_MUTATIONS: tuple[Mutation, ...] = (flip_bits, flip_bits, truncate, delete_span, repeat_span, insert_token)


def mutate_parquet(rows: bytes, rng: random.Random) -> bytes:
    """Return a Parquet file of mutated rows, or one whose bytes were damaged."""
    data = to_parquet(rows)
    if rng.random() < 0.4:
        return rng.choice(BYTE_MUTATIONS)(data, rng)
    for _ in range(5):
        change = rng.choice((replace_value, replace_field_everywhere, shuffle_lines))
        try:
            return to_parquet(change(rows, rng), rng)
        except (pa.ArrowException, OverflowError, ValueError, TypeError, KeyError, AttributeError):
            continue  # Arrow has no table of such rows
    return flip_bits(data, rng)


def to_parquet(rows: bytes, rng: random.Random | None = None) -> bytes:
    """Write JSON lines as Parquet: lists of numbers get 32 bits, as in a run folder; sometimes other types."""
    table = pa.Table.from_pylist([row for line in rows.split(b"\n") if isinstance(row := parse_or_none(line), dict)])
    types = {"sample": pa.int32(), "tokens": pa.int32(), "token_ids": pa.list_(pa.int32())}
    types |= {name: pa.list_(pa.float32()) for name in ("logprobs", "old_logprobs", "entropy", "advantages")}
    odd = (pa.large_string(), pa.binary(), pa.int8(), pa.float16(), pa.timestamp("us"), pa.null())
    for place, name in enumerate(table.column_names):
        kind = types.get(name)
        if rng is not None and rng.random() < 0.05:
            kind = rng.choice(odd)
        if kind is not None and table.column(place).type != kind:
            try:
                table = table.set_column(place, name, table.column(place).cast(kind))
            except pa.ArrowException:
                continue
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="lz4")
    return bytes(sink.getvalue().to_pybytes())


def generate_json(rng: random.Random, depth: int = 0) -> Any:
    """Return a small JSON value of any shape."""
    how = rng.random()
    if depth > 3 or how < 0.5:
        return rng.choice(ODD_VALUES)
    names = ("step", "data", "messages", "values", "reward", "kind", "model", "a", "", "prompt", "completion", "stop")
    if how < 0.75:
        return [generate_json(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {rng.choice(names): generate_json(rng, depth + 1) for _ in range(rng.randrange(5))}


def generate_text(rng: random.Random) -> bytes:
    """Return a small file made from nothing: JSON, JSON lines, or a heap of pieces."""
    how = rng.randrange(3)
    if how == 0:
        return dump_json(generate_json(rng))
    if how == 1:
        return b"\n".join(dump_json(generate_json(rng)) for _ in range(rng.randrange(1, 6)))
    return b"".join(rng.choice(TOKENS) for _ in range(rng.randrange(30)))
