"""Who reads and words a trainer's or server's configuration: one dialect each, kept in its adapter and loaded when asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from breadth.base.catalogue import Catalogue
from breadth.base.errors import CatalogueError
from breadth.doctor.finding import Change
from breadth.doctor.knobs import Knobs


class Dialect(Protocol):
    """Reads the configuration of one trainer and words changes to it. Nothing it reads is executed."""

    @property
    def trainer(self) -> str:
        """Name of the trainer, as in the catalogue of importers, or of the server, as in that of its dialects."""
        ...

    def recognises(self, path: Path, start: bytes) -> bool:
        """Say whether a file is a configuration of this trainer."""
        ...

    def read(self, path: Path) -> Mapping[str, Any]:
        """Return the settings that a file makes, spelled as there."""
        ...

    def knobs(self, config: Mapping[str, Any]) -> Knobs:
        """Translate settings, of a file or of a run's header; what is not set has the trainer's default where that is known."""
        ...

    def patch(self, changes: Sequence[Change], knobs: Knobs) -> tuple[str, ...]:
        """Word changes for this trainer, a line each; a change it has no setting for is left out."""
        ...


class WordsOnly:
    """Reads nothing: the part of a dialect that has no configuration file, only words for changes."""

    def recognises(self, path: Path, start: bytes) -> bool:
        """Recognise nothing."""
        del path, start
        return False

    def read(self, path: Path) -> Mapping[str, Any]:
        """Return nothing."""
        del path
        return {}

    def knobs(self, config: Mapping[str, Any]) -> Knobs:
        """Return nothing known."""
        del config
        return Knobs()


DIALECTS = Catalogue(
    "settings",
    {
        "trl": "breadth.adapters.trl.config:SETTINGS",
        "verl": "breadth.adapters.verl.config:SETTINGS",
        "openrlhf": "breadth.adapters.openrlhf.config:SETTINGS",
        "nemo-rl": "breadth.adapters.nemo_rl.config:SETTINGS",
        "vllm": "breadth.adapters.vllm.dialect:SETTINGS",
        "sglang": "breadth.adapters.sglang.dialect:SETTINGS",
        "llama-cpp": "breadth.adapters.llama_cpp.dialect:SETTINGS",
        "policy": "breadth.doctor.words.policy_words:SETTINGS",
    },
)
"""Every dialect by trainer or server; ``policy`` words changes for our own policy.toml."""


def dialect_of(trainer: str) -> Dialect | None:
    """Return a trainer's or server's dialect; None where we do not speak it."""
    try:
        found: Dialect = DIALECTS.load(trainer)
    except CatalogueError:
        return None
    return found
