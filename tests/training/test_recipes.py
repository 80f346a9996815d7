"""Every recipe: its paper, the way to TOML and back, and one step from rewards to states."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from breadth.base.errors import CatalogueError, MechanismError
from breadth.testing.mechanism_samples import SEQUENCES, sample_rollouts, sample_step
from breadth.training.catalogue import MECHANISMS
from breadth.training.chain import Chain
from breadth.training.credit.group_advantage import GroupAdvantage
from breadth.training.loss.clipped_policy import ClippedPolicy
from breadth.training.objective import Objective
from breadth.training.recipes import RECIPES, Recipe, resolve_chain
from breadth.training.records import not_none
from breadth.training.reduction import Reduction

WANTED = {
    "grpo",
    "dr_grpo",
    "dapo",
    "gspo",
    "rloo",
    "cispo",
    "clip_cov",
    "kl_cov",
    "gppo",
    "ce_gppo",
    "forking",
    "passk",
    "maxrl",
}


def test_the_published_ones_and_ours_are_there() -> None:
    assert RECIPES.keys() >= WANTED
    assert {"thermostat", "guarded"} <= {name for name, one in RECIPES.items() if one.paper == "ours"}
    named = [name for _, mechanism in MECHANISMS for name in mechanism.recipes]
    assert len(set(named)) == len(named), "two mechanisms list a recipe of one name"


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=list(RECIPES))
def test_it_names_a_paper_and_says_what_to_know(recipe: Recipe) -> None:
    assert recipe.paper == "ours" or re.fullmatch(r"\d{4}\.\d{5}", recipe.paper)
    assert recipe.note.endswith(".")


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=list(RECIPES))
def test_it_survives_toml(recipe: Recipe) -> None:
    assert Chain.loads(recipe.chain.dumps()) == recipe.chain


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=list(RECIPES))
def test_it_runs_from_rewards_to_states(recipe: Recipe) -> None:
    objective = Objective(replace(recipe.chain, reduction=recipe.chain.reduction.with_length(12)))
    step, rollouts = sample_step(1), sample_rollouts(1)
    rollouts = replace(rollouts, groups=rollouts.groups // 2)  # groups of eight: of four, pass@4 has nothing to learn
    credited, metrics = objective.credit(rollouts)
    advantages = not_none(credited.advantages)
    assert bool(torch.isfinite(advantages).all())
    assert advantages.any()
    batch = replace(step.batch, advantages=advantages[:SEQUENCES], weights=None)
    objective.begin(batch)
    loss = objective.loss(batch)
    loss.backward()
    assert bool(torch.isfinite(loss))
    assert bool(torch.isfinite(step.logits.grad).all())
    assert step.logits.grad.any()
    assert {name.partition("/")[0] for name in metrics | objective.finish()} == set(objective.names)


def test_numbers_of_the_papers() -> None:
    assert RECIPES["grpo"].chain == Chain(
        (GroupAdvantage(), ClippedPolicy(low=0.2, high=0.2)), Reduction("sequence-mean")
    )
    assert RECIPES["dr_grpo"].chain == Chain((GroupAdvantage(scale="none"), ClippedPolicy()), Reduction("fixed-length"))
    assert ClippedPolicy(low=0.2, high=0.28) in RECIPES["dapo"].chain.mechanisms
    assert RECIPES["dapo"].chain.reduction == Reduction("token-mean")
    by_name = {
        type(one).__name__: one
        for name in ("gspo", "kl_cov", "clip_cov", "ce_gppo")
        for one in RECIPES[name].chain.mechanisms
    }
    assert (by_name["SequenceRatio"].low, by_name["SequenceRatio"].high) == (3e-4, 4e-4)  # type: ignore[attr-defined]  # a surrogate's bounds
    assert (by_name["KLCov"].share, by_name["KLCov"].coefficient) == (2e-3, 1.0)  # type: ignore[attr-defined]  # its own settings
    assert (by_name["ClipCov"].share, by_name["ClipCov"].lower, by_name["ClipCov"].upper) == (2e-4, 1.0, 5.0)  # type: ignore[attr-defined]  # as above
    assert (by_name["GradientPreserving"].below, by_name["GradientPreserving"].dual) == (0.75, 10.0)  # type: ignore[attr-defined]  # as above


def test_what_somebody_means_by_a_chain(tmp_path: Path) -> None:
    chain = RECIPES["dapo"].chain
    file = tmp_path / "mine.toml"
    file.write_text(chain.dumps(), encoding="utf-8")
    assert (
        resolve_chain("dapo")
        == resolve_chain(chain)
        == resolve_chain(Objective(chain))
        == resolve_chain(file)
        == resolve_chain(str(file))
        == chain
    )


def test_a_mechanism_alone_is_no_objective() -> None:
    with pytest.raises(MechanismError, match="An objective cannot be a GroupAdvantage"):
        resolve_chain(GroupAdvantage())  # type: ignore[arg-type]  # the mistake


def test_a_recipe_that_is_none_gets_the_nearest_name() -> None:
    with pytest.raises(CatalogueError, match="no recipe and no file called 'dappo'") as caught:
        resolve_chain("dappo")
    assert "Did you mean 'dapo'?" in caught.value.remedy
