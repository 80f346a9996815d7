"""Read the training arguments where they were saved as JSON; the pickle that the Trainer itself leaves is never opened."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from breadth.adapters.trl.history import parse_json, read_document, too_deep
from breadth.base.errors import BreadthError, BrokenFileError, UnsafeFileError
from breadth.runs.records import Record, SeenSettings

SAVED = "grpo_config.json"
"""Where the remedies of this folder tell people to save the arguments."""
PICKLED = "training_args.bin"
"""What the Trainer saves them as."""


def read_arguments(path: Path) -> Iterator[Record]:
    """Yield the arguments as settings."""
    yield SeenSettings(load_arguments(path))


def refuse_pickle(path: Path) -> Iterator[Record]:
    """Refuse the pickled arguments and say what to do instead."""
    raise UnsafeFileError(
        path,
        "is a pickle of the training arguments: opening it would run whatever code it holds.",
        f"Save them as JSON where you train, and import that: Path(args.output_dir, '{SAVED}').write_text(args.to_json_string())",
    )


def load_arguments(path: Path) -> dict[str, Any]:
    """Return saved arguments."""
    try:
        document = parse_json(read_document(path))
    except ValueError as error:
        raise BrokenFileError(path, f"is not JSON ({error}).", "Save the arguments again: args.to_json_string()") from error
    if not isinstance(document, dict) or too_deep(document):
        raise BrokenFileError(path, "holds no settings, but something else.", "Save the arguments again: args.to_json_string()")
    return document


def reward_weights(folder: Path) -> Sequence[float] | None:
    """Return the weights of the reward functions saved in an ``output_dir``, or None."""
    try:
        weights = load_arguments(folder / SAVED).get("reward_weights")
    except BreadthError:
        return None
    return weights if isinstance(weights, list) and all(isinstance(weight, int | float) for weight in weights) else None
