"""Courses in stages: policies on the way, broken off and gone on with, and the same end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from breadth.lab.courses.course import Course
from breadth.lab.courses.faults import Killed, kill_at
from breadth.lab.courses.staging import train_in_stages
from breadth.lab.courses.training import CHECKPOINTS, RUN
from breadth.lab.model.reasoner import load
from breadth.runs.reader import Run
from breadth.training.chain import Chain
from breadth.training.credit.group_advantage import GroupAdvantage
from breadth.training.credit.outcome_bonus import OutcomeBonus
from breadth.training.loss.clipped_policy import ClippedPolicy

COURSE = Course(
    Chain((GroupAdvantage(), OutcomeBonus(), ClippedPolicy())),
    steps=4,
    prompts=2,
    group=4,
    problems=8,
    longest=40,
    rate=1e-3,
)


def weights(folder: Path) -> torch.Tensor:
    return torch.cat([tensor.flatten() for tensor in load(folder).model.state_dict().values()])


def test_policies_are_kept_on_the_way_and_a_run_broken_off_comes_to_the_same_end(
    tmp_path: Path, memorised_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("breadth.lab.courses.training.SAVED_EVERY", 2)
    whole = train_in_stages(COURSE, tmp_path / "whole", memorised_folder, (2, 4))
    assert whole.keys() == {2, 4}
    base, middle, last = weights(memorised_folder), weights(whole[2]), weights(whole[4])
    assert not torch.equal(base, middle)
    assert not torch.equal(middle, last)

    with pytest.raises(Killed):
        train_in_stages(
            COURSE, tmp_path / "broken", memorised_folder, (2, 4), prepare=lambda trainer: kill_at(trainer, 3)
        )
    seen: list[int] = []
    again = train_in_stages(
        COURSE, tmp_path / "broken", memorised_folder, (2, 4), told=lambda step, _: seen.append(step)
    )
    assert seen == [3, 4]
    assert torch.equal(weights(again[4]), last)
    assert not (tmp_path / "broken" / CHECKPOINTS).exists()

    bonus = Run.open(tmp_path / "whole" / RUN).series("breadth/outcome-bonus/new").values
    assert len(bonus) == 4
    assert bonus[0] == 1  # every answer is new at first: so answers are read, or the bonus would be of no use

    def forbidden(trainer: Any) -> None:
        raise AssertionError("what has ended is not run again")

    assert train_in_stages(COURSE, tmp_path / "whole", memorised_folder, (2, 4), prepare=forbidden) == whole
