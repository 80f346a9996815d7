"""Names and defaults of settings, and what losses read, are those of the installed verl."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from breadth.adapters.configs import flatten_table, read_table
from breadth.adapters.verl.names import (
    COVARIANCE_LOSSES,
    DUAL_CLIP_LOSSES,
    REWARD_MANAGERS,
    VERL_CLIPPED_LOSSES,
    VERL_DEFAULTS,
    VERL_FIELDS,
    VERL_GROUP_ESTIMATORS,
)

verl = pytest.importorskip("verl", reason="verl is not installed")

ADDED = {"actor_rollout_ref.rollout.repetition_penalty", "data.apply_chat_template_kwargs.enable_thinking"}
"""Settings of verl's dataclasses, and of open tables, that its YAML does not list."""


@pytest.fixture(scope="module")
def tree() -> dict[str, Any]:
    """verl's whole configuration, by dotted path."""
    return dict(
        flatten_table(
            read_table(
                Path(verl.__file__).parent / "trainer" / "config" / "_generated_ppo_trainer.yaml", exponents=True
            )
        )
    )


def test_the_defaults_are_those_of_the_installed_verl(tree: dict[str, Any]) -> None:
    assert {name: tree[name] for name in VERL_DEFAULTS} == dict(VERL_DEFAULTS)
    assert set(VERL_FIELDS.values()) - ADDED <= tree.keys()
    assert REWARD_MANAGERS[0] in tree


def test_the_losses_are_those_of_the_installed_verl() -> None:
    from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY

    known = set(POLICY_LOSS_REGISTRY) - {"breadth", "bypass_mode"}
    assert known == set(VERL_CLIPPED_LOSSES)
    assert set(COVARIANCE_LOSSES) | set(DUAL_CLIP_LOSSES) <= known


def test_which_losses_clip_is_what_verl_s_source_reads() -> None:
    import inspect

    from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY

    for name, clips in VERL_CLIPPED_LOSSES.items():
        source = inspect.getsource(POLICY_LOSS_REGISTRY[name])
        assert ("config.clip_ratio_low" in source) == clips, name
        assert ("clip_ratio_c" in source) == (name in DUAL_CLIP_LOSSES), name


def test_the_estimators_are_verl_s() -> None:
    from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY

    assert {str(getattr(name, "value", name)) for name in ADV_ESTIMATOR_REGISTRY} >= VERL_GROUP_ESTIMATORS
