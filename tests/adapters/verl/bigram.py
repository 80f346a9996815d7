"""A policy small enough to check by hand, with batches as verl's workers hold them: what the verl tests train."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from verl.utils import tensordict_utils as tu
from verl.workers.utils.losses import TensorDict
from verl.workers.utils.padding import no_padding_2_padding

from breadth.training.records import Batch

WORDS = 7
TEMPERATURE = 1.0


def nested(rows: list[Tensor]) -> Tensor:
    return torch.nested.as_nested_tensor(rows, layout=torch.jagged)


def generation(count: int = 8, seed: int = 0) -> TensorDict:
    """Make rollouts with prompts and responses of different lengths.

    Old log-probs off by some noise, tool output inside some responses.
    """
    draw = torch.Generator().manual_seed(seed)
    lengths = [
        (int(torch.randint(1, 4, (1,), generator=draw)), int(torch.randint(2, 7, (1,), generator=draw)))
        for _ in range(count)
    ]
    prompts = [torch.randint(0, WORDS, (prompt,), generator=draw) for prompt, _ in lengths]
    responses = [torch.randint(0, WORDS, (response,), generator=draw) for _, response in lengths]
    masks = [torch.ones(response, dtype=torch.int64) for _, response in lengths]
    for row in range(0, count, 3):
        masks[row][1] = 0
    whole = {
        "prompts": nested(prompts),
        "responses": nested(responses),
        "input_ids": nested([torch.cat(pair) for pair in zip(prompts, responses, strict=True)]),
        "response_mask": nested(masks),
        "loss_mask": nested([mask.clone() for mask in masks]),
        "advantages": nested([torch.randn(1, generator=draw).expand(response).clone() for _, response in lengths]),
        "rollout_is_weights": nested([0.5 + torch.rand(response, generator=draw) for _, response in lengths]),
        "breadth_row": torch.arange(count),
    }
    data = TensorDict(whole, batch_size=count)
    noise = nested([0.3 * torch.randn(response, generator=draw) for _, response in lengths])
    output = Bigram(seed=1).output(data)
    old, entropy = (no_padding_2_padding(output[name].detach(), data) for name in ("log_probs", "entropy"))
    data["old_log_probs"] = nested([old[row, :length] + noise[row] for row, (_, length) in enumerate(lengths)])
    data["entropy"] = nested([entropy[row, :length] for row, (_, length) in enumerate(lengths)])
    return data


def part(data: TensorDict, rows: list[int]) -> TensorDict:
    return tu.index_select_tensor_dict(data, torch.tensor(rows))


class Bigram(torch.nn.Module):  # type: ignore[misc]  # torch is untyped here
    """Each word is drawn given the one before it."""

    def __init__(self, seed: int = 1) -> None:
        super().__init__()
        self.table = torch.nn.Parameter(torch.randn(WORDS, WORDS, generator=torch.Generator().manual_seed(seed)))

    def output(self, data: Any) -> dict[str, Tensor]:
        """Return what verl's engines return: at each position the log-prob of the next word, and the entropy."""
        ids = data["input_ids"]
        logs = torch.log_softmax(self.table[ids.values()] / TEMPERATURE, -1)
        chosen = logs.gather(1, torch.roll(ids.values(), -1)[:, None])[:, 0]
        entropy = -(logs.exp() * logs).sum(-1)
        return {
            name: torch.nested.nested_tensor_from_jagged(value, ids.offsets())
            for name, value in (("log_probs", chosen), ("entropy", entropy))
        }

    def batch(self, data: TensorDict, *, entropy: bool = True) -> Batch:
        """Return the same as our record, for the bare Objective."""
        output = self.output(data)
        names = ("response_mask", "old_log_probs", "advantages", "entropy", "rollout_is_weights")
        held = {name: data[name].to_padded_tensor(0.0) for name in names if name in data}
        return Batch(
            no_padding_2_padding(output["log_probs"], data),
            held["advantages"],
            held["response_mask"].bool(),
            old_logprobs=held["old_log_probs"],
            rows=data["breadth_row"],
            entropy=no_padding_2_padding(output["entropy"], data) if entropy else None,
            old_entropy=held["entropy"],
            weights=held.get("rollout_is_weights"),
        )

    def survey(self, data: TensorDict) -> Batch:
        """Return the record a survey in verl sees: of the policy before the generation's first update."""
        held = {
            name: data[name].to_padded_tensor(0.0)
            for name in ("response_mask", "old_log_probs", "advantages", "entropy", "rollout_is_weights")
        }
        old, entropy = held["old_log_probs"], held["entropy"]
        mask, rows, weights = held["response_mask"].bool(), data["breadth_row"], held["rollout_is_weights"]
        return Batch(
            old,
            held["advantages"],
            mask,
            old_logprobs=old,
            rows=rows,
            entropy=entropy,
            old_entropy=entropy,
            weights=weights,
        )
