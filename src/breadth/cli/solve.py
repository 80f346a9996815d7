"""``breadth solve``: answer one question, or a file of them, under a policy, with the cost and the confidence of every answer."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from breadth.api import api_key, require_utf8, resolve_policy, server_urls
from breadth.base.errors import BreadthError, ServerError, SettingsError
from breadth.cli.output import Json, progress

if TYPE_CHECKING:
    from breadth.inference.budget import Budget
    from breadth.inference.policy import Policy
    from breadth.runtime.driver import Driver, Solved
    from breadth.runtime.questions import Question
    from breadth.runtime.recording import Recording

NO_ANSWER = 1
"""Exit status when the server gave nothing to answer from."""

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
    system: Annotated[str | None, typer.Option("--system", help="System prompt.")] = None,
    max_tokens: Annotated[int | None, typer.Option("--max-tokens", help="Maximum tokens per completion.")] = None,
    temperature: Annotated[float | None, typer.Option("--temperature", help="Sampling temperature.")] = None,
    budget_tokens: Annotated[
        int | None, typer.Option("--budget-tokens", help="Maximum output tokens in total.")
    ] = None,
    seconds: Annotated[float | None, typer.Option("--seconds", help="Maximum seconds in total.")] = None,
    reading: Annotated[
        str | None, typer.Option("--answer-format", help="How to read the answer: stated, number or whole.")
    ] = None,
    at_once: Annotated[int, typer.Option("--concurrency", help="Questions solved at the same time.", min=1)] = 4,
    seed: Annotated[int, typer.Option("--seed", help="Random seed.")] = 0,
    dialect: Dialect = "auto",
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Run folder for every candidate; a killed run resumes from it.", file_okay=False),
    ] = None,
    as_json: Json = False,
) -> None:
    """Answer a question under a policy: the answer first, then how sure, by how many votes and what it cost."""
    import asyncio

    from breadth.inference.budget import Budget

    sampling = {"max_tokens": max_tokens, "temperature": temperature}
    chosen = resolve_policy(policy, reading, sampling, {"model": model, "system": system})
    questions = asked(question, tasks)
    chosen.strategy.prepare()
    job = Job(chosen, questions, Budget(output_tokens=budget_tokens, seconds=seconds), allocator, at_once, seed)
    done = asyncio.run(_solve_all(job, server_urls(url), dialect, out))
    _deliver(done, chosen, questions, single=tasks is None, as_json=as_json)
    if not any(solved.arrived for solved in done):
        raise typer.Exit(NO_ANSWER)


def asked(question: str | None, tasks: Path | None) -> list[Question]:
    """Return the questions to answer."""
    from breadth.runtime.questions import Question, read_questions

    if (question is None) == (tasks is None):
        raise SettingsError(
            "Give one question or --tasks FILE, not both and not neither.", 'Write: breadth solve "What is 6 x 7?"'
        )
    if tasks is not None:
        return list(read_questions(tasks))
    text = require_utf8("question", _standard_input() if question == "-" else question or "")
    if not text.strip():
        raise SettingsError("The question is empty.", 'Write: breadth solve "What is 6 x 7?"')
    return [Question("question", text)]


def _standard_input() -> str:
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise SettingsError(
            f"Standard input is not UTF-8 text: {error.reason} at byte {error.start}.", "Write it in UTF-8."
        ) from error


@dataclass(frozen=True)
class Job:
    """What is to be solved."""

    policy: Policy
    """How."""
    questions: list[Question]
    """What."""
    ceiling: Budget
    """For all questions together."""
    allocator: str | None
    """Who spreads the budget over the questions; None gives each the policy's own."""
    at_once: int
    """Questions side by side."""
    seed: int
    """Random seed."""


async def _solve_all(job: Job, urls: list[str], dialect: str, out: Path | None) -> list[Solved]:
    from breadth.runtime.connect import connect
    from breadth.runtime.driver import Driver
    from breadth.runtime.journal import Journal
    from breadth.runtime.ledger import Ledger
    from breadth.runtime.recording import Recording
    from breadth.runtime.solve_context import ModelJudge

    recording = Recording(out, job.policy) if out is not None else None
    sampler = await connect(urls, dialect=dialect, key=api_key(), model=job.policy.model)
    try:
        journal = recording.journal if recording else Journal()
        driver = Driver(sampler, Ledger(job.ceiling, job.policy.prices), {"default": ModelJudge()}, journal)
        return await _run(job, driver, recording)
    finally:
        await sampler.close()
        if recording is not None:
            recording.close()


async def _run(job: Job, driver: Driver, recording: Recording | None) -> list[Solved]:
    from breadth.inference.allocation.allocator import ALLOCATORS
    from breadth.runtime.driver import allocate, solve_all

    references = {question.name: question.reference for question in job.questions}
    tasks = [job.policy.task(question.prompt, name=question.name, seed=job.seed) for question in job.questions]
    done: dict[str, Solved] = {}

    def take(solved: Solved) -> None:
        done[solved.task.name] = solved
        said(f"{len(done)} of {len(tasks)} questions, {driver.ledger.spent.output_tokens:,} tokens")
        if recording is not None:
            recording.add(solved, truth=references[solved.task.name])

    with progress("solving") as said:
        if job.allocator is not None:
            for solved in await allocate(driver, ALLOCATORS.load(job.allocator)(), tasks):
                take(solved)
        else:
            async for solved in solve_all(
                driver, job.policy.strategy, tasks, budget=job.policy.budget, at_once=job.at_once
            ):
                take(solved)
    return [done[task.name] for task in tasks]


def _deliver(done: list[Solved], policy: Policy, questions: list[Question], *, single: bool, as_json: bool) -> None:
    from breadth.runtime.driver import summary

    if single and not done[0].arrived:
        raise why_nothing(done[0])
    rows: list[dict[str, Any]] = []
    for solved, question in zip(done, questions, strict=True):
        rows.append(
            {"question": question.name, "text": solved.answer.text, **summary(solved, policy.strategy)}
            | graded(solved, question)
        )
    if as_json:
        import orjson

        typer.echo(orjson.dumps(rows[0] if single else {"questions": rows}, option=orjson.OPT_INDENT_2).decode())
    elif single:
        from breadth.cli.solved import show_one

        show_one(rows[0])
    else:
        from breadth.cli.solved import show_many

        show_many(rows)


def graded(solved: Solved, question: Question) -> dict[str, Any]:
    """Return whether the answer is right, where that is known."""
    if question.key is None:
        return {}
    return {"reference": question.reference, "correct": solved.answer.key == question.key}


def why_nothing(solved: Solved) -> BreadthError:
    """Return the error that says why no candidate arrived."""
    if solved.last_error is not None:
        return solved.last_error
    if solved.spent:
        return SettingsError("The budget was spent before one completion arrived.", "Allow more tokens or seconds.")
    return ServerError("The server sent nothing.", "Look at its log.")
