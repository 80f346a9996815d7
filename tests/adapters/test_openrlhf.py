"""OpenRLHF's launch scripts, with dotted flags and with the older ones, read and patched in their own spelling."""

from __future__ import annotations

from pathlib import Path

import pytest

from breadth.adapters.openrlhf import DEFAULTS, OLDER_FLAGS, OPENRLHF_FIELDS, SETTINGS
from breadth.doctor.finding import Change
from breadth.doctor.trainer_config import TrainerConfig
from breadth.runs.jsonl import read_head

DOTTED = """python3 -m openrlhf.cli.train_ppo_ray \\
   --algo.kl.init_coef 1e-3 \\
   --algo.kl.use_loss \\
   --algo.advantage.estimator group_norm \\
   --actor.eps_clip_low_high 0.2 0.27 \\
   --train.batch_size 128 --rollout.batch_size 64 --rollout.n_samples_per_prompt 8 \\
   --train.micro_batch_size 2 \\
   --rollout.max_new_tokens 1024 \\
   --algo.dynamic_filtering_enable --algo.dynamic_filtering_range 0 1 \\
   --actor.adam.lr 5e-7
"""
OLD = """deepspeed openrlhf --init_kl_coef 1e-3 --use_kl_loss --advantage_estimator group_norm
 --eps_clip_low_high 0.2 0.27
 --train_batch_size 128 --rollout_batch_size 64 --n_samples_per_prompt 8 --micro_train_batch_size 2
 --max_new_tokens 1024
 --dynamic_filtering --dynamic_filtering_reward_range 0 1 --actor_learning_rate 5e-7
"""


def read(folder: Path, text: str) -> TrainerConfig:
    path = folder / "run.sh"
    path.write_text(text, encoding="utf-8")
    assert SETTINGS.recognises(path, read_head(path))
    return SETTINGS.translate(SETTINGS.read(path))


@pytest.mark.parametrize(
    ("text", "flag"), [(DOTTED, "--rollout.n_samples_per_prompt 8"), (OLD, "--n_samples_per_prompt 8")]
)
def test_both_spellings_say_the_same(tmp_path: Path, text: str, flag: str) -> None:
    knobs = read(tmp_path, text)
    assert (knobs.group, knobs.prompts, knobs.updates, knobs.micro_batch) == (8, 64, 4.0, 2)  # 64 * 8 / 128
    assert (knobs.clip_low, knobs.clip_high, knobs.kl, knobs.learning_rate) == (0.2, 0.27, 0.001, 5e-7)
    assert (knobs.estimator, knobs.max_completion_length, knobs.dynamic_sampling, knobs.filter_metric) == (
        "group_norm",
        1024,
        True,
        "score",
    )
    assert (knobs.temperature, knobs.top_p, knobs.correct_mismatch, knobs.loss) == (1.0, 1.0, False, "ppo")
    assert knobs.user_settings["group"] == flag
    assert knobs.unused == ()


def test_other_scripts_are_not_taken_for_openrlhf_s(tmp_path: Path) -> None:
    assert not SETTINGS.recognises(tmp_path / "a.sh", b"trl grpo --num_generations 8 --beta 0.1")
    assert not SETTINGS.recognises(tmp_path / "a.yaml", b"--init_kl_coef 0.1")


def test_half_a_pair_is_not_known(tmp_path: Path) -> None:
    knobs = read(tmp_path, "cmd --algo.kl.init_coef 0.1 --actor.eps_clip_low_high 0.2\n")
    assert (knobs.clip_low, knobs.clip_high) == (0.2, None)
    assert read(tmp_path, "cmd --algo.kl.init_coef 0.1 --actor.eps_clip 0.3\n").clip_high == 0.3


def test_asynchronous_rollouts_lag_by_more_than_updates(tmp_path: Path) -> None:
    assert read(tmp_path, DOTTED.rstrip() + " --train.async_enable\n").updates is None


def test_what_nothing_reads(tmp_path: Path) -> None:
    knobs = read(
        tmp_path,
        "cmd --algo.kl.init_coef 0.1 --algo.dynamic_filtering_range 0 1 --actor.eps_clip 0.3 --actor.eps_clip_low_high"
        " 0.2 0.28\n",
    )
    assert [(one.setting, one.intended) for one in knobs.unused] == [
        ("--actor.eps_clip 0.3", False),
        ("--algo.dynamic_filtering_range 0 1", True),
    ]


def test_changes_are_worded_in_the_spelling_of_the_script(tmp_path: Path) -> None:
    changes = [
        Change("clip_high", 0.3),
        Change("kl", 0.01),
        Change("updates", 8),
        Change("correct_mismatch", True),
        Change("max_completion_length", 2048),
    ]
    assert SETTINGS.patch(changes, read(tmp_path, DOTTED)) == (
        "--actor.eps_clip_low_high 0.2 0.3",
        "--algo.kl.init_coef 0.01",
        "--train.batch_size 64",  # 64 * 8 / 8
        "--algo.advantage.is_correction_enable",
        "--rollout.max_new_tokens 2048",
    )
    assert SETTINGS.patch(changes, read(tmp_path, OLD)) == (
        "--eps_clip_low_high 0.2 0.3",
        "--init_kl_coef 0.01",
        "--train_batch_size 64",
        "--enable_vllm_is_correction",
        "--max_new_tokens 2048",
    )


def test_a_patch_read_again_says_what_was_meant(tmp_path: Path) -> None:
    knobs = read(tmp_path, DOTTED)
    for change in (
        Change("clip_high", 0.3),
        Change("kl", 0.01),
        Change("updates", 2),
        Change("group", 16),
        Change("learning_rate", 1e-7),
    ):
        lines = SETTINGS.patch([change], knobs)
        again = read(tmp_path, DOTTED.rstrip() + " " + " ".join(lines) + "\n")
        assert getattr(again, change.setting) == change.value


def test_what_it_has_no_flag_for_is_left_out() -> None:
    assert (
        SETTINGS.patch(
            [Change("chain", "kl_cov"), Change("votes", 8), Change("dynamic_sampling", False)], TrainerConfig()
        )
        == ()
    )
    assert SETTINGS.patch([Change("updates", 4)], TrainerConfig()) == ("--train.max_epochs 4",)


def test_the_names_are_of_one_piece() -> None:
    unnamed = {"train.batch_size", "train.max_epochs", "train.async_enable", "actor.eps_clip", "eval.steps"}
    assert DEFAULTS.keys() - unnamed <= set(OPENRLHF_FIELDS.values())
    assert all("." in name for name in (*OLDER_FLAGS.values(), *OPENRLHF_FIELDS.values()))
