"""What the remedies are worth on problems neither trained on nor held out, and which two of them are to be tried together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from breadth.lab.demo.plan import FULL
from breadth.lab.experiments.pairing import ALL_ARMS, best_pair
from breadth.lab.measuring.beside import COVERED, PASSED, TOKENS, VOTED
from breadth.lab.measuring.seeds import over_seeds
from breadth.lab.trials.experiment import Done
from breadth.measure.intervals import Interval
from breadth.report.cells import Cell
from breadth.report.sections import Column, Fact, Section, Severity, Table, Verdict

COLUMNS = {PASSED: "pass@1", VOTED: f"vote for {FULL.thinking} tokens", COVERED: "pass@16", TOKENS: "tokens of a reply"}


def beside(done: Sequence[Done]) -> list[Section]:
    """Return the table, and the pair by the rule; nothing where no trial was judged beside."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for one in done:
        if "beside" in one.result:
            found.setdefault(one.trial.arm, []).append(one.result["beside"])
    arms = {name: found[name] for name in ALL_ARMS if name in found}
    if not arms:
        return []
    rows: list[list[Cell]] = [[name, *(_over_seeds(seeds, what) for what in COLUMNS)] for name, seeds in arms.items()]
    note = "Neither trained on nor held out; intervals over seeds. As many replies vote as fit into the tokens, by their mean length."
    table = Table("Beside the problems trained on, at the end", [Column("arm"), *map(Column, COLUMNS.values())], rows, note)
    return [*_pair(arms), table]


def _pair(arms: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[Section]:
    votes = {name: _over_seeds(seeds, VOTED) for name, seeds in arms.items()}
    pair = best_pair({name: vote.value for name, vote in votes.items()})
    if pair is None:
        return []
    rule = "The two of one regime with the best votes beside the problems trained on; chosen without a look at what is held out."
    return [Verdict(Severity.NOTE, f"The pair to try is {' and '.join(pair)}.", rule, [Fact(name, votes[name]) for name in pair])]


def _over_seeds(seeds: Sequence[Mapping[str, Any]], what: str) -> Interval:
    return over_seeds([one[what] for one in seeds], bounds=(0.0, float("inf") if what == TOKENS else 1.0))
