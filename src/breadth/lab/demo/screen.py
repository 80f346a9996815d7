"""What a demo shows while it runs: live curves in a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table as Grid
from rich.text import Text

from breadth.lab.demo.plan import ARMS, DemoPlan
from breadth.lab.demo.run import StageStarted, StepTaken
from breadth.report.sections import Axis, Curve, Series
from breadth.report.style import TERMINAL_COLORS, line_style, line_symbol
from breadth.report.terminal import Pen, plot

SIDE_BY_SIDE_COLUMNS = 76
"""Terminal columns from which both charts fit side by side."""
MAX_CHART_LINES, MIN_CHART_LINES = 10, 4
"""Lines of a chart: enough to show a shape, and no more."""
OTHER_LINES = 10
"""Lines of the screen that are not charts: titles, axes, status."""
PROGRESS_LINES = 8
"""Progress lines printed per arm where there is no terminal, about."""
DISPLAY_NAMES = {"plain": "plain GRPO", "protected": "protected", "base": "base", "forced": "forced thinking"}
"""Source of an event -> its name for the reader."""


class DemoScreen:
    """Shows the events of a demo; a context manager."""

    def __init__(self, console: Console, plan: DemoPlan) -> None:
        self.console, self.plan = console, plan
        self.steps: dict[str, list[StepTaken]] = {arm: [] for arm in ARMS}
        """Steps of each arm so far."""
        self.stages: dict[str, str] = {}
        """What each call is doing now."""
        self._began = time.monotonic()
        self._live = (
            Live(console=console, get_renderable=self.render, refresh_per_second=4, transient=True)
            if console.is_terminal
            else None
        )

    def __enter__(self) -> DemoScreen:
        if self._live is not None:
            self._live.start(refresh=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def on_event(self, source: str, event: Any) -> None:
        """Record and show an event."""
        if isinstance(event, StepTaken):
            self.steps[source].append(event)
            if event.step % max(1, self.plan.steps // PROGRESS_LINES) == 0 or event.step == self.plan.steps:
                self._print(f"{DISPLAY_NAMES[source]}: {describe_step(event, self.plan.steps)}")
        elif isinstance(event, StageStarted):
            self.stages[source] = event.stage
            self._print(f"{DISPLAY_NAMES[source]}: {event.stage}")

    def render(self) -> RenderableType:
        """Draw the charts and the status."""
        pen = Pen.for_console(self.console)
        return Group(*self._charts(pen), Text(), *self._status(pen))

    def _print(self, sentence: str) -> None:
        if self._live is None:
            self.console.print(f"{time.monotonic() - self._began:5.0f} s  {sentence}", highlight=False, markup=False)

    def _charts(self, pen: Pen) -> list[RenderableType]:
        wide = pen.width >= SIDE_BY_SIDE_COLUMNS
        room = (self.console.height - OTHER_LINES) // (1 if wide else 2)
        height = min(MAX_CHART_LINES, max(MIN_CHART_LINES, room))
        part = Pen((pen.width - 3) // 2 if wide else pen.width, pen.ascii_only)
        charts = [Group(part.words(curve.title, "bold"), *plot(curve, part, height)) for curve in self._curves()]
        if not wide:
            return list(charts)
        grid = Grid.grid(padding=(0, 3, 0, 0))
        grid.add_row(*charts)
        return [grid]

    def _curves(self) -> list[Curve]:
        axis = Axis("step")

        def lines(field: str) -> list[Series]:
            return [
                Series(DISPLAY_NAMES[arm], [step.step for step in taken], [getattr(step, field) for step in taken])
                for arm, taken in self.steps.items()
            ]

        return [
            Curve("entropy (nats)", lines("entropy"), axis, Axis("entropy", "nats")),
            Curve("right replies (%)", lines("reward"), axis, Axis("right", "%")),
        ]

    def _status(self, pen: Pen) -> list[Text]:
        """Return a status line for each call; arms carry the symbols of their curves."""
        rows = []
        for place, (name, stage) in enumerate(
            (name, self.stages[name]) for name in DISPLAY_NAMES if name in self.stages
        ):
            taken = self.steps.get(name, [])
            doing = describe_step(taken[-1], self.plan.steps) if taken and stage == "training" else stage
            mark = line_symbol(place, len(ARMS), ascii_only=pen.ascii_only) if name in ARMS else " "
            color = TERMINAL_COLORS[line_style(place).color] if name in ARMS else ""
            rows.append(
                Text.assemble(
                    (f"{pen.safe(mark)} {DISPLAY_NAMES[name]:<16}", color),
                    pen.safe(doing),
                    overflow="ellipsis",
                    no_wrap=True,
                )
            )
        elapsed = time.monotonic() - self._began
        return [
            *rows,
            Text(
                f"  {elapsed:.0f} s; Ctrl-C stops; the same command resumes",
                "dim",
                overflow="ellipsis",
                no_wrap=True,
            ),
        ]


def describe_step(event: StepTaken, steps: int) -> str:
    """Describe a step in one line."""
    return f"step {event.step} of {steps}, entropy {event.entropy:.2f} nats, {event.reward:.0%} right"
