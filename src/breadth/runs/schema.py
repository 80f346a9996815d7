"""The columns of a run folder: what each is called, its type and what it means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

SCHEMA_VERSION = 1
"""Raised when a reader of the old layout would misread the new one."""

Split = Literal["train", "eval"]
"""Which problems a row is about: the ones trained on, or held-out ones."""


@dataclass(frozen=True)
class Column:
    """One column of a rollouts or problems file."""

    name: str
    """Name on disk and in SQL."""
    type: pa.DataType
    """Arrow type it is stored as."""
    meaning: str
    """What a row holds there."""


ROLLOUT_COLUMNS = (
    Column("step", pa.int64(), "Optimiser step the rollout was drawn for."),
    Column("split", pa.string(), "train or eval."),
    Column("problem", pa.string(), "Id of the problem; its text is in problems.parquet."),
    Column("group", pa.string(), "Rollouts scored together; empty where the trainer does not say, then the problem is the group."),
    Column("sample", pa.int32(), "Place of the rollout inside its file or group."),
    Column("completion", pa.string(), "Text the policy wrote."),
    Column("answer", pa.string(), "Final answer as stated in the text or by the trainer; null when none can be read."),
    Column("reward", pa.float64(), "Total reward as the trainer saw it."),
    Column("correct", pa.bool_(), "Whether the answer is right; null where neither a grade nor a two-valued reward says."),
    Column("advantage", pa.float64(), "Advantage of the whole rollout."),
    Column("tokens", pa.int32(), "Tokens in the completion."),
    Column("truncated", pa.bool_(), "Whether the completion was cut at the length cap."),
    Column("token_ids", pa.list_(pa.int32()), "Token ids of the completion."),
    Column("logprobs", pa.list_(pa.float32()), "Log-probability of each sampled token under the current policy."),
    Column("old_logprobs", pa.list_(pa.float32()), "The same under the policy that sampled."),
    Column("entropy", pa.list_(pa.float32()), "Entropy of the policy at each token, in nats."),
    Column("advantages", pa.list_(pa.float32()), "Advantage of each token."),
    Column("mask", pa.list_(pa.bool_()), "True where the token counts."),
    Column("extra", pa.string(), "What else the trainer wrote, as JSON."),
)
"""Columns of ``rollouts/*.parquet``; all but step and problem may be absent. Reward components are ``reward/<name>``."""

PROBLEM_COLUMNS = (
    Column("problem", pa.string(), "Id of the problem."),
    Column("prompt", pa.string(), "Prompt as the policy saw it."),
    Column("reference", pa.string(), "Reference answer, where the trainer has one."),
    Column("origin", pa.string(), "Data set or environment the problem comes from."),
)
"""Columns of ``problems.parquet``."""

REQUIRED = ("step", "problem")
REWARD_PREFIX = "reward/"
ROLLOUT_TYPES = {column.name: column.type for column in ROLLOUT_COLUMNS}
PROBLEM_SCHEMA = pa.schema([(column.name, column.type) for column in PROBLEM_COLUMNS])


def column_type(name: str) -> pa.DataType | None:
    """Return the type a rollouts column must have, or None when the schema has no such column."""
    if name.startswith(REWARD_PREFIX):
        return pa.float64()
    return ROLLOUT_TYPES.get(name)


@dataclass(frozen=True)
class EntropyKind:
    """Which of the numbers called "entropy" a series is: only series of one kind may be compared.

    Trainers log at least four: exact over the vocabulary (TRL, prime-rl), the same summed with the loss's own mode (verl),
    minus the log-probability of the sampled token (tinker), importance-weighted (NeMo-RL); servers a fifth, over
    the top-k tokens.
    """

    estimator: Literal["exact", "sampled", "weighted", "top-k", "unknown"] = "unknown"
    """exact = full vocabulary; sampled = -log p of the drawn token; weighted = importance-weighted; top-k = renormalised top k."""
    temperature: float | None = None
    """Temperature the logits were divided by first; None when the log does not say."""
    aggregation: Literal["token-mean", "sequence-mean", "sequence-sum", "loss-mode", "unknown"] = "unknown"
    """How tokens became one number; loss-mode = whatever the loss uses, so nats per sequence under a summing loss."""
    token_set: Literal["response", "all", "forking", "unknown"] = "unknown"
    """Which tokens were counted."""
    top_k: int | None = None
    """How many tokens a top-k estimator sees."""

    def comparable(self, other: EntropyKind) -> bool:
        """Say whether two series measure the same quantity; an unknown part is comparable with nothing but its own run."""
        return self == other and "unknown" not in (self.estimator, self.aggregation, self.token_set)
