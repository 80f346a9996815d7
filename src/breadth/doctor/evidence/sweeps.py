"""Runs of the inference loop: plain samples, the texts of every arm, and the policy in use measured on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import orjson

from breadth.base.errors import BreadthError
from breadth.base.settings import from_table, to_table
from breadth.doctor.evidence.record import TUNE_COMMAND, Evidence, is_recorded_solve, is_sweep
from breadth.doctor.finding import CannotTell
from breadth.inference.policy import Policy
from breadth.inference.records import Sampling
from breadth.inference.stored_replay import replay
from breadth.inference.stored_votes import StoredVotes
from breadth.inference.strategies.adaptive_vote import AdaptiveVote
from breadth.inference.strategies.budget_forcing import BudgetForcing
from breadth.inference.strategies.confidence_vote import ConfidenceVote
from breadth.inference.strategies.online_confidence_vote import OnlineConfidenceVote
from breadth.inference.strategies.parallel_thinking import ParallelThinking
from breadth.inference.strategies.single import Single
from breadth.inference.strategies.vote import Vote
from breadth.measure.answers import answer_classes
from breadth.measure.pass_at_k import pass_at_k
from breadth.measure.validate import FloatArray, IntArray
from breadth.measure.vote_counting import maj_at_k_by_problem
from breadth.runs.reader import Run
from breadth.tuning.choice import MIN_QUESTIONS
from breadth.tuning.evidence import ArmEvidence
from breadth.tuning.result import TuningResult

MAX_ARM_TEXTS = 1000
"""Texts of an arm that are read: their share is then known to three points, and reading them takes seconds."""
MAX_QUESTIONS = 2000
"""Questions of a recorded run that are read: score differences are then known to about two points."""


@dataclass(frozen=True, eq=False)
class PlainSamples:
    """Independent samples without forced thinking: one row per question, one column per sample."""

    classes: IntArray
    """Answer class of each sample within its question; -1 where no answer could be read."""
    scores: FloatArray
    """1 for a correct answer, or for the most common one where correct answers are not known; ties share it."""
    tokens: FloatArray
    """Tokens written."""
    confidences: FloatArray
    """Confidence of each sample; NaN where it is not known."""
    widths: tuple[int, ...]
    """Widths of the votes considered, narrowest first, all over these samples."""
    labelled: bool
    """Whether correct answers are known."""
    sampling: Sampling
    """The sampling settings."""
    where: str
    """Description for a note."""
    cost_unit: str = "tokens"
    """What ``tokens`` counts: samples, where an imported file has no tokens."""

    @property
    def num_questions(self) -> int:
        """Number of questions."""
        return len(self.classes)

    @property
    def num_samples(self) -> int:
        """Samples per question."""
        return int(self.classes.shape[1])

    @property
    def unread_share(self) -> float:
        """Share of samples without a readable answer."""
        return float((self.classes < 0).mean())

    def vote_scores(self, widths: Sequence[int]) -> FloatArray:
        """Return the score of votes, questions x widths, exact over all subsets of the samples."""
        rows = np.repeat(np.arange(self.num_questions), self.num_samples)
        return maj_at_k_by_problem(rows, self.classes.ravel(), self.scores.ravel(), list(widths))

    def pass_at(self, draws: int) -> FloatArray:
        """Return pass@k by question; only where correct answers are known."""
        return pass_at_k(self.num_samples, (self.scores == 1).sum(axis=1), draws)


@dataclass(frozen=True, eq=False)
class ArmTexts:
    """Texts of one arm, one entry per sample; every arm of a sweep has the same questions."""

    name: str
    """The arm's name."""
    budget: int | None
    """Thinking tokens it is forced to; None leaves thinking to the model."""
    questions: IntArray
    """Question number of each text."""
    texts: tuple[str, ...]
    """The completions."""
    references: tuple[str, ...]
    """Correct answer to each text's question; empty where it is not known."""
    tokens: FloatArray
    """Tokens of each."""


def sweep(evidence: Evidence) -> TuningResult | None:
    """Return the result of a sweep; None where the run is none, or its folder is not as `breadth tune` leaves it."""
    if evidence.run is None or not (is_sweep(evidence.run) or evidence.is_evaluation):
        return None
    try:
        return evidence.sweep_result
    except (
        BreadthError,
        ArithmeticError,
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
    ):  # a folder that somebody else wrote, or cut
        return None


def plain_samples(evidence: Evidence, finding: str, *, needs_answers: bool = True) -> PlainSamples | CannotTell | None:
    """Return the plain samples of a sweep, a recorded run or an imported evaluation; None for other runs.

    ``needs_answers``: an evaluation with grades alone does not do, because votes are over answers.
    """
    run = evidence.run
    if run is None:
        return None
    result, policy = sweep(evidence), recorded_policy(run)
    if result is None and evidence.is_evaluation:
        return CannotTell(finding, "no question has samples of every budget", "a file with every question at each")
    if result is None and is_sweep(run):
        return CannotTell(
            finding,
            "the sweep has no question with all its samples",
            "the same breadth tune command: it resumes there",
        )
    if result is None and policy is None:
        return (
            CannotTell(finding, "the policy in run.toml cannot be read", TUNE_COMMAND)
            if is_recorded_solve(run)
            else None
        )
    found = samples_of_sweep(result) if result is not None else samples_of_solve(run, policy)
    if found is None or found.num_questions < MIN_QUESTIONS:
        number = 0 if found is None else found.num_questions
        return CannotTell(
            finding,
            f"{number} questions have samples; {MIN_QUESTIONS} are needed",
            f"{TUNE_COMMAND}, fifty questions or more",
        )
    if needs_answers and evidence.is_evaluation and found.unread_share == 1:
        return CannotTell(finding, "the file has grades and no answers to vote on", "--map answer=COLUMN")
    return found


def arm_texts(evidence: Evidence) -> tuple[ArmTexts, ...]:
    """Return texts of every arm, the plain one first, or of a recorded run: a bounded sample over questions."""
    result, run = sweep(evidence), evidence.run
    if result is None:
        return () if run is None or recorded_policy(run) is None else texts_of_solve(run)
    found = result.evidence
    most = max(arm.classes.shape[1] for arm in found.arms)
    number = max(1, min(len(found.questions), MAX_ARM_TEXTS // most))
    kept = np.unique(np.linspace(0, len(found.questions) - 1, number).astype(np.int64))
    truths = found.truths if found.labelled else ("",) * len(found.questions)
    return tuple(texts_of_arm(arm, kept, truths) for arm in found.all_arms)


def parse_extra(text: str | None) -> dict[str, Any]:
    """Parse the extra columns recorded with a sample; empty where they cannot be read."""
    try:
        found = orjson.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def samples_of_sweep(result: TuningResult) -> PlainSamples:
    """Return the plain samples of a sweep."""
    found, plan = result.evidence, result.evidence.plan
    plain = found.plain
    kind = "plain samples" if plain.arm.budget is None else f"samples at the largest budget, {plain.arm.budget:,}"
    where = f"{len(found.questions)} questions x {plain.classes.shape[1]} {kind}"
    widths = tuple(sorted({1, *plan.widths}))
    return PlainSamples(
        plain.classes,
        plain.scores,
        plain.tokens,
        plain.confidences,
        widths,
        found.labelled,
        plan.policy.sampling,
        where,
        found.cost_unit,
    )


def samples_of_solve(run: Run, policy: Policy | None) -> PlainSamples | None:
    """Read the first independent samples of each question of a recorded run: as many as every question has.

    Where the policy draws a fixed number, questions with fewer are left out: those samples failed. Where it stops
    early, samples beyond the smallest number depend on the answers before, and are no fair sample.
    """
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in _rows(run):
        if row["extra"].get("independent", True):
            groups.setdefault(row["problem"], []).append(row)
    spent = None if policy is None else policy_spending(policy, 1.0)
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
    where = f"{len(whole)} questions x {each} recorded samples"
    return PlainSamples(
        classes,
        right if labelled else agreement_scores(classes),
        tokens,
        sure,
        widths,
        labelled,
        policy.sampling,
        where,
    )


def _rows(run: Run) -> list[dict[str, Any]]:
    if not run.rollout_files:
        return []
    table = run.query(
        """SELECT problem, answer, correct, tokens, extra FROM rollouts WHERE split = 'eval' AND problem IN
           (SELECT problem FROM rollouts WHERE split = 'eval' GROUP BY problem ORDER BY hash(problem), problem LIMIT ?)
           ORDER BY problem, sample""",
        MAX_QUESTIONS,
    )
    return [{**row, "extra": parse_extra(row["extra"])} for row in table.to_pylist()]


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else float("nan")


def agreement_scores(classes: IntArray) -> FloatArray:
    """Return the score of each answer without correct ones: 1 for the most common, shared between ties."""
    counts = (classes[:, :, None] == classes[:, None, :]).sum(axis=2) * (classes >= 0)
    leading = (counts == counts.max(axis=1, keepdims=True)) & (counts > 0)
    kinds = (leading / np.maximum(counts, 1)).sum(axis=1, keepdims=True)
    return np.asarray(leading / np.maximum(kinds, 1), dtype=np.float64)


def texts_of_arm(arm: ArmEvidence, kept: IntArray, truths: Sequence[str]) -> ArmTexts:
    """Return the texts of an arm for the chosen questions."""
    each = arm.classes.shape[1]
    places, owners = (kept[:, None] * each + np.arange(each)).ravel(), np.repeat(kept, each)
    texts, references = (
        tuple(arm.texts[place] for place in places.tolist()),
        tuple(truths[owner] for owner in owners.tolist()),
    )
    return ArmTexts(arm.arm.name, arm.arm.budget, owners, texts, references, arm.tokens.ravel()[places])


def texts_of_solve(run: Run) -> tuple[ArmTexts, ...]:
    """Return the completions that `solve` recorded, a bounded number of them."""
    if not run.rollout_files:
        return ()
    known = run.has_problems
    table = run.query(
        f"""SELECT problem, completion, tokens, {"reference" if known else "NULL"} AS truth FROM
            (SELECT problem, completion, tokens FROM rollouts WHERE split = 'eval' AND completion IS NOT NULL
             ORDER BY hash(problem, step, sample) LIMIT ?) {"LEFT JOIN problems USING (problem)" if known else ""}
            ORDER BY problem""",  # noqa: S608 - both parts are ours
        MAX_ARM_TEXTS,
    )
    rows = table.to_pylist()
    if not rows:
        return ()
    owners = np.unique([row["problem"] for row in rows], return_inverse=True)[1].astype(np.int64)
    texts, truths = (tuple(row[name] or "" for row in rows) for name in ("completion", "truth"))
    return (
        ArmTexts(
            "recorded samples", None, owners, texts, truths, np.array([float(row["tokens"] or 0) for row in rows])
        ),
    )


@dataclass(frozen=True)
class Spending:
    """What a policy spends on one question."""

    width: int = 1
    """Most samples."""
    budget: int | None = None
    """Thinking tokens it forces; None leaves thinking to the model."""
    early: bool = False
    """Whether it stops once the vote is decided."""

    @property
    def name(self) -> str:
        """A short description for a sentence."""
        if self.budget is not None:
            return f"{self.budget:,} thinking tokens"
        if self.width == 1:
            return "one plain sample"
        return f"a vote of up to {self.width} that stops early" if self.early else f"a vote of {self.width}"


def policy_spending(policy: Policy, each: float) -> Spending | None:
    """Return what a policy spends where a sample has ``each`` tokens; None for other than votes and forced thinking.

    A vote by confidence counts as a vote of its width. Thinking that is only capped is not forced: the model may stop
    before.
    """
    match policy.strategy:
        case Single():
            return Spending()
        case Vote(n=width) | ConfidenceVote(n=width):
            return Spending(width)
        case AdaptiveVote(most=width) | OnlineConfidenceVote(most=width):
            return Spending(width, early=width > 1)
        case ParallelThinking(tokens=tokens, most=most):
            return Spending(max(1, min(most, int(tokens / max(each, 1)))))
        case BudgetForcing(minimum=least, maximum=most) if least:
            return Spending(budget=least if most is None else most)
    return None


def policy_in_use(evidence: Evidence) -> Policy | None:
    """Return the given policy, else the one that the run recorded; None where neither is known."""
    return evidence.policy if evidence.policy is not None or evidence.run is None else recorded_policy(evidence.run)


def recorded_policy(run: Run) -> Policy | None:
    """Return the policy of a recorded run; None where the run is of another kind or the policy cannot be read."""
    try:
        return from_table(Policy, run.header.config["policy"], "policy") if is_recorded_solve(run) else None
    except (BreadthError, AttributeError, TypeError, ValueError):
        return None


def sampling_differences(policy: Policy, measured: Policy) -> list[str]:
    """Name the differences in sampling between a policy and a sweep; requesting log-probs is none."""
    differences = [
        f"{field.name.replace('_', ' ')} {getattr(policy.sampling, field.name)} in use,"
        f" {getattr(measured.sampling, field.name)} measured"
        for field in fields(Sampling)
        if field.name != "top_logprobs"
        and getattr(policy.sampling, field.name) != getattr(measured.sampling, field.name)
    ]
    differences += ["another model"] if policy.model and measured.model and policy.model != measured.model else []
    return differences + (["another system prompt"] if policy.system != measured.system else [])


@dataclass(frozen=True, eq=False)
class MeasuredPolicy:
    """A policy with its measured score and cost."""

    spending: Spending
    """What it spends."""
    scores: FloatArray
    """Its score on each question."""
    tokens: float
    """Tokens it writes per question."""

    @property
    def score(self) -> float:
        """Its mean score."""
        return float(self.scores.mean())


def measure_policy(evidence: Evidence, samples: PlainSamples, finding: str) -> MeasuredPolicy | CannotTell | None:
    """Measure the policy in use on the samples; None where no policy is known.

    A CannotTell says why the samples do not cover it.
    """
    policy, result = policy_in_use(evidence), sweep(evidence)
    if policy is None:
        return None
    spent = policy_spending(policy, float(samples.tokens.mean()))
    if spent is None:
        kind = to_table(policy.strategy).get("kind", "one of your own")
        return CannotTell(
            finding,
            f"the policy in use ({kind}) is neither a vote nor thinking forced to a budget, and was not measured",
        )
    measured = None if result is None or evidence.is_evaluation else result.evidence.plan.policy
    other = [] if measured is None else sampling_differences(policy, measured)  # files from elsewhere do not say
    if other:
        missing = f"the sweep samples differently from the policy in use: {', '.join(other)}"
        return CannotTell(finding, missing, f"{TUNE_COMMAND} --policy FILE, with the policy in use")
    if spent.budget is not None:
        return find_forced_arm(spent, result, finding)
    if spent.width > samples.num_samples:
        missing = (
            f"the policy in use draws up to {spent.width}; each question has {samples.num_samples} comparable samples"
        )
        return CannotTell(
            finding, missing, f"{TUNE_COMMAND} --widths {','.join(map(str, sorted({*samples.widths, spent.width})))}"
        )
    return replay_early_stopping(spent, policy, samples) if spent.early else measure_plain_vote(samples, spent.width)


def measure_plain_vote(samples: PlainSamples, width: int) -> MeasuredPolicy:
    """Measure a plain vote of a given width."""
    return MeasuredPolicy(Spending(width), samples.vote_scores([width])[:, 0], width * float(samples.tokens.mean()))


def find_forced_arm(spent: Spending, result: TuningResult | None, finding: str) -> MeasuredPolicy | CannotTell:
    """Return the measured arm that forces the same budget, or say that there is none."""
    arms = () if result is None else result.evidence.serial
    arm = next((arm for arm in arms if arm.arm.budget == spent.budget), None)
    if arm is None:
        there = ", ".join(f"{arm.arm.budget:,}" for arm in arms) or "none"
        missing = f"the policy in use forces {spent.name}; budgets measured: {there}"
        return CannotTell(finding, missing, f"{TUNE_COMMAND} --budgets {spent.budget}")
    return MeasuredPolicy(spent, arm.scores.mean(axis=1), float(arm.tokens.mean()))


def replay_early_stopping(spent: Spending, policy: Policy, samples: PlainSamples) -> MeasuredPolicy:
    """Replay a vote that stops early; samples in flight when it is decided are charged in full.

    Weighting by confidence is left out.
    """
    votes = StoredVotes.from_classes(samples.classes, correct=samples.scores, tokens=samples.tokens)
    strategy = policy.strategy if isinstance(policy.strategy, AdaptiveVote) else AdaptiveVote(spent.width)
    played = replay(votes, {"in use": strategy}).outcomes["in use"].by_question
    return MeasuredPolicy(spent, played["accuracy"], float((played["started"] * samples.tokens.mean(axis=1)).mean()))
