"""What TRL's GRPOTrainer holds, as our records: its scored completions as Rollouts, its micro-batches as a Batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise
from typing import Any, Protocol

import torch
from torch import Tensor

from breadth.base.errors import MechanismError, suggestion
from breadth.measure.answers import stated_key
from breadth.runs.writer import problem_id
from breadth.training.entropy import ENTROPY_GRADIENT
from breadth.training.records import Batch, Rollouts

FORWARD_KEYS = (
    "pixel_values",
    "image_grid_thw",
    "num_images",
    "pixel_attention_mask",
    "spatial_shapes",
    "num_tiles",
    "image_sizes",
    "token_type_ids",
    "mm_token_type_ids",
    "image_position_ids",
)
"""Inputs of a multimodal model that TRL hands to its own forward pass."""
ROWS_KEY, PLANNING_KEY, OLD_ENTROPY_KEY = "breadth_rows", "breadth_planning", "breadth_old_entropy"
"""Keys of TRL's buffer for each sequence's number, the mask of its planning tokens and the old policy's entropies."""
LOSS_FIELDS = frozenset({"entropy", ENTROPY_GRADIENT, "old_entropy", "reference_logprobs", "planning"})
"""Optional fields of the loss stage that TRL can provide: reference_logprobs with ``beta``, planning with ``grams``."""
CREDIT_FIELDS = frozenset({"problems", "outcomes", "texts", "truncated", "mask", "entropy", "correct", "planning"})
"""Optional fields of the credit stage that TRL can provide: correct with a reward function that grades, planning with
``grams``.
"""


class Marker(Protocol):
    """Marks planning tokens; `StrategicGrams` is one."""

    def mark_tokens(self, text: str, offsets: Sequence[tuple[int, int]]) -> Sequence[bool]:
        """Return for each token, given its (start, end) characters in the text, whether it plans."""


@dataclass(frozen=True)
class ScoredCompletions:
    """One process's completions of one generation, as TRL passes them to the reward functions."""

    prompts: Sequence[str]
    """Prompt texts."""
    texts: Sequence[str]
    """Completion texts."""
    token_ids: Sequence[Sequence[int]]
    """Completion tokens."""
    rewards: Tensor
    """(all processes' completions, reward functions)."""


@dataclass(frozen=True)
class Providers:
    """Where optional fields come from."""

    correct: str | None = None
    """Name of the reward function that grades (1 correct, 0 wrong); None: the only one."""
    outcome: Callable[[str], str | None] | None = None
    """Completion text -> final answer in canonical form; None: `breadth.answer_key` of the stated answer."""
    grams: Marker | None = None
    """What marks planning tokens."""

    def fields(self, reward_names: Sequence[str], *, reference: bool = True) -> set[str]:
        """Return the optional fields that can be provided; ``reference``: whether TRL keeps a reference model."""
        if self.correct is not None and self.correct not in reward_names:
            raise MechanismError(
                f"correct='{self.correct}' is none of the reward functions.",
                suggestion(self.correct, reward_names, "reward functions"),
            )
        graded = self.correct is not None or len(reward_names) == 1
        absent = {*(() if graded else ("correct",)), *(("planning",) if self.grams is None else ())}
        loss = LOSS_FIELDS - absent - (set() if reference else {"reference_logprobs"})
        return {f"credit.{name}" for name in CREDIT_FIELDS - absent} | {f"loss.{name}" for name in loss}


def plain_text(message: Any) -> str:
    """Return a prompt or completion as text; of a conversation, the contents of its messages."""
    if isinstance(message, str):
        return message
    contents = (part.get("content") for part in message) if isinstance(message, list) else ()
    return "\n".join(content_text(content) for content in contents if content)


def to_rollouts(
    trainer: Any, output: Mapping[str, Any], scored: ScoredCompletions, providers: Providers, needs: frozenset[str]
) -> Rollouts:
    """Return this process's completions of one generation, with only the fields the chain needs."""
    rows = row_numbers(trainer, len(scored.texts))
    scores = scored.rewards[rows.to(scored.rewards.device)]
    weights = trainer.reward_weights.to(scores.device)
    unscorable = torch.isnan(scores).all(1)
    rewards = torch.where(unscorable, float("nan"), (scores * weights).nansum(1))
    grades = read_grades(trainer, scored.rewards, providers, strict=providers.correct is not None or "correct" in needs)
    mask = loss_mask(output)
    ends = [*trainer.eos_token_ids, trainer._tokenizer.pad_token_id]
    return Rollouts(
        rewards=rewards,
        groups=rows // trainer.num_generations,
        lengths=torch.tensor([len(ids) for ids in scored.token_ids]),
        advantages=output["advantages"],
        correct=None if grades is None else grades[rows.to(grades.device)],
        problems=[problem_id(prompt) for prompt in scored.prompts],
        outcomes=[(providers.outcome or stated_key)(text) for text in scored.texts] if "outcomes" in needs else None,
        texts=list(scored.texts),
        truncated=torch.tensor([not ids or ids[-1] not in ends for ids in scored.token_ids]),
        mask=mask.bool(),
        planning=(
            mark_planning(trainer, scored, providers.grams, mask)
            if providers.grams is not None and "planning" in needs
            else None
        ),
    )


def row_numbers(trainer: Any, count: int) -> Tensor:
    """Return the numbers of this process's completions among those of all processes."""
    return torch.arange(count) + trainer.accelerator.process_index * count


def loss_mask(inputs: Mapping[str, Any]) -> Tensor:
    """Return which completion tokens count: generated ones, not tool output."""
    mask: Tensor = inputs["completion_mask"]
    return mask * inputs["tool_mask"] if "tool_mask" in inputs else mask


def forward_pass(
    trainer: Any, model: Any, inputs: Mapping[str, Any], batch_size: int | None = None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return (log-probabilities, entropies, auxiliary loss) of the completion tokens by TRL's own forward pass.

    It never materialises the logits. All sequences at once, or ``batch_size`` of them at a time.
    """
    input_ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
    attention = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
    extras = {key: inputs.get(key) for key in FORWARD_KEYS}
    output: tuple[Tensor, Tensor, Tensor | None] = trainer._get_per_token_logps_and_entropies(
        model,
        input_ids,
        attention,
        inputs["completion_ids"].size(1),
        batch_size=batch_size,
        compute_entropy=True,
        compute_aux_loss=trainer.aux_loss_enabled,
        **extras,
    )
    return output


def to_batch(inputs: Mapping[str, Any], logprobs: Tensor, entropy: Tensor) -> Batch:
    """Return one of TRL's micro-batches as our record.

    The correction for a sampler (vLLM) whose probabilities differ from the trainer's becomes the weights.
    """
    correction = inputs.get("importance_sampling_ratio")
    return Batch(
        logprobs=logprobs,
        advantages=inputs["advantages"],
        mask=loss_mask(inputs).bool(),
        old_logprobs=inputs.get("old_per_token_logps"),
        rows=inputs.get(ROWS_KEY),
        entropy=entropy,
        old_entropy=inputs.get(OLD_ENTROPY_KEY),
        reference_logprobs=inputs.get("ref_per_token_logps"),
        planning=inputs.get(PLANNING_KEY),
        weights=None if correction is None else correction.expand_as(logprobs).to(logprobs.dtype),
    )


def read_grades(trainer: Any, scores: Tensor, providers: Providers, *, strict: bool) -> Tensor | None:
    """Return the grades of all processes; None if there are none and neither user nor chain asks for them.

    Unasked, the only reward function is used if it gives 0 or 1. The scores of all processes decide, so all of them
    have grades or none.
    """
    names = list(trainer.reward_func_names)
    if not strict and len(names) > 1:
        return None
    grades = scores[:, names.index(providers.correct) if providers.correct is not None else 0]
    strange = grades[torch.isfinite(grades) & (grades != 0) & (grades != 1)]
    if len(strange) and not strict:
        return None
    if len(strange):
        grader = providers.correct or names[0]
        raise MechanismError(
            f"The grade must be 1 for a correct answer and 0 for a wrong one; {grader} gave {float(strange[0]):g}.",
            "Name the reward function that grades: BreadthGRPOTrainer(..., correct='<its name>').",
        )
    return grades


def mark_planning(trainer: Any, scored: ScoredCompletions, grams: Marker, mask: Tensor) -> Tensor:
    """Mark the planning tokens; tokens are decoded one by one, so their offsets in the text are exact."""
    marked = torch.zeros_like(mask, dtype=torch.bool)
    known = token_texts(trainer._tokenizer, {token for ids in scored.token_ids for token in ids})
    for row, ids in enumerate(scored.token_ids):
        pieces = [known[token] for token in ids]
        ends = torch.tensor([0, *map(len, pieces)]).cumsum(0).tolist()
        found = grams.mark_tokens("".join(pieces), list(pairwise(ends)))
        marked[row, : len(found)] = torch.tensor(found, dtype=torch.bool, device=mask.device)[: mask.shape[1]]
    return marked


def token_texts(tokenizer: Any, tokens: Iterable[int]) -> dict[int, str]:
    """Return each token's text after another token: decoded alone, many tokenizers drop its leading blank."""
    anchor = tokenizer("a", add_special_tokens=False)["input_ids"][-1]
    start = len(tokenizer.decode([anchor]))
    return {token: tokenizer.decode([anchor, token])[start:] for token in tokens}


def content_text(content: Any) -> str:
    """Return the content of a message as text, a list by its parts."""
    return "\n".join(map(part_text, content)) if isinstance(content, list) else str(content)


def part_text(part: Any) -> str:
    """Return one part of a message as text; an image as a digest, because its repr changes in every epoch."""
    if not isinstance(part, Mapping):
        return str(part)
    value: Any = part.get(part.get("type", "text"))
    return f"<{part['type']} {sha256(value.tobytes()).hexdigest()[:16]}>" if hasattr(value, "tobytes") else str(value)
