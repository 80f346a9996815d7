"""Read console logs of any training loop: a step, and ``name: number`` pairs in the line or in the lines below it.

Understood are ``step 12 | reward 0.31 | kl 0.01``, ``[iter 10] reward_mean=0.4``, ``[run]  3/100 | loss=-0.5``,
``Epoch:[1/1](5/900), Reward: -1.5``, ``[step 3] correct=2/4 rewards=[1, 0]``, ``Step 10: {"loss": ...}``, printed dicts
with numpy and torch values, and blocks and tables below a line that names the step (NeMo-RL, torchforge, SkyRL, tinker,
AReaL). Colours, times and names of loggers before the step are skipped. A line counts only if one of its names means a
metric of ours. In a log that names no step anywhere, each line with such a pair is a row, numbered in order:
``Batch: mean_reward=0.225``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from breadth.adapters.generic.tables import SCORES
from breadth.adapters.notebooks import is_notebook, read_log_lines, read_output
from breadth.adapters.parse_values import (
    MetricReader,
    metric_rows,
    parse_number,
    strip_colour,
    strip_held_out_prefix,
    sum_up_rewards,
)
from breadth.runs.importer import read_long_head
from breadth.runs.jsonl import read_head
from breadth.runs.names import match_name
from breadth.runs.schema import Record, Remark

CONSOLE_KIND = "console log"
MIN_ROWS = 3
"""Rows from which a text counts as a console log."""
MAX_LINES_OF_FIRST_ROWS = 500
"""Lines within which the first rows come, or else they may be quotes in the texts of rollouts, and lines without a step
are counted against them."""
MIN_UNNUMBERED_ROWS = 12
"""Lines with a metric of ours from which on a text that names no step counts: a report of results has fewer."""
MIN_SAME_METRICS = 0.4
"""Share of those lines that must have the same metrics: else they are lines of many kinds, and none is the row."""
MAX_LABEL_CHARACTERS = 32
"""Letters and digits that such a line may have besides its pairs: ``2026-01-02 10:11:12 [INFO] Batch:``."""
MIN_UNNUMBERED_METRICS = 3
"""Metrics of ours that a printed dict without a step must have."""
MAX_LABEL_LENGTH = 40
"""Characters of a text in a printed dict; with a longer one it is a rollout."""
SOURCE_SUFFIXES = frozenset(
    (".py", ".md", ".rst", ".tex", ".html", ".yaml", ".yml", ".toml", ".cfg", ".ini", ".sh", ".js", ".ts")
)
"""Suffixes of programs, pages and settings, which may quote lines of a log."""
MAX_SNIFFED_LINES = 20_000
MAX_LINE_LENGTH = 20_000
"""Characters of a line that are searched; a longer one is text of a model."""
BOOKKEEPING = frozenset({"epoch", "learning_rate", "seconds_per_step", "tokens_seen", "length_cap", "length"})
"""Ours that other programs print too: alone they make no line a row."""

_FIGURE = r"[-+]?(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?(?![\w.])|[-+]?(?:nan|inf)(?:inity)?\b"
_VALUE = rf"(?:[A-Za-z_][\w.]*\(\s*(?:{_FIGURE})[^()]*\)|{_FIGURE})"
_NAME = r"[A-Za-z][\w/.@-]*(?: [A-Za-z(][\w/.@()-]*){0,3}"
_UNIT = r"(?:\s*(?:%|s|ms|nats|tok(?:ens)?(?:/\w+)?))?"
QUOTED_PAIR = re.compile(rf"""(['"])([^'"]{{1,120}})\1\s*:\s*['"]?({_VALUE})""", re.IGNORECASE)
PLAIN_PAIR = re.compile(rf"(?<![\w/.])({_NAME})\s*[:=]\s*({_VALUE})", re.IGNORECASE)
# The logging module's time, logger and level:
LOG_PREFIX = re.compile(r"^\W*\d{4}-\d\d-\d\d[ T][\d:,.]+\W+(?:[\w.]+\W+)??(?:DEBUG|INFO|WARNING)\b")
LIST_PAIR = re.compile(r"(?<![\w/.])([A-Za-z][\w/.@-]*)\s*[:=]\s*(?:\w+\()?\[([^\[\]]{1,2000})\]", re.IGNORECASE)
SHARE_PAIR = re.compile(
    r"(?<![\w/.])(correct|solve|pass|success)(?:d|ed|es)?\s*[:=]\s*(\d{1,6})\s*/\s*(\d{1,6})(?![\w/.])", re.IGNORECASE
)
SEGMENT = re.compile(rf"\s*({_NAME})\s+({_VALUE}){_UNIT}\s*", re.IGNORECASE)
BLOCK_LINE = re.compile(
    rf"""[\s{{•*-]*(['"]?)({_NAME})\1\s*[:=]\s*['"]?({_VALUE})['"]?{_UNIT}[\s,}}]*""", re.IGNORECASE
)
LONG_TEXT = re.compile(rf"""[:\[]\s*(['"])[^'"]{{{MAX_LABEL_LENGTH},}}""")
STEPS = (
    re.compile(
        r"(?<![\w/-])(?:global|train(?:ing|er)?)[ _/]?step['\"]?\s*[:=#]?\s*(\d{1,15})(?:\s*/\s*\d+)?", re.IGNORECASE
    ),
    re.compile(r"(?<![\w/-])epoch:?\s*\[(?P<epoch>\d+)/\d+\]\s*\((?P<place>\d+)/(?P<all>\d+)\)", re.IGNORECASE),
    re.compile(
        r"(?<![\w/-])(?:step|iter(?:ation)?|update|rollout|episode)['\"]?\s*[:=#]?\s*[\[(]?(\d{1,15})(?:\s*/\s*\d+)?(?![\w.])",
        re.IGNORECASE,
    ),
    re.compile(r"(?<![\w/-])(?:perf|eval)\s+(\d{1,15}):(?=\s*\{)"),
    re.compile(r"^(?:\[[^\]]*\]\s*)*(\d{1,15})\s*/\s*\d+\s*(?=\|)"),
    re.compile(r"(?<![\w/-])epoch\s*[:=#]?\s*\[?(\d{1,15})(?:\s*/\s*\d+)?(?![\w.])", re.IGNORECASE),
)
"""How lines name their step, best first."""
TABLE_EDGE = re.compile("[│┃]")


class ConsoleRows:
    """Collects the rows of a log line by line; a row is complete when the next one begins."""

    def __init__(self, metrics: frozenset[str] | None = None) -> None:
        self._metrics = metrics  # of a log without steps: those that a line must have, and no others
        self._step: int | None = None
        self._values: dict[str, str] = {}
        self._number = 0

    def add(self, number: int, line: str) -> Iterator[tuple[int, int | None, dict[str, str]]]:
        """Take a line; yield the rows it completes as (number of the first line, step, values as printed)."""
        text = LOG_PREFIX.sub("", strip_colour(line.rpartition("\r")[2]))
        if len(text) > MAX_LINE_LENGTH or not text.strip():
            return
        if self._metrics is not None:
            if our_metrics(pairs := find_pairs(text)) == self._metrics and is_bare(text):
                yield number, None, pairs
            return
        step, rest = find_step(text)
        pairs = find_pairs(rest if step is not None else text, whole=step is None)
        if step is None and "{" in text and is_unnumbered_row(text, pairs):
            yield from self.flush()
            yield number, None, pairs
        elif step is not None and (has_metric(pairs) or not pairs):
            if step != self._step or not self._values.keys().isdisjoint(pairs):
                yield from self.flush()
                self._step, self._number = step, number
            self._values.update(pairs)
        elif step is None and self._step is not None:
            self._values.update({name: value for name, value in block_pairs(text).items() if name not in self._values})

    def flush(self) -> Iterator[tuple[int, int | None, dict[str, str]]]:
        """Yield the open row, if it holds a metric."""
        if has_metric(self._values):
            yield self._number, self._step, self._values
        self._values, self._step = {}, None


def find_step(text: str) -> tuple[int | None, str]:
    """Return a line's step and the rest of the line that holds its numbers; None where it names no step."""
    for pattern in STEPS:
        found = pattern.search(text)
        if not found:
            continue
        after, before = text[found.end() :], text[: found.start()]
        named = found.groupdict()
        step = (
            (int(named["epoch"]) - 1) * int(named["all"]) + int(named["place"]) if "epoch" in named else int(found[1])
        )
        return step, after if find_pairs(after) else f"{before} {after}"
    return None, ""


def find_pairs(text: str, *, whole: bool = False) -> dict[str, str]:
    """Return the names and numbers of a text; of a ``whole`` line only those of a printed dict."""
    start, end = text.find("{"), text.rfind("}")
    if 0 <= start < end:
        return {name: value for _, name, value in QUOTED_PAIR.findall(text[start:end])}
    if whole:
        return {}
    pairs = {bare_name(name): value for name, value in PLAIN_PAIR.findall(text)} | group_pairs(text)
    for part in re.split(r"\s*\|\s*|,\s+", text):
        found = SEGMENT.fullmatch(part)
        if found:
            pairs.setdefault(found[1], found[2])
    return pairs


def bare_name(name: str) -> str:
    """Return a name without the words before it that are none of it: the reward of ``INFO reward``."""
    words = name.split(" ")
    tails = (" ".join(words[place:]) for place in range(len(words)))
    return next((tail for tail in tails if match_name(strip_held_out_prefix(tail) or tail)), name)


def group_pairs(text: str) -> dict[str, str]:
    """Return what a line says of a group: mean and spread of ``rewards=[0.8, 0.0]``, the share of ``correct=2/4``."""
    lists = {name: entries.replace("'", "").replace('"', "").split(",") for name, entries in LIST_PAIR.findall(text)}
    shares = {
        f"{name}_rate": str(int(part) / int(whole))
        for name, part, whole in SHARE_PAIR.findall(text)
        if int(part) <= int(whole) and int(whole)
    }
    return {name: str(value) for name, value in sum_up_rewards(lists).items()} | shares


def block_pairs(text: str) -> dict[str, str]:
    """Return what a line below a step's header holds: a pair, a group's rewards, or the cells of a table's row."""
    if TABLE_EDGE.search(text):
        cells = [cell.strip() for cell in TABLE_EDGE.split(text) if cell.strip()]
        return {
            name: value for name, value in zip(cells[::2], cells[1::2], strict=False) if parse_number(value) is not None
        }
    if found := BLOCK_LINE.fullmatch(text):
        return {found[2]: found[3]}
    return group_pairs(text) if LIST_PAIR.match(text.strip()) else {}


def our_metrics(pairs: dict[str, str]) -> set[str]:
    """Return which metrics of ours the names mean, without bookkeeping."""
    matches = (match_name(strip_held_out_prefix(name) or name) for name in pairs)
    return {found[0] for found in matches if found} - BOOKKEEPING


def has_metric(pairs: dict[str, str]) -> bool:
    """Whether one of the names means a metric of ours."""
    return bool(our_metrics(pairs))


def is_unnumbered_row(text: str, pairs: dict[str, str]) -> bool:
    """Whether a printed dict without a step is a row: several metrics of ours, and no long text."""
    return len(our_metrics(pairs)) >= MIN_UNNUMBERED_METRICS and not LONG_TEXT.search(text)


def is_bare(text: str) -> bool:
    """Whether a line holds little besides its pairs; with more words, also in a name, it is the text of a rollout."""
    rest = LIST_PAIR.sub("", text)
    rest = PLAIN_PAIR.sub(lambda pair: pair[1] if pair[1].count(" ") > 1 else "", rest)
    return sum(map(str.isalnum, rest)) <= MAX_LABEL_CHARACTERS


def is_console_log(path: Path, start: bytes) -> bool:
    """Whether the beginning of a text holds rows of a console log."""
    return (
        b"\0" not in start[:4096]
        and path.suffix.casefold() not in SOURCE_SUFFIXES
        and console_rows(path, start) is not None
    )


def console_rows(path: Path, start: bytes) -> ConsoleRows | None:
    """Return what collects the rows of a log that begins like this, with steps or without; None where it has none."""
    lines = first_lines(path, start)
    rows, found = ConsoleRows(), 0
    for number, line in enumerate(lines):
        found += sum(1 for _ in rows.add(number, line))
        if found >= MIN_ROWS and number < MAX_LINES_OF_FIRST_ROWS:
            return ConsoleRows()
    found += sum(1 for _ in rows.flush())
    texts = (LOG_PREFIX.sub("", strip_colour(line)) for line in lines if len(line) <= MAX_LINE_LENGTH)
    kinds = Counter(frozenset(our_metrics(find_pairs(text))) for text in texts if is_bare(text))
    del kinds[frozenset()]
    metrics, most = next(iter(kinds.most_common(1)), (frozenset(), 0))
    is_log = SCORES & metrics and most >= max(MIN_UNNUMBERED_ROWS, MIN_SAME_METRICS * kinds.total())
    if is_log and most > found:
        return ConsoleRows(metrics)
    return ConsoleRows() if found >= MIN_ROWS else None


def first_lines(path: Path, start: bytes) -> list[str]:
    """Return the first lines of a log."""
    if is_notebook(path):
        return [line for line in islice(read_output(path), MAX_SNIFFED_LINES) if isinstance(line, str)]
    return read_long_head(path, start).decode("utf-8", errors="replace").splitlines()[:MAX_SNIFFED_LINES]


def read_console(path: Path) -> Iterator[Record]:
    """Yield the rows of a console log; dicts and lines printed without a step are numbered in order."""
    reader, rows = MetricReader(), console_rows(path, read_head(path)) or ConsoleRows()
    for line in read_log_lines(path):
        if isinstance(line, Remark):
            yield line
            continue
        for number, step, pairs in rows.add(*line):
            yield from metric_rows(reader.numbers(plain_numbers(pairs), number), step)
    for number, step, pairs in rows.flush():
        yield from metric_rows(reader.numbers(plain_numbers(pairs), number), step)
    yield from reader.remarks(path)


def plain_numbers(pairs: dict[str, str]) -> dict[str, str]:
    """Return the pairs with thousands' separators removed."""
    return {name.strip(): value if "(" in value else value.replace(",", "") for name, value in pairs.items()}
