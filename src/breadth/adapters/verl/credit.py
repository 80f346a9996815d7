"""The credit stage in verl's trainer: verl's scored batch becomes Rollouts, the advantages become verl's fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from verl.workers.utils.padding import response_to_nested

from breadth.adapters.verl.loss import ROW_FIELD
from breadth.base.errors import MechanismError
from breadth.measure.answers import stated_key
from breadth.runs.writer import problem_id
from breadth.training.objective import Objective
from breadth.training.records import Rollouts, not_none

REQUIRED_FIELDS = ("response_mask", "rm_scores", "token_level_rewards", "advantages", "extra_fields")
"""Fields of verl's batch the credit stage always reads; verl omits those it does not have."""
FIELD_SOURCES = {"entropy": "entropy", "texts": "responses", "outcomes": "responses", "problems": "prompts"}
"""Our optional field -> the field of verl it is computed from."""


@dataclass(frozen=True)
class Sessions:
    """Which rows of verl's batch are rollouts.

    A row is one output of an agent loop; the last output of a session represents it, as in verl's GRPO.
    """

    finals: list[int]
    """Row of each session's last output, in the order of the rows."""
    firsts: list[int]
    """Row of each session's first output: its prompt is the problem."""
    groups: list[int]
    """Number of the group of each session."""
    places: list[int]
    """Index of each row's session; -1 for the rows verl added as padding."""

    @classmethod
    def from_keys(cls, keys: Sequence[str], tags: Sequence[Mapping[str, Any]]) -> Sessions:
        """Read verl's keys, ``<uid>_<session>_<output>``."""
        rows: dict[tuple[str, str], list[tuple[int, int]]] = {}
        for row, (key, tag) in enumerate(zip(keys, tags, strict=True)):
            if not tag.get("is_padding", False):
                uid, session, output = key.rsplit("_", 2)
                rows.setdefault((uid, session), []).append((int(output), row))
        sessions = sorted(rows, key=lambda name: max(rows[name])[1])
        numbers = {uid: number for number, uid in enumerate(dict.fromkeys(uid for uid, _ in sessions))}
        places = [-1] * len(keys)
        for place, name in enumerate(sessions):
            for _, row in rows[name]:
                places[row] = place
        finals, firsts = [max(rows[name])[1] for name in sessions], [min(rows[name])[1] for name in sessions]
        return cls(finals, firsts, [numbers[uid] for uid, _ in sessions], places)


@dataclass(frozen=True)
class CreditStage:
    """A chain's credit stage in verl's trainer, which holds the rollouts of all ranks."""

    objective: Objective
    """Runs the mechanisms of the credit stage."""
    tokenizer: Any = None
    """Decodes prompts and responses if a mechanism needs their text."""
    max_response_length: int | None = None
    """Maximum response length; a response of this length is truncated."""

    @property
    def needs(self) -> set[str]:
        """Optional fields its mechanisms read."""
        return {field for mechanism in self.objective.chain.mechanisms for field in mechanism.needs}

    @property
    def fields(self) -> list[str]:
        """Fields to fetch from verl's batch."""
        return list(
            dict.fromkeys(
                [*REQUIRED_FIELDS, *(FIELD_SOURCES[field] for field in sorted(self.needs) if field in FIELD_SOURCES)]
            )
        )

    def compute_advantages(
        self, data: Any, keys: Sequence[str], tags: Sequence[Mapping[str, Any]]
    ) -> tuple[dict[str, Tensor], dict[str, float]]:
        """Return the fields of verl's batch to write back, nested as verl keeps them, and the metrics."""
        sessions = Sessions.from_keys(keys, tags)
        rollouts, metrics = self.objective.credit(self.rollouts(data, sessions))
        nested, mask = _nest(data["response_mask"]), _pad(data["response_mask"]).bool()
        written = {
            "advantages": response_to_nested(_advantages_per_row(rollouts, sessions, mask), nested),
            ROW_FIELD: torch.arange(len(keys)),
        }
        dropped = ~torch.cat([not_none(rollouts.kept), torch.ones(1, dtype=torch.bool)])[sessions.places]
        if dropped.any():
            left = response_to_nested((mask & ~dropped[:, None]).to(nested.dtype), nested)
            written |= {"response_mask": left, "loss_mask": left}
        return written, {f"breadth/{name}": value for name, value in metrics.items()}

    def rollouts(self, data: Any, sessions: Sessions) -> Rollouts:
        """Return the sessions' last outputs as our record, with only the fields the chain needs."""
        rows = torch.tensor(sessions.finals, dtype=torch.int64)
        mask = _pad(data["response_mask"]).bool()[rows]
        rewards = data["token_level_rewards"] if "token_level_rewards" in data else data["rm_scores"]
        lengths = _nest(data["response_mask"]).offsets().diff()[rows]
        return Rollouts(
            rewards=_pad(rewards).sum(-1)[rows],
            groups=torch.tensor(sessions.groups, dtype=torch.int64),
            lengths=mask.sum(-1),
            advantages=_per_rollout(_pad(data["advantages"])[rows], mask),
            mask=mask,
            entropy=_pad(data["entropy"])[rows] if "entropy" in self.needs else None,
            truncated=lengths >= self.max_response_length if self.max_response_length else None,
            **self._optional_fields(data, sessions),
        )

    def _optional_fields(self, data: Any, sessions: Sessions) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        if self.needs & {"texts", "outcomes"}:
            fields["texts"] = self._texts(data["responses"], sessions.finals)
        if "outcomes" in self.needs:
            fields["outcomes"] = [stated_key(text) for text in fields["texts"]]
        if "problems" in self.needs:
            fields["problems"] = [problem_id(text) for text in self._texts(data["prompts"], sessions.firsts)]
        fields["correct"] = _accuracies(
            data["extra_fields"] if "extra_fields" in data else [{}] * len(data), sessions.finals
        )
        if fields["correct"] is None and "correct" in self.needs:
            raise MechanismError(
                "The chain reads which answers are correct, and the reward function reports no accuracy.",
                "Let the reward function return a dictionary with 'score' and 'acc' (1 correct, 0 wrong).",
            )
        return fields

    def _texts(self, nested: Tensor, rows: Sequence[int]) -> list[str]:
        ids = nested.unbind()
        return [self.tokenizer.decode(ids[row], skip_special_tokens=True) for row in rows]


def _pad(values: Tensor) -> Tensor:
    """Return a field as (rows, T); verl may pass responses of one length unnested."""
    return values.to_padded_tensor(0) if values.is_nested else values


def _nest(values: Tensor) -> Tensor:
    return values if values.is_nested else torch.nested.as_nested_tensor(list(values.unbind()), layout=torch.jagged)


def _accuracies(extra_fields: Any, rows: Sequence[int]) -> Tensor | None:
    """Return the accuracy that the user's reward function reports with the score; None if it reports none."""
    tables = [extra if isinstance(extra, dict) else extra.data for extra in list(extra_fields)]
    grades = [(tables[row].get("reward_extra_info") or {}).get("acc") for row in rows]
    if all(grade is None for grade in grades):
        return None
    return torch.tensor([float("nan") if grade is None else float(grade) for grade in grades])


def _per_rollout(advantages: Tensor, mask: Tensor) -> Tensor:
    """Return verl's advantages as one value per rollout if all its tokens share one, as in GRPO."""
    first = advantages.gather(1, mask.int().argmax(1, keepdim=True))
    return (
        first[:, 0] * mask.any(1)
        if torch.equal(torch.where(mask, advantages, first), first.expand_as(mask))
        else advantages
    )


def _advantages_per_row(rollouts: Rollouts, sessions: Sessions, mask: Tensor) -> Tensor:
    """Return (rows, T) advantages: a session's go to all its rows, padding rows get none."""
    values = not_none(rollouts.advantages)
    if values.ndim == 2 and len(set(sessions.places) - {-1}) < sum(place >= 0 for place in sessions.places):
        raise MechanismError(
            "The chain sets advantages per token, but agent loops returned several outputs for one session.",
            "Use mechanisms that set one advantage per rollout, or an agent loop with one output per session.",
        )
    values = torch.cat([values, values.new_zeros(1, *values.shape[1:])])[sessions.places]
    values = (
        values[:, None].expand(-1, mask.shape[1])
        if values.ndim == 1
        else torch.nn.functional.pad(values, (0, mask.shape[1] - values.shape[1]))
    )
    return torch.where(mask, values, 0.0).float()
