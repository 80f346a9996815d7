"""Samples to tune from: answer, score and cost of each, from the folder of a sweep or imported from elsewhere."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import orjson

from breadth.base.errors import MeasureError, NotARunError
from breadth.base.settings import from_table
from breadth.inference.policy import Policy
from breadth.inference.records import Spend
from breadth.inference.strategies.budget_forcing import BudgetForcing
from breadth.inference.strategies.single import Single
from breadth.inference.sweep_plan import PLAIN_ARM, Arm, SweepPlan, plain_arm
from breadth.measure.answers import answer_classes, stated_answers
from breadth.measure.diversity import group_diversity
from breadth.measure.intervals import Interval, mean_interval
from breadth.measure.oscillation import extract_restatements, trace_oscillations
from breadth.measure.validate import BoolArray, FloatArray, IntArray
from breadth.runs.outcomes import correctness_sql
from breadth.runs.reader import Run
from breadth.runs.schema import HEADER_FILE

ARM_QUERY = """SELECT problem, answer, correct, tokens, truncated, completion, extra FROM rollouts
               WHERE split = 'eval' AND step = ? ORDER BY problem, sample"""
# One arm's samples.


@dataclass(frozen=True, eq=False)
class ArmEvidence:
    """The samples of one arm: one row per question, one column per sample."""

    arm: Arm
    """How they were sampled."""
    answers: tuple[tuple[str | None, ...], ...]
    """The answers as written; None where none could be read."""
    classes: IntArray
    """Class of each answer among all answers to its question, over all arms; -1 where none could be read."""
    scores: FloatArray
    """1 for a right answer; without known right answers, 1 for agreeing with the pooled majority, shared among ties."""
    tokens: FloatArray
    """Tokens written for each sample."""
    seconds: FloatArray
    """Seconds each sample took."""
    money: FloatArray
    """Cost of each sample at the given prices."""
    confidences: FloatArray
    """Confidence of each sample; NaN where log-probs were not requested."""
    truncated: BoolArray
    """Whether each sample was cut at the length cap."""
    texts: tuple[str, ...]
    """Completions, row by row."""


@dataclass(frozen=True, eq=False)
class SweepEvidence:
    """All arms on the same questions."""

    plan: SweepPlan
    """Plan of the sweep."""
    questions: tuple[str, ...]
    """Questions with every sample of every arm."""
    left_out: int
    """Questions of the plan with samples missing."""
    truths: tuple[str, ...]
    """Right answer of each question, or the pooled majority; empty where there is none."""
    labelled: bool
    """Whether right answers are known."""
    arms: tuple[ArmEvidence, ...]
    """The plain arm first; where every sample has a budget, the largest budget first."""
    cost_unit: str = "tokens"
    """What costs are counted in: samples, where an imported file has neither tokens nor budgets."""

    @property
    def plain(self) -> ArmEvidence:
        """The samples as the model writes them; where every sample has a budget, those of the largest."""
        return self.arms[0]

    @property
    def all_arms(self) -> tuple[ArmEvidence, ...]:
        """The plain arm and the forced ones, each once."""
        return (self.plain, *(arm for arm in self.serial if arm is not self.plain))

    @cached_property
    def serial(self) -> tuple[ArmEvidence, ...]:
        """The arms with forced thinking, smallest budget first."""
        forced = (arm for arm in self.arms if arm.arm.budget is not None)
        return tuple(sorted(forced, key=lambda arm: arm.arm.budget or 0))

    @property
    def score_name(self) -> str:
        """What a score measures: accuracy or agreement."""
        return "accuracy" if self.labelled else "agreement"


Samples = Mapping[str, Mapping[int, Sequence[Mapping[str, Any]]]]
"""Question -> place of the arm -> its samples."""


def read_evidence(run: Run) -> SweepEvidence:
    """Read a sweep; only questions with every sample of every arm count, so all arms are compared on the same ones.

    Samples that were imported are a sweep of the budgets they name, or of votes alone.
    """
    if "plan" not in run.header.config and run.header.files:
        from breadth.tuning.evidence import read_imported

        return read_imported(run)
    if "plan" not in run.header.config:
        raise NotARunError(
            run.folder / HEADER_FILE, "is not of a sweep.", "Give the folder that breadth tune wrote with --out."
        )
    plan = from_table(SweepPlan, run.header.config["plan"], "plan")
    samples: dict[str, dict[int, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for place in range(len(plan.arms) if run.rollout_files else 0):  # arm by arm: all texts at once may be too many
        for row in run.query(ARM_QUERY, place, steps=(place, place)).to_pylist():
            samples[row["problem"]][place].append(row)
    return build_evidence(run, plan, plan.arms, samples)


def build_evidence(
    run: Run, plan: SweepPlan, arms: Sequence[Arm], samples: Samples, cost_unit: str = "tokens"
) -> SweepEvidence:
    """Return what the samples of several arms show."""
    whole = [
        name for name, drawn in samples.items() if all(len(drawn[place]) == arm.draws for place, arm in enumerate(arms))
    ]
    if not whole:
        raise MeasureError(
            f"{run.place} holds no question with all its samples.",
            "Run the same command again: it resumes the sweep.",
        )
    references = read_references(run)
    # A reference such as "?" is no label: what counts is that samples could be graded by it.
    labelled = all(row["correct"] is not None for name in whole for drawn in samples[name].values() for row in drawn)
    classes = {name: classify_answers(samples[name]) for name in whole}
    pools = {name: None if labelled else pooled_majority(classes[name]) for name in whole}
    found = tuple(
        arm_evidence(
            plan,
            arm,
            [samples[name][place] for name in whole],
            [classes[name][place] for name in whole],
            list(pools.values()),
        )
        for place, arm in enumerate(arms)
    )
    truths = tuple(
        (references.get(name) or "") if labelled else majority_text(samples[name], pools[name], classes[name])
        for name in whole
    )
    left_out = max(0, plan.questions - len(whole))
    return SweepEvidence(plan, tuple(whole), left_out, truths, labelled, found, cost_unit)


def read_references(run: Run) -> dict[str, str]:
    """Return the reference answer of each problem; empty where the run has no problems."""
    if not run.has_problems:
        return {}
    table = run.query("SELECT problem, reference FROM problems")
    return dict(zip(table["problem"].to_pylist(), table["reference"].to_pylist(), strict=True))


def classify_answers(arms: Mapping[int, Sequence[Mapping[str, Any]]]) -> dict[int, IntArray]:
    """Return the answer classes of one question, over all arms together."""
    places = sorted(arms)
    every = answer_classes([row["answer"] for place in places for row in arms[place]])
    ends = np.cumsum([len(arms[place]) for place in places])[:-1]
    return dict(zip(places, np.split(every, ends), strict=True))


def pooled_majority(classes: Mapping[int, IntArray]) -> dict[int, float]:
    """Return the majority answers with all arms weighted equally, each with its score: 1, or a share when tied."""
    shares: dict[int, float] = defaultdict(float)
    for labels in classes.values():
        for label in labels[labels >= 0].tolist():
            shares[label] += 1 / len(labels)
    most = max(shares.values(), default=0.0)
    leading = [label for label, share in shares.items() if share >= most - 1e-9]
    return {label: 1 / len(leading) for label in leading}


def majority_text(
    arms: Mapping[int, Sequence[Mapping[str, Any]]], pool: Mapping[int, float] | None, classes: Mapping[int, IntArray]
) -> str:
    """Return the majority answer of a question as written; empty where there is none."""
    first = next(iter(pool or {}), None)
    written = [
        row["answer"]
        for place in sorted(arms)
        for row, label in zip(arms[place], classes[place].tolist(), strict=True)
        if label == first
    ]
    return str(written[0]) if written else ""


def arm_evidence(
    plan: SweepPlan,
    arm: Arm,
    rows: Sequence[Sequence[Mapping[str, Any]]],
    classes: Sequence[IntArray],
    pools: Sequence[Mapping[int, float] | None],
) -> ArmEvidence:
    """Return the samples of one arm as arrays; rows, classes and pools are those of each question."""
    extras = [[orjson.loads(row["extra"]) for row in samples] for samples in rows]
    labels = np.array(classes)
    scores = [
        [
            float(bool(row["correct"])) if pool is None else pool.get(int(label), 0.0)
            for row, label in zip(samples, line, strict=True)
        ]
        for samples, line, pool in zip(rows, labels, pools, strict=True)
    ]
    return ArmEvidence(
        arm,
        tuple(tuple(row["answer"] for row in samples) for samples in rows),
        labels,
        np.array(scores),
        np.array([[float(row["tokens"]) for row in samples] for samples in rows]),
        np.array([[float(extra["seconds"]) for extra in line] for line in extras]),
        np.array(
            [
                [sample_cost(plan, row, extra) for row, extra in zip(samples, line, strict=True)]
                for samples, line in zip(rows, extras, strict=True)
            ]
        ),
        np.array(
            [[math.nan if extra["confidence"] is None else extra["confidence"] for extra in line] for line in extras]
        ),
        np.array([[bool(row["truncated"]) for row in samples] for samples in rows]),
        tuple(row["completion"] or "" for samples in rows for row in samples),
    )


def sample_cost(plan: SweepPlan, row: Mapping[str, Any], extra: Mapping[str, Any]) -> float:
    """Return what one sample cost at the prices of the plan."""
    spend = Spend(input_tokens=extra["input_tokens"], cached_tokens=extra["cached_tokens"], output_tokens=row["tokens"])
    return plan.policy.prices.cost_of(spend)


@dataclass(frozen=True)
class ArmTraits:
    """What the samples of one arm look like; intervals resample questions."""

    name: str
    """Name of the arm."""
    budget: int | None
    """Thinking tokens it is forced to."""
    score: Interval
    """Mean score of one sample."""
    tokens: float
    """Mean tokens written for one sample."""
    entropy: Interval | None
    """Entropy of the answers to a question in nats, at the same number of samples in all arms.

    None from single samples, or where nothing could be read.
    """
    samples: int
    """Number of samples behind the entropy."""
    changing: Interval
    """Share of traces that state one answer and then another."""
    lost: int
    """Changes within a trace from the right answer to another."""
    found: int
    """Changes within a trace from a wrong answer to the right one."""
    unread: Interval
    """Share of samples without a readable answer."""
    truncated: float
    """Share of samples cut at the length cap."""


def arm_traits(evidence: SweepEvidence) -> tuple[ArmTraits, ...]:
    """Describe the plain arm and every forced one."""
    common = min(arm.classes.shape[1] for arm in evidence.arms)
    return tuple(describe_arm(arm, evidence, common) for arm in evidence.all_arms)


def describe_arm(arm: ArmEvidence, evidence: SweepEvidence, common: int) -> ArmTraits:
    """Describe the samples of one arm, with the entropy over ``common`` samples per question."""
    changing, lost, found = measure_oscillation(arm, evidence.truths)
    return ArmTraits(
        arm.arm.name,
        arm.arm.budget,
        _share(arm.scores),
        float(arm.tokens.mean()),
        arm_answer_entropy(arm.classes[:, :common]),
        common,
        changing,
        lost,
        found,
        _share((arm.classes < 0).astype(np.float64)),
        float(arm.truncated.mean()),
    )


def _share(table: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> Interval:
    return mean_interval(table.mean(axis=1), bounds=(0.0, 1.0))


def arm_answer_entropy(classes: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> Interval | None:
    """Return the mean entropy of the answers to a question; None from single samples or without readable answers."""
    samples = classes.shape[1]
    rows = np.repeat(np.arange(len(classes)), samples)
    entropies = group_diversity(rows, classes.ravel()).entropy
    known = entropies[np.isfinite(entropies)]
    return mean_interval(known, bounds=(0.0, math.log(samples) + 0.5)) if samples > 1 and known.size else None


def measure_oscillation(arm: ArmEvidence, truths: tuple[str, ...]) -> tuple[Interval, int, int]:
    """Return the share of traces that change their answer, and the right answers lost and found by it."""
    samples = arm.classes.shape[1]
    changed = np.zeros(len(arm.texts))
    lost = found = 0
    if any(stated_answers(text) for text in arm.texts):
        traced = trace_oscillations(
            extract_restatements(arm.texts, [truth for truth in truths for _ in range(samples)])
        )
        changed[traced.traces.astype(np.int64)] = traced.changes > 0
        lost, found = int(traced.right_to_wrong.sum()), int(traced.wrong_to_right.sum())
    return _share(changed.reshape(-1, samples)), lost, found


MAX_QUESTIONS = 2000
"""Questions that are read: score differences are then known to about two points."""
Row = Mapping[str, Any]


def read_imported(run: Run) -> SweepEvidence:
    """Read imported samples: an arm for each budget, the samples without one as the plain arm.

    Where every sample has a budget, the largest budget is the plain arm too: it limits thinking least.
    """
    rows, cost_unit = read_rows(run)
    drawn: dict[int | None, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        drawn[row["budget"]][row["problem"]].append(row)
    forced = sorted(budget for budget in drawn if budget is not None)
    budgets: list[int | None] = [None, *forced] if None in drawn else [*forced[-1:], *forced[:-1]]
    arms = [build_arm(budget, Counter(map(len, drawn[budget].values()))) for budget in budgets]
    samples = {
        name: {place: drawn[budget][name][: arms[place].draws] for place, budget in enumerate(budgets)}
        for name in dict.fromkeys(row["problem"] for row in rows)
    }
    draws = arms[0].draws
    widths = tuple(sorted({*(2**power for power in range(draws.bit_length())), draws}))
    plan = SweepPlan(Policy(), (plain_arm(widths),), widths, len(samples))
    return build_evidence(run, plan, arms, samples, cost_unit)


def read_rows(run: Run) -> tuple[list[Row], str]:
    """Read the samples as `breadth tune` records them, and what their costs count.

    Without tokens a sample costs its budget; where some have none, each costs one sample. One without a grade and
    without an answer is wrong where others have grades.
    """
    right = correctness_sql(run) or "NULL"
    table = run.query(
        f"""SELECT problem, answer, CAST({right} AS BOOLEAN) AS correct, tokens, truncated, completion, extra, budget
            FROM rollouts WHERE split = 'eval' AND problem IN
            (SELECT problem FROM rollouts WHERE split = 'eval' GROUP BY problem ORDER BY hash(problem), problem LIMIT ?)
            ORDER BY problem, sample""",  # noqa: S608 - the expression is ours
        MAX_QUESTIONS,
    )
    rows = table.to_pylist()
    is_graded = any(row["correct"] is not None for row in rows)
    has_tokens, has_budgets = (all(row[name] is not None for row in rows) for name in ("tokens", "budget"))
    for row in rows:
        if is_graded and row["correct"] is None and row["answer"] is None:
            row["correct"] = False
        if not has_tokens:
            row["tokens"] = row["budget"] if has_budgets else 1
        row["extra"] = orjson.dumps(
            {"seconds": 0, "input_tokens": 0, "cached_tokens": 0, "confidence": read_confidence(row["extra"])}
        )
    return rows, "tokens" if has_tokens or has_budgets else "samples"


def read_confidence(extra: str | None) -> float | None:
    """Return the confidence among the columns we have no name for; None where there is none."""
    if not extra or '"confidence"' not in extra:
        return None
    value = orjson.loads(extra).get("confidence")
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def build_arm(budget: int | None, sizes: Counter[int]) -> Arm:
    """Return an arm with the samples that most questions have; ``sizes`` counts questions by their samples."""
    draws = max(sizes, key=lambda size: (sizes[size], size))
    if budget is None:
        return Arm(PLAIN_ARM, Single(), draws)
    tokens = max(1, budget)  # a budget of zero tokens: no thinking
    return Arm(f"budget {budget:,}", BudgetForcing(cues=0, minimum=tokens, maximum=tokens), draws, tokens)
