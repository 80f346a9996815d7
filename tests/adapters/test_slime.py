"""slime's flags, also those kept in arrays of a script, and patches as flags."""

from __future__ import annotations

from pathlib import Path

import pytest

from breadth.adapters.slime import SETTINGS
from breadth.doctor.finding import Change
from breadth.doctor.trainer_config import DIALECTS, TrainerConfig
from breadth.runs.jsonl import read_head

SCRIPT = """
NUM_GPUS=${NUM_GPUS:-8}
ROLLOUT_ARGS=(
   --prompt-data dapo.jsonl
   --num-rollout 3000
   --rollout-batch-size 32
   --n-samples-per-prompt 8
   --rollout-max-response-len 8192
   --rollout-temperature 0.8

   --global-batch-size 256
)
GRPO_ARGS=(
   --advantage-estimator grpo
   # --use-kl-loss
   --eps-clip 0.2
   --eps-clip-high 0.28
)
CKPT_ARGS=(
   --hf-checkpoint Qwen2.5-7B
)
ray job submit -- python3 train.py --colocate ${ROLLOUT_ARGS[@]} ${GRPO_ARGS[@]}
"""


def read(folder: Path, text: str) -> TrainerConfig:
    path = folder / "run.sh"
    path.write_text(text)
    assert [dialect.trainer for _, dialect in DIALECTS if dialect.recognises(path, read_head(path))] == ["slime"]
    return SETTINGS.translate(SETTINGS.read(path))


def test_flags_in_arrays(tmp_path: Path) -> None:
    found = read(tmp_path, SCRIPT)
    assert (found.group, found.prompts, found.updates, found.learning_rate) == (8, 32, 1.0, 1e-6)
    assert (found.clip_low, found.clip_high, found.kl, found.estimator) == (0.2, 0.28, 0.0, "grpo")
    assert (found.temperature, found.top_k, found.max_completion_length) == (0.8, 0, 8192)
    assert (found.model, found.dynamic_sampling, found.logs_rollouts) == ("Qwen2.5-7B", False, False)
    assert found.user_settings["clip_high"] == "--eps-clip-high 0.28"
    assert (found.unused, found.conflicts, found.unread) == ((), (), {})


@pytest.mark.parametrize(
    ("added", "updates"),
    [
        ("--num-steps-per-rollout 4", 4.0),
        ("--global-batch-size 64", 4.0),
        ("--use-rollout-logprobs", None),
        ("--global-batch-size $BATCH", None),
    ],
)
def test_updates_per_generation(tmp_path: Path, added: str, updates: float | None) -> None:
    assert read(tmp_path, f"{SCRIPT}\n{added}\n").updates == updates
    assert read(tmp_path, SCRIPT.replace("train.py", "train_async.py")).updates is None


@pytest.mark.parametrize(
    ("added", "consequence"),
    [
        ("--kl-coef 0.01 --kl-loss-coef 0.01 --use-kl-loss", "refused"),
        ("--advantage-estimator reinforce_plus_plus", "refused"),
        ("--advantage-estimator reinforce_plus_plus --normalize-advantages", None),
        ("--global-batch-size 512", "refused"),
        ("--global-batch-size 100", "wrong"),  # 56 of 256 rollouts are dropped
        ("--advantage-estimator cispo", "slight"),
        ("--advantage-estimator cispo --eps-clip 1.0", None),
    ],
)
def test_flags_that_exclude_each_other(tmp_path: Path, added: str, consequence: str | None) -> None:
    conflicts = read(tmp_path, f"{SCRIPT}\n{added}\n").conflicts
    assert [conflict.consequence for conflict in conflicts] == ([] if consequence is None else [consequence])


def test_flags_without_effect(tmp_path: Path) -> None:
    added = "--kl-loss-coef 0.01\n--eval-prompt-data aime aime.jsonl\n--tis-clip 3\n"
    assert [unused.setting for unused in read(tmp_path, f"{SCRIPT}\n{added}").unused] == [
        "--kl-loss-coef 0.01",
        "--eval-prompt-data aime aime.jsonl",
        "--tis-clip 3",
    ]
    assert read(tmp_path, f"{SCRIPT}\n--eval-prompt-data aime x.jsonl --eval-interval 20\n").unused == ()


def test_a_variable_set_elsewhere_is_not_read(tmp_path: Path) -> None:
    found = read(tmp_path, SCRIPT.replace("--rollout-temperature 0.8", "--rollout-temperature $TEMPERATURE"))
    assert found.temperature is None
    assert found.unread == {"temperature": "--rollout-temperature $TEMPERATURE"}


def test_patches(tmp_path: Path) -> None:
    changes = [
        Change("clip_high", 0.28),
        Change("updates", 4),
        Change("kl", 0.001),
        Change("dynamic_sampling", True),
        Change("correct_mismatch", True),
        Change("max_completion_length", 16384),
        Change("chain", "kl_cov"),
    ]
    assert SETTINGS.patch(changes, read(tmp_path, SCRIPT)) == (
        "--eps-clip-high 0.28",
        "--global-batch-size 64",
        "--use-kl-loss",
        "--kl-loss-coef 0.001",
        "--kl-loss-type low_var_kl",
        "--dynamic-sampling-filter-path slime.rollout.filter_hub.dynamic_sampling_filters.check_reward_nonzero_std",
        "--use-tis",
        "--rollout-max-response-len 16384",
    )
