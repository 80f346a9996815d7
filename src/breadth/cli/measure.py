"""``breadth measure``: numbers that no trainer logs, computed from a run's rollouts with a local model."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, ClassVar

import numpy as np
import orjson
import typer

from breadth.adapters.transformers import TextScorer, Traces, load_scorer, read_traces
from breadth.base.errors import SettingsError
from breadth.cli.main import LazyVerbs
from breadth.cli.output import Html, Json, deliver, progress
from breadth.cli.show import open_runs
from breadth.measure.mutual_information import PromptInformation, prompt_information
from breadth.report.sections import Column, Page, Section, Table, Text

EXPLANATION = (
    "Mutual information says how much a completion tells of its prompt: 0 where every prompt gets the same reasoning,"
    " at most the logarithm of the number of prompts. One model scores both ends, so they can be compared; for a policy"
    " other than that model it is a lower bound."
)


class MeasureVerbs(LazyVerbs):
    """The verbs of ``breadth measure``."""

    verbs: ClassVar[dict[str, tuple[str, str]]] = {
        "mi": ("breadth.cli.measure:mi", "Mutual information of prompt and reasoning, at the start and at the end."),
    }


app = typer.Typer(
    name="measure",
    cls=MeasureVerbs,
    help="Numbers that no trainer logs, computed from a run's rollouts with a local model.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def measure() -> None:
    """Measure numbers that no trainer logs, from a run's rollouts with a local model."""


def mi(
    run: Annotated[
        str, typer.Argument(help="A run folder, or files with prompts and completions.", show_default=False)
    ],
    model: Annotated[
        str,
        typer.Option(
            "--model", help="Folder or name of a causal model of transformers, best the policy.", show_default=False
        ),
    ],
    prompts: Annotated[int, typer.Option("--prompts", help="Prompts at each place.", min=2)] = 16,
    samples: Annotated[int, typer.Option("--samples", help="Completions per prompt, at most.", min=1)] = 4,
    steps: Annotated[
        str, typer.Option("--steps", help="Where: first, last (an eighth of the steps each), or single steps.")
    ] = "first,last",
    max_tokens: Annotated[
        int, typer.Option("--max-tokens", help="Tokens of a completion that are scored, at most.", min=1)
    ] = 512,
    as_json: Json = False,
    html: Html = None,
) -> None:
    """Measure how much the reasoning says of its prompt, at the start and at the end: template collapse if nothing.

    Every completion is scored under every prompt, so the time grows with the square of the number of prompts.
    """
    with open_runs([run]) as opened:
        if len(opened) > 1:
            raise SettingsError(
                f"{run} holds {len(opened)} runs: {', '.join(found.name for found in opened)}.", "Name one of them."
            )
        traces = {place: read_traces(opened[0], place, prompts, samples) for place in dict.fromkeys(steps.split(","))}
    with progress("loading the model"):
        scorer = load_scorer(model)
    found = {}
    for place, read in traces.items():
        with progress(f"scoring steps {read.first} to {read.last}"):
            found[place] = measure_traces(scorer, read, max_tokens)
    document = {
        place: {**asdict(info), "first": traces[place].first, "last": traces[place].last}
        for place, info in found.items()
    }
    deliver(
        build_page(opened[0].name, model, traces, found),
        as_json=as_json,
        html=html,
        document=orjson.dumps({"model": model, "places": document}, option=orjson.OPT_INDENT_2).decode(),
    )


def measure_traces(scorer: TextScorer, traces: Traces, max_tokens: int) -> PromptInformation:
    """Score completions and measure what they say of their prompts; one without tokens is left out."""
    scores = scorer.cross_score(traces, max_tokens)
    scored = np.isfinite(scores).all(axis=1)
    return prompt_information(scores[scored], np.array(traces.own)[scored])


def build_page(name: str, model: str, traces: dict[str, Traces], found: dict[str, PromptInformation]) -> Page:
    """Build the page: one row for each place."""
    columns = [
        Column("steps", align="left"),
        Column("mutual information", "nats per token"),
        Column("at most", "nats"),
        Column("own prompt found", "%"),
        Column("by chance", "%"),
        Column("entropy", "nats per token"),
        Column("prompts"),
        Column("completions"),
    ]
    rows = [
        (
            f"{traces[place].first} to {traces[place].last}",
            info.mutual_information,
            info.limit,
            info.retrieval,
            info.chance,
            info.conditional_entropy,
            info.prompts,
            info.traces,
        )
        for place, info in found.items()
    ]
    sections: list[Section] = [Table("Prompt and reasoning", columns, rows), Text(EXPLANATION)]
    return Page(f"{name}: what the reasoning says of its prompt", sections, subtitle=f"scored by {model}")
