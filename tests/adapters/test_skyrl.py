"""SkyRL's settings as its YAML and its launch scripts spell them, and patches in the same spelling."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from breadth.adapters.skyrl import SETTINGS
from breadth.base.errors import BrokenFileError
from breadth.doctor.evidence.record import Evidence
from breadth.doctor.finding import Change, Excluded, Finding
from breadth.doctor.findings import contradictory_settings, no_op_settings, wrong_units
from breadth.doctor.trainer_config import DIALECTS, TrainerConfig
from breadth.report.sections import Severity
from breadth.runs.jsonl import read_head

SCRIPT = """
LOSS=kl_cov
NUM_GPUS=4
uv run -m skyrl.train.entrypoints.main_base \\
  data.train_data="['$DATA_DIR/train.parquet']" \\
  data.val_data="['$DATA_DIR/test.parquet']" \\
  trainer.algorithm.policy_loss_type="$LOSS" \\
  trainer.policy.model.path="Qwen/Qwen2.5-1.5B-Instruct" \\
  trainer.train_batch_size=64 \\
  trainer.policy_mini_batch_size=16 \\
  generator.n_samples_per_prompt=8 \\
  generator.backend=sglang \\
  generator.sampling_params.top_p=0.95
"""


def read(folder: Path, text: str, name: str = "run.sh") -> TrainerConfig:
    path = folder / name
    path.write_text(text)
    assert [dialect.trainer for _, dialect in DIALECTS if dialect.recognises(path, read_head(path))] == ["skyrl"]
    return SETTINGS.translate(SETTINGS.read(path))


def test_a_launch_script(tmp_path: Path) -> None:
    found = read(tmp_path, SCRIPT)
    assert (found.group, found.prompts, found.mini_batch, found.updates) == (8, 64, 16, 4.0)
    assert (found.loss, found.covariance, found.covariance_share, found.clips) == ("kl_cov", "kl-cov", 0.2, False)
    assert (found.kl, found.entropy_bonus, found.top_k, found.engine) == (0.001, 0.0, 0, "sglang")
    assert found.model == "Qwen/Qwen2.5-1.5B-Instruct"
    assert found.user_settings["top_p"] == "generator.sampling_params.top_p=0.95"
    assert found.unread == {}


def test_yaml_with_references_and_an_asynchronous_trainer(tmp_path: Path) -> None:
    text = """
trainer:
  algorithm: {policy_loss_type: dual_clip, clip_ratio_c: 10.0, use_kl_loss: false}
  train_batch_size: 32
  policy_mini_batch_size: ${trainer.train_batch_size}
  fully_async: {enabled: true}
generator:
  n_samples_per_prompt: 5
  sampling_params: {max_generate_length: 1024, top_k: -1}
"""
    found = read(tmp_path, text, "config.yaml")
    assert (found.prompts, found.mini_batch, found.updates, found.dual_clip, found.kl) == (32, 32, None, 10.0, 0.0)
    assert read(tmp_path, text.replace("enabled: true", "enabled: false"), "config.yaml").updates == 1.0
    assert read(tmp_path, SCRIPT.replace("main_base", "main_async")).updates is None
    with pytest.raises(BrokenFileError):
        (tmp_path / "list.yaml").write_text("- n_samples_per_prompt\n- policy_loss_type")
        SETTINGS.read(tmp_path / "list.yaml")


def translate(**settings: Any) -> TrainerConfig:
    own = {name.replace("__", "."): value for name, value in settings.items()}
    return SETTINGS.translate({"trainer.algorithm.eps_clip_low": 0.2, **own})


@pytest.mark.parametrize(
    ("settings", "refused"),
    [
        ({"trainer__train_batch_size": 100, "trainer__policy_mini_batch_size": 64}, "100 prompts are no whole number"),
        ({"trainer__train_batch_size": 128, "trainer__policy_mini_batch_size": 64}, None),
        ({"trainer__algorithm__use_kl_in_reward": True}, "in the loss or in the reward"),
        ({"trainer__algorithm__use_kl_in_reward": True, "trainer__algorithm__use_kl_loss": False}, None),
        (
            {"trainer__algorithm__policy_loss_type": "kl_cov", "trainer__algorithm__use_tis": True},
            "does not support clip_cov and kl_cov",
        ),
    ],
    ids=str,
)
def test_what_skyrl_refuses(settings: dict[str, Any], refused: str | None) -> None:
    conflicts = translate(**settings).conflicts
    assert [conflict.consequence for conflict in conflicts] == ([] if refused is None else ["refused"])
    assert all(refused is not None and refused in conflict.why and conflict.since for conflict in conflicts)


@pytest.mark.parametrize(
    ("settings", "intended"),
    [
        ({"trainer__algorithm__clip_ratio_c": 10.0}, True),  # only dual_clip reads it
        ({"trainer__algorithm__clip_ratio_c": 10.0, "trainer__algorithm__policy_loss_type": "gspo"}, False),
        ({"trainer__algorithm__clip_ratio_c": 3.0}, None),  # the default
        ({"trainer__algorithm__entropy_loss_coef": 0.001}, True),
        ({"trainer__algorithm__entropy_loss_coef": 0.001, "trainer__algorithm__use_entropy_loss": True}, None),
        ({"data__val_data": "test.parquet", "trainer__eval_interval": -1}, False),
        ({"data__val_data": "test.parquet"}, None),  # every five steps, by default
    ],
    ids=str,
)
def test_what_skyrl_does_not_read(settings: dict[str, Any], intended: bool | None) -> None:
    assert [unused.intended for unused in translate(**settings).unused] == ([] if intended is None else [intended])


def test_the_share_of_kl_cov_is_a_fraction_though_its_default_is_the_paper_s_percentage(tmp_path: Path) -> None:
    config = read(tmp_path, SCRIPT)
    found = wrong_units.FINDING.check(Evidence("config", None, config, SETTINGS))
    assert isinstance(found, Finding)
    assert found.severity is Severity.WARNING
    patch = SETTINGS.patch(found.prescriptions[0].changes, config)
    assert patch == ("trainer.algorithm.kl_cov.kl_cov_frac=0.002",)
    mended = read(tmp_path, SCRIPT + " " + patch[0])
    assert mended.covariance_share == 0.002


def test_patches() -> None:
    config = TrainerConfig(prompts=64, max_prompt_length=512, context=1024)
    changes = [
        Change("clip_high", 0.28),
        Change("updates", 4),
        Change("kl", 0.01),
        Change("top_k", 0),
        Change("dynamic_sampling", True),
        Change("max_completion_length", 4096),
        Change("chain", "kl_cov"),
        Change("chain", "thermostat"),
    ]
    assert SETTINGS.patch(changes, config) == (
        "trainer.algorithm.eps_clip_high=0.28",
        "trainer.policy_mini_batch_size=16",
        "trainer.algorithm.use_kl_loss=true",
        "trainer.algorithm.kl_loss_coef=0.01",
        "generator.sampling_params.top_k=-1",
        "trainer.algorithm.dynamic_sampling.type=filter",
        "generator.sampling_params.max_generate_length=4096",
        "generator.inference_engine.engine_init_kwargs.max_model_len=4608",
        "trainer.algorithm.policy_loss_type=kl_cov",
        "trainer.algorithm.kl_cov.kl_cov_frac=0.002",
        "trainer.algorithm.kl_cov.ppo_kl_coef=1.0",
    )


def test_a_sound_script_is_clear(tmp_path: Path) -> None:
    config = read(tmp_path, SCRIPT.replace("LOSS=kl_cov", "LOSS=regular").replace("top_p=0.95", "top_p=1.0"))
    for check in (no_op_settings.FINDING, contradictory_settings.FINDING, wrong_units.FINDING):
        assert isinstance(check.check(Evidence("config", None, config, SETTINGS)), Excluded)
