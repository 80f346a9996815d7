"""``breadth tune``: measure accuracy, variance and cost on a server, and write the best policy."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from breadth.api import api_key, resolve_policy, server_urls
from breadth.base.errors import SettingsError
from breadth.base.settings import dump
from breadth.cli.output import Html, Json, deliver, progress
from breadth.cli.solve import AnswerFormat, Dialect, MaxTokens, Model, Seed, System, Temperature
from breadth.inference.records import Spend
from breadth.report.cells import format_number
from breadth.report.plaintext import pluralize
from breadth.runs.reader import Run
from breadth.runtime.connect import connect
from breadth.runtime.questions import Question, keep_labelled, read_questions, shuffle_questions
from breadth.runtime.recording import SweepOptions
from breadth.runtime.sweep import OnSweepProgress, Sweep, SweepEstimate
from breadth.tuning.page import build_tuning_page
from breadth.tuning.result import analyze_sweep

EXIT_CANNOT_TELL = 1
"""Exit status when no difference was found; the policy written is then one plain sample."""
EXIT_DECLINED = 3
"""Exit status when the user did not want the sweep at its price."""
EXIT_INTERRUPTED = 130
"""Exit status after an interrupt from the keyboard, as shells expect it."""
TOP_LOGPROBS = 20
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

Servers = Annotated[
    list[str] | None, typer.Argument(metavar="URL", help="Address of the server; several share the work.")
]
PolicyOut = Annotated[
    Path | None,
    typer.Option(
        "--policy-out", help="Where to write the policy; policy.toml in the run folder if left out.", dir_okay=False
    ),
]
BudgetTokens = Annotated[
    int | None, typer.Option("--budget-tokens", help="Maximum output tokens of the whole sweep.", min=1)
]
Budgets = Annotated[
    str | None,
    typer.Option(
        "--budgets", help="Thinking tokens to force, as in 64,128,256; none for widths only. Default: by the model."
    ),
]
Questions = Annotated[
    int | None, typer.Option("--questions", help="Number of questions to use, sampled at random.", min=1)
]


@dataclass(frozen=True)
class SweepLimits:
    """What the sweep may spend without asking."""

    tokens: int | None
    """Maximum output tokens."""
    yes: bool
    """Whether to start without asking."""
    concurrency: int
    """Samples in flight at the same time."""


def tune(
    urls: Servers = None,
    *,
    tasks: Tasks,
    out: Out,
    policy_out: PolicyOut = None,
    budget_tokens: BudgetTokens = None,
    budgets: Budgets = None,
    widths: Annotated[str, typer.Option("--widths", help="Vote sizes to measure.")] = "1,2,4,8",
    samples: Annotated[int, typer.Option("--samples", help="Samples of each question at each budget.", min=1)] = 4,
    questions: Questions = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Start without asking.")] = False,
    policy: Annotated[
        str, typer.Option("--policy", help="A policy.toml for sampling, reading, prompt and prices.")
    ] = "single",
    model: Model = None,
    system: System = None,
    answer_format: AnswerFormat = None,
    max_tokens: MaxTokens = None,
    temperature: Temperature = None,
    logprobs: Annotated[
        bool, typer.Option("--logprobs", help="Ask for log-probs, to see whether confidence can be trusted.")
    ] = False,
    concurrency: Annotated[int, typer.Option("--concurrency", help="Samples in flight at the same time.", min=1)] = 8,
    seed: Seed = 0,
    dialect: Dialect = "auto",
    as_json: Json = False,
    html: Html = None,
) -> None:
    """Find the best policy for a server: one sample, a vote of several, or longer thinking.

    A short pilot estimates the cost of the sweep before it starts. Exit status 1: no difference was found, and the
    policy is one plain sample.
    """
    sampling = {
        "max_tokens": max_tokens,
        "temperature": temperature,
        "top_logprobs": TOP_LOGPROBS if logprobs else None,
    }
    measured = resolve_policy(policy, answer_format, sampling, {"model": model, "system": system})
    options = SweepOptions(measured, parse_counts(widths, "--widths"), parse_budgets(budgets), samples, seed)
    limits = SweepLimits(budget_tokens, yes, concurrency)
    require_consent(limits)
    try:
        asyncio.run(
            run_sweep(
                server_urls(urls, "http://localhost:8000"),
                dialect,
                select_questions(tasks, questions, seed),
                options,
                out,
                limits,
            )
        )
    except KeyboardInterrupt:
        typer.echo(f"stopped; what arrived is kept in {out}: the same command resumes from there.", err=True)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    choose_policy(out, policy_out or out / "policy.toml", as_json=as_json, html=html)


def parse_counts(text: str, option: str) -> tuple[int, ...]:
    """Return the whole numbers of a list with commas."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) >= 1 for part in parts):
        raise SettingsError(
            f"{option} got {text!r}.", f"Give whole numbers from 1 up, with commas between: {option} 1,2,4."
        )
    return tuple(sorted({int(part) for part in parts}))


def parse_budgets(text: str | None) -> tuple[int, ...] | None:
    """Return the thinking budgets to force; None leaves the choice to the sweep."""
    if text is None:
        return None
    return () if text.strip() in ("", "none") else parse_counts(text, "--budgets")


def select_questions(tasks: Path, number: int | None, seed: int) -> tuple[Question, ...]:
    """Return the questions to ask; where only some have a right answer, those."""
    every = read_questions(tasks)
    kept = keep_labelled(every)
    if len(kept) < len(every):
        typer.echo(
            f"note: {len(every) - len(kept)} of {len(every)} questions have no right answer and are left out.", err=True
        )
    return shuffle_questions(kept, seed)[:number]


def require_consent(limits: SweepLimits) -> None:
    """Refuse to start a sweep that nobody can confirm and nothing limits."""
    if not limits.yes and limits.tokens is None and not is_interactive():
        raise SettingsError(
            "The sweep has no token limit, and standard input is no terminal to confirm it on.",
            "Give --budget-tokens N, or --yes to start at any cost.",
        )


def is_interactive() -> bool:
    """Whether standard input is a terminal."""
    return sys.stdin.isatty()


async def run_sweep(
    urls: list[str],
    dialect: str,
    questions: tuple[Question, ...],
    options: SweepOptions,
    out: Path,
    limits: SweepLimits,
) -> None:
    """Estimate the cost, ask where needed, then collect the samples."""
    sampler = await connect(urls, dialect=dialect, key=api_key(), model=options.policy.model)
    try:
        sweep = Sweep(sampler, questions, options, out, ceiling=limits.tokens, concurrency=limits.concurrency)
        with progress("a few samples, to estimate the cost of the sweep"):
            estimate = await sweep.run_pilot()
        print_estimate(sweep, estimate)
        if (
            not limits.yes
            and is_interactive()
            and estimate.samples > estimate.collected
            and not typer.confirm("Start?", err=True)
        ):
            typer.echo(f"Nothing more was sampled; the pilot is kept in {out}.", err=True)
            raise typer.Exit(EXIT_DECLINED)
        with progress_bar() as report:
            await sweep.collect(report)
        if sweep.budget_exhausted:
            typer.echo("note: the token limit was reached before every question had all its samples.", err=True)
    finally:
        await sampler.close()


def print_estimate(sweep: Sweep, estimate: SweepEstimate) -> None:
    """Print what the sweep will take, on standard error."""
    plan, coming = sweep.plan, estimate.remaining
    plain, forced = plan.arms[0], plan.serial
    each = f"{plain.draws} plain" + (
        f" + {pluralize(len(forced), 'budget')} x {forced[0].draws} forced" if forced else ""
    )
    some = "" if estimate.questions == estimate.available else f" of {estimate.available:,} (within the token limit)"
    money = f", {format_number(coming.money)} by the prices given" if coming.money else ""
    lines = [
        (
            f"{estimate.questions:,} questions{some} x ({each}) = {estimate.samples:,} samples,"
            f" {estimate.collected:,} of them collected already"
        ),
        (
            f"still to come: about {coming.output_tokens:,} tokens written and {coming.input_tokens:,} read"
            f" in {coming.calls:,} calls, {format_duration(coming.seconds)}{money}"
            f"   (estimated from {estimate.pilot} samples)"
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


def format_duration(seconds: float) -> str:
    """Return seconds in the unit that people would use."""
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


@contextmanager
def progress_bar() -> Iterator[OnSweepProgress]:
    """Show a progress bar on standard error; nothing when that is not a terminal."""
    columns = (
        TextColumn("sampling"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[tokens]} tokens"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty()) as shown:
        bar = shown.add_task("sampling", total=None, tokens="0")

        def report(done: int, total: int, spent: Spend) -> None:
            shown.update(bar, completed=done, total=total, tokens=f"{spent.output_tokens:,}")

        yield report


def choose_policy(out: Path, policy_out: Path, *, as_json: bool, html: Path | None) -> None:
    """Choose the policy from the samples, write it, and show the page."""
    run = Run.open(out)
    with progress("choosing"):
        result = analyze_sweep(run)
    dump(result.policy, policy_out)
    page = build_tuning_page(result, replace(run.header, name=run.name), str(policy_out))
    deliver(page, as_json=as_json, html=html)
    typer.echo(f"wrote {policy_out}", err=True)
    if not result.choice.is_conclusive:
        raise typer.Exit(EXIT_CANNOT_TELL)
