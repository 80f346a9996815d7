"""Drives `_compute_loss` of real TRL trainers, TRL's own and ours, on given log-probabilities and entropies."""

from __future__ import annotations

import json
from typing import Any

import torch

from breadth.training.chain import Chain
from breadth.training.objective import Objective
from tests.adapters.same_tensors import Outcome, Tokens, leaves


class Driver:
    """Builds a tiny trainer for each set of settings, and uses the given tensors instead of the model's."""

    def __init__(self, tiny: Any) -> None:
        self.tiny, self.model = tiny, tiny.model
        self.start = tiny.folder / "start"
        self.model().save_pretrained(
            self.start
        )  # with beta, TRL loads the reference policy from where the model came from
        self.built: dict[str, Any] = {}

    def theirs(self, data: Tokens, parts: int = 1, *, generated: int | None = None, **settings: Any) -> Outcome:
        """Return TRL's own loss over one optimizer step; ``generated``: tokens of its whole generation, if not all."""
        return self._step(self._trainer(data, parts, None, settings), data, parts, generated)

    def ours(self, chain: Chain, data: Tokens, parts: int = 1, **settings: Any) -> Outcome:
        """Return what our trainer gives over the same step."""
        return self._step(self._trainer(data, parts, chain, settings), data, parts)

    def trainer(self, objective: Chain | None = None, **settings: Any) -> Any:
        """Return a trainer, built once for all who ask for the same."""
        key = json.dumps([settings, objective and objective.dumps()], sort_keys=True)
        if key not in self.built:
            self.tiny.model = (lambda: str(self.start)) if "beta" in settings else self.model
            self.built[key] = self.tiny.trainer(
                f"conformance-{len(self.built)}", objective, num_generations=2, **settings
            )
        if objective is not None:
            self.built[key].objective = Objective(self.built[key].objective.chain)  # at step 0 again, by which it draws
        return self.built[key]

    def _trainer(self, data: Tokens, parts: int, chain: Chain | None, settings: dict[str, Any]) -> Any:
        rows, width = data.mask.shape
        sizes = {
            "per_device_train_batch_size": rows // parts,
            "gradient_accumulation_steps": parts,
            "max_completion_length": width,
        }
        return self.trainer(chain, **sizes, **settings)

    def _step(self, trainer: Any, data: Tokens, parts: int, generated: int | None = None) -> Outcome:
        logprobs, entropy = leaves(data)

        def told(model: Any, input_ids: Any, *_: Any, **__: Any) -> Any:
            rows = input_ids[:, -1]  # the completions' ids are their rows
            return logprobs[rows], entropy[rows], None

        trainer._get_per_token_logps_and_entropies = told
        trainer.model.train()
        trainer.use_vllm = data.weights is not None  # TRL looks for a sampler's correction under vLLM only
        trainer.current_gradient_accumulation_steps = parts
        micros = [self._inputs(data, rows, generated or int(data.mask.sum())) for rows in data.cut(parts)]
        trainer._buffered_inputs, total = micros * (trainer.args.steps_per_generation // parts), 0.0
        for trainer._step, inputs in enumerate(micros):
            trainer.accelerator.gradient_state._set_sync_gradients(trainer._step == parts - 1)
            loss = trainer._compute_loss(trainer.model, inputs)
            loss.backward()
            total += float(loss.detach())
        return Outcome.of(total, logprobs, entropy)

    def _inputs(self, data: Tokens, rows: list[int], generated: int) -> dict[str, Any]:
        """Return one of TRL's micro-batches: responses padded on the right, tool output apart from the padding."""
        width = data.mask.shape[1]
        inside = torch.arange(width) < torch.tensor(data.lengths)[rows][:, None]
        inputs = {
            "prompt_ids": torch.zeros(len(rows), 1, dtype=torch.int64),
            "prompt_mask": torch.ones(len(rows), 1, dtype=torch.int64),
            "completion_ids": torch.tensor(rows)[:, None].expand(-1, width),
            "completion_mask": (inside & (data.mask[rows].any(1, keepdim=True))).long(),
            "tool_mask": data.mask[rows].long(),
            "advantages": data.advantages[rows],
            "old_per_token_logps": data.old_logprobs[rows],
            "ref_per_token_logps": data.reference[rows],
            "num_items_in_batch": torch.tensor(generated),
            "breadth_rows": torch.tensor(rows),
        }
        return inputs if data.weights is None else inputs | {"importance_sampling_ratio": data.weights[rows]}
