"""What all trainings tell TRL, hear from it and take up again."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("trl", reason="the extra 'train' is not installed")

from breadth.adapters.trl.trainer import STATE
from breadth.lab.courses.trl_on_cpu import arguments, keep_quiet, last_checkpoint, listener
from breadth.lab.demo.plan import protected_by


def test_the_reference_policy_is_asked_for_by_the_chain_alone(tmp_path: Path) -> None:
    plain, protected = (arguments(tmp_path, protected_by(price), max_steps=3, seed=4) for price in (0.0, 0.15))
    assert (plain.beta, protected.beta) == (0.0, 0.15)
    assert (plain.max_steps, plain.seed, plain.output_dir) == (3, 4, str(tmp_path))
    assert not plain.gradient_checkpointing


def test_only_steps_with_a_reward_are_told() -> None:
    told: list[tuple[int, float]] = []
    heard = listener(lambda step, logs: told.append((step, logs["reward"])))
    for step, logs in ((1, {"reward": 0.5}), (2, {"train_runtime": 3.0}), (3, None)):
        heard.on_log(None, SimpleNamespace(global_step=step), None, logs)
    assert told == [(1, 0.5)]


def test_the_newest_whole_checkpoint_is_taken(tmp_path: Path) -> None:
    assert last_checkpoint(tmp_path / "none") is None
    for step, whole in ((9, True), (10, True), (20, False)):
        place = tmp_path / f"checkpoint-{step}"
        place.mkdir()
        if whole:
            (place / STATE).touch()
    assert last_checkpoint(tmp_path) == str(tmp_path / "checkpoint-10")


def test_what_the_user_has_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)
    keep_quiet()
    assert (os.environ["HF_HUB_OFFLINE"], os.environ["TOKENIZERS_PARALLELISM"]) == ("0", "false")
