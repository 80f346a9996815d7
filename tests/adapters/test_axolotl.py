"""axolotl's YAML: TRL's settings under ``trl:``, axolotl's own names at the top, patches as YAML."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from breadth.adapters.axolotl import SETTINGS
from breadth.base.errors import BrokenFileError
from breadth.doctor.finding import Change
from breadth.doctor.trainer_config import DIALECTS, TrainerConfig
from breadth.runs.jsonl import read_head

CONFIG = """
base_model: Qwen/Qwen2.5-1.5B-Instruct
rl: grpo
trl:
  use_vllm: true
  num_generations: 8
  max_completion_length: 512
  beta: 0.001
  epsilon_high: 0.28
  loss_type: dr_grpo
micro_batch_size: 8
gradient_accumulation_steps: 2
learning_rate: 5.0e-6
datasets:
  - path: openai/gsm8k
"""


def read(folder: Path, text: str) -> TrainerConfig:
    path = folder / "grpo.yaml"
    path.write_text(text)
    assert [dialect.trainer for _, dialect in DIALECTS if dialect.recognises(path, read_head(path))] == ["axolotl"]
    return SETTINGS.translate(SETTINGS.read(path))


def test_both_levels(tmp_path: Path) -> None:
    found = read(tmp_path, CONFIG)
    assert (found.group, found.micro_batch, found.accumulation, found.updates) == (8, 8, 2, 1)
    assert (found.kl, found.clip_high, found.loss, found.learning_rate) == (0.001, 0.28, "dr_grpo", 5e-6)
    assert (found.engine, found.max_completion_length) == ("vllm", 512)
    assert found.model == "Qwen/Qwen2.5-1.5B-Instruct"
    assert found.user_settings["clip_high"] == "trl.epsilon_high=0.28"
    assert found.user_settings["micro_batch"] == "micro_batch_size=8"
    assert found.user_settings["model"] == "base_model='Qwen/Qwen2.5-1.5B-Instruct'"
    assert SETTINGS.translate({}).user_settings == {}


def test_what_axolotl_drops(tmp_path: Path) -> None:
    found = read(tmp_path, CONFIG.replace("  beta: 0.001\n", "  beta: 0.001\n  delta: 3.0\n"))
    assert [(unused.setting, unused.intended) for unused in found.unused] == [("trl.delta=3.0", True)]
    assert found.dual_clip is None


def test_a_section_that_stands_twice_loses_the_first(tmp_path: Path) -> None:
    found = read(tmp_path, CONFIG + "trl:\n  num_generations: 4\n  beta: 0.001\n")
    assert found.group == 4
    (conflict,) = found.conflicts
    assert conflict.settings == "trl (lines 4 and 16)"
    assert conflict.consequence == "wrong"
    assert "use_vllm, num_generations, max_completion_length, epsilon_high, loss_type under the first" in conflict.why


def test_patches_are_yaml_in_the_sections_of_the_file(tmp_path: Path) -> None:
    changes = [
        Change("clip_high", 0.28),
        Change("learning_rate", 1e-6),
        Change("max_completion_length", 4096),
        Change("updates", 2),
        Change("dual_clip", 3.0),
        Change("chain", "kl_cov"),
    ]
    lines = SETTINGS.patch(changes, read(tmp_path, CONFIG))
    assert yaml.safe_load("\n".join(lines)) == {
        "trl": {"epsilon_high": 0.28, "max_completion_length": 4096, "num_iterations": 2},
        "learning_rate": 1e-6,
    }


def test_only_a_table_is_a_configuration(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("- rl: grpo")
    with pytest.raises(BrokenFileError):
        SETTINGS.read(tmp_path / "a.yaml")
