"""Our Objective inside TRL: a GRPOTrainer with the advantages and the loss of a chain."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch
import trl
from torch import Tensor
from torch.nn import functional
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from trl import GRPOTrainer

from breadth.adapters.trl.conflicts import check_arguments, check_trl_version, trl_regime
from breadth.adapters.trl.convert import (
    FORWARD_KEYS,
    OLD_ENTROPY_KEY,
    PLANNING_KEY,
    ROWS_KEY,
    Marker,
    Providers,
    ScoredCompletions,
    forward_pass,
    loss_mask,
    mark_planning,
    plain_text,
    row_numbers,
    to_batch,
    to_rollouts,
)
from breadth.adapters.trl.history import OBJECTIVE_FILE
from breadth.adapters.trl.recorder import Recorder
from breadth.base.errors import BrokenFileError, SettingsError
from breadth.base.system import atomic_file
from breadth.training.chain import Chain
from breadth.training.mechanism import NoEffect, Stage
from breadth.training.objective import Objective
from breadth.training.ops import masked_values
from breadth.training.recipes import resolve_chain
from breadth.training.records import Batch, Rollouts, not_none
from breadth.training.reduction import Totals

ForwardOutput = tuple[Tensor, Tensor | None, Tensor | None]
"""Log-probs and entropies of the completion tokens, and an auxiliary loss."""
ForwardPass = Callable[[Tensor, Tensor, int], ForwardOutput]
"""Takes tokens, attention mask and the number of final tokens to score."""


def check_length_buckets(length_buckets: int, processes: int) -> int:
    """Return the number of length buckets if it is valid."""
    if length_buckets < 1:
        raise SettingsError(
            f"BreadthGRPOTrainer got length_buckets = {length_buckets!r}.",
            "Set length_buckets to 1 or more; 1 is one pass over all sequences.",
        )
    if length_buckets > 1 and processes > 1:
        raise SettingsError(
            f"BreadthGRPOTrainer got length_buckets = {length_buckets} with {processes} processes; several forward"
            " passes per backward are tested with one process only.",
            "Leave length_buckets at 1.",
        )
    return length_buckets


def forward_by_length(
    forward: ForwardPass, tokens: Tensor, attention: Tensor, scored: int, length_buckets: int
) -> ForwardOutput:
    """Run one forward pass per bucket of similar length; return what one pass over all rows would, with 0 on padding.

    Prompts are padded on the left, completions on the right. If lengths vary, as in reasoning, half of a batch or more
    is padding, and four to eight buckets avoid most of it. If all lengths are similar, buckets only cost time.
    """
    mask = attention[:, -scored:]
    positions = torch.arange(1, mask.shape[1] + 1, device=mask.device)
    lengths = torch.where(mask.bool(), positions, torch.zeros_like(positions)).max(1).values  # last attended position
    order = lengths.argsort(stable=True)
    outputs = [
        _forward_bucket(forward, tokens[rows], attention[rows], scored, int(lengths[rows].max()))
        for rows in order.chunk(length_buckets)
    ]
    back = order.argsort()
    logprobs = torch.cat([output[0] for output in outputs])[back]
    entropies = [output[1] for output in outputs if output[1] is not None]
    return logprobs, torch.cat(entropies)[back] if entropies else None, None


def _forward_bucket(
    forward: ForwardPass, tokens: Tensor, attention: Tensor, scored: int, longest: int
) -> ForwardOutput:
    kept = max(1, longest)
    spare = scored - kept
    first = int(attention.argmax(1).min())
    begin = max(
        0, min(first, tokens.shape[1] - scored - 1)
    )  # the token before the first scored one is needed for its log-probability
    inside = slice(begin, tokens.shape[1] - spare)
    logprobs, entropies, _ = forward(tokens[:, inside], attention[:, inside], kept)
    return (
        functional.pad(logprobs, (0, spare)),
        None if entropies is None else functional.pad(entropies, (0, spare)),
        None,
    )


_LOG = logging.getLogger(__name__)


class BreadthGRPOTrainer(GRPOTrainer):  # type: ignore[misc]  # TRL is untyped here
    """TRL's GRPOTrainer with a chain of mechanisms for its advantages and its loss; everything else is TRL's own.

    Args beyond TRL's:
        objective: a recipe's name, the path of a TOML file, a Chain or an Objective.
        correct: name of the reward function that grades (1 correct, 0 wrong); not needed if there is only one.
        outcome: completion text -> final answer in canonical form, instead of `breadth.answer_key`.
        grams: marks planning tokens, e.g. StrategicGrams.
        run: run folder for rollouts, with per-token entropies, and metrics.
        length_buckets: forward passes per micro-batch, by similar length; avoids padding if lengths vary.
    """

    def __init__(
        self,
        *args: Any,
        objective: Objective | Chain | Path | str,
        correct: str | None = None,
        outcome: Callable[[str], str | None] | None = None,
        grams: Marker | None = None,
        run: Path | str | None = None,
        length_buckets: int = 1,
        **options: Any,
    ) -> None:
        check_trl_version(trl.__version__)
        self.providers = Providers(correct, outcome, grams)
        """Where optional fields come from."""
        chain = resolve_chain(objective)
        if (arguments := options.get("args", args[2] if len(args) > 2 else None)) is not None:
            check_arguments(arguments, chain)  # before TRL loads a model
        super().__init__(*args, **options)
        chain = replace(chain, reduction=chain.reduction.with_length(self.max_completion_length))
        self.objective = objective if isinstance(objective, Objective) else Objective(chain)
        """What computes advantages and loss."""
        self.objective.chain = chain
        self.objective.attach(self.providers.fields(self.reward_func_names, reference=bool(self.beta)))
        for verdict in self.explain():
            _LOG.warning("%s", verdict)
        self._credits, self._shapes_loss = (
            bool(chain.mechanisms_of(Stage.CREDIT)),
            bool(chain.mechanisms_of(Stage.LOSS)),
        )
        self._loss_plans, self._keeps_entropy = ("loss.planning" in chain.needs, "loss.old_entropy" in chain.needs)
        self._credit_needs = frozenset(
            field.removeprefix("credit.") for field in chain.needs if field.startswith("credit.")
        )
        self._recorder = None if run is None else Recorder(Path(run), self.args, chain, self.accelerator.process_index)
        self._length_buckets = check_length_buckets(length_buckets, self.accelerator.num_processes)
        self._scored: ScoredCompletions | None = None
        self._open = False
        self._last: tuple[Tensor, Tensor] | None = None

    def train(self, *args: Any, **options: Any) -> Any:
        """Train as TRL does, from a new generation; the last one is recorded even if training stops inside it."""
        self._open, self._step = False, 0  # at a multiple of the period TRL generates
        try:
            return super().train(*args, **options)
        finally:
            if self._recorder is not None:
                self._recorder.close()

    def explain(self) -> tuple[NoEffect, ...]:
        """List the mechanisms that have no effect with these settings, with reason and remedy."""
        return self.objective.explain(trl_regime(self.args, self.accelerator.num_processes))

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Tensor:
        """Keep what TRL knows only here: texts, tokens and the reward of every function."""
        rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        texts = [plain_text(completion) for completion in completions]
        self._scored = ScoredCompletions(
            [plain_text(prompt) for prompt in prompts], texts, completion_ids_list, rewards
        )
        return rewards

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        output[ROWS_KEY] = row_numbers(self, len(self._last_scored().texts)).to(output["completion_mask"].device)
        if self.providers.grams is not None and self._loss_plans:
            output[PLANNING_KEY] = mark_planning(self, self._last_scored(), self.providers.grams, loss_mask(output))
        if self._keeps_entropy:
            output[OLD_ENTROPY_KEY] = self._old_entropy(output)
        if not self.model.training:
            return output
        if self._credits or self._recorder is not None:
            # Recorded outcomes allow votes to be counted later.
            needs = self._credit_needs if self._recorder is None else self._credit_needs | {"outcomes"}
            rollouts = to_rollouts(self, output, self._last_scored(), self.providers, needs)
            if self._credits:
                self._credit(rollouts, output)
            self._record(rollouts, output)
        return output

    def _old_entropy(self, output: dict[str, Any]) -> Tensor:
        """Return the entropies of the policy that wrote the completions, by a forward pass of their own."""
        with torch.no_grad():
            return forward_pass(self, self.model, output, self.args.per_device_train_batch_size)[1]

    def _credit(self, rollouts: Rollouts, output: dict[str, Any]) -> None:
        """Replace TRL's advantages by the chain's; dropped rollouts leave the loss and its denominator."""
        if "entropy" in self._credit_needs:
            known = output.get(OLD_ENTROPY_KEY)
            rollouts = replace(rollouts, entropy=self._old_entropy(output) if known is None else known)
        after, metrics = self.objective.credit(rollouts)
        self._log_metrics(metrics, "train")
        device = output["advantages"].device
        output["advantages"] = not_none(after.advantages).to(device=device, dtype=output["advantages"].dtype)
        kept = not_none(after.kept).to(device)
        output["completion_mask"] = output["completion_mask"] * kept[:, None]
        output["num_items_in_batch"] = self.accelerator.gather(loss_mask(output).sum()).sum()

    def _record(self, rollouts: Rollouts, output: Mapping[str, Any]) -> None:
        """Begin a generation in the run folder, with TRL's rewards and the advantages used in training."""
        if self._recorder is not None:
            credited, first = replace(rollouts, advantages=output["advantages"]), int(output[ROWS_KEY].min())
            self._recorder.open(
                self.state.global_step + 1, self._last_scored(), credited, list(self.reward_func_names), first
            )

    def _last_scored(self) -> ScoredCompletions:
        if self._scored is None:
            raise RuntimeError("TRL asked for advantages before it asked for rewards")
        return self._scored

    def _compute_loss(self, model: Any, inputs: Any) -> Tensor:
        if not self._shapes_loss:
            loss: Tensor = super()._compute_loss(model, inputs)
            self._record_tokens(inputs)
            return loss
        return self._train_loss(model, inputs) if self.model.training else self._evaluation_loss(model, inputs)

    def _train_loss(self, model: Any, inputs: Any) -> Tensor:
        """Return one micro-batch's part of the loss, scaled because distributed training averages over processes."""
        logprobs, entropy, auxiliary = forward_pass(self, model, inputs)
        batch = to_batch(inputs, logprobs, entropy)
        if not self._open:
            self._begin(model, batch)
        loss = self.objective.loss(batch) * self.accelerator.num_processes
        if auxiliary is not None:
            loss = loss + self.router_aux_loss_coef * auxiliary / self.current_gradient_accumulation_steps
        self._record_tokens(inputs)
        if self.accelerator.sync_gradients:
            self._open = False
            self._log_metrics(self.objective.finish(), "train")
        return loss

    def _begin(self, model: Any, batch: Batch) -> None:
        """Begin an optimizer step with its whole batch; for a survey, later micro-batches run without gradient."""
        window = self._window()
        if not self.objective.surveys:
            totals = [Totals.from_mask(loss_mask(inputs)) for inputs in window]
            self.objective.begin(sum(totals[1:], totals[0]))
        else:
            with torch.no_grad():
                later = [to_batch(inputs, *forward_pass(self, model, inputs)[:2]) for inputs in window[1:]]
            self.objective.begin(concatenate_batches([batch, *later]))
        self._open = True

    def _window(self) -> list[Any]:
        """Return the micro-batches of the optimizer step that begins."""
        places = range(self._step, self._step + self.current_gradient_accumulation_steps)
        return [self._buffered_inputs[place % self.args.steps_per_generation] for place in places]

    def _evaluation_loss(self, model: Any, inputs: Any) -> Tensor:
        """Return the loss of held-out rollouts, with TRL's advantages; the chain's states do not change."""
        logprobs, entropy, _ = forward_pass(self, model, inputs)
        preview = Objective(self.objective.chain)
        preview.states = list(self.objective.states)
        batch = to_batch(inputs, logprobs, entropy)
        preview.begin(batch)
        self._log_entropy(batch.mask, entropy, "eval")
        return preview.loss(batch, record=False) * self.accelerator.num_processes

    def _get_per_token_logps_and_entropies(
        self, model: Any, tokens: Tensor, attention: Tensor, scored: int, *args: Any, **options: Any
    ) -> Any:
        def whole(tokens: Tensor, attention: Tensor, scored: int) -> Any:
            return super(BreadthGRPOTrainer, self)._get_per_token_logps_and_entropies(
                model, tokens, attention, scored, *args, **options
            )

        in_buckets = (
            self._length_buckets > 1
            and not any(options.get(key) is not None for key in FORWARD_KEYS)
            and not options.get("compute_aux_loss")
        )
        found = (
            forward_by_length(whole, tokens, attention, scored, self._length_buckets)
            if in_buckets
            else whole(tokens, attention, scored)
        )
        if torch.is_grad_enabled() and found[1] is not None:
            self._last = (found[0], found[1])
        return found

    def _record_tokens(self, inputs: Any) -> None:
        """Log the entropy and record this micro-batch's tokens."""
        if self._last is None or not self.model.training:
            return
        (logprobs, entropy), self._last = self._last, None
        mask = loss_mask(inputs).bool()
        if self._shapes_loss:
            self._log_entropy(mask, entropy, "train")
        if self._recorder is not None:
            self._recorder.tokens(inputs[ROWS_KEY], mask, logprobs, entropy)

    def _log_entropy(self, mask: Tensor, entropy: Tensor, mode: str) -> None:
        counted = masked_values(entropy.detach(), mask).sum()
        total, count = self.accelerator.reduce(
            torch.stack([counted, mask.sum().to(counted.dtype)]), reduction="sum"
        ).tolist()
        # TRL's log ignores NaN in its mean.
        self._metrics[mode]["entropy"].append(total / count if count else math.nan)

    def _log_metrics(self, metrics: Mapping[str, float], mode: str) -> None:
        for name, value in metrics.items():
            self._metrics[mode][f"breadth/{name}"].append(value)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log as TRL does, and to the run folder."""
        super().log(logs, start_time)
        if self._recorder is not None and self.accelerator.is_main_process:
            self._recorder.metrics(self.state.global_step, logs)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        if self.args.should_save:
            folder = Path(self._get_output_dir(trial=trial)) / f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
            with atomic_file(folder / OBJECTIVE_FILE) as temporary:
                temporary.write_text(json.dumps(self.objective.state()), encoding="utf-8")

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is None:
            return
        path = Path(checkpoint) / OBJECTIVE_FILE
        if not path.exists():
            raise BrokenFileError(
                path,
                "is missing: the checkpoint has no state of the chain.",
                "Resume from a checkpoint of this trainer.",
            )
        self.objective.restore(json.loads(path.read_text(encoding="utf-8")))


def concatenate_batches(parts: list[Batch]) -> Batch:
    """Concatenate the micro-batches of one optimizer step; TRL pads a generation to one width."""
    names = [spec.name for spec in fields(Batch) if isinstance(getattr(parts[0], spec.name), Tensor)]
    return replace(parts[0], **{name: torch.cat([getattr(part, name) for part in parts]) for name in names})
