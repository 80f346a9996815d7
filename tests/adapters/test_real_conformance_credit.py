"""The same rewards through everybody's estimators:

advantages of the bare Objective, of our adapters, of verl and of TRL.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from breadth.training.chain import Chain
from breadth.training.credit.group_advantage import GroupAdvantage
from breadth.training.credit.leave_one_out import LeaveOneOut
from breadth.training.mechanism import Mechanism
from breadth.training.objective import Objective
from breadth.training.records import Rollouts, not_none

pytestmark = pytest.mark.filterwarnings(
    "ignore::Warning:(torch|transformers|trl|datasets|accelerate|tokenizers|huggingface_hub)"
)

ESTIMATORS: dict[str, tuple[Mechanism[Any, Any], dict[str, Any]]] = {
    "grpo": (GroupAdvantage(), {}),
    "grpo_vectorized": (GroupAdvantage(), {}),
    "grpo without std": (GroupAdvantage(scale="none"), {"norm_adv_by_std_in_grpo": False}),
    "rloo": (LeaveOneOut(), {}),
    "rloo_vectorized": (LeaveOneOut(), {}),
}
"""verl's estimator -> (ours, verl's settings)."""


def credited(estimator: Mechanism[Any, Any], rewards: torch.Tensor, groups: list[int]) -> list[float]:
    rollouts = Rollouts(rewards=rewards, groups=torch.tensor(groups), lengths=torch.full((len(groups),), 5))
    advantages: list[float] = not_none(Objective(Chain((estimator,))).credit(rollouts)[0].advantages).tolist()
    return advantages


def in_verls(name: str, rewards: torch.Tensor, groups: list[int], **settings: Any) -> list[float]:
    """Return verl's advantages, one a response."""
    core_algos = pytest.importorskip("verl.trainer.ppo.core_algos", reason="verl is not installed")
    scores = torch.zeros(len(groups), 5, dtype=rewards.dtype)
    scores[:, -1] = rewards
    mask = torch.ones(len(groups), 5)
    estimator = core_algos.get_adv_estimator_fn(name.split(" ")[0])
    advantages: list[float] = estimator(scores, mask, index=np.array(groups), **settings)[0][:, 0].tolist()
    return advantages


def ragged() -> tuple[torch.Tensor, list[int]]:
    groups = [0] * 5 + [1] * 3 + [2] * 8
    return torch.randn(len(groups), generator=torch.Generator().manual_seed(0), dtype=torch.float64), [
        groups[-1 - place] for place in range(16)
    ]


@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_estimator_is_verls(name: str) -> None:
    estimator, settings = ESTIMATORS[name]
    rewards, groups = ragged()
    expected = in_verls(name, rewards, groups, **settings)
    within = 1e-6 if "vectorized" in name else 1e-9  # those work in float32
    assert credited(estimator, rewards, groups) == pytest.approx(expected, abs=within)
    assert len(set(expected)) == 16


def test_the_verl_adapter_gives_every_token_the_bare_advantage(same: Any, in_verl: Any) -> None:
    from breadth.adapters.verl.credit import CreditStage

    rewards, groups = ragged()
    data, _ = in_verl.whole(same.tokens(rows=16))
    data["token_level_rewards"] = in_verl.nested(
        [
            torch.cat([mask[:-1] * 0.0, rewards[row : row + 1]])
            for row, mask in enumerate(data["response_mask"].unbind())
        ]
    )
    keys = [f"problem{group}_{place}_0" for place, group in enumerate(groups)]
    written, _ = CreditStage(Objective(Chain((LeaveOneOut(),)))).compute_advantages(data, keys, [{}] * 16)
    for row, (advantage, mask) in enumerate(
        zip(written["advantages"].unbind(), data["response_mask"].unbind(), strict=True)
    ):
        expected = credited(LeaveOneOut(), rewards, groups)[row]
        assert advantage.tolist() == pytest.approx([expected * int(counts) for counts in mask], abs=1e-6)


REWARDS = [0.0, 1.0, 0.0, 0.0, 0.25, 0.5, None, 1.0]


def trls(in_trl: Any, rewards: list[float | None], objective: Chain | None = None, **settings: Any) -> list[float]:
    """Return the advantages of a generation of two groups of four, as TRL's or our trainer stores them."""

    def told(completions: list[str], **_: Any) -> list[float | None]:
        return list(rewards)

    def rollout(prompts: list[str], trainer: Any) -> dict[str, Any]:
        ids = trainer.processing_class(prompts)["input_ids"]
        return {"prompt_ids": ids, "completion_ids": [[4, 5, 1]] * len(ids), "logprobs": [[-1.0] * 3] * len(ids)}

    trainer = in_trl.tiny.trainer("credit", objective, rewards=told, options={"rollout_func": rollout}, **settings)
    trainer.model.train()
    rows = [trainer.train_dataset[place // 4] for place in range(8)]
    advantages: list[float] = trainer._generate_and_score_completions(rows)["advantages"].tolist()
    return advantages


@pytest.mark.parametrize(
    ("estimator", "settings"),
    [(GroupAdvantage(epsilon=1e-4), {}), (GroupAdvantage(scale="none"), {"scale_rewards": "none"})],
)
def test_the_estimator_is_trls_unscorable_rollouts_included(
    in_trl: Any, estimator: GroupAdvantage, settings: dict[str, Any]
) -> None:
    theirs, ours = trls(in_trl, REWARDS, **settings), trls(in_trl, REWARDS, Chain((estimator,)))
    rewards = torch.tensor([math.nan if reward is None else reward for reward in REWARDS])
    bare = credited(estimator, rewards, [0] * 4 + [1] * 4)
    assert theirs == pytest.approx(bare, abs=1e-6)
    assert ours == pytest.approx(bare, abs=1e-6)
    assert theirs[6] == 0.0


def test_one_success_in_eight_by_each_epsilon_and_deviation() -> None:
    """0.875 over the sample deviation 0.353553 or the population's 0.330719.

    With 1e-6 (verl, us) or 1e-4 (TRL) added.
    """
    rewards, groups = torch.tensor([1.0] + [0.0] * 7, dtype=torch.float64), [0] * 8
    kinds = {
        "ours": GroupAdvantage(),
        "trl": GroupAdvantage(epsilon=1e-4),
        "papers": GroupAdvantage(scale="population"),
    }
    by = {name: credited(estimator, rewards, groups)[0] for name, estimator in kinds.items()}
    assert by == pytest.approx({"ours": 2.474867, "trl": 2.474174, "papers": 2.645743}, abs=1e-6)
    assert in_verls("grpo", rewards, groups)[0] == pytest.approx(by["ours"], abs=1e-9)


def test_trls_epsilon_shrinks_small_differences(in_trl: Any) -> None:
    """Rewards a thousandth apart: the sample deviation is 0.0005, and 1e-4 more is a fifth of it."""
    rewards: list[float | None] = [0.001, 0.0, 0.0, 0.0] * 2
    assert trls(in_trl, rewards)[0] == pytest.approx(1.25, abs=1e-3)
    assert credited(GroupAdvantage(), torch.tensor([0.001, 0.0, 0.0, 0.0]), [0] * 4)[0] == pytest.approx(
        1.497006, abs=1e-4
    )


def test_a_rollout_alone_in_its_group_is_taught_its_raw_reward_by_verl() -> None:
    rewards = torch.tensor([0.7, 0.0, 1.0], dtype=torch.float64)
    assert in_verls("grpo", rewards, [0, 1, 1])[0] == pytest.approx(0.7, abs=1e-5)
    assert in_verls("rloo", rewards, [0, 1, 1])[0] == pytest.approx(0.7)
    assert credited(GroupAdvantage(), rewards, [0, 1, 1])[0] == 0.0
    assert credited(LeaveOneOut(), rewards, [0, 1, 1])[0] == 0.0


@pytest.mark.parametrize(("reward", "noise"), [(0.9, 0.055550), (100.3, -0.737563)])
def test_equal_rewards_are_noise_in_verl_and_nothing_here(reward: float, noise: float) -> None:
    """Three times the same: the float32 mean is off by one rounding.

    Which verl divides by little more than that rounding.
    """
    rewards, groups = torch.full((3,), reward), [0] * 3
    assert in_verls("grpo", rewards, groups) == pytest.approx([noise] * 3, abs=1e-5)
    assert credited(GroupAdvantage(), rewards, groups) == [0.0] * 3
    assert credited(LeaveOneOut(), rewards, groups) == [0.0] * 3


def test_one_unscorable_rollout_spoils_its_group_in_verl() -> None:
    rewards, groups = torch.tensor([1.0, 0.0, math.nan, 0.0, 1.0, 0.0]), [0, 0, 0, 0, 1, 1]
    assert [math.isnan(value) for value in in_verls("grpo", rewards, groups)] == [True] * 4 + [False] * 2
    assert credited(GroupAdvantage(), rewards, groups)[:4] == pytest.approx(
        [1.154699, -0.577349, 0.0, -0.577349], abs=1e-5
    )
