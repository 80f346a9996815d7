"""What TRL does not read, given other settings, and what it refuses together; asked of TRL itself where it can say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from breadth.adapters.trl.config import SETTINGS


def idle(**settings: Any) -> list[tuple[str, bool]]:
    return [(one.setting, one.intended) for one in SETTINGS.translate({"num_generations": 8, **settings}).unused]


def test_nothing_is_idle_in_a_plain_configuration() -> None:
    assert idle() == []
    assert (
        idle(epsilon_high=0.28, loss_type="dapo", delta=3.0, use_vllm=True, vllm_importance_sampling_mode="token_mask")
        == []
    )
    assert idle(use_adaptive_entropy=True, entropy_target=0.4, entropy_coef_max=0.01) == []


@pytest.mark.parametrize(
    ("settings", "said", "meant"),
    [
        ({"entropy_target": 0.4, "entropy_coef_delta": 0.001}, "entropy_target=0.4, entropy_coef_delta=0.001", True),
        ({"entropy_target": 0.4, "use_adaptive_entropy": False}, "entropy_target=0.4", False),
        ({"vllm_importance_sampling_correction": True}, "vllm_importance_sampling_correction=True", True),
        ({"ref_model_sync_steps": 64}, "ref_model_sync_steps=64", True),
        ({"sync_ref_model": True, "beta": 0.0}, "sync_ref_model=True", True),
        ({"loss_type": "sapo", "epsilon_high": 0.28}, "epsilon_high=0.28", False),
        ({"loss_type": "cispo", "epsilon": 0.1}, "epsilon=0.1", False),
        ({"loss_type": "vespo", "delta": 2.0}, "delta=2.0", False),
        ({"sapo_temperature_pos": 2.0}, "sapo_temperature_pos=2.0", True),
    ],
)
def test_a_setting_that_nothing_reads(settings: dict[str, Any], said: str, meant: bool) -> None:
    assert idle(**settings) == [(said, meant)]


def test_a_correction_turned_off_where_there_is_none_is_no_news() -> None:
    assert idle(vllm_importance_sampling_correction=False) == []


def test_what_is_computed_is_not_held_against_anybody() -> None:
    assert idle(entropy_target=0.4, use_adaptive_entropy={"expr": "args.adaptive"}) == []
    assert idle(epsilon_high=0.28, loss_type={"expr": "args.loss"}) == []


@pytest.mark.parametrize(
    ("settings", "weight"),
    [
        ({"generation_batch_size": 16, "steps_per_generation": 2}, "refused"),
        ({"generation_batch_size": 12, "per_device_train_batch_size": 4}, "refused"),
        ({"generation_batch_size": 16}, None),
        ({"steps_per_generation": 2}, None),
    ],
)
def test_what_trl_refuses_it_refuses(tmp_path: Path, settings: dict[str, Any], weight: str | None) -> None:
    found = SETTINGS.translate({"num_generations": 8, **settings}).conflicts
    assert [one.consequence for one in found] == ([] if weight is None else [weight])
    trl = pytest.importorskip("trl")
    made = {
        "output_dir": str(tmp_path),
        "report_to": "none",
        "use_cpu": True,
        "bf16": False,
        "num_generations": 8,
        **settings,
    }
    if weight is None:
        trl.GRPOConfig(**made)
    else:
        with pytest.raises(ValueError, match="generation"):
            trl.GRPOConfig(**made)


@pytest.mark.parametrize(
    ("settings", "weight"),
    [
        ({"loss_type": "dr_grpo"}, "slight"),
        ({"loss_type": "dr_grpo", "scale_rewards": True}, "slight"),
        ({"loss_type": "dr_grpo", "scale_rewards": "none"}, None),
        ({"loss_type": "dr_grpo", "scale_rewards": False}, None),
        ({"loss_type": "dr_grpo", "scale_rewards": {"expr": "args.scale"}}, None),
        ({"use_adaptive_entropy": True, "entropy_coef": 0.1, "entropy_coef_max": 0.01}, "wrong"),
        ({"use_adaptive_entropy": True, "entropy_coef_min": 0.1, "entropy_coef_max": 0.01}, "wrong"),
        ({"use_adaptive_entropy": True, "entropy_coef": 0.1}, None),  # TRL: where the coefficient starts
        ({"entropy_coef": 0.1, "entropy_coef_max": 0.01}, None),  # idle, not contradictory
    ],
)
def test_what_does_not_go_together(settings: dict[str, Any], weight: str | None) -> None:
    found = SETTINGS.translate({"num_generations": 8, **settings}).conflicts
    assert [one.consequence for one in found] == ([] if weight is None else [weight])


@pytest.mark.parametrize(
    ("settings", "weight"),
    [
        ({"num_generations": 6, "per_device_train_batch_size": 4}, "refused"),  # 4, 8, 16 or 32: never sixes
        ({"num_generations": 6, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 3}, None),
        ({"num_generations": 6, "per_device_train_batch_size": 4, "num_processes": 3}, None),
        ({"num_generations": 8, "per_device_train_batch_size": 4, "nproc_per_node": 1}, "refused"),
        ({"num_generations": 8, "per_device_train_batch_size": 4}, None),  # two processes, or four
        ({"num_generations": 6, "per_device_train_batch_size": {"expr": "args.rows"}}, None),
        ({"num_generations": 6, "steps_per_generation": 2, "gradient_accumulation_steps": 3}, "refused"),
    ],
    ids=str,
)
def test_groups_that_no_usual_number_of_processes_makes_whole(settings: dict[str, Any], weight: str | None) -> None:
    conflicts = SETTINGS.translate(settings).conflicts
    assert [conflict.consequence for conflict in conflicts] == ([] if weight is None else [weight])
    assert all(conflict.since == "TRL 0.15" for conflict in conflicts)


def test_such_groups_are_refused_by_trl_itself(tmp_path: Path) -> None:
    trl = pytest.importorskip("trl")
    with pytest.raises(ValueError, match="must be divisible by num_generations"):
        trl.GRPOConfig(str(tmp_path), num_generations=6, per_device_train_batch_size=4, report_to=[], use_cpu=True)


@pytest.mark.parametrize(
    ("settings", "conflicts"),
    [
        ({"top_k": -1}, 1),  # transformers samples
        ({"top_k": -1, "use_vllm": True}, 0),
        ({"top_k": -1, "use_vllm": {"expr": "args.vllm"}}, 0),
        ({"top_k": 0}, 0),
        ({"top_k": None, "use_vllm": True}, 0),
    ],
    ids=str,
)
def test_all_tokens_as_each_sampler_spells_it(settings: dict[str, Any], conflicts: int) -> None:
    found = SETTINGS.translate({"num_generations": 8, **settings})
    assert found.top_k == 0
    assert len(found.conflicts) == conflicts


def test_transformers_takes_no_minus_one() -> None:
    process = pytest.importorskip("transformers.generation.logits_process")
    with pytest.raises(ValueError, match="strictly positive"):
        process.TopKLogitsWarper(-1)
