"""``breadth solve``: answer questions under a policy, with the confidence and the cost of every answer."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from breadth.api import api_key, require_utf8, resolve_policy, server_urls
from breadth.base.errors import BreadthError, ServerError, SettingsError
from breadth.cli.output import Json, progress
from breadth.inference.catalogue import ALLOCATORS
from breadth.inference.policy import Policy
from breadth.inference.records import Budget
from breadth.measure.intervals import wilson
from breadth.report.plaintext import strip_escapes
from breadth.runtime.connect import connect
from breadth.runtime.driver import MAX_VOTES_LISTED, Driver, SolveResult, allocate, solve_all, summarize_result
from breadth.runtime.journal import Journal
from breadth.runtime.ledger import Ledger
from breadth.runtime.questions import Question, read_questions
from breadth.runtime.recording import Recording
from breadth.runtime.solve_context import ModelJudge

EXIT_NO_ANSWER = 1
"""Exit status when no sample arrived."""
EXIT_UNREAD = 3
"""Exit status when samples arrived, and no answer could be read in any of them."""

Url = Annotated[
    list[str] | None,
    typer.Option(
        "--url", help="Address of the server; several share the work. Default: BREADTH_URL or OPENAI_BASE_URL."
    ),
]
PolicyText = Annotated[
    str, typer.Option("--policy", help="A policy.toml, or a strategy with settings: adaptive-vote,most=16.")
]
Dialect = Annotated[
    str, typer.Option("--dialect", help="API dialect of the server: auto, openai, llama-cpp, vllm, sglang.")
]
Model = Annotated[str | None, typer.Option("--model", help="Model name; may be left out if the server has only one.")]

System = Annotated[str | None, typer.Option("--system", help="System prompt.")]
AnswerFormat = Annotated[
    str | None, typer.Option("--answer-format", help="How to read the answer: stated, number or whole.")
]
MaxTokens = Annotated[int | None, typer.Option("--max-tokens", help="Maximum tokens per completion.")]
Temperature = Annotated[float | None, typer.Option("--temperature", help="Sampling temperature.")]
Seed = Annotated[int, typer.Option("--seed", help="Random seed.")]


def solve(
    question: Annotated[
        str | None, typer.Argument(help="The question; - reads it from standard input.", show_default=False)
    ] = None,
    url: Url = None,
    policy: PolicyText = "adaptive-vote",
    tasks: Annotated[
        Path | None, typer.Option("--tasks", help="A file of questions instead: JSONL, CSV or Parquet.", dir_okay=False)
    ] = None,
    allocator: Annotated[
        str | None,
        typer.Option("--allocator", help="Spread one budget over the file: elimination, round-robin, greedy."),
    ] = None,
    model: Model = None,
    system: System = None,
    max_tokens: MaxTokens = None,
    temperature: Temperature = None,
    budget_tokens: Annotated[
        int | None, typer.Option("--budget-tokens", help="Maximum output tokens in total.")
    ] = None,
    seconds: Annotated[float | None, typer.Option("--seconds", help="Maximum seconds in total.")] = None,
    answer_format: AnswerFormat = None,
    concurrency: Annotated[int, typer.Option("--concurrency", help="Questions solved at the same time.", min=1)] = 4,
    seed: Seed = 0,
    dialect: Dialect = "auto",
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Run folder for every candidate; a killed run resumes from it.", file_okay=False),
    ] = None,
    as_json: Json = False,
) -> None:
    """Answer a question under a policy: the answer first, then how sure, by how many votes and what it cost."""
    sampling = {"max_tokens": max_tokens, "temperature": temperature}
    chosen = resolve_policy(policy, answer_format, sampling, {"model": model, "system": system})
    questions = read_input(question, tasks)
    chosen.strategy.prepare()
    job = SolveJob(
        chosen, questions, Budget(output_tokens=budget_tokens, seconds=seconds), allocator, concurrency, seed
    )
    done = asyncio.run(solve_on(job, server_urls(url), dialect, out))
    print_answers(done, chosen, questions, single=tasks is None, as_json=as_json)
    if not any(solved.arrived for solved in done):
        raise typer.Exit(EXIT_NO_ANSWER)
    if all(solved.answer.key is None for solved in done):
        typer.echo(f"breadth: {unread_hint(done)}", err=True)
        raise typer.Exit(EXIT_UNREAD)


def read_input(question: str | None, tasks: Path | None) -> list[Question]:
    """Return the questions to answer."""
    if (question is None) == (tasks is None):
        raise SettingsError(
            "Give one question or --tasks FILE, not both and not neither.", 'Write: breadth solve "What is 6 x 7?"'
        )
    if tasks is not None:
        return list(read_questions(tasks))
    text = require_utf8("question", read_standard_input() if question == "-" else question or "")
    if not text.strip():
        raise SettingsError("The question is empty.", 'Write: breadth solve "What is 6 x 7?"')
    return [Question("question", text)]


def read_standard_input() -> str:
    """Return standard input as text."""
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise SettingsError(
            f"Standard input is not UTF-8 text: {error.reason} at byte {error.start}.", "Write it in UTF-8."
        ) from error


@dataclass(frozen=True)
class SolveJob:
    """What to solve, and how."""

    policy: Policy
    """How to answer."""
    questions: list[Question]
    """What to answer."""
    budget: Budget
    """For all questions together."""
    allocator: str | None
    """Name of the allocator of the budget; None gives each question the policy's own."""
    concurrency: int
    """Questions in flight at the same time."""
    seed: int
    """Random seed."""


async def solve_on(job: SolveJob, urls: list[str], dialect: str, out: Path | None) -> list[SolveResult]:
    """Connect to the servers and run the job; record it where a folder is given."""
    recording = Recording(out, job.policy) if out is not None else None
    sampler = await connect(urls, dialect=dialect, key=api_key(), model=job.policy.model)
    try:
        journal = recording.journal if recording else Journal()
        driver = Driver(sampler, Ledger(job.budget, job.policy.prices), {"default": ModelJudge()}, journal)
        return await run_job(job, driver, recording)
    finally:
        await sampler.close()
        if recording is not None:
            recording.close()


async def run_job(job: SolveJob, driver: Driver, recording: Recording | None) -> list[SolveResult]:
    """Solve the questions of a job and return the results in their order."""
    references = {question.name: question.reference for question in job.questions}
    tasks = [job.policy.task(question.prompt, name=question.name, seed=job.seed) for question in job.questions]
    done: dict[str, SolveResult] = {}

    def take(solved: SolveResult) -> None:
        done[solved.task.name] = solved
        report(f"{len(done)} of {len(tasks)} questions, {driver.ledger.spent.output_tokens:,} tokens")
        if recording is not None:
            recording.add(solved, truth=references[solved.task.name])

    with progress("solving") as report:
        if job.allocator is not None:
            for solved in await allocate(driver, ALLOCATORS.load(job.allocator)(), tasks):
                take(solved)
        else:
            async for solved in solve_all(
                driver, job.policy.strategy, tasks, budget=job.policy.budget, concurrency=job.concurrency
            ):
                take(solved)
    return [done[task.name] for task in tasks]


def print_answers(
    done: list[SolveResult], policy: Policy, questions: list[Question], *, single: bool, as_json: bool
) -> None:
    """Print the answers as JSON, as one answer or as a table."""
    if single and not done[0].arrived:
        raise error_of(done[0])
    rows: list[dict[str, Any]] = []
    for solved, question in zip(done, questions, strict=True):
        rows.append(
            {"question": question.name, "text": solved.answer.text, **summarize_result(solved, policy.strategy)}
            | grade(solved, question)
        )
    if as_json:
        typer.echo(orjson.dumps(rows[0] if single else {"questions": rows}, option=orjson.OPT_INDENT_2).decode())
    elif single:
        print_answer(rows[0])
    else:
        print_table(rows)


def grade(solved: SolveResult, question: Question) -> dict[str, Any]:
    """Return whether the answer is right, where that is known."""
    if question.reference is None or question.key is None:
        return {}
    return {"reference": question.reference, "correct": solved.answer.key == question.key}


def error_of(solved: SolveResult) -> BreadthError:
    """Return the error that explains why no sample arrived."""
    if solved.last_error is not None:
        return solved.last_error
    if solved.budget_exhausted:
        return SettingsError("The budget was spent before one completion arrived.", "Allow more tokens or seconds.")
    return ServerError("The server sent nothing.", "Look at its log.")


def unread_hint(done: Sequence[SolveResult]) -> str:
    """Return the problem and what to do about it when no answer could be read in any reply."""
    replies = [candidate for solved in done for candidate in solved.answer.candidates]
    cut = sum(reply.finish == "length" for reply in replies)
    empty = sum(not reply.text.strip() for reply in replies)
    problem = f"No answer could be read in {'the reply' if len(replies) == 1 else f'any of {len(replies)} replies'}"
    if 2 * cut > len(replies):
        return f"{problem}; {cut} of them cut at the cap.\n  -> Raise --max-tokens."
    if 2 * empty > len(replies):
        return (
            f"{problem}; {empty} of them without any text.\n  -> Look at the server's log and its chat template; a"
            " model that thinks may need a higher --max-tokens."
        )
    return (
        f"{problem}.\n  -> Ask for a form that can be read: --system 'Write the final answer as \\boxed{{...}}.' Or"
        " take the last number (--answer-format number) or the whole reply (--answer-format whole) as the answer."
    )


SHOWN_ANSWERS = 6
"""Answers shown of a vote."""
BAR_WIDTH = 24
"""Characters of a full bar."""


def print_answer(row: Mapping[str, Any], console: Console | None = None) -> None:
    """Print one answer."""
    console = console or Console()
    if row["text"]:
        console.print(Text(strip_escapes(row["text"]).strip()))
        console.print()
    facts = Table.grid(padding=(0, 2))
    for name, value in answer_facts(row):
        facts.add_row(Text(name, style="dim"), value)
    console.print(facts)


def answer_facts(row: Mapping[str, Any]) -> list[tuple[str, Text]]:
    """Return the facts about an answer, as names and sentences."""
    cost, facts = row["cost"], []
    if row["answer"] is not None:
        facts.append(("answer", Text(strip_escapes(row["answer"]), style="bold")))
    if row["confidence"] is not None:
        text = f"{row['confidence']:.3f} that the model gives this answer most often ({row['basis']})"
        facts.append(("confidence", Text(text)))
    facts += [("votes" if place == 0 else "", line) for place, line in enumerate(vote_lines(row["votes"]))]
    if row["tied"]:
        facts.append(
            ("tied", Text(f"{len(row['tied'])} answers had as many votes; the seed chose one", style="yellow"))
        )
    facts.append(("samples", Text(describe_samples(row))))
    read = f"{cost['input_tokens']:,} read" + (f" ({cost['cached_tokens']:,} cached)" if cost["cached_tokens"] else "")
    money = f", {cost['money']:.6g} in money" if cost["money"] else ""
    facts.append(("cost", Text(f"{cost['output_tokens']:,} tokens written, {read}, {cost['seconds']:.2f} s{money}")))
    facts += [("note", Text(strip_escapes(note), style="yellow")) for note in row["notes"]]
    facts += [
        ("failed", Text(f"{error['times']} x {strip_escapes(error['problem'])}", style="red"))
        for error in row["errors"]
    ]
    return facts


def describe_samples(row: Mapping[str, Any]) -> str:
    """Return one sentence on what became of the samples."""
    parts = [f"{row['drawn']} started", f"{row['arrived']} arrived"]
    parts += [f"{row[name]} {name}" for name in ("failed", "discarded", "unread") if row[name]]
    why = {
        "agreed": "the vote was decided",
        "most": "as many as allowed",
        "budget": "the budget was spent",
        "unread": "no answer could be read",
    }
    return ", ".join(parts) + (f"; stopped: {why.get(row['stopped'], row['stopped'])}" if row["stopped"] else "")


def vote_lines(votes: Sequence[Mapping[str, Any]]) -> list[Text]:
    """Return a bar for each answer, the rest summed up."""
    lines = []
    for vote in votes[:SHOWN_ANSWERS]:
        label = strip_escapes(vote["answer"])
        label = label if len(label) <= 30 else label[:29] + "…"
        bar = "█" * max(1, round(BAR_WIDTH * vote["share"]))
        lines.append(
            Text.assemble(
                (f"{bar:<{BAR_WIDTH}} ", "cyan"), f"{vote['votes']:g} for ", (label, "bold" if vote is votes[0] else "")
            )
        )
    if len(votes) > SHOWN_ANSWERS:
        rest = votes[SHOWN_ANSWERS:]
        least = "at least " if len(votes) >= MAX_VOTES_LISTED else ""  # the list may have been cut there
        lines.append(Text(f"and {least}{len(rest)} more answers with {least}{sum(vote['votes'] for vote in rest):g}"))
    return lines


def print_table(rows: Sequence[Mapping[str, Any]], console: Console | None = None) -> None:
    """Print a table of answers with the totals under it."""
    console = console or Console()
    known = any("correct" in row for row in rows)
    table = Table(box=None, header_style="dim", pad_edge=False)
    for name in ("question", "answer", "confidence", "samples", "tokens", *(("right",) if known else ())):
        table.add_column(name, justify="left" if name in ("question", "answer") else "right", overflow="fold")
    for row in rows:
        sure = "" if row["confidence"] is None else f"{row['confidence']:.3f}"
        right = {True: "yes", False: "no", None: ""}[row.get("correct")]
        cells = [
            strip_escapes(row["question"]),
            strip_escapes(row["answer"] or "-"),
            sure,
            str(row["drawn"]),
            f"{row['cost']['output_tokens']:,}",
        ]
        table.add_row(*map(Text, [*cells, *([right] if known else [])]))
    console.print(table)
    console.print(Text(describe_totals(rows), style="bold"))


def describe_totals(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the totals over the questions in one sentence."""
    tokens = sum(row["cost"]["output_tokens"] for row in rows)
    drawn, failed = sum(row["drawn"] for row in rows), sum(row["failed"] for row in rows)
    text = f"{len(rows)} questions, {drawn} samples ({failed} failed), {tokens:,} tokens written"
    graded = [row["correct"] for row in rows if "correct" in row]
    if graded:
        right = wilson(sum(graded), len(graded))
        text += f"; right: {sum(graded)} of {len(graded)} ({right.low:.0%} to {right.high:.0%})"
        text += f", {tokens / sum(graded):,.0f} tokens per right answer" if any(graded) else ""
    return text
