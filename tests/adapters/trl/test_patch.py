"""What is prescribed for TRL works in TRL: the real GRPOConfig is built with it, and our trainer's checks accept it."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from breadth.adapters.trl.config import SETTINGS
from breadth.doctor.finding import Change
from breadth.doctor.trainer_config import TrainerConfig

BARE = {"output_dir": "out", "report_to": "none", "use_cpu": True, "bf16": False}
USER = {"num_generations": 4, "per_device_train_batch_size": 2, "gradient_accumulation_steps": 6, "loss_type": "grpo"}


def keywords(lines: tuple[str, ...]) -> dict[str, Any]:
    """Read the keywords of the one call of GRPOConfig; the rest must be comments or our lines."""
    calls = [line for line in lines if line.startswith("GRPOConfig(")]
    assert len(calls) <= 1
    if not calls:
        return {}
    node = ast.parse(calls[0], mode="eval").body
    assert isinstance(node, ast.Call)
    return {str(word.arg): ast.literal_eval(word.value) for word in node.keywords}


def patched(*changes: Change, **settings: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    lines = SETTINGS.patch(changes, SETTINGS.translate({**USER, **settings}))
    return keywords(lines), lines


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (Change("clip_high", 0.28), {"epsilon_high": 0.28}),
        (Change("clip_low", 0.1), {"epsilon": 0.1}),
        (Change("kl", 0.001), {"beta": 0.001}),
        (Change("learning_rate", 3e-7), {"learning_rate": 3e-7}),
        (Change("entropy_bonus", 0.001), {"entropy_coef": 0.001}),
        (Change("entropy_share", 0.2), {"top_entropy_quantile": 0.2}),
        (Change("dual_clip", 3.0), {"delta": 3.0}),
        (Change("max_completion_length", 1024), {"max_completion_length": 1024}),
        (Change("mask_truncated", True), {"mask_truncated_completions": True}),
        (Change("logs_rollouts", True), {"log_completions": True}),
        (Change("temperature", 1.0), {"temperature": 1.0}),
        (Change("top_p", 1.0), {"top_p": 1.0}),
        (Change("top_k", 0), {"top_k": 0}),
        (Change("sequence_ratio", True), {"importance_sampling_level": "sequence"}),
        (Change("updates", 4), {"steps_per_generation": 24}),  # 4 optimizer steps of 6 micro-batches
        (Change("updates", 1), {"steps_per_generation": 6}),
        (Change("group", 6), {"num_generations": 6}),  # 2 * 6 = 12 rollouts are two groups
        (Change("group", 8), {"num_generations": 8, "gradient_accumulation_steps": 12}),  # 12 are not; 24 are three
        (Change("prompts", 5), {"generation_batch_size": 20}),
        (Change("correct_mismatch", True), {}),  # nothing to correct without vLLM
        (Change("votes", 8), {}),
        (Change("kl_given", 8), {}),
    ],
    ids=str,
)
def test_every_change_as_keywords(change: Change, expected: dict[str, Any]) -> None:
    assert patched(change)[0] == expected


def test_the_real_class_takes_every_patch(tmp_path: Path) -> None:
    trl = pytest.importorskip("trl")
    changes = [
        (Change("clip_high", 0.28), Change("updates", 4)),
        (Change("entropy_adaptive", True), Change("entropy_target", 0.35)),
        (Change("group", 8),),
        (Change("group", 16), Change("kl", 0.001)),
        (Change("max_completion_length", 4096), Change("mask_truncated", True), Change("logs_rollouts", True)),
        (Change("top_p", 1.0), Change("top_k", 0), Change("repetition_penalty", 1.0), Change("temperature", 1.0)),
        (Change("sequence_ratio", True), Change("clip_low", 3e-4), Change("clip_high", 4e-4)),
        (Change("dynamic_sampling", True),),
        (Change("prompts", 6),),
        (Change("entropy_share", 0.2), Change("entropy_bonus", 0.001), Change("dual_clip", 3.0)),
    ]
    for together in changes:
        made = trl.GRPOConfig(**{**BARE, **USER, "output_dir": str(tmp_path), **patched(*together)[0]})
        config = SETTINGS.translate({**USER, **patched(*together)[0]})
        assert made.num_generations == config.group


def test_a_patch_does_what_it_says_when_read_again() -> None:
    for change, knob, expected in [
        (Change("updates", 4), "updates", 4),
        (Change("group", 8), "group", 8),
        (Change("clip_high", 0.3), "clip_high", 0.3),
    ]:
        found = SETTINGS.translate({**USER, **patched(change)[0]})
        assert getattr(found, knob) == expected
        assert found.updates == (4 if knob == "updates" else 1)


def test_updates_where_the_size_of_a_generation_is_fixed_or_not_known() -> None:
    assert patched(Change("updates", 4), generation_batch_size=24)[0] == {"num_iterations": 4}
    assert keywords(SETTINGS.patch([Change("updates", 4)], TrainerConfig())) == {"num_iterations": 4}
    once = patched(Change("updates", 1), num_iterations=3)[0]
    assert once == {"steps_per_generation": 6, "num_iterations": 1}


def test_a_group_says_what_must_hold_where_the_batch_is_not_known() -> None:
    lines = SETTINGS.patch([Change("group", 16)], TrainerConfig())
    assert lines == (
        "GRPOConfig(num_generations=16)",
        "# per_device_train_batch_size x steps_per_generation x processes must be a multiple of 16",
    )


def test_the_entropy_target_comes_with_skywork_s_steps_and_without_a_bonus_of_its_own() -> None:
    found = patched(Change("entropy_adaptive", True), Change("entropy_target", 0.35), entropy_coef=0.01)[0]
    assert found == {
        "use_adaptive_entropy": True,
        "entropy_coef": 0.0,
        "entropy_coef_delta": 1e-4,
        "entropy_coef_max": 0.005,
        "entropy_target": 0.35,
    }
    assert SETTINGS.translate({**USER, **found}).conflicts == ()


def test_with_cispo_the_clip_is_a_cap() -> None:
    assert patched(Change("clip_high", 4.0), loss_type="cispo")[0] == {"epsilon_high": 5.0}


def test_longer_completions_need_room_in_vllm() -> None:
    found = patched(
        Change("max_completion_length", 4096), use_vllm=True, vllm_max_model_length=3072, max_prompt_length=512
    )[0]
    assert found == {"max_completion_length": 4096, "vllm_max_model_length": 4608}


def test_a_mismatch_is_corrected_where_there_is_a_second_engine() -> None:
    assert patched(Change("correct_mismatch", True), use_vllm=True)[0] == {"vllm_importance_sampling_correction": True}


def test_an_objective_of_ours_says_what_must_go() -> None:
    _, lines = patched(Change("chain", "kl_cov"), epsilon_high=0.28, beta=0.01)
    assert lines == (
        "from breadth import BreadthGRPOTrainer",
        "trainer = BreadthGRPOTrainer(..., objective='kl_cov')  # instead of GRPOTrainer",
        "# take loss_type, epsilon_high, beta out of GRPOConfig: the objective sets them",
    )


@pytest.mark.parametrize("recipe", ["kl_cov", "thermostat", "forking", "guarded", "passk"])
def test_what_remains_after_taking_out_is_accepted_by_our_trainer(tmp_path: Path, recipe: str) -> None:
    trl = pytest.importorskip("trl")
    from breadth.adapters.trl.conflicts import check_arguments
    from breadth.training.recipes import resolve_chain

    settings = {
        **USER,
        "epsilon_high": 0.28,
        "beta": 0.01,
        "entropy_coef": 0.001,
        "top_entropy_quantile": 0.5,
        "delta": 3.0,
    }
    *_, comment = SETTINGS.patch([Change("chain", recipe)], SETTINGS.translate(settings))
    gone = comment.removeprefix("# take ").partition(" out of")[0].split(", ")
    kept = {name: value for name, value in settings.items() if name not in gone}
    check_arguments(trl.GRPOConfig(**{**BARE, "output_dir": str(tmp_path), **kept}), resolve_chain(recipe))


def test_dropping_flat_groups_is_a_chain_that_our_trainer_accepts(tmp_path: Path) -> None:
    trl = pytest.importorskip("trl")
    pytest.importorskip("torch")
    from breadth.adapters.trl.conflicts import check_arguments

    words, lines = patched(Change("dynamic_sampling", True))
    assert words == {"loss_type": "dapo"}  # TRL's grpo divides by dropped responses too
    names: dict[str, Any] = {}
    exec("\n".join(line for line in lines if line.startswith("from ") and "GRPOTrainer" not in line), names)  # noqa: S102 - our own lines
    names["Chain"] = __import__("breadth").Chain
    written = next(line for line in lines if "objective=" in line).partition("objective=")[2].partition(")  #")[0]
    chain = eval(written, names)  # noqa: S307 - our own line
    check_arguments(trl.GRPOConfig(**{**BARE, **USER, **words, "output_dir": str(tmp_path)}), chain)


def test_one_line_for_what_two_changes_ask_for() -> None:
    lines = SETTINGS.patch(
        [Change("chain", "kl_cov"), Change("chain", "kl_cov"), Change("clip_high", 0.28), Change("kl", 0.1)],
        TrainerConfig(),
    )
    assert lines[0] == "GRPOConfig(epsilon_high=0.28, beta=0.1)"
    assert len(lines) == 3
