"""NeMo-RL's YAML translated, what its settings borrow from one another put in, and patched by overrides."""

from __future__ import annotations

from pathlib import Path

import pytest

from breadth.adapters.nemo_rl import SETTINGS
from breadth.base.errors import BrokenFileError
from breadth.doctor.finding import Change
from breadth.doctor.trainer_config import TrainerConfig
from breadth.runs.jsonl import read_head

TEXT = """
grpo:
  num_prompts_per_step: 32
  num_generations_per_prompt: 8
  overlong_filtering: true
  use_dynamic_sampling: false
  reward_shaping: {enabled: false}
  adv_estimator: {name: grpo}
loss_fn:
  reference_policy_kl_penalty: 0.01
  ratio_clip_min: 0.2
  ratio_clip_max: 0.28
  use_importance_sampling_correction: false
  disable_ppo_ratio: false
policy:
  train_global_batch_size: 64
  train_micro_batch_size: 4
  max_total_sequence_length: 2048
  sequence_packing: {enabled: false}
  optimizer: {kwargs: {lr: 5e-6}}
  generation:
    {backend: vllm, max_new_tokens: "${policy.max_total_sequence_length}", temperature: 1.0, top_p: 1.0, top_k: null}
"""


def read(folder: Path, text: str) -> TrainerConfig:
    path = folder / "grpo.yaml"
    path.write_text(text, encoding="utf-8")
    assert SETTINGS.recognises(path, read_head(path))
    return SETTINGS.translate(SETTINGS.read(path))


def test_a_configuration(tmp_path: Path) -> None:
    knobs = read(tmp_path, TEXT)
    assert (knobs.group, knobs.prompts, knobs.updates, knobs.micro_batch) == (8, 32, 4.0, 4)  # 32 * 8 / 64
    assert (knobs.clip_low, knobs.clip_high, knobs.clips, knobs.kl, knobs.learning_rate) == (
        0.2,
        0.28,
        True,
        0.01,
        5e-6,
    )
    assert (knobs.max_completion_length, knobs.context, knobs.top_k, knobs.engine) == (2048, 2048, 0, "vllm")
    assert (knobs.mask_truncated, knobs.dynamic_sampling, knobs.length_penalty, knobs.correct_mismatch) == (
        True,
        False,
        False,
        False,
    )
    assert knobs.user_settings["clip_high"] == "loss_fn.ratio_clip_max=0.28"


def test_what_a_recipe_leaves_to_another_file_is_not_known(tmp_path: Path) -> None:
    knobs = read(tmp_path, "defaults: ../grpo_math_1B.yaml\ngrpo: {num_prompts_per_step: 64}\n")
    assert (knobs.prompts, knobs.group, knobs.updates, knobs.clip_low, knobs.temperature) == (
        64,
        None,
        None,
        None,
        None,
    )


def test_packed_sequences_and_late_rollouts(tmp_path: Path) -> None:
    packed = read(tmp_path, TEXT.replace("sequence_packing: {enabled: false}", "sequence_packing: {enabled: true}"))
    assert packed.micro_batch is None
    assert read(tmp_path, TEXT.replace("grpo:\n", "grpo:\n  async_grpo: {enabled: true}\n", 1)).updates is None


def test_overrides_read_again_say_what_was_meant(tmp_path: Path) -> None:
    knobs = read(tmp_path, TEXT)
    assert SETTINGS.patch([Change("updates", 8)], knobs) == ("policy.train_global_batch_size=32",)  # 32 * 8 / 8
    for change in (
        Change("clip_high", 0.3),
        Change("kl", 0.001),
        Change("group", 16),
        Change("dynamic_sampling", True),
        Change("mask_truncated", False),
    ):
        (line,) = SETTINGS.patch([change], knobs)
        name, _, value = line.partition("=")
        again = SETTINGS.translate(
            {**SETTINGS.read(tmp_path / "grpo.yaml"), name: {"True": True, "False": False}.get(value, value)}
        )
        assert getattr(again, change.setting) == change.value
    assert SETTINGS.patch([Change("chain", "kl_cov"), Change("votes", 8)], knobs) == ()


def test_what_is_no_table_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("- num_prompts_per_step\n")
    with pytest.raises(BrokenFileError, match="no table"):
        SETTINGS.read(tmp_path / "a.yaml")
