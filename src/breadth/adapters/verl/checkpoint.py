"""The chain's state beside verl's checkpoint: one JSON file in the step's folder, for the trainer and all workers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from breadth.base.atomic import whole_file
from breadth.base.errors import BrokenFileError, MechanismError
from breadth.training.objective import Objective

NAME = "breadth.json"
"""The file's name in ``global_step_<n>``."""


def save(folder: Path, states: Mapping[str, Any]) -> None:
    """Write the state of each seat, whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    with whole_file(folder / NAME) as temporary:
        temporary.write_bytes(orjson.dumps(dict(states), option=orjson.OPT_INDENT_2))


def load(folder: Path) -> dict[str, Any]:
    """Read the state of each seat; empty when the checkpoint was written without a chain."""
    path = folder / NAME
    if not path.exists():
        return {}
    try:
        states = orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError as error:
        raise BrokenFileError(path, f"not JSON: {error}.", "Resume from an earlier checkpoint.") from error
    if not isinstance(states, dict):
        raise BrokenFileError(path, "holds no table of states.", "Resume from an earlier checkpoint.")
    return states


def resume(objective: Objective, state: Mapping[str, Any] | None) -> None:
    """Go on from a seat's saved state; where there is none, only a chain that keeps no state may go on."""
    if state is not None:
        objective.restore(state)
    elif remembering := [name for name, own in zip(objective.names, objective.states, strict=True) if own is not None]:
        raise MechanismError(
            f"The checkpoint has no {NAME}, but {', '.join(remembering)} went on from step to step.",
            f"Copy {NAME} into the checkpoint's folder, or start a new run from its weights"
            " (trainer.resume_mode=disable).",
        )
