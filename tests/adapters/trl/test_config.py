"""GRPO configurations of TRL in every form they come in, translated:

what is set, what is TRL's default, what is not known.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from breadth.adapters.trl.config import (
    CHANGED_DEFAULTS,
    REMOVED_SETTINGS,
    SETTINGS,
    SIMILAR_NAMES,
    TRL_DEFAULTS,
    TRL_FIELDS,
    TRL_MARKERS,
)
from breadth.base.errors import BrokenFileError
from breadth.doctor.trainer_config import TrainerConfig
from breadth.runs.jsonl import read_head

FOREIGN = {"reward_funcs", "max_prompt_length"}
"""Names that stand in files for GRPO and are no fields of GRPOConfig: an argument of TRL's script, and one of earlier
versions.
"""


def test_the_defaults_are_those_of_the_installed_trl() -> None:
    trl = pytest.importorskip("trl")
    fields = trl.GRPOConfig.__dataclass_fields__
    assert {name: fields[name].default for name in TRL_DEFAULTS} == dict(TRL_DEFAULTS)
    assert set(TRL_FIELDS.values()) - FOREIGN <= fields.keys()
    assert fields.keys() >= TRL_MARKERS | SIMILAR_NAMES
    assert not REMOVED_SETTINGS & fields.keys()


def test_siblings_hold_a_default_s_name_and_are_none() -> None:
    assert TRL_DEFAULTS.keys() >= CHANGED_DEFAULTS
    assert all(
        any(name in sibling for name in TRL_DEFAULTS) and sibling not in TRL_DEFAULTS for sibling in SIMILAR_NAMES
    )


def read(folder: Path, text: str, name: str) -> TrainerConfig:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    assert SETTINGS.recognises(path, read_head(path))
    return SETTINGS.translate(SETTINGS.read(path))


FORMS = {
    "train.py": (
        "import trl\nargs = trl.GRPOConfig(num_generations=4, epsilon_high=0.28, beta=0.04,"
        " gradient_accumulation_steps=2)\n"
    ),
    "train.ipynb": json.dumps(
        {
            "cells": [
                {
                    "cell_type": "code",
                    "source": [
                        "!pip install trl\n",
                        "args = GRPOConfig(num_generations=4, epsilon_high=0.28,\n",
                        " beta=0.04, gradient_accumulation_steps=2)",
                    ],
                }
            ]
        }
    ),
    "flat.yaml": "num_generations: 4\nepsilon_high: 0.28\nbeta: 0.04\ngradient_accumulation_steps: 2\n",
    "nested.yaml": (
        "model: {name: x}\nt:\n  num_generations: 4\n  epsilon_high: 0.28\n  beta: 0.04\n "
        " gradient_accumulation_steps: 2\n"
    ),
    "call.json": json.dumps(
        {"GRPOConfig": {"num_generations": 4, "epsilon_high": 0.28, "beta": 0.04, "gradient_accumulation_steps": 2}}
    ),
    "run.sh": (
        "BETA=0.04\ntrl grpo --num_generations 4 --epsilon-high=0.28 \\\n  --beta $BETA"
        " --gradient_accumulation_steps 2\n"
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_every_form_says_the_same(tmp_path: Path, name: str) -> None:
    knobs = read(tmp_path, FORMS[name], name)
    assert (knobs.group, knobs.clip_low, knobs.clip_high, knobs.kl, knobs.accumulation) == (4, 0.2, 0.28, 0.04, 2)
    assert (knobs.updates, knobs.on_policy, knobs.micro_batch, knobs.loss, knobs.clips) == (1.0, True, 8, "dapo", True)
    assert knobs.user_settings["group"] == "num_generations=4"
    assert knobs.user_settings["updates"] == "gradient_accumulation_steps=2"
    assert "micro_batch" not in knobs.user_settings
    assert knobs.describe("micro_batch") == "micro batch left at its default"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("other.py", "from trl import SFTConfig\nSFTConfig(max_length=8)\n"),
        ("state.json", '{"log_history": [], "num_generations": 4, "loss_type": "grpo"}'),
        ("verl.yaml", "actor_rollout_ref: {}\nnum_generations: 4\nloss_type: x\n"),
        ("one.yaml", "num_generations: 4\nbeta: 0.1\n"),
        ("similar.yaml", "num_generations_per_prompt: 4\nmy_loss_type: 3\n"),
        ("plain.ipynb", '{"cells": []}'),
    ],
)
def test_other_files_are_not_taken_for_trl_s(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert not SETTINGS.recognises(tmp_path / name, read_head(tmp_path / name))


def test_a_notebook_is_recognised_behind_its_pictures(tmp_path: Path) -> None:
    picture = {"cell_type": "code", "source": "", "outputs": [{"data": "A" * 2_100_000}]}
    text = json.dumps({"cells": [picture, {"cell_type": "code", "source": "GRPOConfig(num_generations=2)"}]})
    assert read(tmp_path, text, "long.ipynb").group == 2
    assert not SETTINGS.recognises(tmp_path / "absent.ipynb", b"")


@pytest.mark.parametrize(
    ("settings", "updates"),
    [
        ({}, 1.0),
        ({"num_iterations": 3}, 3.0),
        ({"steps_per_generation": 8, "gradient_accumulation_steps": 2}, 4.0),  # 8 / 2
        ({"steps_per_generation": 8, "gradient_accumulation_steps": 2, "num_iterations": 2}, 8.0),  # 8 / 2 * 2
        (
            {"steps_per_generation": 2, "gradient_accumulation_steps": 8},
            0.25,
        ),  # four generations a step, each whole within it
        ({"steps_per_generation": 3, "gradient_accumulation_steps": 8}, None),  # some generations outlive a step
        ({"steps_per_generation": None, "gradient_accumulation_steps": 8}, 1.0),
        ({"generation_batch_size": 64}, None),  # how many devices share it is not known
        ({"gradient_accumulation_steps": {"expr": "args.a"}}, None),
        ({"num_iterations": {"expr": "args.i"}}, None),
    ],
)
def test_updates_a_generation(settings: dict[str, Any], updates: float | None) -> None:
    assert SETTINGS.translate({"num_generations": 4, **settings}).updates == updates


def test_updates_are_what_trl_itself_comes_to(tmp_path: Path) -> None:
    """TRL keeps no old log-probs exactly where an update is on-policy:

    when accumulation is a multiple of what a generation lasts.
    """
    trl = pytest.importorskip("trl")
    for accumulation, steps, iterations in [
        (1, None, 1),
        (4, None, 1),
        (2, 8, 1),
        (8, 2, 1),
        (8, 3, 1),
        (4, 4, 2),
        (8, 2, 2),
        (6, 4, 1),
    ]:
        chosen = {
            "gradient_accumulation_steps": accumulation,
            "steps_per_generation": steps,
            "num_iterations": iterations,
        }
        made = trl.GRPOConfig(
            output_dir=str(tmp_path), report_to="none", use_cpu=True, bf16=False, num_generations=2, **chosen
        )
        on_policy = accumulation % (made.steps_per_generation * iterations) == 0
        assert bool(SETTINGS.translate({"num_generations": 2, **chosen}).on_policy) == on_policy


def test_computed_values_are_not_known_and_never_a_default() -> None:
    names = (
        "num_generations",
        "per_device_train_batch_size",
        "temperature",
        "loss_type",
        "use_vllm",
        "epsilon_high",
        "beta",
    )
    knobs = SETTINGS.translate({"GRPOConfig": {name: {"expr": "args.x"} for name in names}})
    assert (knobs.group, knobs.micro_batch, knobs.temperature, knobs.loss, knobs.engine) == (
        None,
        None,
        None,
        None,
        None,
    )
    assert (knobs.clip_low, knobs.clip_high, knobs.clips, knobs.kl, knobs.correct_mismatch) == (
        0.2,
        None,
        None,
        None,
        None,
    )
    assert knobs.user_settings["group"] == "num_generations=args.x"


def test_a_wrong_type_is_not_known() -> None:
    knobs = SETTINGS.translate(
        {"num_generations": "eight", "temperature": [1], "use_vllm": "perhaps", "beta": True, "loss_type": 3}
    )
    assert (knobs.group, knobs.temperature, knobs.engine, knobs.kl, knobs.loss) == (None,) * 5


def test_what_a_trainer_s_state_holds_says_nothing_of_grpo() -> None:
    knobs = SETTINGS.translate({"max_steps": 100, "train_batch_size": 4, "num_train_epochs": 1})
    assert (knobs.group, knobs.updates, knobs.temperature, knobs.user_settings) == (None, None, None, {})


def test_what_a_call_hands_on_unseen_may_be_anything(tmp_path: Path) -> None:
    knobs = read(tmp_path, "GRPOConfig(**settings, num_generations=4)\n", "train.py")
    assert (knobs.group, knobs.updates, knobs.temperature) == (4, None, None)


def test_names_of_a_script_s_own_make_defaults_unknown() -> None:
    knobs = SETTINGS.translate(
        {"num_generations": 4, "batch_size": 2, "grad_accum": 4, "generation_temperature_code": 0.7, "top_p_eval": 1}
    )
    assert (knobs.micro_batch, knobs.accumulation, knobs.updates, knobs.temperature, knobs.top_p) == (None,) * 5
    siblings = SETTINGS.translate(
        {"num_generations": 4, "adam_epsilon": 1e-8, "epsilon_high": 0.3, "entropy_coef_max": 0.1}
    )
    assert (siblings.clip_low, siblings.entropy_bonus) == (0.2, 0.0)


def test_defaults_that_earlier_versions_had_otherwise() -> None:
    old = SETTINGS.translate({"num_generations": 4, "max_prompt_length": 512, "use_vllm": True})
    assert (old.loss, old.temperature, old.correct_mismatch, old.max_completion_length, old.kl) == (
        None,
        None,
        None,
        None,
        None,
    )
    new = SETTINGS.translate({"num_generations": 4, "use_vllm": True})
    assert (new.loss, new.temperature, new.correct_mismatch) == ("dapo", 1.0, True)


def test_with_cispo_epsilon_high_is_the_largest_ratio() -> None:
    assert SETTINGS.translate({"loss_type": "cispo", "epsilon_high": 5.0}).clip_high == 4.0
    bare = SETTINGS.translate({"loss_type": "cispo"})
    assert bare.clip_high == pytest.approx(-0.8)  # 0.2 - 1: TRL falls back on epsilon
    assert bare.clip_low is None


def test_rewards_that_are_shaped() -> None:
    def told(**settings: Any) -> tuple[bool | None, bool | None]:
        knobs = SETTINGS.translate({"num_generations": 4, **settings})
        return knobs.shaped_reward, knobs.length_penalty

    assert told() == (None, None)
    assert told(reward_weights=[1.0, 0.0]) == (False, None)
    assert told(reward_weights=[1.0, 0.2]) == (True, None)
    assert told(reward_funcs=["accuracy"]) == (None, None)
    assert told(reward_funcs=["accuracy", "soft_overlong_punishment"]) == (True, True)
    assert told(reward_funcs=["accuracy", "length_penalty"]) == (True, True)
    assert told(reward_funcs=["accuracy", "length"]) == (True, None)  # for or against, nobody knows


def test_numbers_that_yaml_reads_as_text_count_as_what_they_say_and_are_told(tmp_path: Path) -> None:
    knobs = read(
        tmp_path, "num_generations: 4\nloss_type: grpo\nlearning_rate: 5e-06\nbeta: 1.0e-3\nrun_name: 1e5\n", "a.yaml"
    )
    assert knobs.learning_rate == 5e-6
    assert knobs.text_numbers == {"learning_rate": "5e-06"}
    assert (
        read(tmp_path, "trl grpo --num_generations 4 --loss_type grpo --learning_rate 5e-06\n", "run.sh").text_numbers
        == {}
    )


def test_the_arguments_as_trl_saves_them_are_the_user_s_where_they_are_no_default(tmp_path: Path) -> None:
    trl = pytest.importorskip("trl")
    made = trl.GRPOConfig(
        output_dir=str(tmp_path),
        report_to="none",
        use_cpu=True,
        bf16=False,
        num_generations=4,
        epsilon_high=0.28,
        gradient_accumulation_steps=2,
    )
    knobs = SETTINGS.translate(json.loads(made.to_json_string()))
    assert (knobs.group, knobs.clip_high, knobs.updates) == (4, 0.28, 1.0)
    assert {"group", "clip_high", "accumulation"} <= knobs.user_settings.keys()
    assert not {"entropy_share", "temperature", "entropy_target", "micro_batch"} & knobs.user_settings.keys()
    assert knobs.user_settings["updates"] == "gradient_accumulation_steps=2"
    assert (knobs.unused, knobs.conflicts) == ((), ())


def test_a_table_that_is_none_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("- num_generations: 4\n- loss_type: x\n")
    with pytest.raises(BrokenFileError, match="no table"):
        SETTINGS.read(tmp_path / "a.yaml")


NESTED = """
sft: {learning_rate: 2.0e-5, temperature: 0.0}
model: {model_name: Qwen/Qwen2.5-7B}
training: {learning_rate: 1.0e-6}
grpo:
  num_generations: 4
  max_completion_length: 512
  epsilon_high: 0.28
eval: {temperature: 0.0, top_p: 0.5, max_completion_length: 64}
"""


@pytest.mark.parametrize("name", ["grpo", "training_args", "rl_config"])
def test_settings_in_a_section_of_a_larger_file(tmp_path: Path, name: str) -> None:
    found = read(tmp_path, NESTED.replace("grpo:", f"{name}:"), "config.yaml")
    assert (found.group, found.max_completion_length, found.clip_high) == (4, 512, 0.28)
    assert (found.learning_rate, found.temperature, found.top_p) == (1e-6, 1.0, 1.0)  # not those of sft and eval
    assert found.model == "Qwen/Qwen2.5-7B"
    assert "temperature" not in found.user_settings


def test_the_section_with_grpo_s_settings_wins(tmp_path: Path) -> None:
    text = "temperature: 0.5\ngrpo:\n  num_generations: 4\n  loss_type: dapo\n  temperature: 0.9\n"
    assert read(tmp_path, text, "a.yaml").temperature == 0.9


def test_a_key_that_stands_twice_in_a_section(tmp_path: Path) -> None:
    found = read(tmp_path, NESTED + "grpo:\n  num_generations: 8\n  loss_type: grpo\n", "config.yaml")
    assert (found.group, found.clip_high) == (8, 0.2)
    (conflict,) = found.conflicts
    assert conflict.settings == "grpo (lines 5 and 10)"
    assert "max_completion_length, epsilon_high under the first is lost" in conflict.why


def test_the_model_and_the_rewards_of_the_trainer(tmp_path: Path) -> None:
    text = """
MODEL = "Qwen/Qwen3-4B"
config = GRPOConfig(num_generations=8, max_completion_length=1024, learning_rate=args.lr, top_p=TOP, **more)
trainer = GRPOTrainer(model=MODEL, args=config, reward_funcs=[accuracy, soft_overlong_punishment], callbacks=[x])
"""
    found = read(tmp_path, text, "train.py")
    assert found.model == "Qwen/Qwen3-4B"
    assert found.length_penalty is True
    assert found.unread == {"learning_rate": "learning_rate=args.lr", "top_p": "top_p=TOP", "**": "**more"}
    known = read(tmp_path, text.replace(", **more", "").replace("TOP", "1.0"), "train.py")
    assert known.unread == {"learning_rate": "learning_rate=args.lr"}
