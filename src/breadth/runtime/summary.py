"""What came of a task in one plain table: what `solve --json` prints and what the proxy puts into its replies."""

from __future__ import annotations

from typing import Any

from breadth.inference.strategy import STRATEGIES, Strategy
from breadth.runtime.driver import Solved

MOST_VOTES = 20
"""Answers listed at most; a vote of forty different ones tells nothing by its tail."""


def summary(solved: Solved, strategy: Strategy) -> dict[str, Any]:
    """Return confidence, cost, votes, failures and notes; the answer's text is not in it."""
    answer, spend = solved.answer, solved.spend
    weight = sum(answer.votes.values())
    return {
        "trace": solved.trace,
        "strategy": strategy_name(strategy),
        "answer": answer.answer,
        "confidence": answer.confidence,
        "basis": answer.basis,
        "votes": [
            {"answer": key, "votes": votes, "share": votes / weight if weight else 0.0}
            for key, votes in list(answer.votes.items())[:MOST_VOTES]
        ],
        "tied": list(answer.tied),
        "stopped": answer.stopped,
        "drawn": solved.started,
        "arrived": len(solved.arrived),
        "failed": solved.failed,
        "discarded": solved.discarded,
        "unread": answer.unread,
        "independent": answer.independent,
        "cost": {
            "calls": spend.calls,
            "input_tokens": spend.input_tokens,
            "cached_tokens": spend.cached_tokens,
            "output_tokens": spend.output_tokens,
            "seconds": round(solved.seconds, 3),
            "money": spend.money,
        },
        "budget_spent": solved.spent,
        "errors": [{"problem": problem, "times": times} for problem, times in solved.errors.items()],
        "notes": [*answer.notes, *server_notes(solved)],
        "figures": dict(answer.figures),
    }


def server_notes(solved: Solved) -> list[str]:
    """Say what the server did otherwise than asked, as far as a client can see: caps passed over, events sent twice."""
    passed = sum("cap_ignored" in candidate.message for candidate in solved.arrived)
    twice = sum("repeated_events" in candidate.message for candidate in solved.arrived)
    whole = len(solved.arrived)
    notes = {
        f"The server wrote more tokens than allowed in {passed} of {whole} completions: it does not keep to caps.": passed,
        f"The server sent events twice in {twice} of {whole} completions; they were dropped.": twice,
    }
    return [note for note, times in notes.items() if times]


def strategy_name(strategy: Strategy) -> str:
    """Return a strategy's name in the catalogue, or its class's name when it is in none."""
    return STRATEGIES.name_of(type(strategy)) or type(strategy).__name__
