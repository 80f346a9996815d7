"""Pages the report tests share: a small one worked through by hand and a full one with every kind of section."""

from __future__ import annotations

import io
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any

import pytest
from rich.console import Console

from breadth.report.cells import Missing
from breadth.report.sections import (
    Axis,
    Column,
    Curve,
    Event,
    Fact,
    Facts,
    Group,
    Groups,
    Listing,
    Outcome,
    Page,
    Section,
    Series,
    Severity,
    Table,
    Text,
    Token,
    Trace,
    Verdict,
)
from breadth.report.terminal import render_terminal


@dataclass(frozen=True)
class Range:
    """Stands for the intervals of other rooms."""

    value: float
    low: float
    high: float
    level: float = 0.95
    method: str = "wilson"


def small_page() -> Page:
    """Return a page small enough to write its JSON by hand."""
    return Page(
        "Small",
        [
            Verdict(Severity.GOOD, "All well", numbers=[Fact("accuracy", Range(0.42, 0.38, 0.47), "%")]),
            Table("T", [Column("a"), Column("b", "nats")], [["x", math.nan], [None, Missing("not logged")]]),
            Curve("C", [Series("s", [1, 2], [0.5, math.inf])], Axis("step"), Axis("score")),
        ],
        provenance=[Fact("seed", 0)],
    )


def full_page() -> Page:
    """Return a page with every kind of section, as a doctor's report might look."""
    return Page(
        "Entropy collapsed, and the votes went with it",
        [*_verdicts(), _entropy(), _pass_at_k(), _checkpoints(), _problems(), _thoughts(), *_words(), _long_table()],
        subtitle="qwen2.5-1.5b-grpo, 300 steps, 128 problems with 16 samples each",
        provenance=[
            Fact("read from", "runs/qwen2.5-1.5b-grpo/trainer_state.json"),
            Fact("breadth", "0.1.0"),
            Fact("rollouts", 614400),
            Fact("seed", 0),
        ],
    )


def _verdicts() -> list[Section]:
    return [
        Verdict(
            Severity.CRITICAL,
            "Policy entropy collapsed at step 118 and has not come back",
            "Mean entropy per token fell to a twelfth of its value at the start. From step 150 on no group of sixteen"
            " samples held more than two different answers.\n\nRaise the upper clip bound first; it is the smallest"
            " change that has restored entropy in runs like this one.",
            [
                Fact("entropy at the start", Range(0.612, 0.584, 0.641), "nats"),
                Fact("entropy now", Range(0.0512, 0.0471, 0.0556), "nats"),
                Fact("groups without signal", Range(0.71, 0.66, 0.755), "%"),
                Fact("rollouts wasted", 436224),
            ],
        ),
        Verdict(
            Severity.WARNING, "A third of the answers are cut off at 2,048 tokens", "", [Fact("truncated", 0.334, "%")]
        ),
        Verdict(Severity.NOTE, "Entropy is that of the sampling temperature 0.7, not of the model"),
        Verdict(
            Severity.GOOD,
            "Single-sample accuracy rose and the rise is not noise",
            "",
            [Fact("gain", Range(0.082, 0.041, 0.124))],
        ),
        Verdict(
            Severity.CANNOT_TELL,
            "Whether sampler and trainer agree cannot be told",
            "Log-probabilities of the sampler are not in the log.",
        ),
    ]


def _entropy() -> Curve:
    noise = random.Random(0)
    steps = list(range(0, 301, 2))
    falling = [0.56 / (1 + math.exp((step - 110) / 18)) + 0.05 + noise.gauss(0, 0.012) for step in steps]
    held = [0.62 - 0.12 * step / 300 + noise.gauss(0, 0.014) for step in steps]
    held[60:70] = [math.nan] * 10
    return Curve(
        "Entropy per token, with and without protection",
        [
            Series("this run", steps, falling, [y - 0.03 for y in falling], [y + 0.03 for y in falling]),
            Series("with clip-higher", steps, held, [y - 0.04 for y in held], [y + 0.04 for y in held]),
        ],
        Axis("step"),
        Axis("entropy", "nats"),
        events=[
            Event(118, "change point, entropy falls three times as fast"),
            Event(150, "last group with three answers"),
        ],
        band="95% interval, bootstrap over problems",
        note="Mean over trained tokens at temperature 0.7.",
    )


def _pass_at_k() -> Curve:
    ks = [1, 2, 4, 8, 16, 32, 64]
    base = [0.28, 0.39, 0.50, 0.60, 0.69, 0.76, 0.82]
    tuned = [0.41, 0.46, 0.50, 0.53, 0.55, 0.57, 0.58]
    mixed = [0.38, 0.47, 0.55, 0.62, 0.68, 0.73, 0.77]
    return Curve(
        "pass@k by checkpoint",
        [
            Series("base model", ks, base, [y - 0.04 for y in base], [y + 0.04 for y in base]),
            Series("step 300", ks, tuned, [y - 0.03 for y in tuned], [y + 0.03 for y in tuned]),
            Series("step 100", ks, mixed),
        ],
        Axis("k"),
        Axis("pass@k", "%"),
        log_x=True,
    )


def _checkpoints() -> Table:
    missing = Missing("The trainer did not save rollouts at this step; set rollout_data_dir to keep them.")
    columns = [
        Column("checkpoint"),
        Column("pass@1", "%"),
        Column("pass@16", "%"),
        Column("effective answers"),
        Column("mean length", "tokens"),
    ]
    return Table(
        "What each checkpoint can still do",
        columns,
        [
            ["base", Range(0.28, 0.25, 0.312), Range(0.69, 0.652, 0.725), 4.82, 611],
            ["step 100", Range(0.38, 0.348, 0.413), Range(0.68, 0.641, 0.716), 3.9, 842],
            ["step 200", missing, missing, 1.71, 1533],
            ["step 300", Range(0.41, 0.378, 0.443), Range(0.55, 0.51, 0.589), 1.2, 1720],
        ],
        note="Intervals: 95%, bootstrap over 128 problems.",
    )


def _problems() -> Groups:
    draw = random.Random(1)
    kinds = list(Outcome)
    rates = sorted((draw.random() for _ in range(48)), reverse=True)
    groups = [
        Group(
            f"problem {index + 1}",
            [draw.choices(kinds, [rate, (1 - rate) * 0.7, (1 - rate) * 0.1, (1 - rate) * 0.2])[0] for _ in range(16)],
        )
        for index, rate in enumerate(rates)
    ]
    return Groups("Sixteen samples of each problem at step 300", groups, note="Sorted by the share solved.")


def _split(text: str) -> list[str]:
    return text.split()


def _thoughts() -> Trace:
    draw = random.Random(2)
    words = _split(
        "We need the number of ways to tile a 2 by 10 board . Let f ( n ) be that . Wait , let me check the first cases"
        " again :"
    )
    tokens = [Token(word + " ", draw.paretovariate(2.2) - 1) for word in words]
    tokens += [
        Token("\n", 1.9),
        *(
            Token(word + " ", draw.random() * 0.4)
            for word in _split("f(1) = 1 , f(2) = 2 , so f(n) = f(n-1) + f(n-2) .")
        ),
    ]
    tokens += [
        Token("\n\n", 0.02),
        Token("The answer is ", 0.31, "answer"),
        Token("89", 0.92, "answer"),
        Token(".", None),
    ]
    tokens += [
        Token(word + " ", draw.expovariate(4))
        for _ in range(20)
        for word in _split("But maybe we should check this once more with another way of counting")
    ]
    return Trace("One answer, token by token", tokens, unit="nats", note="Sampled at step 300, problem 17.")


def _words() -> list[Section]:
    return [
        Listing(
            "The smallest change",
            "actor_rollout_ref:\n  actor:\n    clip_ratio_low: 0.2\n    clip_ratio_high: 0.28   # was 0.2\n",
            note="verl; in your run's YAML.",
        ),
        Facts(
            "What is there and what is missing",
            [
                Fact("entropy", "300 steps", note="full softmax, temperature 0.7, mean over tokens"),
                Fact("rewards", 4800),
                Fact("per-token log-probs", Missing("not in the log"), note="Set log_completions=True to keep them."),
                Fact("learning rate", 1e-6),
            ],
        ),
        Text(
            "Entropy numbers of different trainers are not the same quantity.\n\nCompare this run only with runs that"
            " log it the same way.",
            "How to read this",
        ),
    ]


def _long_table() -> Table:
    return Table(
        "Every problem",
        [Column("problem"), Column("samples"), Column("solved", "%")],
        [[f"problem {i}", 16, i % 17 / 16] for i in range(1, 1001)],
    )


@pytest.fixture
def small() -> Page:
    return small_page()


@pytest.fixture
def full() -> Page:
    return full_page()


class Reading(HTMLParser):
    """What a browser would make of a page: its elements with their attributes, and its text."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in {"meta", "input"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.texts.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")

    @property
    def text(self) -> str:
        """All text, white space collapsed."""
        return " ".join(" ".join(self.texts).split())

    def with_class(self, name: str) -> list[tuple[str, dict[str, str]]]:
        """The elements of one class."""
        return [found for found in self.elements if name in found[1].get("class", "").split()]


@pytest.fixture
def read() -> type[Reading]:
    return Reading


@pytest.fixture
def printed() -> Callable[..., str]:
    """Return what the terminal shows of a page or of one section, as plain text."""

    def show(shown: Page | Section, width: int = 100, encoding: str = "utf-8", **settings: Any) -> str:
        raw = io.BytesIO()
        file = io.TextIOWrapper(raw, encoding=encoding, newline="\n")
        page = shown if isinstance(shown, Page) else Page("Page", [shown])
        render_terminal(page, Console(file=file, width=width, **settings))
        file.flush()
        return raw.getvalue().decode(encoding)

    return show
