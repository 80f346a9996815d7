"""Drives verl's own worker loss on given log-probabilities and entropies, with its policy losses or our adapter."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from verl.utils import tensordict_utils as tu
from verl.workers.config import FSDPActorConfig, PolicyLossConfig
from verl.workers.utils.losses import TensorDict, ppo_loss

from breadth.adapters.verl.loss import BreadthLoss, LossStage, stage_loss
from breadth.training.chain import Chain
from tests.adapters.same_tensors import Outcome, Tokens, leaves


def theirs(
    data: Tokens, mode: str, parts: int = 1, *, policy_loss: dict[str, Any] | None = None, **settings: Any
) -> Outcome:
    """Return what one of verl's policy losses gives over one optimizer step."""
    return _step(
        partial(ppo_loss, _actor(PolicyLossConfig(loss_mode=mode, **(policy_loss or {})), settings)), data, parts
    )


def alone(chain: Chain, data: Tokens, parts: int = 1, **settings: Any) -> Outcome:
    """Return what a chain gives as a policy loss under verl's own trainers."""
    return _step(
        partial(ppo_loss, _actor(BreadthLoss(loss_mode="breadth", chain=chain.dumps()), settings)), data, parts
    )


def ours(chain: Chain, data: Tokens, parts: int = 1, **settings: Any) -> Outcome:
    """Return what our worker gives: the whole loss stage, begun and ended around the step."""
    stage = LossStage(chain)
    actor = _actor(BreadthLoss(loss_mode="breadth", chain=chain.dumps()), settings)
    stage.begin(whole(data)[0])
    outcome = _step(partial(stage_loss, config=actor, stage=stage), data, parts)
    stage.finish()
    return outcome


def _actor(policy_loss: Any, settings: dict[str, Any]) -> Any:
    return FSDPActorConfig(rollout_n=2, ppo_micro_batch_size_per_gpu=1, policy_loss=policy_loss, **settings)


def _step(loss: Any, data: Tokens, parts: int) -> Outcome:
    logprobs, entropy = leaves(data)
    total = 0.0
    for rows in data.cut(parts):
        batch, output = whole(data, logprobs, entropy, rows)
        tu.assign_non_tensor(batch, dp_size=1, batch_num_tokens=int(data.mask.sum()), global_batch_size=len(data.mask))
        part, _ = loss(model_output=output, data=batch, dp_group=None)
        part.backward()
        total += float(part.detach())
    return Outcome.of(total, logprobs, entropy)


def whole(
    data: Tokens, logprobs: Tensor | None = None, entropy: Tensor | None = None, rows: list[int] | None = None
) -> tuple[Any, dict[str, Tensor]]:
    """Return verl's batch and its model's output: responses without padding, each after a prompt of its own length."""
    rows = list(range(len(data.mask))) if rows is None else rows
    spread = data.advantages if data.advantages.ndim == 2 else data.advantages[:, None].expand_as(data.mask)
    weights = {} if data.weights is None else {"rollout_is_weights": data.weights}
    fields = {
        "responses": data.mask.long(),
        "response_mask": data.mask.long(),
        "old_log_probs": data.old_logprobs,
        "advantages": spread,
        "entropy": data.entropy,
        "ref_log_prob": data.reference,
        **weights,
    }
    held = {name: nested([value[row, : data.lengths[row]] for row in rows]) for name, value in fields.items()}
    held |= {
        "prompts": nested([torch.zeros(1 + row % 3, dtype=torch.int64) for row in rows]),
        "breadth_row": torch.tensor(rows),
    }
    output = {
        "log_probs": data.logprobs if logprobs is None else logprobs,
        "entropy": data.entropy if entropy is None else entropy,
    }
    return TensorDict(held, batch_size=len(rows)), {
        name: _output(value, data.lengths, rows) for name, value in output.items()
    }


def _output(values: Tensor, lengths: list[int], rows: list[int]) -> Tensor:
    """Return what verl's engine returns: at each position, prompt included, the value of the next token."""
    return nested(
        [torch.cat([values.new_zeros(row % 3), values[row, : lengths[row]], values.new_zeros(1)]) for row in rows]
    )


def nested(rows: list[Tensor]) -> Tensor:
    """Return rows of different lengths as verl keeps them."""
    return torch.nested.as_nested_tensor(rows, layout=torch.jagged)
