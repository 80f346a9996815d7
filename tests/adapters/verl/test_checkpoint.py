"""The chain's state beside verl's checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from breadth.adapters.verl import checkpoint
from breadth.base.errors import BrokenFileError, MechanismError
from breadth.training.chain import Chain
from breadth.training.loss.clipped_policy import ClippedPolicy
from breadth.training.loss.fork_thermostat import ForkThermostat
from breadth.training.objective import Objective


def test_what_is_saved_is_restored(tmp_path: Path) -> None:
    first, second = (Objective(Chain((ClippedPolicy(), ForkThermostat()))) for _ in range(2))
    first.step = 11
    checkpoint.save(tmp_path / "global_step_4", {"loss": first.state()})
    checkpoint.resume(second, checkpoint.load(tmp_path / "global_step_4")["loss"])
    assert second.state() == first.state()
    assert [path.name for path in (tmp_path / "global_step_4").iterdir()] == [checkpoint.NAME]


def test_a_checkpoint_without_a_state_is_enough_only_for_a_chain_that_keeps_none(tmp_path: Path) -> None:
    assert checkpoint.load(tmp_path) == {}
    checkpoint.resume(Objective(Chain((ClippedPolicy(),))), None)
    with pytest.raises(MechanismError, match="fork-thermostat"):
        checkpoint.resume(Objective(Chain((ClippedPolicy(), ForkThermostat()))), None)


@pytest.mark.parametrize("text", ["{", "[1]"])
def test_a_damaged_file_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / checkpoint.NAME).write_text(text, encoding="utf-8")
    with pytest.raises(BrokenFileError, match=r"breadth\.json"):
        checkpoint.load(tmp_path)
