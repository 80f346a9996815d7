"""The Objective: a chain with its states, the only stateful thing of the training loop."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from breadth.base import settings
from breadth.base.errors import MechanismError
from breadth.base.stats import Counts, Max, Mean, add_up
from breadth.training import ranks
from breadth.training.chain import Chain
from breadth.training.mechanism import Mechanism, NoEffect, Regime, Selection, Stage, mechanism_name
from breadth.training.records import Batch, Plan, Rollouts, not_none
from breadth.training.reduction import Totals

log = logging.getLogger(__name__)
R = TypeVar("R")


class Objective:
    """Runs a chain inside any trainer: credit once per generation; begin, loss (each micro-batch) and finish once per optimizer step.

    Losses of micro-batches and ranks are parts that add up: sum them, do not average them. All of it is the same on
    every rank and however the batch is cut.
    """

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        """What it runs."""
        self.names = _distinct([mechanism_name(mechanism) for mechanism in chain.mechanisms])
        """Name of each mechanism, as in metrics and checkpoints; the second of a kind has ``-2`` after it."""
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
        """Whether a mechanism of the loss stage looks at the whole batch first, so that ``begin`` needs it."""
        return any(mechanism.surveys for mechanism in self.chain.mechanisms_of(Stage.LOSS))

    def attach(self, provided: Collection[str]) -> None:
        """Refuse a chain that reads a field nobody here provides; fields are named ``stage.field``, e.g.

        ``loss.entropy``.
        """
        missing = {field: names for field, names in self.chain.needs.items() if field not in provided}
        if missing:
            told = "; ".join(f"{', '.join(names)} reads {field}" for field, names in missing.items())
            raise MechanismError(
                f"The chain needs what cannot be provided here: {told}. There is:"
                f" {', '.join(sorted(provided)) or 'nothing'}.",
                "Leave the mechanism out, or give the adapter a provider for the field.",
            )

    def explain(self, regime: Regime) -> tuple[NoEffect, ...]:
        """List every mechanism that cannot act in a regime, with the reason and the remedy, before training starts."""
        verdicts = [mechanism.no_effect(regime) for mechanism in self.chain.mechanisms]
        return tuple(verdict for verdict in verdicts if verdict is not None)

    def plan(self, plan: Plan) -> tuple[Plan, dict[str, float]]:
        """Decide what to sample next; returns the plan and the metrics of the plan stage."""
        return self._run_stage(Stage.PLAN, replace(plan, step=self.generation, seed=self.chain.seed))

    def credit(self, rollouts: Rollouts) -> tuple[Rollouts, dict[str, float]]:
        """Give this rank's rollouts of one generation their advantages; returns them and the metrics of the credit stage.

        Every rank sees the rollouts of all ranks, so groups may straddle them.
        """
        sizes = ranks.gather_objects(len(rollouts))
        start = sum(sizes[: ranks.rank()])
        whole = Rollouts.concatenate(ranks.gather_objects(_on_cpu(rollouts).clean()))
        after, metrics = self._run_stage(Stage.CREDIT, replace(whole, step=self.generation, seed=self.chain.seed))
        self.generation += 1
        local = after.slice_rows(slice(start, start + sizes[ranks.rank()]))
        device, width = rollouts.rewards.device, rollouts.mask.shape[1] if rollouts.mask is not None else None
        return move_rollouts(local, device, width), metrics

    def begin(self, window: Batch | Totals, *, over_all_ranks: bool = False) -> None:
        """Begin an optimizer step with this rank's part of the whole batch; its Totals are enough when nothing surveys.

        ``counted`` says that the Totals are those of all ranks already, so that no rank waits for another.
        """
        totals = Totals.from_mask(window.mask) if isinstance(window, Batch) else window
        if not over_all_ranks:
            sums = ranks.add_over_ranks(
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
                f"{', '.join(surveyors)} must see the whole batch, but only its totals came.",
                "Pass the batch to begin().",
            )
        self._survey(window)

    def loss(self, batch: Batch, *, record: bool = True) -> Tensor:
        """Return one micro-batch's part of the loss, with gradient; ``record=False`` leaves stats alone (evaluation)."""
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
        places = self._places(not_none(after.rows))
        terms: list[Tensor] = []
        for index, mechanism in self.enumerate_stage(Stage.LOSS):
            effect = mechanism.apply(after, self.states[index], self._slice(index, places, after.mask.shape[1]))
            after, terms = effect.after, [*terms, *effect.terms]
            if record:
                self._stats[index] = add_up([self._stats.get(index, {}), effect.stats])
        losses = not_none(after.weights) * not_none(after.surrogate) + sum(terms)
        return self.chain.reduction(losses, after.mask, self._totals)

    def finish(self) -> dict[str, float]:
        """End the optimizer step: sum the stats over ranks, update the states, return the metrics of the loss stage."""
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
        """Go on from a checkpoint's state; a state of another chain is refused."""
        missing = [
            name
            for name, own in zip(self.names, self.states, strict=True)
            if own is not None and name not in state["states"]
        ]
        strange = [name for name in state["states"] if name not in self.names]
        if missing or strange:
            raise MechanismError(
                f"The checkpoint belongs to another chain: state is missing of {missing or 'none'} and left over of"
                f" {strange or 'none'}.",
                "Resume with the chain the checkpoint was written with, or start without its state.",
            )
        if state.get("chain", self.chain.dumps()) != self.chain.dumps():
            log.warning(
                "The checkpoint was written with other settings of the same mechanisms; going on with those given now."
            )
        self.step, self.generation = int(state["step"]), int(state["generation"])
        for index, (name, mechanism) in enumerate(zip(self.names, self.chain.mechanisms, strict=True)):
            if self.states[index] is not None:
                self.states[index] = settings.from_table(mechanism.state_type, state["states"][name], name)

    def enumerate_stage(self, stage: Stage) -> list[tuple[int, Mechanism[Any, Any]]]:
        return [(index, mechanism) for index, mechanism in enumerate(self.chain.mechanisms) if mechanism.stage is stage]

    def _run_stage(self, stage: Stage, record: R) -> tuple[R, dict[str, float]]:
        """Run a stage whose period is one generation: the record is whole, so survey and apply see the same."""
        stats: dict[int, dict[str, Any]] = {}
        for index, mechanism in self.enumerate_stage(stage):
            selection = mechanism.survey(record, self.states[index])
            effect = mechanism.apply(record, self.states[index], selection)
            record, stats[index] = effect.after, dict(effect.stats)
        return record, self._finish_stage(stage, stats, whole=True)

    def _survey(self, window: Batch) -> None:
        """Let each mechanism of the loss stage look at the whole batch as those before it left it."""
        if window.rows is None and ranks.world_size() > 1:
            raise _missing_rows_error()
        local = window.detach().clean()
        names = [name for name, value in vars(local).items() if isinstance(value, Tensor)]
        gathered = {name: ranks.gather_rows(getattr(local, name)) for name in names}
        whole = replace(local, **gathered, step=self.step, seed=self.chain.seed)
        self._rows = not_none(whole.rows)
        with torch.no_grad():
            for index, mechanism in self.enumerate_stage(Stage.LOSS):
                self._selections[index] = mechanism.survey(whole, self.states[index])
                whole = mechanism.apply(whole, self.states[index], self._selections[index]).after

    def _places(self, rows: Tensor) -> Tensor | None:
        """Return where a micro-batch's sequences stand in the surveyed batch."""
        if self._rows is None:
            return None
        order = torch.argsort(self._rows)
        return order[torch.searchsorted(self._rows[order], rows)]

    def _slice(self, index: int, places: Tensor | None, width: int) -> Selection | None:
        selection = self._selections.get(index)
        return selection if selection is None or places is None else selection.slice_rows(places, width)

    def _finish_stage(
        self, stage: Stage, stats: Mapping[int, Mapping[str, Any]], *, whole: bool = False
    ) -> dict[str, float]:
        """Add up a period's stats, update the stage's states and return what the log shows."""
        plain = {index: {name: to_plain(stat) for name, stat in named.items()} for index, named in stats.items()}
        parts = [plain] if whole else ranks.gather_objects(plain)
        metrics: dict[str, float] = {}
        for index, mechanism in self.enumerate_stage(stage):
            summed = add_up(part.get(index, {}) for part in parts)
            self.states[index] = mechanism.update(self.states[index], summed)
            shown = {name: stat.value for name, stat in summed.items() if isinstance(stat, Mean | Max)} | _numbers(
                self.states[index]
            )
            metrics |= {f"{self.names[index]}/{name}": value for name, value in shown.items()}
        return metrics


def _missing_rows_error() -> MechanismError:
    return MechanismError(
        "A part of a surveyed batch does not say which sequences it holds.",
        "Give every part its rows: numbers that no two sequences share.",
    )


def to_plain(stat: Any) -> Any:
    """Return a stat with its tensors read into numbers: the one place where the loss stage waits for the device."""
    if isinstance(stat, Mean):
        return Mean(float(stat.total), float(stat.count))
    if isinstance(stat, Max):
        return Max(float(stat.largest))
    if isinstance(stat, Counts):
        return Counts({label: float(count) for label, count in stat.by_label.items()})
    return stat.plain()


def _numbers(state: Any) -> dict[str, float]:
    """Return the numbers of a state, for the log."""
    return (
        {}
        if state is None
        else {name: float(value) for name, value in vars(state).items() if isinstance(value, int | float)}
    )


def _distinct(names: list[str]) -> list[str]:
    return [
        name if names[:place].count(name) == 0 else f"{name}-{names[:place].count(name) + 1}"
        for place, name in enumerate(names)
    ]


def _on_cpu(rollouts: Rollouts) -> Rollouts:
    return move_rollouts(rollouts, torch.device("cpu"), None)


def move_rollouts(rollouts: Rollouts, device: torch.device, width: int | None) -> Rollouts:
    moved = {name: value.to(device) for name, value in vars(rollouts).items() if isinstance(value, Tensor)}
    if width is not None:
        moved = {name: value[:, :width] if value.ndim == 2 else value for name, value in moved.items()}
    return replace(rollouts, **moved)
