"""The Objective: runs a chain inside any trainer. It holds the only state of the training loop."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from breadth.base import settings
from breadth.base.errors import MechanismError
from breadth.base.stats import Counts, Max, Mean, add_up
from breadth.training import reduction
from breadth.training.chain import Chain
from breadth.training.mechanism import Mechanism, NoEffect, RecordT, Regime, Selection, Stage, mechanism_name
from breadth.training.records import Batch, Plan, Rollouts, not_none
from breadth.training.reduction import Totals

log = logging.getLogger(__name__)


class Objective:
    """Runs a chain inside any trainer.

    Call ``credit`` once per generation; per optimizer step call ``begin``, ``loss`` for each micro-batch, ``finish``.
    Sum the losses of micro-batches and ranks; do not average them. Results are the same on every rank and for every
    split into micro-batches.
    """

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        """What it runs."""
        names = [mechanism_name(mechanism) for mechanism in chain.mechanisms]
        self.names = [
            f"{name}-{earlier + 1}" if (earlier := names[:index].count(name)) else name
            for index, name in enumerate(names)
        ]
        """Name of each mechanism in metrics and checkpoints; the second of a kind ends in ``-2``."""
        self.states: list[Any] = [mechanism.init() for mechanism in chain.mechanisms]
        """State of each mechanism."""
        self.step = 0
        """Optimizer steps finished."""
        self.generation = 0
        """Generations credited."""
        self._totals: Totals | None = None
        self._rows: Tensor | None = None
        self._selections: dict[int, Selection | None] = {}
        self._stats: dict[int, dict[str, Any]] = {}

    @property
    def surveys(self) -> bool:
        """Whether a mechanism of the loss stage surveys, so that ``begin`` needs the whole batch."""
        return any(mechanism.surveys for mechanism in self.chain.mechanisms_of(Stage.LOSS))

    def attach(self, provided: Collection[str]) -> None:
        """Refuse a chain that reads a field the adapter does not provide.

        Fields are named ``stage.field``, e.g. ``loss.entropy``.
        """
        missing = {field: names for field, names in self.chain.needs.items() if field not in provided}
        if missing:
            readers = "; ".join(f"{', '.join(names)} reads {field}" for field, names in missing.items())
            raise MechanismError(
                f"The chain needs fields that this adapter does not provide: {readers}. Provided:"
                f" {', '.join(sorted(provided)) or 'none'}.",
                "Leave the mechanism out, or give the adapter a provider for the field.",
            )

    def explain(self, regime: Regime) -> tuple[NoEffect, ...]:
        """List the mechanisms that have no effect in a regime, with reason and remedy, before training starts."""
        verdicts = [mechanism.no_effect(regime) for mechanism in self.chain.mechanisms]
        return tuple(verdict for verdict in verdicts if verdict is not None)

    def plan(self, plan: Plan) -> tuple[Plan, dict[str, float]]:
        """Decide what to sample next; return the plan and the metrics of the plan stage."""
        return self._run_stage(Stage.PLAN, replace(plan, step=self.generation, seed=self.chain.seed))

    def credit(self, rollouts: Rollouts) -> tuple[Rollouts, dict[str, float]]:
        """Compute the advantages of this rank's rollouts; return them and the metrics of the credit stage.

        Every rank sees the rollouts of all ranks, so a group may be spread over ranks.
        """
        sizes = reduction.gather_objects(len(rollouts))
        start = sum(sizes[: reduction.rank()])
        whole = Rollouts.concatenate(reduction.gather_objects(move_rollouts(rollouts, torch.device("cpu")).clean()))
        after, metrics = self._run_stage(Stage.CREDIT, replace(whole, step=self.generation, seed=self.chain.seed))
        self.generation += 1
        local = after.slice_rows(slice(start, start + sizes[reduction.rank()]))
        device, width = rollouts.rewards.device, rollouts.mask.shape[1] if rollouts.mask is not None else None
        return move_rollouts(local, device, width), metrics

    def begin(self, window: Batch | Totals, *, over_all_ranks: bool = False) -> None:
        """Begin an optimizer step with this rank's part of the whole batch; its Totals suffice if nothing surveys.

        ``over_all_ranks`` says that the Totals already cover all ranks, so no communication is needed.
        """
        totals = Totals.from_mask(window.mask) if isinstance(window, Batch) else window
        if not over_all_ranks:
            sums = reduction.add_over_ranks(
                torch.stack([torch.as_tensor(totals.tokens), torch.as_tensor(totals.sequences)])
            )
            totals = Totals(sums[0], sums[1])
        self._totals, self._stats, self._selections, self._rows = totals, {}, {}, None
        if not self.surveys:
            return
        if not isinstance(window, Batch):
            surveyors = [
                name
                for name, mechanism in zip(self.names, self.chain.mechanisms, strict=True)
                if mechanism.surveys and mechanism.stage is Stage.LOSS
            ]
            raise MechanismError(
                f"{', '.join(surveyors)} need the whole batch, but begin() got only its totals.",
                "Pass the batch to begin().",
            )
        self._survey(window)

    def loss(self, batch: Batch, *, record: bool = True) -> Tensor:
        """Return one micro-batch's part of the loss, with gradient; ``record=False`` keeps no stats (evaluation)."""
        if not self.chain.mechanisms_of(Stage.LOSS):
            raise MechanismError(
                "The chain has no mechanism of the loss stage.", "Use the trainer's own loss, or add ClippedPolicy()."
            )
        if self._totals is None:
            raise MechanismError(
                "loss() was called outside an optimizer step.",
                "Call begin() first, and finish() after the last micro-batch.",
            )
        after = replace(batch.clean(), step=self.step, seed=self.chain.seed)
        if batch.rows is None and self._rows is not None and len(self._rows) != len(batch.mask):
            raise _missing_rows_error()
        terms: list[Tensor] = []
        for index, mechanism in self.enumerate_stage(Stage.LOSS):
            effect = mechanism.apply(after, self.states[index], self.selection_for(index, after))
            after, terms = effect.after, [*terms, *effect.terms]
            if record:
                self._stats[index] = add_up([self._stats.get(index, {}), effect.stats])
        losses = not_none(after.weights) * not_none(after.surrogate) + sum(terms)
        return self.chain.reduction(losses, after.mask, self._totals)

    def finish(self) -> dict[str, float]:
        """End the optimizer step: sum stats over ranks, update states, return the metrics of the loss stage."""
        if self._totals is None:
            raise MechanismError(
                "finish() was called outside an optimizer step.", "Call begin() first, and finish() once after it."
            )
        metrics = self._finish_stage(Stage.LOSS, self._stats)
        self._totals, self._rows, self._selections, self._stats = None, None, {}, {}
        self.step += 1
        return metrics

    def state(self) -> dict[str, Any]:
        """Return everything a checkpoint must hold, as JSON-able data."""
        states = {
            name: settings.to_table(state)
            for name, state in zip(self.names, self.states, strict=True)
            if state is not None
        }
        return {"step": self.step, "generation": self.generation, "chain": self.chain.dumps(), "states": states}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Resume from a checkpoint's state; the state of another chain is refused."""
        missing = [
            name
            for name, own in zip(self.names, self.states, strict=True)
            if own is not None and name not in state["states"]
        ]
        strange = [name for name in state["states"] if name not in self.names]
        if missing or strange:
            raise MechanismError(
                f"The checkpoint belongs to another chain: it lacks the state of {missing or 'none'} and has the state"
                f" of {strange or 'none'}.",
                "Resume with the chain the checkpoint was written with, or start without its state.",
            )
        if state.get("chain", self.chain.dumps()) != self.chain.dumps():
            log.warning(
                "The checkpoint was written with other settings of the same mechanisms; the current settings are used."
            )
        self.step, self.generation = int(state["step"]), int(state["generation"])
        for index, (name, mechanism) in enumerate(zip(self.names, self.chain.mechanisms, strict=True)):
            if self.states[index] is not None:
                self.states[index] = settings.from_table(
                    mechanism.state_type, mechanism.upgrade_state(state["states"][name]), name
                )

    def selection_for(self, index: int, batch: Batch) -> Selection | None:
        """Return what the survey of one mechanism decided, sliced for a micro-batch."""
        selection = self._selections.get(index)
        if selection is None or self._rows is None:
            return selection
        order = torch.argsort(self._rows)
        indices = order[torch.searchsorted(self._rows[order], not_none(batch.rows))]
        return selection.slice_rows(indices, batch.mask.shape[1])

    def enumerate_stage(self, stage: Stage) -> list[tuple[int, Mechanism[Any, Any]]]:
        """Return the mechanisms of a stage with their index in the chain."""
        return [(index, mechanism) for index, mechanism in enumerate(self.chain.mechanisms) if mechanism.stage is stage]

    def _run_stage(self, stage: Stage, record: RecordT) -> tuple[RecordT, dict[str, float]]:
        """Run a stage once per generation: the record is complete, so survey and apply see the same one."""
        stats: dict[int, dict[str, Any]] = {}
        for index, mechanism in self.enumerate_stage(stage):
            selection = mechanism.survey(record, self.states[index])
            effect = mechanism.apply(record, self.states[index], selection)
            record, stats[index] = effect.after, dict(effect.stats)
        return record, self._finish_stage(stage, stats, whole=True)

    def _survey(self, window: Batch) -> None:
        """Let each mechanism of the loss stage survey the whole batch after the mechanisms before it."""
        if window.rows is None and reduction.world_size() > 1:
            raise _missing_rows_error()
        local = window.detach().clean()
        names = [name for name, value in vars(local).items() if isinstance(value, Tensor)]
        gathered = {name: reduction.gather_rows(getattr(local, name)) for name in names}
        whole = replace(local, **gathered, step=self.step, seed=self.chain.seed)
        self._rows = not_none(whole.rows)
        with torch.no_grad():
            for index, mechanism in self.enumerate_stage(Stage.LOSS):
                self._selections[index] = mechanism.survey(whole, self.states[index])
                whole = mechanism.apply(whole, self.states[index], self._selections[index]).after

    def _finish_stage(
        self, stage: Stage, stats: Mapping[int, Mapping[str, Any]], *, whole: bool = False
    ) -> dict[str, float]:
        """Sum a period's stats, update the stage's states and return the metrics to log."""
        plain = {index: {name: to_plain(stat) for name, stat in named.items()} for index, named in stats.items()}
        parts = [plain] if whole else reduction.gather_objects(plain)
        metrics: dict[str, float] = {}
        for index, mechanism in self.enumerate_stage(stage):
            summed = add_up(part.get(index, {}) for part in parts)
            self.states[index] = mechanism.update(self.states[index], summed)
            shown = {name: stat.value for name, stat in summed.items() if isinstance(stat, Mean | Max)}
            fields = {} if self.states[index] is None else vars(self.states[index])
            shown |= {name: float(value) for name, value in fields.items() if isinstance(value, int | float)}
            metrics |= {f"{self.names[index]}/{name}": value for name, value in shown.items()}
        return metrics


def _missing_rows_error() -> MechanismError:
    return MechanismError(
        "A part of a surveyed batch does not name its sequences.",
        "Set rows in every part: a different number for each sequence.",
    )


def to_plain(stat: Any) -> Any:
    """Return a stat with numbers instead of tensors: the only device sync of the loss stage."""
    if isinstance(stat, Mean):
        return Mean(float(stat.total), float(stat.count))
    if isinstance(stat, Max):
        return Max(float(stat.largest))
    if isinstance(stat, Counts):
        return Counts({label: float(count) for label, count in stat.by_label.items()})
    return stat.plain()


def move_rollouts(rollouts: Rollouts, device: torch.device, width: int | None = None) -> Rollouts:
    """Return the rollouts on a device, with token fields cut to ``width``."""
    moved = {name: value.to(device) for name, value in vars(rollouts).items() if isinstance(value, Tensor)}
    if width is not None:
        moved = {name: value[:, :width] if value.ndim == 2 else value for name, value in moved.items()}
    return replace(rollouts, **moved)
