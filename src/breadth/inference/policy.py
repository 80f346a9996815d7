"""A policy: how to spend breadth on a question, as one file that `tune` writes and `solve` and `serve` read."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from breadth.base.errors import BrokenFileError, SettingsError
from breadth.base.settings import from_table, load
from breadth.inference.catalogue import STRATEGIES
from breadth.inference.halting import Halt
from breadth.inference.records import Budget, Prices, Prompt, Reading, Sampling, Task
from breadth.inference.strategies.adaptive_vote import AdaptiveVote
from breadth.inference.strategy import Strategy


@dataclass(frozen=True)
class Policy:
    """A strategy with its sampling parameters, its way to read answers, and its budget."""

    strategy: Strategy = AdaptiveVote()
    """What to sample and which answer to return."""
    sampling: Sampling = Sampling()
    """Sampling parameters."""
    reading: Reading = Reading()
    """How to find the answer in a completion."""
    budget: Budget = Budget()
    """Limits for one question."""
    prices: Prices = Prices()
    """Prices of tokens."""
    model: str = ""
    """Model to ask; empty for the server's only one."""
    system: str = ""
    """System message; empty for none."""
    halt: Halt | None = None
    """Rule that ends a completion while it is being written; kind ``loop`` cuts completions that repeat themselves."""

    @classmethod
    def parse(cls, text: str) -> Policy:
        """Read a policy: a ``.toml`` file, or a strategy with settings: ``adaptive-vote,most=16,stop.kind=lead``."""
        if text.endswith(".toml"):
            try:
                return load(cls, Path(text))
            except OSError as error:
                raise BrokenFileError(
                    text, f"cannot be read: {error.strerror}.", "Check the path of the policy."
                ) from error
        name, *settings = [part.strip() for part in text.split(",")]
        STRATEGIES.load(name)
        return cls(strategy=from_table(Strategy, {"kind": name, **parse_settings(settings)}, "policy"))  # type: ignore[type-abstract] # the family

    def task(
        self, prompt: Prompt, *, name: str = "task", seed: int = 0, options: Mapping[str, Any] | None = None
    ) -> Task:
        """Return a question as a task under this policy; a text becomes a chat with one message."""
        if isinstance(prompt, str):
            prompt = ({"role": "user", "content": prompt},)
        if self.system:
            prompt = ({"role": "system", "content": self.system}, *prompt)
        return Task(prompt, name, self.model, self.sampling, self.reading, seed, options or {}, halt=self.halt)


def parse_settings(settings: list[str]) -> dict[str, Any]:
    """Return ``a.b=1`` settings as nested tables; values are TOML, words need no quotes."""
    table: dict[str, Any] = {}
    for setting in settings:
        path, found, value = setting.partition("=")
        if not found:
            raise SettingsError(
                f"In the policy: got {setting!r}, need <setting>=<value>.", "Write for example adaptive-vote,most=16."
            )
        *parents, last = path.strip().split(".")
        inner = table
        for parent in parents:
            inner = inner.setdefault(parent, {})
            if not isinstance(inner, dict):
                raise SettingsError(
                    f"In the policy: '{parent}' is given a value and settings of its own.",
                    "Write for example adaptive-vote,stop.kind=lead,stop.votes=3.",
                )
        try:
            inner[last] = tomllib.loads(f"value = {value.strip()}")["value"]
        except (ValueError, RecursionError):  # no TOML, a number of thousands of digits, brackets without end
            inner[last] = value.strip()
    return table
