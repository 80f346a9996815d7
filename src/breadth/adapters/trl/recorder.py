"""Writes the rollouts of a TRL run to a run folder during training, with the entropy of each token."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from breadth.adapters.trl.convert import ScoredCompletions
from breadth.base import settings
from breadth.runs.schema import EntropyKind, Header, to_toml_value
from breadth.runs.writer import RunWriter, problem_id
from breadth.training.chain import Chain
from breadth.training.records import Rollouts, not_none


class Recorder:
    """Collects one generation's tokens during training and writes it once all were seen; one per process."""

    def __init__(self, folder: Path, arguments: Any, chain: Chain, rank: int) -> None:
        kind = EntropyKind("exact", float(arguments.temperature), "token-mean", "response")
        config = {"trl": to_toml_value(arguments.to_dict()), "breadth": settings.to_table(chain)}
        self.writer = RunWriter(
            folder, Header(name=folder.name, trainer="trl", entropies={"entropy": kind}, config=config), rank=rank
        )
        """Where the rows go."""
        self.rank = rank
        """Number of this process."""
        self._columns: dict[str, list[Any]] = {}
        self._tokens: dict[int, dict[str, list[Any]]] = {}
        self._known: set[str] = set()
        self._first = 0
        self._step = 0
        self._part = 0

    def open(self, step: int, scored: ScoredCompletions, rollouts: Rollouts, names: list[str], first: int) -> None:
        """Begin a generation; the one before is written even if incomplete."""
        self.close()
        advantages = not_none(rollouts.advantages)
        own = scored.rewards[first : first + len(scored.texts)]
        self._part = self._part + 1 if step == self._step else 0
        self._step, self._first, self._tokens = step, first, {}
        name = f"{step}.{self._part}" if self._part else f"{step}"  # an optimizer step may span generations
        self._columns = {
            "problem": [problem_id(prompt) for prompt in scored.prompts],
            "group": [f"{name}-{int(group)}" for group in rollouts.groups],
            "sample": list(range(first, first + len(scored.texts))),
            "completion": list(scored.texts),
            "reward": [None if value != value else value for value in rollouts.rewards.tolist()],
            "advantage": (advantages if advantages.ndim == 1 else advantages.mean(1)).tolist(),
            "tokens": rollouts.lengths.tolist(),
            "truncated": not_none(rollouts.truncated).tolist(),
            "token_ids": [list(ids) for ids in scored.token_ids],
            **{
                f"reward/{name}": [None if value != value else value for value in own[:, place].tolist()]
                for place, name in enumerate(names)
            },
        }
        if rollouts.correct is not None:
            self._columns["correct"] = [None if value != value else value > 0.5 for value in rollouts.correct.tolist()]
        if rollouts.outcomes is not None:
            self._columns["answer"] = list(rollouts.outcomes)
        new = {
            problem: prompt
            for problem, prompt in zip(self._columns["problem"], scored.prompts, strict=True)
            if problem not in self._known
        }
        if new:  # the writer reads and writes the whole file
            self.writer.problems({"problem": list(new), "prompt": list(new.values())})
            self._known |= new.keys()

    def tokens(self, rows: Tensor, mask: Tensor, logprobs: Tensor, entropy: Tensor) -> None:
        """Add the tokens of a micro-batch the first time they are seen."""
        fresh = [place for place, row in enumerate(rows.tolist()) if row not in self._tokens]
        if not fresh or not self._columns:
            return
        values = {"mask": mask, "logprobs": logprobs.detach(), "entropy": entropy.detach()}
        plain = {name: value[fresh].tolist() for name, value in values.items()}
        for place, row in enumerate(rows[fresh].tolist()):
            length = self._columns["tokens"][row - self._first]
            # TRL's forward pass gives zeros for a rollout that was dropped or fully masked.
            counted = any(plain["mask"][place])
            self._tokens[row] = {
                name: value[place][:length] for name, value in plain.items() if counted or name == "mask"
            }
        if len(self._tokens) == len(self._columns["problem"]):
            self.close()

    def metrics(self, step: int, values: Mapping[str, Any]) -> None:
        """Write the numbers TRL logs; those of an evaluation by their plain names."""
        numbers = {
            name: float(value)
            for name, value in values.items()
            if isinstance(value, int | float) and not isinstance(value, bool)
        }
        evaluated = any(name.startswith("eval_") for name in numbers)
        plain = {name.removeprefix("eval_"): value for name, value in numbers.items()} if evaluated else numbers
        self.writer.metrics(step, plain, split="eval" if evaluated else "train")

    def close(self) -> None:
        """Write the current generation."""
        if not self._columns:
            return
        rows = range(self._first, self._first + len(self._columns["problem"]))
        for name in ("mask", "logprobs", "entropy"):
            self._columns[name] = [self._tokens.get(row, {}).get(name) for row in rows]
        self.writer.rollouts(self._columns, self._step)
        self._columns = {}
