"""Configurations that other people trained with; every setting and every verdict was checked by eye first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from breadth.doctor.evidence.record import Evidence
from breadth.doctor.finding import CannotTell, Check, Finding
from breadth.doctor.findings import contradictory_settings, no_op_settings, wrong_units
from breadth.doctor.trainer_config import DIALECTS, ConfigDialect, TrainerConfig
from breadth.runs.jsonl import read_head
from breadth.testing.findings import check_outcome

CHECKS: dict[str, Check] = {
    "no-op-settings": no_op_settings.FINDING,
    "contradictory-settings": contradictory_settings.FINDING,
    "wrong-units": wrong_units.FINDING,
}

READ: dict[str, tuple[str, dict[str, Any]]] = {
    "heyalexchoi__grpo_config.yaml": (
        "trl",
        {
            "group": 8,
            "updates": 1,
            "micro_batch": 1,
            "accumulation": 8,
            "clip_low": 0.2,
            "clip_high": 0.28,
            "kl": 0.0,
            "loss": "dapo",
        },
    ),
    "damanimehul__RLVR.yaml": (
        "trl",
        {
            "group": 32,
            "updates": 1,
            "micro_batch": 6,
            "learning_rate": 5e-6,
            "mask_truncated": True,
            "shaped_reward": True,
            "loss": None,
        },
    ),
    "Null-Phnix__cloud_7b_grpo.yaml": (
        "trl",
        {
            "group": 4,
            "updates": 1,
            "learning_rate": 2e-6,
            "temperature": 0.9,
            "top_p": 0.95,
            "loss": "dr_grpo",
            "kl": 0.0,
            "max_completion_length": 256,
        },
    ),
    "a36600248-eng__codegrpo_single_round_pure_grpo_mixed500.yaml": (
        "trl",
        {
            "group": 8,
            "prompts": 2,
            "updates": None,
            "kl": 0.001,
            "temperature": None,
            "top_p": None,
            "engine": "vllm",
            "loss": None,
        },
    ),
    "charleneleong-ai__train.yaml": (
        "trl",
        {
            "group": 4,
            "micro_batch": None,
            "accumulation": None,
            "updates": None,
            "kl": 0.04,
            "learning_rate": 1e-5,
            "max_completion_length": 768,
        },
    ),
    "Deltasthicc__train.grpoconfig.json": (
        "trl",
        {
            "group": 8,
            "micro_batch": None,
            "updates": None,
            "learning_rate": None,
            "kl": 0.005,
            "temperature": 0.9,
            "engine": "hf",
        },
    ),
    "HaoranLuo__train_grpo_finer_full.grpoconfig.json": (
        "trl",
        {
            "group": None,
            "temperature": None,
            "loss": None,
            "kl": None,
            "max_completion_length": 512,
            "max_prompt_length": 1536,
            "updates": 1,
        },
    ),
    "alexchilton__grpo_gemma3_from_sft.grpoconfig.json": (
        "trl",
        {"group": 2, "updates": 1, "top_p": 0.9, "top_k": 50, "repetition_penalty": 1.1, "kl": 0.1, "temperature": 0.8},
    ),
    "Rusheel86__openenv_wordle_grpo.grpoconfig.json": (
        "trl",
        {
            "group": 2,
            "updates": 1,
            "engine": "vllm",
            "correct_mismatch": True,
            "context": 3072,
            "logs_rollouts": True,
            "kl": None,
        },
    ),
    "wallacexuhanxiao__run_grpo_r3_merged_r16_g8.args.txt": (
        "trl",
        {
            "group": 8,
            "micro_batch": 1,
            "accumulation": 8,
            "updates": 1,
            "learning_rate": 5e-7,
            "max_completion_length": 96,
            "max_prompt_length": 1792,
        },
    ),
    "HappynessI__textcraft_grpo_train.yaml": (
        "verl",
        {
            "group": 4,
            "prompts": 64,
            "updates": 1,
            "learning_rate": 1e-6,
            "kl": 0.0,
            "kl_given": 0.001,
            "top_p": 0.9,
            "context": 10240,
        },
    ),
    "uqcxu9__econ_grpo_small.yaml": (
        "verl",
        {
            "group": 4,
            "prompts": 2,
            "updates": 1,
            "learning_rate": 1e-5,
            "entropy_bonus": 0.1,
            "kl": 0.0,
            "micro_batch": None,
        },
    ),
    "uqcxu9__overrides.yaml": (
        "verl",
        {"group": 4, "prompts": 2, "updates": None, "entropy_bonus": 0.1, "clip_low": 0.2, "loss": None},
    ),
    "hkust-nlp__train_grpo_math_tune_ray.args.txt": (
        "verl",
        {
            "group": 8,
            "prompts": 256,
            "updates": 1,
            "learning_rate": 5e-7,
            "kl": 0.001,
            "entropy_bonus": 0.001,
            "max_completion_length": 3072,
            "micro_batch": 2,
        },
    ),
    "kingjameschan__run_dapo_r15.args.txt": (
        "verl",
        {
            "group": 8,
            "prompts": None,
            "updates": 3,
            "clip_high": 0.4,
            "filter_metric": "acc",
            "length_penalty": False,
            "learning_rate": 2e-5,
        },
    ),
    "volcengine__test_dapo_7b_math.args.txt": (
        "verl",
        {
            "group": 16,
            "prompts": 512,
            "updates": 16,
            "clip_low": 0.4,
            "loss": "geo_mean",
            "length_penalty": True,
            "max_completion_length": None,
        },
    ),
    "yuki-younai__grpo_single_node_bestconfig.args.txt": (
        "verl",
        {"group": 8, "prompts": 512, "updates": 4, "clip_high": 0.28, "dual_clip": 10.0, "kl_given": 0.001, "kl": 0.0},
    ),
    "zz-haooo__run_exp.args.txt": (
        "verl",
        {"group": 8, "updates": 16, "loss": "entropy_control", "clips": None, "logs_rollouts": True},
    ),
    "OpenRLHF__train_dapo_ray_hybrid_engine.args.txt": (
        "openrlhf",
        {
            "group": 8,
            "prompts": 128,
            "updates": 8,
            "kl": 0.001,
            "dynamic_sampling": True,
            "correct_mismatch": True,
            "clip_high": None,
        },
    ),
    "NVIDIA-NeMo__grpo_math_1B.yaml": (
        "nemo-rl",
        {
            "group": 16,
            "prompts": 32,
            "updates": 1,
            "kl": 0.01,
            "clip_high": 0.2,
            "max_completion_length": 512,
            "learning_rate": 5e-6,
            "micro_batch": None,
        },
    ),
}
"""File -> whose it is, and settings as a reader finds them in it."""

SAID: dict[str, dict[str, str]] = {
    "heyalexchoi__grpo_config.yaml": {"no-op-settings": "warning"},
    "kingjameschan__run_dapo_r15.args.txt": {"no-op-settings": "warning"},
    "HappynessI__textcraft_grpo_train.yaml": {"no-op-settings": "note", "contradictory-settings": "note"},
    "hkust-nlp__train_grpo_math_tune_ray.args.txt": {"no-op-settings": "note"},
    "uqcxu9__econ_grpo_small.yaml": {"no-op-settings": "note", "contradictory-settings": "note"},
    "yuki-younai__grpo_single_node_bestconfig.args.txt": {"no-op-settings": "note"},
    "zz-haooo__run_exp.args.txt": {"no-op-settings": "note"},
    "linmumu009__run_pi_grpo_smoke.args.txt": {"no-op-settings": "note"},
    "Null-Phnix__cloud_7b_grpo.yaml": {"contradictory-settings": "note"},
    "alexchilton__grpo_gemma3_from_sft.grpoconfig.json": {"contradictory-settings": "note"},
    "damanimehul__RLVR.yaml": {"wrong-units": "note"},
}
"""File -> what is found in it and how bad; nothing in the others."""

UNDECIDED: dict[str, dict[str, str]] = {
    "HaoranLuo__train_grpo_finer_full.grpoconfig.json": {
        "no-op-settings": "loss_type=args.loss_type",
        "contradictory-settings": "num_generations=args.num_generations; temperature=args.temperature",
        "wrong-units": "temperature=args.temperature",
    },
    "kingjameschan__run_dapo_r15.args.txt": {
        "contradictory-settings": "actor_rollout_ref.rollout.max_model_len=$MAX_MODEL_LEN",
    },
    "volcengine__test_dapo_7b_math.args.txt": {"wrong-units": "data.max_response_length=${max_response_length}"},
    "yuki-younai__grpo_single_node_bestconfig.args.txt": {
        "wrong-units": "data.max_response_length=$max_response_length",
    },
}
"""File -> the checks that cannot tell, and the values that they would need; no check of the others lacks one."""


def opened(path: Path) -> tuple[ConfigDialect, TrainerConfig]:
    speaking = [dialect for _, dialect in DIALECTS if dialect.recognises(path, read_head(path))]
    assert len(speaking) == 1, f"{path.name} is recognised by {[one.trainer for one in speaking]}"
    return speaking[0], speaking[0].translate(speaking[0].read(path))


@pytest.mark.parametrize("name", READ)
def test_a_configuration_as_a_reader_reads_it(fixtures: Path, name: str) -> None:
    trainer, expected = READ[name]
    dialect, config = opened(fixtures / "configs" / name)
    assert dialect.trainer == trainer
    assert {setting: getattr(config, setting) for setting in expected} == expected


def test_every_file_has_one_reader_and_the_verdicts_of_a_reader(fixtures: Path) -> None:
    files = [path for path in sorted((fixtures / "configs").iterdir()) if path.name != "README.md"]
    assert len(files) >= 24
    for path in files:
        dialect, config = opened(path)
        outcomes = {name: check.check(Evidence(path.name, None, config, dialect)) for name, check in CHECKS.items()}
        found = {name: outcome.severity.value for name, outcome in outcomes.items() if isinstance(outcome, Finding)}
        assert found == SAID.get(path.name, {}), path.name
        undecided = {name: outcome for name, outcome in outcomes.items() if isinstance(outcome, CannotTell)}
        needed = UNDECIDED.get(path.name, {})
        assert undecided.keys() == needed.keys(), path.name
        assert all(needed[name] in outcome.missing for name, outcome in undecided.items())
        for name, outcome in outcomes.items():
            if outcome is not None:
                check_outcome(outcome, name)
