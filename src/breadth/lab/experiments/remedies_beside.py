"""What the remedies are worth on problems neither trained on nor held out, and which two of them are to be tried together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from breadth.lab.experiments.pairing import ALL_ARMS, best_pair
from breadth.lab.measuring.beside_table import VOTED, Judged, beside_table, over_beside
from breadth.lab.trials.experiment import Done
from breadth.report.sections import Fact, Section, Severity, Verdict


def beside(done: Sequence[Done], replies: int) -> list[Section]:
    """Return the table, and the pair by the rule; nothing where no trial was judged beside.

    ``replies`` are those to each problem.
    """
    found: dict[str, list[Judged]] = {}
    for one in done:
        if "beside" in one.result:
            found.setdefault(one.trial.arm, []).append(one.result)
    arms = {name: found[name] for name in ALL_ARMS if name in found}
    note = (
        "Neither trained on nor held out; intervals over seeds. As many replies vote as fit into the tokens, by their"
        " mean length."
    )
    return [*_pair(arms), beside_table("arm", arms, replies, note)] if arms else []


def _pair(arms: Mapping[str, Sequence[Judged]]) -> list[Section]:
    votes = {name: over_beside(seeds, VOTED) for name, seeds in arms.items()}
    pair = best_pair({name: vote.value for name, vote in votes.items()})
    if pair is None:
        return []
    rule = (
        "The two of one regime with the best votes beside the problems trained on; chosen without a look at what is"
        " held out."
    )
    return [
        Verdict(
            Severity.NOTE, f"The pair to try is {' and '.join(pair)}.", rule, [Fact(name, votes[name]) for name in pair]
        )
    ]
