"""What is written down of verl's defaults and names is verl's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from breadth.adapters.configs import flat, table_of
from breadth.adapters.verl.defaults import CLIPPED, COVARIANCES, DEFAULTS, DUAL, FIELDS, GROUPED, MANAGERS

verl = pytest.importorskip("verl", reason="verl is not installed")

ADDED = {"actor_rollout_ref.rollout.repetition_penalty"}
"""Settings of verl's dataclasses that its YAML does not list."""


@pytest.fixture(scope="module")
def tree() -> dict[str, Any]:
    """verl's whole configuration, by dotted path."""
    return dict(flat(table_of(Path(verl.__file__).parent / "trainer" / "config" / "_generated_ppo_trainer.yaml", exponents=True)))


def test_the_defaults_are_those_of_the_installed_verl(tree: dict[str, Any]) -> None:
    assert {name: tree[name] for name in DEFAULTS} == dict(DEFAULTS)
    assert set(FIELDS.values()) - ADDED <= tree.keys()
    assert MANAGERS[0] in tree


def test_the_losses_are_those_of_the_installed_verl() -> None:
    from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY

    known = set(POLICY_LOSS_REGISTRY) - {"breadth", "bypass_mode"}
    assert known == set(CLIPPED)
    assert set(COVARIANCES) | set(DUAL) <= known


def test_which_losses_clip_is_what_verl_s_source_reads() -> None:
    import inspect

    from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY

    for name, clips in CLIPPED.items():
        source = inspect.getsource(POLICY_LOSS_REGISTRY[name])
        assert ("config.clip_ratio_low" in source) == clips, name
        assert ("clip_ratio_c" in source) == (name in DUAL), name


def test_the_estimators_are_verl_s() -> None:
    from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY

    assert {str(getattr(name, "value", name)) for name in ADV_ESTIMATOR_REGISTRY} >= GROUPED
