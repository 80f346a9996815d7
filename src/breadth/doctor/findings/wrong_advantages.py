"""``wrong-advantages``: the logged advantages contradict the logged rewards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np

from breadth.doctor.evidence.record import Evidence
from breadth.doctor.evidence.rollouts import MIN_CLUSTERS
from breadth.doctor.finding import CannotTell, CheckResult, Confidence, Excluded, Finding, Loop, Need, Prescription
from breadth.measure.intervals import Interval, mean_interval
from breadth.measure.validate import BoolArray, FloatArray, IntArray
from breadth.report.sections import Fact, Severity
from breadth.runs.outcomes import GROUP_SQL, rollout_steps
from breadth.runs.reader import Run
from breadth.runs.schema import REWARD_PREFIX

MAX_STEPS_READ = 16
"""Steps, spread over the run, whose rollouts are recomputed: an error of arithmetic is in every one of them."""
MAX_GROUPS_COMPARED = 2_000
"""Groups whose pairs are compared: a share over them is known to 1.1 points (half of 1 / sqrt 2,000) at worst."""
MAX_GROUP_ROLLOUTS = 256
"""Rollouts of a group whose pairs are compared; their number grows with the square."""
CRITIC_ESTIMATORS = ("gae", "vtrace", "critic")
"""Estimators, by the trainers' names, whose advantages come from a value model and not from a group's rewards."""
ROUNDING = 2.0**-8
"""Largest relative error of a number rounded to bfloat16, the coarsest type that trainers compute in."""
LARGEST_EPSILON = 1e-4
"""Largest number that a trainer adds to a standard deviation (TRL; verl adds 1e-6)."""


@dataclass(frozen=True, eq=False)
class Scored:
    """Rollouts that have a reward and an advantage, in the order in which they were logged."""

    rewards: FloatArray
    """Reward of each rollout."""
    advantages: FloatArray
    """Advantage that the trainer logged."""
    groups: IntArray
    """Number of each rollout's group, from 0."""
    steps: IntArray
    """Number of each rollout's step, from 0."""

    def __len__(self) -> int:
        return len(self.rewards)


Rule: TypeAlias = Callable[[Scored], FloatArray]
"""Recomputes the advantages."""


def mean_over(values: FloatArray, numbers: IntArray) -> FloatArray:
    """Return the mean over each value's group, or step."""
    counts = np.bincount(numbers)
    return np.asarray((np.bincount(numbers, values) / np.maximum(counts, 1))[numbers])


def spread_over(values: FloatArray, numbers: IntArray, *, sample: bool) -> FloatArray:
    """Return the standard deviation over each value's group, or step; 0 for a group of one."""
    counts = np.bincount(numbers)[numbers]
    squares = mean_over((values - mean_over(values, numbers)) ** 2, numbers)
    return np.asarray(np.sqrt(squares * counts / np.maximum(counts - 1, 1) if sample else squares))


def divide(values: FloatArray, scale: FloatArray) -> FloatArray:
    """Divide, with 0 where the scale is 0."""
    return np.divide(values, scale, out=np.zeros_like(values), where=scale > 0)


def centre(scored: Scored) -> FloatArray:
    """Return rewards minus the mean of their group."""
    return scored.rewards - mean_over(scored.rewards, scored.groups)


def group_scores(scored: Scored, *, sample: bool) -> FloatArray:
    """Return z-scores over each group."""
    return divide(centre(scored), spread_over(scored.rewards, scored.groups, sample=sample))


def leave_one_out(scored: Scored) -> FloatArray:
    """Return rewards minus the mean of the rest of their group."""
    counts = np.bincount(scored.groups)[scored.groups]
    return centre(scored) * counts / np.maximum(counts - 1, 1)


def batch_scores(scored: Scored, values: FloatArray, *, sample: bool) -> FloatArray:
    """Return z-scores of values over each step."""
    centred = values - mean_over(values, scored.steps)
    return divide(centred, spread_over(values, scored.steps, sample=sample))


def batch_scaled(scored: Scored, *, sample: bool) -> FloatArray:
    """Return rewards minus the mean of their group, over the standard deviation of the step's rewards."""
    return divide(centre(scored), spread_over(scored.rewards, scored.steps, sample=sample))


_SCALED = "centred in each group and scaled by the batch"
_WHITENED = "centred in each group and normalised over the batch (REINFORCE++ with baseline)"
_BATCH = "the z-scores of the batch (REINFORCE++)"
RULES: tuple[tuple[str, Rule], ...] = (
    ("the z-scores of each group (GRPO)", lambda scored: group_scores(scored, sample=True)),
    (
        "the z-scores of each group, with the population's standard deviation (GRPO)",
        lambda scored: group_scores(scored, sample=False),
    ),
    ("the rewards minus the mean of their group (Dr. GRPO)", centre),
    ("the rewards minus the mean of the rest of their group (RLOO)", leave_one_out),
    (_SCALED, lambda scored: batch_scaled(scored, sample=True)),
    (_SCALED, lambda scored: batch_scaled(scored, sample=False)),
    (_WHITENED, lambda scored: batch_scores(scored, centre(scored), sample=True)),
    (_WHITENED, lambda scored: batch_scores(scored, centre(scored), sample=False)),
    (_BATCH, lambda scored: batch_scores(scored, scored.rewards, sample=True)),
    (_BATCH, lambda scored: batch_scores(scored, scored.rewards, sample=False)),
    (
        "the rewards minus the mean of the batch",
        lambda scored: scored.rewards - mean_over(scored.rewards, scored.steps),
    ),
    (
        "centred in each group, over the group's mean (MaxRL)",
        lambda scored: divide(centre(scored), mean_over(scored.rewards, scored.groups)),
    ),
    ("the rewards themselves (REINFORCE)", lambda scored: scored.rewards),
    ("the signs of the rewards minus the mean of their group", lambda scored: np.sign(centre(scored))),
)
"""What the advantages are, as the end of a sentence, and how they are computed."""


@dataclass(frozen=True)
class WrongAdvantages:
    """Within a group, higher rewards have lower advantages, or different rewards the same one.

    Whatever the estimator, of two rollouts of one prompt the one with the higher reward has the higher advantage: a
    baseline moves both alike and a scale is positive. Advantages that break this in many pairs have the wrong sign or
    belong to other rollouts. Advantages of exactly zero are left out of the pairs: trainers mask truncated rollouts so.
    The advantages are recomputed by the known rules too, and the page names the one that fits. It cannot see a wrong
    scale, and it misleads where the trainer normalises several rewards by themselves before it adds them (GDPO) or adds
    terms to the advantage that outweigh the reward: with several components only a reversed sign is reported. Users ask
    whether their trainer's arithmetic is right (verl#6348, verl#7829).
    """

    loop: ClassVar[Loop] = "training"
    causes: ClassVar[tuple[str, ...]] = ()
    needs: ClassVar[tuple[Need, ...]] = ("rollouts",)
    summary: ClassVar[str] = "logged advantages contradict the logged rewards"
    first_step: ClassVar[str] = "check the sign and the order of rollouts where rewards become advantages"

    fits: float = 0.99
    """Share of the rollouts whose recomputed advantage must agree within rounding for a rule to fit: a few may be
    masked, or have lost a part of their group."""
    swapped: float = 0.25
    """Share of the pairs whose order is certainly reversed from which on it is a finding: rollouts in the wrong place
    reverse half of them, penalties next to the reward only pairs whose rewards are close."""
    reversed: float = 0.9
    """Share from which on the sign is wrong; the share that is asked for with several components of the reward."""
    constant: float = 0.9
    """Share of the groups with different rewards whose advantages are certainly all the same, as a finding: filters
    that drop groups, such as RAGEN's, leave more than a tenth of them."""

    def check(self, evidence: Evidence) -> CheckResult:
        """Recompute the advantages of some steps and compare their order with the rewards'."""
        run = evidence.run
        if run is None or not {"reward"} <= run.columns or not {"advantage", "advantages"} & run.columns:
            return None
        if (evidence.config.estimator or "").casefold() in CRITIC_ESTIMATORS:
            return None
        scored = read_scored(run)
        differ = groups_that_differ(scored)
        if len(differ) < MIN_CLUSTERS:
            return CannotTell(
                "wrong-advantages",
                f"{len(differ)} groups have different rewards and logged advantages; {MIN_CLUSTERS} are needed",
                evidence.how_to_log("advantage"),
            )
        rule = find_rule(scored, self.fits)
        if rule:
            return Excluded("wrong-advantages", f"the advantages of {len(scored):,} rollouts are {rule}")
        constant = count_constant(scored, differ)
        if constant.low > self.constant:
            return report(constant, scored, "constant", "certain")
        swapped = count_swapped(scored, differ)
        if swapped is None:
            return CannotTell("wrong-advantages", "too few rollouts have an advantage that is not zero")
        parts = sum(name.startswith(REWARD_PREFIX) for name in run.columns)
        if swapped.low > (self.reversed if parts > 1 else self.swapped):
            kind = "reversed" if swapped.low > self.reversed else "swapped"
            return report(swapped, scored, kind, "certain" if kind == "reversed" else "strong", self.fits)
        return Excluded(
            "wrong-advantages",
            f"{1 - swapped.value:.1%} of the pairs of a group have rewards and advantages in the same order, though by"
            " none of the rules we know",
        )


def read_scored(run: Run) -> Scored:
    """Read rewards and advantages of whole steps, spread over the run.

    Where the advantage is logged per token, those rollouts count that have the same at each.
    """
    steps = rollout_steps(run)
    chosen = steps[np.unique(np.linspace(0, len(steps) - 1, MAX_STEPS_READ).round().astype(int))] if len(steps) else ()
    per_token = "CASE WHEN list_min(advantages) = list_max(advantages) THEN advantages[1] END"
    advantage = "advantage" if "advantage" in run.columns else per_token
    table = run.query(  # in the order of the file, which a window would change: the one next to a rollout matters
        f"""SELECT {GROUP_SQL}, reward, {advantage} AS advantage FROM rollouts
            WHERE split = 'train' AND step IN ({", ".join(str(int(step)) for step in chosen) or "NULL"})""",  # noqa: S608 - numbers and our own names
    )
    rewards, advantages = (
        np.array([np.nan if value is None else value for value in table.column(name).to_pylist()], dtype=np.float64)
        for name in ("reward", "advantage")
    )
    known = np.isfinite(rewards) & np.isfinite(advantages)
    stepped = table.column("step").to_numpy()[known]
    numbers = np.unique(stepped, return_inverse=True)[1]
    bands = zip(*(table.column(name).to_pylist() for name in ("step", "group", "problem")), strict=True)
    places: dict[tuple[Any, ...], int] = {}
    groups = np.array([places.setdefault(band, len(places)) for band in bands], dtype=np.int64)[known]
    groups = np.unique(groups, return_inverse=True)[1]
    return Scored(rewards[known], advantages[known], groups, numbers)


def groups_that_differ(scored: Scored) -> IntArray:
    """Return the numbers of the groups whose rewards differ by more than rounding."""
    if not len(scored):
        return np.empty(0, dtype=np.int64)
    low, high = np.full(scored.groups.max() + 1, np.inf), np.full(scored.groups.max() + 1, -np.inf)
    np.minimum.at(low, scored.groups, scored.rewards)
    np.maximum.at(high, scored.groups, scored.rewards)
    return np.flatnonzero(high - low > ROUNDING * np.maximum(np.abs(high), np.abs(low)))


def find_rule(scored: Scored, share: float) -> str:
    """Return the rule that gives the logged advantages of nearly all rollouts; empty where none does."""
    for name, rule in RULES:
        if agreement(scored, rule(scored)) >= share:
            return name
    return ""


def agreement(scored: Scored, expected: FloatArray) -> float:
    """Return the share of rollouts whose logged advantage is the expected one within rounding.

    Only groups with different rewards are counted, and no advantage that is exactly zero, unless most are. The bound is
    that of bfloat16: rewards, their mean and the result are rounded, and the difference of the first two is scaled.
    """
    counted = np.isin(scored.groups, groups_that_differ(scored))
    logged = counted & (scored.advantages != 0)
    if logged.sum() < counted.sum() / 2 or not logged.any():
        return 0.0
    spread = spread_over(scored.rewards, scored.groups, sample=False)
    slope = divide(spread_over(expected, scored.groups, sample=False), spread)
    size = np.zeros(scored.groups.max() + 1)
    np.maximum.at(size, scored.groups, np.abs(scored.rewards))
    relative = ROUNDING + divide(np.full(len(scored), LARGEST_EPSILON), spread)
    bound = 2 * ROUNDING * slope * size[scored.groups] + relative * np.abs(expected)
    return float((np.abs(scored.advantages - expected) <= bound)[logged].mean())


def each_group(scored: Scored, numbers: IntArray) -> Iterator[tuple[FloatArray, FloatArray]]:
    """Yield rewards and advantages of these groups, or of some spread over them where there are many."""
    numbers = numbers[:: -(-len(numbers) // MAX_GROUPS_COMPARED)]
    order = np.argsort(scored.groups, kind="stable")
    edges = np.searchsorted(scored.groups[order], [numbers, numbers + 1])
    for begin, end in edges.T:
        rows = order[begin : min(end, begin + MAX_GROUP_ROLLOUTS)]
        yield scored.rewards[rows], scored.advantages[rows]


def count_constant(scored: Scored, differ: IntArray) -> Interval:
    """Return the share of the groups with different rewards whose advantages are all the same."""
    same = [float(np.ptp(advantages) == 0) for _, advantages in each_group(scored, differ)]
    return mean_interval(same, bounds=(0.0, 1.0))


def count_swapped(scored: Scored, differ: IntArray) -> Interval | None:
    """Return the share of a group's pairs in which the higher reward has the lower advantage, mean over groups.

    Pairs within rounding of each other are not counted, nor advantages that are zero; None with too few groups left.
    """
    shares = []
    for rewards, advantages in each_group(scored, differ):
        counted = advantages != 0
        apart, ahead = (np.subtract.outer(values[counted], values[counted]) for values in (rewards, advantages))
        certain = is_apart(apart, rewards) & is_apart(ahead, advantages) & (apart > 0)
        if certain.any():
            shares.append(float((ahead[certain] < 0).mean()))
    return mean_interval(shares, bounds=(0.0, 1.0)) if len(shares) >= MIN_CLUSTERS else None


def is_apart(differences: FloatArray, values: FloatArray) -> BoolArray:
    """Say which differences of values are more than rounding."""
    return np.asarray(np.abs(differences) > 2 * ROUNDING * np.abs(values).max())


def report(share: Interval, scored: Scored, kind: str, confidence: Confidence, fits: float = 0.99) -> Finding:
    """Build the finding."""
    headline = {
        "constant": f"In {share.value:.0%} of the groups with different rewards all rollouts have the same advantage.",
        "reversed": f"In {share.value:.0%} of the pairs of a group the higher reward has the lower advantage: the sign"
        " is wrong.",
        "swapped": f"In {share.value:.0%} of the pairs of a group the higher reward has the lower advantage, as if the"
        " advantages belonged to other rollouts.",
    }[kind]
    facts = [
        Fact("groups" if kind == "constant" else "pairs", share, "%", "share that contradicts the rewards"),
        Fact("rollouts", len(scored), "", f"of {len(np.unique(scored.steps))} steps"),
    ]
    rolled = find_shift(scored, fits) if kind == "swapped" else ""
    if rolled:
        facts.append(Fact("what they are", rolled))
    return Finding(
        "wrong-advantages",
        Severity.CRITICAL if kind == "reversed" else Severity.WARNING,
        confidence,
        "training",
        headline,
        tuple(facts),
        "The logged reward is not the one that the advantages are made of.",
        "Every update so far followed these advantages.",
        (inspect_advantages(kind),),
    )


def find_shift(scored: Scored, fits: float) -> str:
    """Say which rule fits when the advantages are moved by one rollout within their step; empty where none does."""
    for shift, place in ((1, "after"), (-1, "before")):
        moved = np.empty_like(scored.advantages)
        for step in range(scored.steps.max() + 1):
            rows = np.flatnonzero(scored.steps == step)
            moved[rows] = scored.advantages[np.roll(rows, -shift)]
        rule = find_rule(Scored(scored.rewards, moved, scored.groups, scored.steps), fits)
        if rule:
            return f"{rule}, each written to the rollout {place} its own"
    return ""


def inspect_advantages(kind: str) -> Prescription:
    """Check the code between rewards and advantages."""
    action = {
        "constant": "Check why rewards that differ give no difference in advantage: the groups that the trainer forms,"
        " and what it masks",
        "reversed": "Check the sign between reward and advantage, and that the loss is minimised",
        "swapped": "Check the order of rollouts between reward and advantage: shuffling, gathering over processes, the"
        " group size",
    }[kind]
    return Prescription(
        action,
        "The loss multiplies every token with its advantage; no other setting matters while that is wrong.",
        (),
        "",
        "verl#6348 (advantages of -0.005 where -0.6196 is right)",
    )


FINDING = WrongAdvantages()
"""The check with its default thresholds."""
