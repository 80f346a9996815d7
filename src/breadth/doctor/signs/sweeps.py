"""Runs of the inference loop as the doctor sees them: plain samples of questions, and the texts of every arm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from breadth.base.errors import BreadthError
from breadth.doctor.evidence import Evidence
from breadth.doctor.finding import CannotTell
from breadth.doctor.signs.inference_runs import TUNE, is_recorded, is_sweep
from breadth.doctor.signs.spending import recorded_policy, spending
from breadth.inference.policy import Policy
from breadth.inference.records import Sampling
from breadth.measure.answers import answer_classes
from breadth.measure.coverage import pass_at_k
from breadth.measure.intervals import Interval, curve_intervals
from breadth.measure.vote_counting import maj_at_k_by_problem
from breadth.runs.reader import Run
from breadth.tuning.choice import FEWEST, RISK
from breadth.tuning.evidence import ArmEvidence, Floats, Ints
from breadth.tuning.tuned import Tuned

MOST_TEXTS = 1000
"""Texts of an arm that are read: a share of them is then known to three points, and reading them takes seconds."""
MOST_QUESTIONS = 2000
"""Questions of a recorded run that are looked at: differences of scores are then known to about two points."""


@dataclass(frozen=True, eq=False)
class Draws:
    """Independent samples as the model writes them: one row a question, one column a sample."""

    classes: Ints
    """Class of each answer among those to its question; -1 where none could be read."""
    worth: Floats
    """1 for a right answer, or for the one most agreed on where right answers are not known; ties are shared."""
    tokens: Floats
    """Tokens written."""
    confidences: Floats
    """How sure each was; NaN where that is not known."""
    widths: tuple[int, ...]
    """Votes that are looked at, narrowest first, all of them over these samples."""
    labelled: bool
    """Whether right answers are known."""
    sampling: Sampling
    """How they were drawn."""
    where: str
    """What they are, for a note."""

    @property
    def questions(self) -> int:
        """How many questions."""
        return len(self.classes)

    @property
    def each(self) -> int:
        """Samples of a question."""
        return int(self.classes.shape[1])

    @property
    def unread(self) -> float:
        """Share of samples without a readable answer."""
        return float((self.classes < 0).mean())

    def votes(self, widths: Sequence[int]) -> Floats:
        """Return the score of votes, questions x widths, exact over all ways to draw so many of the samples."""
        rows = np.repeat(np.arange(self.questions), self.each)
        return maj_at_k_by_problem(rows, self.classes.ravel(), self.worth.ravel(), list(widths))

    def reached(self, draws: int) -> Floats:
        """Return the chance that one of so many draws is right, by question; only where right answers are known."""
        return pass_at_k(self.each, (self.worth == 1).sum(axis=1), draws)


@dataclass(frozen=True, eq=False)
class Written:
    """Texts of one way to draw, one entry a sample; the same questions in every arm of a sweep."""

    name: str
    """What the arm is called."""
    budget: int | None
    """Thinking tokens it is forced to; None leaves thinking to the model."""
    owners: Ints
    """Number of each text's question."""
    texts: tuple[str, ...]
    """What was written."""
    truths: tuple[str, ...]
    """Right answer to each text's question; empty where it is not known."""
    tokens: Floats
    """Tokens of each."""


def sweep(evidence: Evidence) -> Tuned | None:
    """Return what a sweep came to; None where the run is none, and where its folder is not as `breadth tune` leaves it."""
    if evidence.run is None or not is_sweep(evidence.run):
        return None
    try:
        return evidence.tuned
    except (
        BreadthError,
        ArithmeticError,
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
    ):  # a folder that somebody else wrote, or cut
        return None


def looked_at(evidence: Evidence, finding: str) -> Draws | CannotTell | None:
    """Return the plain samples of a sweep or a recorded run; None where the run is of another kind, such as training."""
    run = evidence.run
    if run is None:
        return None
    judged, policy = sweep(evidence), recorded_policy(run)
    if judged is None and is_sweep(run):
        return CannotTell(
            finding,
            "the sweep has no question with all its samples",
            "the same breadth tune command: it goes on from there",
        )
    if judged is None and policy is None:
        return CannotTell(finding, "the policy that run.toml names cannot be read", TUNE) if is_recorded(run) else None
    found = _plain(judged) if judged is not None else _recorded(run, policy)
    if found is None or found.questions < FEWEST:
        number = 0 if found is None else found.questions
        return CannotTell(
            finding,
            f"{number} questions with samples are there; {FEWEST} are needed",
            f"{TUNE}, fifty questions or more",
        )
    return found


def written(evidence: Evidence) -> tuple[Written, ...]:
    """Return the texts of every arm, the plain one first, or of a recorded run; a bounded number of them, spread over the questions."""
    judged, run = sweep(evidence), evidence.run
    if judged is None:
        return () if run is None or recorded_policy(run) is None else _recorded_texts(run)
    found = judged.evidence
    most = max(arm.classes.shape[1] for arm in found.arms)
    number = max(1, min(len(found.questions), MOST_TEXTS // most))
    kept = np.unique(np.linspace(0, len(found.questions) - 1, number).astype(np.int64))
    truths = found.truths if found.labelled else ("",) * len(found.questions)
    return tuple(_texts(arm, kept, truths) for arm in (found.plain, *found.serial))


def together(gaps: Floats) -> tuple[Interval, ...]:
    """Return intervals of several mean differences of scores that hold all at once, at 95 % (Bonferroni)."""
    return (
        curve_intervals(gaps, bounds=(-1.0, 1.0), level=1 - RISK / gaps.shape[1], replicates=2000)
        if gaps.shape[1]
        else ()
    )


def extra(text: str | None) -> dict[str, Any]:
    """Read what else was recorded of a sample; empty where it cannot be read."""
    try:
        found = orjson.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _plain(judged: Tuned) -> Draws:
    found, plan = judged.evidence, judged.evidence.plan
    plain = found.plain
    where = f"{len(found.questions)} questions x {plain.classes.shape[1]} plain draws"
    widths = tuple(sorted({1, *plan.widths}))
    return Draws(
        plain.classes, plain.worth, plain.tokens, plain.confidences, widths, found.labelled, plan.policy.sampling, where
    )


def _recorded(run: Run, policy: Policy | None) -> Draws | None:
    """Read the independent samples of a recorded run, the first of each question: as many as every question has.

    Where the policy draws a fixed number, questions with fewer are left out, for those draws failed. Where it stops
    early, what it drew beyond the smallest number was drawn because of the answers before, and is no fair sample.
    """
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in _rows(run):
        if row["extra"].get("independent", True):
            groups.setdefault(row["problem"], []).append(row)
    spent = None if policy is None else spending(policy, 1.0)
    each = min(map(len, groups.values()), default=0) if spent is None or spent.early else spent.width
    whole = [group[:each] for group in groups.values() if each and len(group) >= each]
    if not whole or policy is None:
        return None
    classes = np.array([answer_classes([row["answer"] for row in group]) for group in whole])
    labelled = all(row["correct"] is not None for group in whole for row in group)
    right = np.array([[float(bool(row["correct"])) for row in group] for group in whole])
    tokens = np.array([[float(row["tokens"] or 0) for row in group] for group in whole])
    sure = np.array([[_number(row["extra"].get("confidence")) for row in group] for group in whole])
    widths = tuple(sorted({*(2**power for power in range(each.bit_length())), each}))
    where = f"{len(whole)} questions x {each} recorded draws"
    return Draws(
        classes, right if labelled else _agreeing(classes), tokens, sure, widths, labelled, policy.sampling, where
    )


def _rows(run: Run) -> list[dict[str, Any]]:
    if not run.rollout_files:
        return []
    table = run.query(
        """SELECT problem, answer, correct, tokens, extra FROM rollouts WHERE split = 'eval' AND problem IN
           (SELECT problem FROM rollouts WHERE split = 'eval' GROUP BY problem ORDER BY hash(problem), problem LIMIT ?)
           ORDER BY problem, sample""",
        MOST_QUESTIONS,
    )
    return [{**row, "extra": extra(row["extra"])} for row in table.to_pylist()]


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else float("nan")


def _agreeing(classes: Ints) -> Floats:
    """Return what each answer is worth where right ones are not known: 1 for the commonest, shared where several are."""
    counts = (classes[:, :, None] == classes[:, None, :]).sum(axis=2) * (classes >= 0)
    leading = (counts == counts.max(axis=1, keepdims=True)) & (counts > 0)
    kinds = (leading / np.maximum(counts, 1)).sum(axis=1, keepdims=True)
    return np.asarray(leading / np.maximum(kinds, 1), dtype=np.float64)


def _texts(arm: ArmEvidence, kept: Ints, truths: Sequence[str]) -> Written:
    each = arm.classes.shape[1]
    places, owners = (kept[:, None] * each + np.arange(each)).ravel(), np.repeat(kept, each)
    texts, told = (
        tuple(arm.texts[place] for place in places.tolist()),
        tuple(truths[owner] for owner in owners.tolist()),
    )
    return Written(arm.arm.name, arm.arm.budget, owners, texts, told, arm.tokens.ravel()[places])


def _recorded_texts(run: Run) -> tuple[Written, ...]:
    if not run.rollout_files:
        return ()
    known = run.has_problems
    table = run.query(
        f"""SELECT problem, completion, tokens, {"reference" if known else "NULL"} AS truth FROM
            (SELECT problem, completion, tokens FROM rollouts WHERE split = 'eval' AND completion IS NOT NULL
             ORDER BY hash(problem, step, sample) LIMIT ?) {"LEFT JOIN problems USING (problem)" if known else ""}
            ORDER BY problem""",  # noqa: S608 - both parts are ours
        MOST_TEXTS,
    )
    rows = table.to_pylist()
    if not rows:
        return ()
    owners = np.unique([row["problem"] for row in rows], return_inverse=True)[1].astype(np.int64)
    texts, truths = (tuple(row[name] or "" for row in rows) for name in ("completion", "truth"))
    return (
        Written("recorded draws", None, owners, texts, truths, np.array([float(row["tokens"] or 0) for row in rows])),
    )
