"""The flat filter: drops the groups that have nothing to teach, and says how many they were."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from breadth.base.checks import require
from breadth.base.stats import Mean
from breadth.training.credit.successes import REWARD_TOLERANCE, find_successes
from breadth.training.mechanism import Effect, Mechanism, NoEffect, Regime, Role, Selection
from breadth.training.ops import group_count, group_mean, masked_values
from breadth.training.records import Rollouts, not_none


@dataclass(frozen=True)
class FlatFilter(Mechanism[Rollouts, None]):
    """Drop the rollouts of every group that is all right or all wrong, so that they do not thin out the loss of the others.

    A group is kept if its rollouts differ in accuracy, as in DAPO (2503.14476), in reward, or if any has an advantage.
    Dropped rollouts leave the loss and its denominator. There is no refill: no new problems are drawn in their place
    (ScaleRL does the same; DAPO refills, at up to three times the generation), so the batch shrinks by the stat
    ``dropped``, a share of the groups. ``solve_all`` and ``solve_none`` are the shares of groups solved by all and by
    none of their rollouts, where ``correct`` is given.

    Put it after the estimator, and after every bonus when it decides by the advantage. A group of one rollout is flat
    (verl keeps it). Rollouts of unknown accuracy or reward say nothing; a group with no others is dropped.

    Harm: by accuracy, it also drops groups for which a bonus is the only signal: decide by the advantage there. By
    reward, any shaping, a length penalty of 1e-5 included, keeps a flat group. Training accuracy over kept groups is
    conditional on being mixed and compares with no other run's.
    """

    follows = Role.ESTIMATOR

    on: Literal["correct", "reward", "advantage"] = "correct"
    """What a group must differ in to be kept, or, for the advantage, have any of; accuracy in DAPO's code."""

    def __post_init__(self) -> None:
        require(self, "on", self.on in ("correct", "reward", "advantage"), "'correct', 'reward' or 'advantage'")

    @property
    def needs(self) -> frozenset[str]:
        """The accuracy, when it decides by it."""
        return frozenset({"correct"} if self.on == "correct" else ())

    def apply(self, batch: Rollouts, state: None, selection: Selection | None) -> Effect[Rollouts]:
        """Drop the flat groups and count them."""
        before = not_none(batch.kept)
        varied = group_count(batch.groups, self._differs_from_group(batch)) > 0
        stats = {"dropped": _share_of_groups(batch.groups, ~varied, before)} | _solved(batch)
        return Effect(replace(batch, kept=before & varied), stats=stats)

    def no_effect(self, regime: Regime) -> NoEffect | None:
        """Tell of groups of one, which are all flat, so that nothing is left to train on."""
        if regime.group_size == 1 and self.on != "advantage":
            reason = f"with one rollout per problem no group differs in {self.on}, so every rollout is dropped."
            return NoEffect("flat-filter", reason, "Sample at least two per problem, or leave it out.")
        return None

    def _differs_from_group(self, batch: Rollouts) -> Tensor:
        """Return which rollouts show that their group is not flat."""
        if self.on == "advantage":
            advantages = not_none(batch.advantages)
            if advantages.ndim == 2:
                advantages = (
                    (advantages if batch.mask is None else masked_values(advantages, batch.mask)).abs().amax(-1)
                )
            return not_none(batch.kept) & (advantages.abs() > REWARD_TOLERANCE)
        metric = (not_none(batch.correct) if self.on == "correct" else batch.rewards).double()
        known = batch.is_scored & torch.isfinite(metric)
        away = masked_values(metric - group_mean(metric, batch.groups, known), known).abs()
        return away > REWARD_TOLERANCE * (1 + masked_values(metric, known).abs())


def _solved(batch: Rollouts) -> dict[str, Mean]:
    """Return the shares of groups that all and that none of their rollouts solved."""
    if batch.correct is None:
        return {}
    won, known = find_successes(batch)
    wins, count = group_count(batch.groups, won), group_count(batch.groups, known)
    return {
        "solve_all": _share_of_groups(batch.groups, wins == count, known),
        "solve_none": _share_of_groups(batch.groups, wins == 0, known),
    }


def _share_of_groups(groups: Tensor, marked: Tensor, among: Tensor) -> Mean:
    """Return how many of the groups among those given are marked."""
    return Mean(len(torch.unique(groups[among & marked])), len(torch.unique(groups[among])))
