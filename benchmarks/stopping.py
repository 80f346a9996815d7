"""A stated risk against the published stop rules, on real votes: whether it is met, and whose samples are fewer.

Every set of stored votes with 40 a question is replayed in random orders, the same for all rules. Agreement is with the
vote over all 40, any of its modes; a tie at the stop counts by its share. Five folds over questions: our library is
fitted on the other four, and so is every published rule's setting: the cheapest that disagrees on the other folds no
more often than was stated (and, in a second table, than ours does there). A rule without such a setting draws all 40.
The ratio is our samples over those of the best published rule, the best being picked in hindsight, question by question
paired; its interval resamples questions.

The votes are not part of the project: set BREADTH_FIXTURES to the folder that holds votes/*.parquet (columns
question_id, answer). Run: BREADTH_FIXTURES=... python benchmarks/stopping.py [--quick]
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from breadth.inference.stopping.posterior import BetaLead, Dirichlet
from breadth.inference.stopping.risk import Risk
from breadth.inference.stopping.rule import Lead, Never, StopRule, UnanimousWindow
from breadth.inference.stopping.sequential import Sprt
from breadth.inference.stopping.shapes import ShapeLibrary
from breadth.inference.stored_replay import ReplayOutcome, replay
from breadth.inference.stored_votes import StoredVotes
from breadth.inference.strategies.adaptive_vote import AdaptiveVote
from breadth.measure.intervals import Interval, mean_interval, ratio_interval
from breadth.measure.validate import FloatArray, IntArray

MOST = 40
"""Votes of the full vote."""
RISKS = (0.01, 0.02, 0.05)
"""Stated shares of questions that may end with another answer."""
FOLDS = 5
"""Parts of the questions; rules are set on all but the one they are tried on."""
NEEDED_RATIO = 1.05
"""Our samples over those of the best published rule, at most."""
LARGE = 200
"""Questions from which on a set must meet its stated risk within the interval: smaller ones cannot tell."""
THRESHOLDS = tuple(
    (np.concatenate([np.arange(500, 900, 12.5), np.arange(900, 990, 5), [990, 995, 999]]) / 1000).tolist()
)
"""Thresholds of posterior rules that may be chosen."""


@dataclass(frozen=True, eq=False)
class Figures:
    """What one rule gave, question by question."""

    disagreement: FloatArray
    """Share of orders that ended with another answer."""
    samples: FloatArray
    """Mean samples."""

    @classmethod
    def of(cls, outcome: ReplayOutcome) -> Figures:
        """Take them from a replay."""
        return cls(1 - outcome.by_question["agreement"], outcome.by_question["samples"])


def published() -> dict[str, dict[str, AdaptiveVote]]:
    """Return each published family with the settings that may be chosen."""
    rules: dict[str, list[StopRule]] = {
        "lead-m": [Lead(votes) for votes in range(1, 16)],
        "Beta": [BetaLead(threshold) for threshold in THRESHOLDS],
        "ESC": [UnanimousWindow(size) for size in range(2, 13)],
        "Dirichlet": [Dirichlet(threshold) for threshold in THRESHOLDS],
        "SPRT": [
            Sprt(p, e, e, give_up=g)
            for p in (0.55, 0.6, 0.7, 0.75, 0.8, 0.9)
            for e in (0.3, 0.2, 0.1, 0.05, 0.02)
            for g in (True, False)
        ],
    }
    families = {name: {str(rule): AdaptiveVote(MOST, 1, rule) for rule in members} for name, members in rules.items()}
    return {"fixed N": {f"{n} votes": AdaptiveVote(n, 1, Never()) for n in range(1, MOST + 1)}, **families}


def stored_sets(folder: Path) -> Iterator[tuple[str, StoredVotes]]:
    """Yield every set with 40 votes for each question."""
    for path in sorted(folder.glob("votes/*.parquet")):
        table = pq.read_table(path, columns=["question_id", "answer"]).to_pydict()
        keys: dict[object, dict[str, int]] = {}
        rows: dict[object, list[int]] = {}
        for question, answer in zip(table["question_id"], table["answer"], strict=True):
            known = keys.setdefault(question, {})
            rows.setdefault(question, []).append(-1 if answer is None else known.setdefault(answer, len(known)))
        if {len(row) for row in rows.values()} == {MOST}:
            yield path.stem, StoredVotes.from_classes(list(rows.values()), questions=list(map(str, rows)))


def ours(votes: StoredVotes, folds: IntArray, repeats: int) -> dict[float, list[Figures]]:
    """Return, for each stated risk, what the rule fitted on the other folds gives on all questions."""
    found: dict[float, list[Figures]] = {risk: [] for risk in RISKS}
    for fold in range(FOLDS):
        library = ShapeLibrary.fit(votes.counts[folds != fold].tolist())
        rules = {str(risk): AdaptiveVote(MOST, 1, Risk(risk, library, MOST)) for risk in RISKS}
        outcomes = replay(votes, rules, repeats=repeats).outcomes
        for risk in RISKS:
            found[risk].append(Figures.of(outcomes[str(risk)]))
    return found


def held_out(figures: Sequence[Figures], folds: IntArray) -> Figures:
    """Join what was tried on each fold with the rule set on the others."""
    disagreement, samples = np.empty(len(folds)), np.empty(len(folds))
    for fold, one in enumerate(figures):
        disagreement[folds == fold], samples[folds == fold] = (
            one.disagreement[folds == fold],
            one.samples[folds == fold],
        )
    return Figures(disagreement, samples)


def chosen(settings: Mapping[str, Figures], folds: IntArray, allowed: Sequence[float]) -> Figures:
    """Return a family on held-out folds: the cheapest setting within the disagreement allowed on the others."""
    picks = []
    for fold in range(FOLDS):
        others = folds != fold
        within = [one for one in settings.values() if one.disagreement[others].mean() <= allowed[fold]]
        everything = Figures(np.zeros(len(folds)), np.full(len(folds), float(MOST)))
        picks.append(min(within, key=lambda one: one.samples[others].mean(), default=everything))
    return held_out(picks, folds)


def compare(name: str, votes: StoredVotes, repeats: int) -> tuple[list[float], bool]:
    """Print the tables of one set; return the ratios, and whether a large set met every stated risk."""
    count = len(votes.classes)
    folds = np.random.default_rng(0).permutation(count) % FOLDS
    families = published()
    outcomes = replay(
        votes, {label: rule for members in families.values() for label, rule in members.items()}, repeats=repeats
    ).outcomes
    figures = {
        family: {label: Figures.of(outcomes[label]) for label in members} for family, members in families.items()
    }
    print(f"\n{name}: {count:,} questions x {MOST} votes, {repeats} orders each")
    _print_scale(outcomes)
    ratios, met = [], True
    for risk, by_fold in ours(votes, folds, repeats).items():
        mine = held_out(by_fold, folds)
        observed = mean_interval(mine.disagreement, bounds=(0.0, 1.0))
        met &= risk in observed
        there = [float(one.disagreement[folds != fold].mean()) for fold, one in enumerate(by_fold)]
        print(f"  stated {risk:.0%}: disagrees {_percent(observed)}, {mine.samples.mean():.2f} samples")
        for allowed, label in (([risk] * FOLDS, "the stated risk"), (there, "our disagreement on the other folds")):
            ratios.append(
                _print_rivals(
                    mine, {family: chosen(members, folds, allowed) for family, members in figures.items()}, label
                )
            )
    return ratios, met or count < LARGE


def _print_rivals(mine: Figures, rivals: Mapping[str, Figures], label: str) -> float:
    """Print each family and its ratio to the cheapest, and to the cheapest that disagrees no more; return the first."""
    listed = ", ".join(
        f"{family} {one.samples.mean():.2f} ({one.disagreement.mean():.2%})" for family, one in rivals.items()
    )
    print(f"    set to {label}: {listed}")
    agreeing = {family: one for family, one in rivals.items() if one.disagreement.mean() <= mine.disagreement.mean()}
    first = _print_ratio(mine, rivals, "the cheapest")
    _print_ratio(mine, agreeing, "the cheapest of those that disagree no more than ours, held out")
    return first


def _print_ratio(mine: Figures, rivals: Mapping[str, Figures], which: str) -> float:
    if not rivals:
        print(f"      {which}: none")
        return 0.0
    best = min(rivals, key=lambda family: rivals[family].samples.mean())
    ratio = ratio_interval(mine.samples, rivals[best].samples)
    print(f"      ours / {best}, {which}: {ratio.value:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]")
    return ratio.value


def _print_scale(outcomes: Mapping[str, ReplayOutcome]) -> None:
    for rule in (Lead(4), BetaLead(0.9), BetaLead(0.95)):
        one = outcomes[str(rule)]
        print(f"  for scale, {rule}: agrees {one.agreement.value:.3f}, {one.samples.value:.1f} samples")


def _percent(interval: Interval) -> str:
    return f"{interval.value:.2%} [{interval.low:.2%}, {interval.high:.2%}]"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables; exit with 1 when a risk is missed on a large set or a ratio is above the promised one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="fewer orders")
    quick = parser.parse_args(arguments).quick
    folder = os.environ.get("BREADTH_FIXTURES")
    if not folder:
        print("BREADTH_FIXTURES is not set: point it at the folder that holds votes/*.parquet.")
        return 2
    began, ratios, met, sets = time.perf_counter(), list[float](), True, 0
    for name, votes in stored_sets(Path(folder)):
        found, held = compare(name, votes, max(4, (4000 if quick else 40_000) // len(votes.classes)))
        ratios, met, sets = ratios + found, met and held, sets + 1
    if not sets:
        print(f"No set with {MOST} votes a question in {Path(folder) / 'votes'}.")
        return 2
    print(
        f"\nworst ratio at the stated risk {max(ratios[::2]):.3f}, at our disagreement {max(ratios[1::2]):.3f} (needed:"
        f" {NEEDED_RATIO})"
    )
    print(f"stated risks within their intervals on sets of {LARGE} questions and more: {'yes' if met else 'no'}")
    print(f"{time.perf_counter() - began:.0f} s")
    return 0 if met and max(ratios[::2]) <= NEEDED_RATIO else 1


if __name__ == "__main__":
    raise SystemExit(main())
