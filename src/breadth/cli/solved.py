"""How answers look on the terminal: the reply, then how sure, by which votes, at what cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from breadth.report.plaintext import plain
from breadth.runtime.driver import MOST_VOTES

SHOWN = 6
"""Answers shown of a vote."""
BAR = 24
"""Characters of a full bar."""


def show_one(row: Mapping[str, Any], console: Console | None = None) -> None:
    """Print one answer."""
    console = console or Console()
    if row["text"]:
        console.print(Text(plain(row["text"]).strip()))
        console.print()
    facts = Table.grid(padding=(0, 2))
    for name, said in facts_of(row):
        facts.add_row(Text(name, style="dim"), said)
    console.print(facts)


def facts_of(row: Mapping[str, Any]) -> list[tuple[str, Text]]:
    """Return what there is to say about an answer, as names and sentences."""
    cost, facts = row["cost"], []
    if row["answer"] is not None:
        facts.append(("answer", Text(plain(row["answer"]), style="bold")))
    if row["confidence"] is not None:
        said = f"{row['confidence']:.3f} that the model gives this answer most often"
        facts.append(("confidence", Text(f"{said} ({row['basis']})")))
    facts += [("votes" if place == 0 else "", line) for place, line in enumerate(vote_lines(row["votes"]))]
    if row["tied"]:
        facts.append(("tied", Text(f"{len(row['tied'])} answers had as many votes; the seed drew one", style="yellow")))
    facts.append(("draws", Text(draws_of(row))))
    read = f"{cost['input_tokens']:,} read" + (f" ({cost['cached_tokens']:,} cached)" if cost["cached_tokens"] else "")
    money = f", {cost['money']:.6g} in money" if cost["money"] else ""
    facts.append(("cost", Text(f"{cost['output_tokens']:,} tokens written, {read}, {cost['seconds']:.2f} s{money}")))
    facts += [("note", Text(plain(note), style="yellow")) for note in row["notes"]]
    facts += [("failed", Text(f"{error['times']} x {plain(error['problem'])}", style="red")) for error in row["errors"]]
    return facts


def draws_of(row: Mapping[str, Any]) -> str:
    """Return one sentence on what became of the draws."""
    parts = [f"{row['drawn']} begun", f"{row['arrived']} arrived"]
    parts += [f"{row[name]} {name}" for name in ("failed", "discarded", "unread") if row[name]]
    why = {
        "agreed": "the vote was decided",
        "most": "as many as allowed",
        "budget": "nothing more could be drawn",
        "unread": "no answer could be read",
    }
    return ", ".join(parts) + (f"; stopped: {why.get(row['stopped'], row['stopped'])}" if row["stopped"] else "")


def vote_lines(votes: Sequence[Mapping[str, Any]]) -> list[Text]:
    """Return a bar for each answer, the rest summed up."""
    lines = []
    for vote in votes[:SHOWN]:
        label = plain(vote["answer"])
        label = label if len(label) <= 30 else label[:29] + "…"
        bar = "█" * max(1, round(BAR * vote["share"]))
        lines.append(
            Text.assemble(
                (f"{bar:<{BAR}} ", "cyan"), f"{vote['votes']:g} ", (label, "bold" if vote is votes[0] else "")
            )
        )
    if len(votes) > SHOWN:
        rest = votes[SHOWN:]
        least = "at least " if len(votes) >= MOST_VOTES else ""  # the list may have been cut there
        lines.append(Text(f"and {least}{len(rest)} more answers with {least}{sum(vote['votes'] for vote in rest):g}"))
    return lines


def show_many(rows: Sequence[Mapping[str, Any]], console: Console | None = None) -> None:
    """Print a table of answers and the sums under it."""
    console = console or Console()
    known = any("correct" in row for row in rows)
    table = Table(box=None, header_style="dim", pad_edge=False)
    for name in ("question", "answer", "confidence", "draws", "tokens", *(("right",) if known else ())):
        table.add_column(name, justify="left" if name in ("question", "answer") else "right", overflow="fold")
    for row in rows:
        sure = "" if row["confidence"] is None else f"{row['confidence']:.3f}"
        right = {True: "yes", False: "no", None: ""}[row.get("correct")]
        cells = [
            plain(row["question"]),
            plain(row["answer"] or "-"),
            sure,
            str(row["drawn"]),
            f"{row['cost']['output_tokens']:,}",
        ]
        table.add_row(*map(Text, [*cells, *([right] if known else [])]))
    console.print(table)
    console.print(Text(sums_of(rows), style="bold"))


def sums_of(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the sums over questions in one sentence."""
    tokens = sum(row["cost"]["output_tokens"] for row in rows)
    drawn, failed = sum(row["drawn"] for row in rows), sum(row["failed"] for row in rows)
    said = f"{len(rows)} questions, {drawn} draws ({failed} failed), {tokens:,} tokens written"
    graded = [row["correct"] for row in rows if "correct" in row]
    if graded:
        from breadth.measure.intervals import wilson

        right = wilson(sum(graded), len(graded))
        said += f"; right: {sum(graded)} of {len(graded)} ({right.low:.2f} to {right.high:.2f})"
        said += f", {tokens / sum(graded):,.0f} tokens for each" if any(graded) else ""
    return said
