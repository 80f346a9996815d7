"""``breadth lab``: the tiny reasoner and what is done with it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from breadth.base.errors import SettingsError
from breadth.cli.lab_run import Base, gate, pretrain, run
from breadth.cli.lab_rung import smollm2
from breadth.cli.output import Json, progress

if TYPE_CHECKING:
    from breadth.lab.model.reasoner import Reasoner
    from breadth.lab.server.server import LabServer, ReasoningFormat, ServerSettings

app = typer.Typer(
    name="lab",
    help="The tiny reasoner that ships with breadth, and the experiments on it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
SHIPPED = "routes"
"""Name under which the weights that ship are served."""

app.command()(run)
app.command()(gate)
app.command()(pretrain)
app.command()(smollm2)


@app.command()
def serve(
    base: Base = None,
    host: Annotated[str, typer.Option("--host", help="Address to listen on; 0.0.0.0 for all.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", help="Port to listen on; 0 takes a free one.", min=0, max=65535)
    ] = 8410,
    threads: Annotated[int, typer.Option("--threads", help="Threads that draw.", min=1)] = 1,
    reasoning_format: Annotated[
        str,
        typer.Option(
            "--reasoning-format", help="Thinking in chats: none leaves it in the content, deepseek sets it apart."
        ),
    ] = "none",
    as_json: Json = False,
) -> None:
    """Serve the tiny reasoner over HTTP: OpenAI's chats and completions, with log-probs, prefix continuation and thinking budgets.

    So tune, solve, serve and probe can be tried end to end without any download. SIGTERM and Ctrl-C let requests in
    flight finish.
    """
    import asyncio

    from breadth.lab.model.reasoner import load
    from breadth.lab.server.server import ServerSettings

    name = SHIPPED if base is None else base.resolve().name
    settings = ServerSettings(
        host=host, port=port, threads=threads, reasoning_format=_format(reasoning_format), name=name
    )
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")  # that of loading a megabyte of weights
    with progress("loading the reasoner"):
        reasoner = load(base)
    asyncio.run(_serve(reasoner, settings, as_json=as_json))


@app.command()
def tasks(
    file: Annotated[
        Path, typer.Argument(help="Where to write them; ends in .jsonl.", dir_okay=False, show_default=False)
    ],
    count: Annotated[int, typer.Option("--count", help="How many.", min=1)] = 100,
    level: Annotated[str, typer.Option("--level", help="How long: easy, medium or hard.")] = "medium",
    seed: Annotated[int, typer.Option("--seed", help="Which ones, and in which order.", min=0)] = 0,
    base: Base = None,
) -> None:
    """Write questions with right answers that the reasoner was never taught, for --tasks of tune and solve."""
    from breadth.base.spelling import suggestion
    from breadth.lab.task.problems import LEVELS
    from breadth.lab.task.tasks import draw_tasks, prime_of, write_tasks

    chosen = next((one for one in LEVELS if one == level), None)
    if chosen is None:
        raise SettingsError(f"--level got {level!r}.", suggestion(level, LEVELS, "levels"))
    if file.suffix != ".jsonl":
        raise SettingsError(
            f"{file} does not end in .jsonl, by which its readers know what it is.", "Name it tasks.jsonl, for example."
        )
    prime = prime_of(base)
    write_tasks(file, draw_tasks(count, prime, chosen, seed), prime)
    typer.echo(
        f"wrote {count} {chosen} questions to {file}; their answers are numbers modulo {prime}: use --answer-format"
        " whole",
        err=True,
    )


async def _serve(reasoner: Reasoner, settings: ServerSettings, *, as_json: bool) -> None:
    from breadth.lab.server.server import LabServer
    from breadth.runtime.proxy.server import told_to_end

    async with LabServer(reasoner, settings) as server:
        _announce(server, as_json=as_json)
        await told_to_end()
        typer.echo(f"breadth: ending; {server.in_flight} replies are being drawn", err=True)


def _announce(server: LabServer, *, as_json: bool) -> None:
    """Print the address, the first line on standard output, and what can be done with it."""
    if as_json:
        import orjson

        typer.echo(orjson.dumps({"url": server.url, "model": server.settings.name}).decode())
    else:
        typer.echo(_welcome(server))
    sys.stdout.flush()


def _welcome(server: LabServer) -> str:
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
                f"It reckons modulo {prime} and is not always right. The right answer to {question} is"
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


def _format(text: str) -> ReasoningFormat:
    formats: dict[str, ReasoningFormat] = {"none": "none", "deepseek": "deepseek"}
    if text in formats:
        return formats[text]
    raise SettingsError(f"--reasoning-format got {text!r}.", "Choose none or deepseek.")
