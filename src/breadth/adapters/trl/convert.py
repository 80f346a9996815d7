"""What TRL's GRPOTrainer holds, as our records: its scored completions as Rollouts, its micro-batches as a Batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise
from typing import Any, Protocol

import torch
from torch import Tensor

from breadth.base.errors import MechanismError
from breadth.measure.answers import stated_key
from breadth.runs.writer import problem_id
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
ROWS_KEY, PLANNING_KEY = "breadth_rows", "breadth_planning"
"""Keys under which each sequence's number, and which of its tokens plan, ride in TRL's buffer."""


class Marker(Protocol):
    """Says which tokens of a text plan; `StrategicGrams` is one."""

    def mark_tokens(self, text: str, offsets: Sequence[tuple[int, int]]) -> Sequence[bool]:
        """Say for each token, given the (start, end) of its characters in the text, whether it plans."""


@dataclass(frozen=True)
class ScoredCompletions:
    """One process's completions of one generation, as TRL had them when it asked for rewards."""

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
    """Name of the reward function that is the grade (1 right, 0 wrong); None: the only one there is."""
    outcome: Callable[[str], str | None] | None = None
    """Completion text -> its final answer in canonical form; None: the answer stated in the text, by
    `breadth.answer_key`.
    """
    grams: Marker | None = None
    """What marks planning tokens."""

    def fields(self, reward_names: Sequence[str]) -> set[str]:
        """Return the optional fields that can be provided beyond what every batch has."""
        given = {"problems", "outcomes", "texts", "truncated", "mask", "entropy"}
        given |= (
            {"correct"} if self.correct in reward_names or (self.correct is None and len(reward_names) == 1) else set()
        )
        planning = set() if self.grams is None else {"credit.planning", "loss.planning"}
        return {f"credit.{name}" for name in given} | planning


def plain_text(message: Any) -> str:
    """Return a prompt or completion as text, a conversation by the contents of its messages."""
    if isinstance(message, str):
        return message
    contents = (part.get("content") for part in message) if isinstance(message, list) else ()
    return "\n".join(_content(content) for content in contents if content)


def to_rollouts(
    trainer: Any, output: Mapping[str, Any], scored: ScoredCompletions, providers: Providers, needs: frozenset[str]
) -> Rollouts:
    """Return this process's completions of one generation; only the fields the chain needs are worked out."""
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
    """Return which completion tokens count: generated ones, no tool output."""
    mask: Tensor = inputs["completion_mask"]
    return mask * inputs["tool_mask"] if "tool_mask" in inputs else mask


def forward_pass(
    trainer: Any, model: Any, inputs: Mapping[str, Any], batch_size: int | None = None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return (log-probabilities, entropies, auxiliary loss) of the completion tokens: TRL's own forward pass, logits never materialised.

    All sequences at once, or ``batch_size`` of them at a time.
    """
    input_ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
    attention = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
    extras = {key: inputs.get(key) for key in FORWARD_KEYS}
    found: tuple[Tensor, Tensor, Tensor | None] = trainer._get_per_token_logps_and_entropies(
        model,
        input_ids,
        attention,
        inputs["completion_ids"].size(1),
        batch_size=batch_size,
        compute_entropy=True,
        compute_aux_loss=trainer.aux_loss_enabled,
        **extras,
    )
    return found


def to_batch(inputs: Mapping[str, Any], logprobs: Tensor, entropy: Tensor) -> Batch:
    """Return one of TRL's micro-batches as our record."""
    return Batch(
        logprobs=logprobs,
        advantages=inputs["advantages"],
        mask=loss_mask(inputs).bool(),
        old_logprobs=inputs.get("old_per_token_logps"),
        rows=inputs.get(ROWS_KEY),
        entropy=entropy,
        reference_logprobs=inputs.get("ref_per_token_logps"),
        planning=inputs.get(PLANNING_KEY),
        weights=_sampler_weights(inputs, logprobs),
    )


def _sampler_weights(inputs: Mapping[str, Any], like: Tensor) -> Tensor | None:
    """Return the correction for a sampler (vLLM) whose probabilities differ from the trainer's, as weights of the policy loss."""
    correction = inputs.get("importance_sampling_ratio")
    return None if correction is None else correction.expand_as(like).to(like.dtype)


def read_grades(trainer: Any, scores: Tensor, providers: Providers, *, strict: bool) -> Tensor | None:
    """Return everybody's grades; without a word from the user or the chain, those of the only reward function if it says right or wrong.

    Decided by the scores of all processes, so that all of them have grades or none.
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
            f"The grade must be 1 for a right answer and 0 for a wrong one; {grader} gave {float(strange[0]):g}.",
            "Name the reward function that grades: BreadthGRPOTrainer(..., correct='<its name>').",
        )
    return grades


def mark_planning(trainer: Any, scored: ScoredCompletions, grams: Marker, mask: Tensor) -> Tensor:
    """Mark the tokens that plan; tokens are decoded one by one, so that their places in the text are exact."""
    marked = torch.zeros_like(mask, dtype=torch.bool)
    known = _token_texts(trainer._tokenizer, {token for ids in scored.token_ids for token in ids})
    for row, ids in enumerate(scored.token_ids):
        pieces = [known[token] for token in ids]
        ends = torch.tensor([0, *map(len, pieces)]).cumsum(0).tolist()
        found = grams.mark_tokens("".join(pieces), list(pairwise(ends)))
        marked[row, : len(found)] = torch.tensor(found, dtype=torch.bool, device=mask.device)[: mask.shape[1]]
    return marked


def _token_texts(tokenizer: Any, tokens: Iterable[int]) -> dict[int, str]:
    """Return each token's text as it stands after another one: decoded alone, many tokenizers take its blank away."""
    anchor = tokenizer("a", add_special_tokens=False)["input_ids"][-1]
    start = len(tokenizer.decode([anchor]))
    return {token: tokenizer.decode([anchor, token])[start:] for token in tokens}


def _content(content: Any) -> str:
    """Return the content of a message as text; an image by a digest, for the name Python gives it is new in every epoch."""
    if isinstance(content, str) or not isinstance(content, list):
        return str(content)
    return "\n".join(_part(part) for part in content)


def _part(part: Any) -> str:
    if not isinstance(part, Mapping):
        return str(part)
    value: Any = part.get(part.get("type", "text"))
    return f"<{part['type']} {sha256(value.tobytes()).hexdigest()[:16]}>" if hasattr(value, "tobytes") else str(value)
