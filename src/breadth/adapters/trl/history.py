"""Read the log history of the Hugging Face Trainer (``trainer_state.json``) and the arguments saved next to it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from json import JSONDecoder
from pathlib import Path
from typing import Any

from breadth.adapters.parse_values import MetricReader, as_step
from breadth.base.errors import BreadthError, BrokenFileError, UnsafeFileError
from breadth.runs.jsonl import MAX_ROW_VALUES, has_too_many_values, parse_json, read_error
from breadth.runs.paths import CHECKPOINT_FOLDER
from breadth.runs.schema import LoggedConfig, MetricRow, Record, Remark

EVAL_PREFIX = "eval_"
MAX_DOCUMENT_BYTES = 128 << 20
"""Largest JSON document read whole, in bytes: some 140,000 log rows of GRPO."""
MAX_SETTINGS_DEPTH = 50
"""Levels of nesting that settings may have."""
STATE_SETTINGS = ("logging_steps", "eval_steps", "save_steps", "max_steps", "num_train_epochs", "train_batch_size")
"""Keys of a trainer state that belong to the configuration."""
NESTED_SETTINGS = ("args", "config", "trial_params")
"""Keys of hand-written states that contain the rest of the configuration."""
GAP = re.compile(r"[\s,]*")


@dataclass(frozen=True, eq=False)
class History:
    """A log history as read; compared by identity, so that facts derived from it can be cached."""

    rows: tuple[Mapping[str, Any], ...]
    """One dict per logging step, oldest first."""
    settings: Mapping[str, Any]
    """Settings stored with it."""
    cut_at: int | None = None
    """Character at which a truncated file breaks off; None for a complete one."""


def read_history(path: Path) -> Iterator[Record]:
    """Yield the settings, the rows and remarks on problems."""
    history = load_history(path)
    if history.settings:
        yield LoggedConfig(history.settings)
    reader = MetricReader()
    for number, row in enumerate(history.rows, 1):
        yield metric_row(
            row,
            reader.numbers({name: value for name, value in row.items() if name != "step"}, number),
            as_step(row.get("step")),
        )
    yield from reader.remarks(path)
    if history.cut_at is not None:
        yield Remark(
            f"the file breaks off at character {history.cut_at}; the {len(history.rows)} log rows before it were read.",
            str(path),
            None,
            "The trainer was stopped while writing it: look for a later checkpoint's copy.",
        )
    if eval_steps(history) and (output_folder(path) / "completions").is_dir():
        yield Remark(
            f"this run was evaluated at {len(eval_steps(history))} steps, and TRL writes the completions of an"
            " evaluation over the training ones of its step; completions files of those steps are taken as held-out"
            " rollouts.",
            str(path),
            None,
            "To keep both, choose eval_steps that are no multiples of logging_steps.",
        )


def load_history(path: Path) -> History:
    """Read a trainer state or a bare list of log rows; of a truncated file, the rows before the break."""
    text = read_document(path)
    try:
        return parse_history(parse_json(text))
    except ValueError as error:
        rows, cut = salvage_rows(text)
        if not rows:
            raise BrokenFileError(
                path, f"is not a whole JSON document ({error}).", "Use the copy in another checkpoint folder."
            ) from error
        return History(tuple(rows), {}, cut)


def metric_row(row: Mapping[str, Any], values: Mapping[str, float], step: int | None) -> MetricRow:
    """Convert a log row to a metric row; TRL marks evaluation by the prefix ``eval_`` on every name."""
    if not is_eval(row):
        return MetricRow(dict(values), step)
    return MetricRow({name.removeprefix(EVAL_PREFIX): value for name, value in values.items()}, step, split="eval")


def is_eval(row: Mapping[str, Any]) -> bool:
    """Whether a log row is of an evaluation."""
    return has_eval_name(tuple(row))


@lru_cache(maxsize=64)
def has_eval_name(names: tuple[str, ...]) -> bool:
    """Whether one of a row's names is of an evaluation; rows repeat their names."""
    return any(str(name).startswith(EVAL_PREFIX) for name in names)


def eval_steps(history: History) -> frozenset[int]:
    """Return the steps at which the run was evaluated."""
    steps = (as_step(row.get("step")) for row in history.rows if is_eval(row))
    return frozenset(step for step in steps if step is not None)


def output_folder(path: Path) -> Path:
    """Return the ``output_dir`` that a state, a console log or a completions file of it belongs to."""
    folder = path.parent
    return folder.parent if CHECKPOINT_FOLDER.fullmatch(folder.name) or folder.name == "completions" else folder


def read_document(path: Path) -> str:
    """Return the text of a JSON document without byte-order mark; refuse one that is too large."""
    try:
        size = path.stat().st_size
        if size > MAX_DOCUMENT_BYTES:
            raise BrokenFileError(
                path,
                f"has {size / 1e6:,.0f} MB; a JSON document is read up to {MAX_DOCUMENT_BYTES / 1e6:,.0f} MB.",
                "Import its TensorBoard files.",
            )
        text = path.read_bytes().decode("utf-8-sig", errors="replace")
    except OSError as error:
        raise read_error(path, error) from error
    if has_too_many_values(text):
        raise BrokenFileError(
            path,
            f"has more than {MAX_ROW_VALUES:,} values; a JSON document is read up to that.",
            "Import its TensorBoard files.",
        )
    return text


def is_too_deep(value: Any) -> bool:
    """Whether tables and lists are nested too deeply for settings."""
    level = [value]
    for _ in range(MAX_SETTINGS_DEPTH):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
    return bool(level)


def parse_history(document: Any) -> History:
    """Return the history of a parsed JSON document; raises ValueError if it has none."""
    rows = document.get("log_history") if isinstance(document, dict) else document
    if not isinstance(rows, list):
        raise ValueError("it has no list of log rows")  # noqa: TRY004 - a ValueError is what a broken document raises too
    settings: dict[str, Any] = {}
    if isinstance(document, dict):
        settings = {name: document[name] for name in STATE_SETTINGS if document.get(name) is not None}
        for name in NESTED_SETTINGS:
            settings |= (
                document[name] if isinstance(document.get(name), dict) and not is_too_deep(document[name]) else {}
            )
    return History(tuple(row for row in rows if isinstance(row, dict)), settings)


def salvage_rows(text: str) -> tuple[list[dict[str, Any]], int]:
    """Read log rows until the text breaks off; return them and where it broke off."""
    named = text.find('"log_history"')
    place = text.find("[", max(named, 0)) + 1
    rows: list[dict[str, Any]] = []
    decoder = JSONDecoder()
    while place > 0:
        gap = GAP.match(text, place)
        place = gap.end() if gap else place
        try:
            row, place = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            break
        if isinstance(row, dict):
            rows.append(row)
    return rows, place


STATE_FILE = "trainer_state.json"


def states_in(folder: Path) -> list[Path]:
    """List the trainer states of an ``output_dir``, the one with the longest log last."""
    found = [path for path in (folder / STATE_FILE, *folder.glob(f"checkpoint-*/{STATE_FILE}")) if path.is_file()]
    return sorted(found, key=training_progress)


def newest_history(folder: Path) -> History | None:
    """Return the longest log history of an ``output_dir``, or None if none can be read."""
    for path in reversed(states_in(folder)):
        try:
            status = path.stat()
            return _load_cached(path, status.st_mtime_ns, status.st_size)
        except (BreadthError, OSError):
            continue
    return None


@lru_cache(maxsize=1)
def _load_cached(path: Path, _changed: int, _size: int) -> History:
    """Cache the last history: each of a run's thousand completions files needs the same one."""
    return load_history(path)


def drop_older_copies(paths: Sequence[Path]) -> list[Path]:
    """Drop each trainer state whose rows are the beginning of another's in the same ``output_dir``.

    A new run in an old folder leaves states that do not continue one another: all of them stay.
    """
    longest: dict[Path, list[list[str]]] = {}
    dropped = set()
    for path in sorted((path for path in paths if path.name == STATE_FILE), key=training_progress, reverse=True):
        kept = longest.setdefault(output_folder(path), [])
        rows = _row_texts(path)
        if rows is not None and any(other[: len(rows)] == rows for other in kept):
            dropped.add(path)
        elif rows is not None:
            kept.append(rows)
    return [path for path in paths if path not in dropped]


def training_progress(path: Path) -> tuple[int, int]:
    """Return the step of a state as a sort key: from the file's first lines, else from the folder's name."""
    try:
        with path.open("rb") as file:
            found = re.search(rb'"global_step":\s*(\d{1,15})', file.read(4096))
    except OSError:
        found = None
    folder = CHECKPOINT_FOLDER.fullmatch(path.parent.name)
    step = int(found[1]) if found else int(folder[1]) if folder else -1
    return step, folder is None


def _row_texts(path: Path) -> list[str] | None:
    try:
        return [repr(sorted(row.items())) for row in load_history(path).rows]
    except (BreadthError, RecursionError):
        return None


ARGUMENTS_FILE = "grpo_config.json"
"""File in which our remedies ask users to save the arguments."""
PICKLED_ARGUMENTS = "training_args.bin"
"""File in which the Trainer saves them."""
OBJECTIVE_FILE = "breadth_objective.json"
"""File of a checkpoint in which our trainer saves its objective's state."""


def read_arguments(path: Path) -> Iterator[Record]:
    """Yield the arguments as settings."""
    yield LoggedConfig(load_arguments(path))


def refuse_pickle(path: Path) -> Iterator[Record]:
    """Refuse the pickled arguments, with the alternative."""
    raise UnsafeFileError(
        path,
        "is a pickle of the training arguments: opening it could run arbitrary code.",
        "Save them as JSON where you train, and import that: Path(args.output_dir,"
        f" '{ARGUMENTS_FILE}').write_text(args.to_json_string())",
    )


def load_arguments(path: Path) -> dict[str, Any]:
    """Return saved arguments."""
    try:
        document = parse_json(read_document(path))
    except ValueError as error:
        raise BrokenFileError(
            path, f"is not JSON ({error}).", "Save the arguments again: args.to_json_string()"
        ) from error
    if not isinstance(document, dict) or is_too_deep(document):
        raise BrokenFileError(path, "contains no settings.", "Save the arguments again: args.to_json_string()")
    return document


def reward_weights(folder: Path) -> Sequence[float] | None:
    """Return the weights of the reward functions saved in an ``output_dir``, or None."""
    try:
        weights = load_arguments(folder / ARGUMENTS_FILE).get("reward_weights")
    except BreadthError:
        return None
    return weights if isinstance(weights, list) and all(isinstance(weight, int | float) for weight in weights) else None
