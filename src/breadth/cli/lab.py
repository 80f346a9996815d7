"""``breadth lab``: serve the tiny reasoner, write its tasks, run its experiments."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Annotated, ClassVar

import orjson
import typer

from breadth.base.errors import SettingsError, suggestion
from breadth.cli.lab_experiments import Base
from breadth.cli.main import LazyVerbs
from breadth.cli.output import Json, progress
from breadth.lab.model.reasoner import Reasoner, load_reasoner, reasoner_prime
from breadth.lab.server.server import LabServer, LabServerSettings, ReasoningFormat
from breadth.lab.task.problems import LEVELS, draw_tasks, write_tasks
from breadth.runtime.proxy.server import wait_for_signal


class LabVerbs(LazyVerbs):
    """The verbs of ``breadth lab``."""

    verbs: ClassVar[dict[str, tuple[str, str]]] = {
        "run": ("breadth.cli.lab_experiments:run", "Run an experiment on the tiny reasoner; a killed one resumes."),
        "gate": ("breadth.cli.lab_experiments:gate", "Check whether a base model is fit for the experiments."),
        "pretrain": ("breadth.cli.lab_experiments:pretrain", "Train a base model from scratch."),
        "smollm2": ("breadth.cli.lab_experiments:smollm2", "Run the experiment on a real small language model."),
        "serve": ("breadth.cli.lab:serve", "Serve the tiny reasoner over an OpenAI-compatible API."),
        "tasks": ("breadth.cli.lab:tasks", "Write questions with right answers, for tune and solve."),
    }


app = typer.Typer(
    name="lab",
    cls=LabVerbs,
    help="The tiny reasoner that ships with breadth, and the experiments on it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
SHIPPED_NAME = "routes"
"""Name under which the weights that ship are served."""


@app.callback()
def lab() -> None:
    """Run the tiny reasoner that ships with breadth, and the experiments on it."""


def serve(
    base: Base = None,
    host: Annotated[str, typer.Option("--host", help="Address to listen on; 0.0.0.0 for all.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", help="Port to listen on; 0 takes a free one.", min=0, max=65535)
    ] = 8410,
    threads: Annotated[int, typer.Option("--threads", help="Threads for sampling.", min=1)] = 1,
    reasoning_format: Annotated[
        str,
        typer.Option(
            "--reasoning-format", help="Thinking in chats: none leaves it in the content, deepseek separates it."
        ),
    ] = "none",
    as_json: Json = False,
) -> None:
    """Serve the tiny reasoner over HTTP, with log-probs, prefix continuation and thinking budgets.

    Try tune, solve, serve and probe end to end on it, without any download. SIGTERM and Ctrl-C let requests in
    flight finish.
    """
    name = SHIPPED_NAME if base is None else base.resolve().name
    settings = LabServerSettings(
        host=host, port=port, threads=threads, reasoning_format=parse_reasoning_format(reasoning_format), name=name
    )
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")  # that of loading a megabyte of weights
    with progress("loading the reasoner"):
        reasoner = load_reasoner(base)
    asyncio.run(run_server(reasoner, settings, as_json=as_json))


def tasks(
    file: Annotated[
        Path, typer.Argument(help="Where to write them; ends in .jsonl.", dir_okay=False, show_default=False)
    ],
    count: Annotated[int, typer.Option("--count", help="How many.", min=1)] = 100,
    level: Annotated[str, typer.Option("--level", help="How long: easy, medium or hard.")] = "medium",
    seed: Annotated[int, typer.Option("--seed", help="Which ones, and in which order.", min=0)] = 0,
    base: Base = None,
) -> None:
    """Write questions with right answers that the reasoner never saw in training, for --tasks of tune and solve."""
    chosen = next((known for known in LEVELS if known == level), None)
    if chosen is None:
        raise SettingsError(f"--level got {level!r}.", suggestion(level, LEVELS, "levels"))
    if file.suffix != ".jsonl":
        raise SettingsError(
            f"{file} does not end in .jsonl, which tells its format.", "Name it tasks.jsonl, for example."
        )
    prime = reasoner_prime(base)
    write_tasks(file, draw_tasks(count, prime, chosen, seed), prime)
    typer.echo(
        f"wrote {count} {chosen} questions to {file}; their answers are numbers modulo {prime}: use --answer-format"
        " whole",
        err=True,
    )


async def run_server(reasoner: Reasoner, settings: LabServerSettings, *, as_json: bool) -> None:
    """Serve until a signal asks to end."""
    async with LabServer(reasoner, settings) as server:
        announce_server(server, as_json=as_json)
        await wait_for_signal()
        typer.echo(f"breadth: shutting down; {server.in_flight} replies are being sampled", err=True)


def announce_server(server: LabServer, *, as_json: bool) -> None:
    """Print the address, the first line on standard output, and what can be done with it."""
    if as_json:
        typer.echo(orjson.dumps({"url": server.url, "model": server.settings.name}).decode())
    else:
        typer.echo(welcome_text(server))
    sys.stdout.flush()


def welcome_text(server: LabServer) -> str:
    """Return what can be done with the server, as commands to copy."""
    url, prime = server.url, server.reasoner.teacher.facts.prime
    weights = sum(tensor.numel() for tensor in server.reasoner.model.parameters())
    a, b, c, d = 3, 4, 5, 6
    question = f"({a}+{b})*({c}+{d})="
    body = f'{{"messages": [{{"role": "user", "content": "{question}"}}]}}'
    return "\n".join(
        [
            f"breadth lab serves {url}/v1: model {server.settings.name}, {weights:,} weights",
            "",
            (
                f"It calculates modulo {prime} and is not always right. The right answer to {question} is"
                f" {(a + b) * (c + d) % prime}."
            ),
            "",
            f"  ask it    curl {url}/v1/chat/completions -H 'Content-Type: application/json' -d '{body}'",
            f'  a vote    breadth solve "{question}" --url {url} --answer-format whole',
            "  measure   breadth lab tasks tasks.jsonl",
            f"            breadth tune {url} --tasks tasks.jsonl --out tuned --answer-format whole --max-tokens 512",
            f"  look      breadth probe {url}",
            "  stop      Ctrl-C",
        ]
    )


def parse_reasoning_format(text: str) -> ReasoningFormat:
    """Return the reasoning format, refusing an unknown one."""
    formats: dict[str, ReasoningFormat] = {"none": "none", "deepseek": "deepseek"}
    if text in formats:
        return formats[text]
    raise SettingsError(f"--reasoning-format got {text!r}.", "Choose none or deepseek.")
