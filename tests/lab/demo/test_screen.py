"""What a running demo shows: curves of both arms in a terminal, a few lines elsewhere, also in a small window."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from breadth.lab.demo.plan import DemoPlan
from breadth.lab.demo.run import StageStarted, StepTaken
from breadth.lab.demo.screen import DemoScreen

PLAN = DemoPlan(steps=16)


def told(screen: DemoScreen) -> None:
    for arm in ("plain", "protected"):
        screen.on_event(arm, StageStarted("training"))
    for step in range(1, 17):
        screen.on_event("plain", StepTaken(step, step / 32, 1.0 - step / 32))
        screen.on_event("protected", StepTaken(step, step / 32, 1.0))


def test_lines_where_there_is_no_terminal() -> None:
    console = Console(file=io.StringIO(), width=100)
    with DemoScreen(console, PLAN) as screen:
        told(screen)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]  # it is the text file above
    assert len([line for line in lines if "plain GRPO: step" in line]) == 8  # every second of sixteen
    assert "plain GRPO: step 16 of 16, entropy 0.50 nats, 50% right" in lines[-2]


@pytest.mark.parametrize(("width", "height"), [(100, 30), (80, 24), (60, 40)])
def test_the_terminal_shows_both_arms_and_fits(width: int, height: int) -> None:
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=True, color_system=None)
    screen = DemoScreen(console, PLAN)
    told(screen)
    screen.on_event("plain", StageStarted("votes"))
    with console.capture() as shown:
        console.print(screen.render())
    text = shown.get()
    lines = text.splitlines()
    assert len(lines) <= height
    assert max(map(len, lines)) <= width
    assert re.search(r"plain GRPO +votes", text)
    assert re.search(r"protected +step 16 of 16, entropy 1\.00 nats", text)
    assert "entropy (nats)" in text
    assert "right replies (%)" in text
    assert "●" in text


def test_before_anything_is_known() -> None:
    console = Console(file=io.StringIO(), width=80, height=24, force_terminal=True)
    with console.capture() as shown:
        console.print(DemoScreen(console, PLAN).render())
    assert "no values to draw" in shown.get()
