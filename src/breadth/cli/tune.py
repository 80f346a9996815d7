"""``breadth tune``: measure accuracy, variance and cost against thinking and width on a server, and write the policy that follows."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from breadth.api import api_key, resolve_policy, server_urls
from breadth.base.errors import SettingsError
from breadth.cli.output import Html, Json, deliver, progress
from breadth.cli.solve import Dialect, Model

if TYPE_CHECKING:
    from breadth.inference.budget import Spend
    from breadth.runtime.questions import Question
    from breadth.runtime.sweep import Estimate, Sweep, Told
    from breadth.runtime.sweep_folder import Wishes

CANNOT_TELL = 1
"""Exit status when nothing could be told apart; the policy written is then one plain draw."""
DECLINED = 3
"""Exit status when the user did not want the sweep at its price."""
INTERRUPTED = 130
"""Exit status after an interrupt from the keyboard, as shells expect it."""
CONFIDENCE = 20
"""Log-probs asked for with --logprobs: what confidence is made of (arXiv 2508.15260)."""

Tasks = Annotated[
    Path,
    typer.Option(
        "--tasks",
        help="Questions, with right answers where known: JSONL, CSV or Parquet.",
        dir_okay=False,
        show_default=False,
    ),
]
Out = Annotated[
    Path,
    typer.Option(
        "--out",
        help="Run folder to keep every sample in; a killed sweep resumes from it.",
        file_okay=False,
        show_default=False,
    ),
]


@dataclass(frozen=True)
class Limits:
    """How far the sweep may go without asking."""

    tokens: int | None
    """Output tokens at most."""
    yes: bool
    """Whether to start without asking."""
    at_once: int
    """Samples side by side."""


def tune(
    urls: Annotated[
        list[str] | None, typer.Argument(metavar="URL", help="Address of the server; several share the work.")
    ] = None,
    *,
    tasks: Tasks,
    out: Out,
    policy_out: Annotated[
        Path | None,
        typer.Option(
            "--policy-out", help="Where to write the policy; policy.toml in the run folder if left out.", dir_okay=False
        ),
    ] = None,
    budget_tokens: Annotated[
        int | None, typer.Option("--budget-tokens", help="Maximum output tokens of the whole sweep.", min=1)
    ] = None,
    budgets: Annotated[
        str | None,
        typer.Option(
            "--budgets", help="Thinking tokens to force, as in 64,128,256; none for widths only. Default: by the model."
        ),
    ] = None,
    widths: Annotated[str, typer.Option("--widths", help="Vote sizes to measure.")] = "1,2,4,8",
    samples: Annotated[int, typer.Option("--samples", help="Samples of each question at each budget.", min=1)] = 4,
    questions: Annotated[
        int | None, typer.Option("--questions", help="Number of questions to use, sampled at random.", min=1)
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Start without asking.")] = False,
    policy: Annotated[
        str, typer.Option("--policy", help="A policy.toml for sampling, reading, prompt and prices.")
    ] = "single",
    model: Model = None,
    system: Annotated[str | None, typer.Option("--system", help="System prompt.")] = None,
    reading: Annotated[
        str | None, typer.Option("--answer-format", help="How to read the answer: stated, number or whole.")
    ] = None,
    max_tokens: Annotated[int | None, typer.Option("--max-tokens", help="Maximum tokens per completion.")] = None,
    temperature: Annotated[float | None, typer.Option("--temperature", help="Sampling temperature.")] = None,
    logprobs: Annotated[
        bool, typer.Option("--logprobs", help="Ask for log-probs, to see whether confidence can be trusted.")
    ] = False,
    at_once: Annotated[int, typer.Option("--concurrency", help="Samples in flight at the same time.", min=1)] = 8,
    seed: Annotated[int, typer.Option("--seed", help="Random seed.")] = 0,
    dialect: Dialect = "auto",
    as_json: Json = False,
    html: Html = None,
) -> None:
    """Find the best policy for a server: one draw, a vote of several, or longer thinking.

    A short pilot tells what the sweep will cost before it starts. Exit status 1: nothing could be told apart, one plain
    draw is kept.
    """
    import asyncio

    from breadth.runtime.sweep_folder import Wishes

    sampling = {"max_tokens": max_tokens, "temperature": temperature, "top_logprobs": CONFIDENCE if logprobs else None}
    measured = resolve_policy(policy, reading, sampling, {"model": model, "system": system})
    wishes = Wishes(measured, _numbers(widths, "--widths"), _budgets(budgets), samples, seed)
    limits = Limits(budget_tokens, yes, at_once)
    _require_consent(limits)
    try:
        asyncio.run(
            _sweep(
                server_urls(urls, "http://localhost:8000"), dialect, _asked(tasks, questions, seed), wishes, out, limits
            )
        )
    except KeyboardInterrupt:
        typer.echo(f"stopped; what arrived is kept in {out}: the same command resumes from there.", err=True)
        raise typer.Exit(INTERRUPTED) from None
    _judge(out, policy_out or out / "policy.toml", as_json=as_json, html=html)


def _numbers(text: str, option: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) >= 1 for part in parts):
        raise SettingsError(
            f"{option} got {text!r}.", f"Give whole numbers from 1 up, with commas between: {option} 1,2,4."
        )
    return tuple(sorted({int(part) for part in parts}))


def _budgets(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    return () if text.strip() in ("", "none") else _numbers(text, "--budgets")


def _asked(tasks: Path, number: int | None, seed: int) -> tuple[Question, ...]:
    """Return the questions to ask; where only some have a right answer, those."""
    from breadth.runtime.questions import drawn_order, labelled, read_questions

    every = read_questions(tasks)
    kept = labelled(every)
    if len(kept) < len(every):
        typer.echo(
            f"note: {len(every) - len(kept)} of {len(every)} questions have no right answer and are left out.", err=True
        )
    return drawn_order(kept, seed)[:number]


def _require_consent(limits: Limits) -> None:
    if not limits.yes and limits.tokens is None and not somebody_to_ask():
        raise SettingsError(
            "There is nobody to ask whether the sweep may start, and no ceiling on what it may cost.",
            "Give --budget-tokens N, or --yes to start whatever it costs.",
        )


def somebody_to_ask() -> bool:
    """Say whether a person sits at the keyboard."""
    return sys.stdin.isatty()


async def _sweep(
    urls: list[str], dialect: str, questions: tuple[Question, ...], wishes: Wishes, out: Path, limits: Limits
) -> None:
    from breadth.runtime.connect import connect
    from breadth.runtime.sweep import Sweep

    sampler = await connect(urls, dialect=dialect, key=api_key(), model=wishes.policy.model)
    try:
        sweep = Sweep(sampler, questions, wishes, out, ceiling=limits.tokens, at_once=limits.at_once)
        with progress("a few samples, to tell what the sweep will cost"):
            estimate = await sweep.begin()
        _show_estimate(sweep, estimate)
        if (
            not limits.yes
            and somebody_to_ask()
            and estimate.samples > estimate.drawn
            and not typer.confirm("Start?", err=True)
        ):
            typer.echo(f"Nothing more was drawn; the pilot is kept in {out}.", err=True)
            raise typer.Exit(DECLINED)
        with _bar() as told:
            await sweep.collect(told)
        if sweep.spent:
            typer.echo("note: the ceiling was reached before every question had all its samples.", err=True)
    finally:
        await sampler.close()


def _show_estimate(sweep: Sweep, estimate: Estimate) -> None:
    from breadth.report.cells import number
    from breadth.report.plaintext import counted

    plan, coming = sweep.plan, estimate.coming
    plain, forced = plan.arms[0], plan.serial
    each = f"{plain.draws} plain" + (
        f" + {counted(len(forced), 'budget')} x {forced[0].draws} forced" if forced else ""
    )
    some = "" if estimate.questions == estimate.of else f" of {estimate.of:,} (what the ceiling pays for)"
    money = f", {number(coming.money)} by the prices given" if coming.money else ""
    lines = [
        (
            f"{estimate.questions:,} questions{some} x ({each}) = {estimate.samples:,} samples, {estimate.drawn:,} of"
            " them drawn already"
        ),
        (
            f"still to come: about {coming.output_tokens:,} tokens written and {coming.input_tokens:,} read in"
            f" {coming.calls:,} calls, {_duration(coming.seconds)}{money}   (by a pilot of {estimate.pilot} samples)"
        ),
    ]
    if forced:
        lines.insert(
            1,
            "thinking forced to "
            + ", ".join(f"{arm.budget:,}" for arm in forced)
            + " tokens; votes of "
            + ", ".join(map(str, plan.widths)),
        )
    unread = sum(sample.row["answer"] is None for sample in sweep.samples.values())
    if 2 * unread > len(sweep.samples):
        lines.append(
            f"note: no answer could be read in {unread} of these samples; see --answer-format, --system and"
            " --max-tokens"
        )
    for line in [*lines, *(f"note: {note}" for note in plan.notes)]:
        typer.echo(line, err=True)


def _duration(seconds: float) -> str:
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


@contextmanager
def _bar() -> Iterator[Told]:
    """Show a progress bar on standard error; nothing when that is not a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("sampling"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[tokens]} tokens"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty()) as shown:
        bar = shown.add_task("sampling", total=None, tokens="0")

        def told(done: int, total: int, spent: Spend) -> None:
            shown.update(bar, completed=done, total=total, tokens=f"{spent.output_tokens:,}")

        yield told


def _judge(out: Path, policy_out: Path, *, as_json: bool, html: Path | None) -> None:
    from breadth.base.settings import dump
    from breadth.runs.reader import Run
    from breadth.tuning.page import tuning_page
    from breadth.tuning.tuned import tuned

    run = Run.open(out)
    with progress("choosing"):
        result = tuned(run)
    dump(result.policy, policy_out)
    deliver(tuning_page(result, run.header), as_json=as_json, html=html)
    typer.echo(f"wrote {policy_out}", err=True)
    if not result.choice.told:
        raise typer.Exit(CANNOT_TELL)
