"""ROLL's YAML read with its references, and patches as YAML to merge into it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from breadth.adapters.roll import SETTINGS
from breadth.base.errors import BrokenFileError
from breadth.doctor.finding import Change
from breadth.doctor.trainer_config import DIALECTS, TrainerConfig
from breadth.runs.jsonl import read_head

CONFIG = """
rollout_batch_size: 64
prompt_length: 2048
response_length: 4096
num_return_sequences_in_group: 8
adv_estimator: "grpo"
pg_clip_high: 0.28
dual_clip_loss: true
max_len_mask: true
pretrain: Qwen/Qwen2.5-7B
actor_train:
  training_args:
    learning_rate: 1.0e-6
    per_device_train_batch_size: 1
    gradient_accumulation_steps: 32
  strategy_args:
    strategy_name: megatron_train
    strategy_config:
      tensor_model_parallel_size: 2
  device_mapping: list(range(0,16))
actor_infer:
  generating_args:
    max_new_tokens: ${response_length}
    top_p: 0.99
    top_k: 100
    temperature: 0.99
    num_return_sequences: ${num_return_sequences_in_group}
  strategy_args:
    strategy_name: vllm
    strategy_config:
      max_model_len: 8000
"""


def read(folder: Path, text: str) -> TrainerConfig:
    path = folder / "rlvr_config.yaml"
    path.write_text(text)
    assert [dialect.trainer for _, dialect in DIALECTS if dialect.recognises(path, read_head(path))] == ["roll"]
    return SETTINGS.translate(SETTINGS.read(path))


def test_a_pipeline_s_yaml(tmp_path: Path) -> None:
    found = read(tmp_path, CONFIG)
    assert (found.group, found.prompts, found.micro_batch, found.accumulation) == (8, 64, 1, 32)
    assert found.updates == 2.0  # 512 rollouts in batches of 32 x 8 workers: 16 devices in pairs
    assert (found.estimator, found.learning_rate, found.aggregation) == ("grpo", 1e-6, "seq-mean-token-mean")
    assert (found.temperature, found.top_p, found.top_k, found.context) == (0.99, 0.99, 100, 8000)
    assert (found.max_completion_length, found.mask_truncated, found.kl, found.entropy_bonus) == (4096, True, 0.0, 0.0)
    assert (found.dual_clip, found.engine, found.model) == (1.4, "vllm", "Qwen/Qwen2.5-7B")
    assert found.conflicts == ()
    assert found.unread == {}


def test_the_clip_range_needs_its_switch(tmp_path: Path) -> None:
    off = read(tmp_path, CONFIG)
    assert [(unused.setting, unused.intended) for unused in off.unused] == [("pg_clip_high=0.28", True)]
    assert (off.clip_high, "clip_high" in off.user_settings) == (0.2, False)
    on = read(tmp_path, CONFIG + "use_pg_clip_range: true\n")
    assert (on.clip_low, on.clip_high, on.unused) == (0.2, 0.28, ())


def test_max_new_tokens_is_overwritten(tmp_path: Path) -> None:
    found = read(tmp_path, CONFIG.replace("max_new_tokens: ${response_length}", "max_new_tokens: 16384"))
    assert "ROLL sets it to the sequence's length less the prompt's, 4,096 here" in [one.why for one in found.unused]
    longer = CONFIG.replace("response_length: 4096", "sequence_length: 10240")
    assert read(tmp_path, longer).max_completion_length == 8192


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("strategy_name: megatron_train", "strategy_name: deepspeed_train"),
        ("list(range(0,16))", "${devices}"),
        ("prompt_length: 2048", "prompt_length: 2048\nasync_generation_ratio: 1"),
    ],
)
def test_updates_are_not_guessed(tmp_path: Path, before: str, after: str) -> None:
    assert read(tmp_path, CONFIG.replace(before, after, 1)).updates is None


def test_a_key_that_stands_twice_is_refused(tmp_path: Path) -> None:
    (conflict,) = read(tmp_path, CONFIG + "pretrain: Qwen/Qwen3-8B\n").conflicts
    assert (conflict.settings, conflict.consequence) == ("pretrain (lines 10 and 32)", "refused")
    with pytest.raises(BrokenFileError):
        (tmp_path / "list.yaml").write_text("- 1")
        SETTINGS.read(tmp_path / "list.yaml")


def test_patches_are_yaml_that_merges_into_the_file(tmp_path: Path) -> None:
    changes = [
        Change("clip_high", 0.28),
        Change("learning_rate", 5e-7),
        Change("kl", 0.001),
        Change("sequence_ratio", True),
        Change("temperature", 1.0),
        Change("top_k", 0),
        Change("updates", 4),
        Change("chain", "kl_cov"),
    ]
    lines = SETTINGS.patch(changes, read(tmp_path, CONFIG))
    table: dict[str, Any] = yaml.safe_load("\n".join(lines))
    assert table == {
        "use_pg_clip_range": True,
        "pg_clip_high": 0.28,
        "actor_train": {"training_args": {"learning_rate": 5e-7, "gradient_accumulation_steps": 16}},
        "use_kl_loss": True,
        "kl_loss_coef": 0.001,
        "importance_sampling": "seq",
        "actor_infer": {"generating_args": {"temperature": 1, "top_k": -1}},
    }
