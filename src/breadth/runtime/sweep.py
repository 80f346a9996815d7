"""The sweep behind ``breadth tune``: plain samples and forced thinking budgets on the same questions, cost first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from breadth.base.errors import ServerError, SettingsError
from breadth.inference.records import Budget, Spend
from breadth.inference.sweep_plan import Arm, SweepPlan, check_budgets, forced_arms, plain_arm, usual_budgets
from breadth.inference.thinking import UNMARKED_THINKING, Thinking
from breadth.runtime.driver import Driver, SolveResult
from breadth.runtime.ledger import Ledger
from breadth.runtime.questions import Question, hash_questions, shuffle_questions
from breadth.runtime.recording import SweepFolder, SweepOptions, sample_row
from breadth.runtime.sampler import Sampler
from breadth.runtime.solve_context import gather_or_cancel

CEILING_MARGIN = 0.9
"""Share of a ceiling that a plan may use: a pilot of a few questions is off by some tenths."""


@dataclass(frozen=True)
class SweepEstimate:
    """What is still to be sampled, and its estimated cost."""

    questions: int
    """Questions of the sweep."""
    available: int
    """Questions in the file."""
    samples: int
    """Samples of the whole sweep."""
    collected: int
    """Of those, collected already: by the pilot or an earlier attempt."""
    remaining: Spend
    """What the others will use; wall-clock seconds with all streams busy."""
    spent: Spend
    """What has been used so far."""
    pilot: int
    """Samples it is estimated from."""


def cost_per_question(plan: SweepPlan, pilot: Mapping[int, Sequence[Spend]]) -> Spend:
    """Return what one question will use over all arms, by the mean of each arm's pilot samples."""
    parts = [
        scale_spend(sum(samples, Spend()), plan.arms[arm].draws / len(samples))
        for arm, samples in pilot.items()
        if samples
    ]
    return sum(parts, Spend())


def affordable_questions(plan: SweepPlan, each: Spend, available: int, ceiling: int | None) -> int:
    """Return how many questions the ceiling on output tokens pays for; refuse one that pays for fewer than three."""
    if ceiling is None or each.output_tokens == 0:
        return available
    number = min(available, int(CEILING_MARGIN * ceiling / each.output_tokens))
    if number < min(3, available):
        raise SettingsError(
            f"The ceiling is {ceiling:,} output tokens, but one question takes about {each.output_tokens:,} "
            f"({plan.samples_each} samples): that is not even three questions.",
            f"Raise --budget-tokens to {int(12 * each.output_tokens / CEILING_MARGIN):,} or more, or try fewer"
            " --widths and --budgets.",
        )
    return number


def estimate_sweep(
    plan: SweepPlan, each: Spend, collected: int, spent: Spend, *, available: int, concurrency: int, pilot: int
) -> SweepEstimate:
    """Estimate what the missing samples will use, at the pilot's rates."""
    samples = plan.questions * plan.samples_each
    missing = max(0, samples - collected) / plan.samples_each
    remaining = scale_spend(each, missing)
    streams = max(1, min(concurrency, samples - collected))
    clock = Spend(
        remaining.calls,
        remaining.input_tokens,
        remaining.cached_tokens,
        remaining.output_tokens,
        remaining.seconds / streams,
        remaining.money,
    )
    return SweepEstimate(plan.questions, available, samples, min(collected, samples), clock, spent, pilot)


def scale_spend(spend: Spend, factor: float) -> Spend:
    """Multiply every part of a cost, whole numbers rounded."""
    return Spend(
        round(spend.calls * factor),
        round(spend.input_tokens * factor),
        round(spend.cached_tokens * factor),
        round(spend.output_tokens * factor),
        spend.seconds * factor,
        spend.money * factor,
    )


SAMPLE_CONCURRENCY = 8
"""Samples in parallel by default: the slots a small llama.cpp server usually has."""
PILOT_QUESTIONS = 3
"""Questions of the pilot: one sample of each at every arm, which the sweep keeps."""
MAX_FAILURES_IN_A_ROW = 8
"""Samples in a row that may fail before the sweep gives the server up."""

OnSweepProgress = Callable[[int, int, Spend], None]
"""Called after each sample: how many are there, how many there will be, what all of them used."""


@dataclass(frozen=True)
class SampleJob:
    """One sample to collect."""

    question: int
    """Number of the question in the shuffled order."""
    arm: int
    """Number of the arm in the plan."""
    number: int
    """Which of the arm's samples of the question."""


@dataclass(frozen=True)
class SweepSample:
    """One sample that was collected."""

    row: dict[str, Any]
    """Its rollout."""
    spend: Spend
    """What it used."""
    has_reasoning: bool
    """Whether the server separated its thinking."""
    thinking_tokens: int
    """Tokens of its thinking, or of all of it where thinking is not separated."""

    @classmethod
    def from_result(cls, question: Question, number: int, label: str, result: SolveResult) -> SweepSample:
        """Summarize a sample that has a reply."""
        chosen = result.answer.chosen
        assert chosen is not None  # noqa: S101 - the caller has looked
        thought = chosen.thinking_tokens or result.spend.output_tokens
        return cls(sample_row(question, number, label, result), result.spend, bool(chosen.reasoning), thought)


class Sweep:
    """Collects a sweep: first `run_pilot`, which plans it and estimates its cost, then `collect`."""

    def __init__(
        self,
        sampler: Sampler,
        questions: Sequence[Question],
        options: SweepOptions,
        folder: Path,
        *,
        ceiling: int | None = None,
        concurrency: int = SAMPLE_CONCURRENCY,
    ) -> None:
        self.questions = shuffle_questions(questions, options.seed)
        """The questions, shuffled."""
        self.options = options
        """What to measure."""
        self.ceiling = ceiling
        """Output tokens at most, those of earlier attempts included; None for no ceiling."""
        self.concurrency = concurrency
        """Samples in parallel."""
        if options.budgets is not None:
            check_budgets(options.budgets, options.policy.sampling.max_tokens)
        self.folder = SweepFolder(folder, options, hash_questions(questions))
        """Its run folder."""
        self.driver = Driver(
            sampler, Ledger(Budget(output_tokens=ceiling), options.policy.prices), journal=self.folder.journal
        )
        """Collects samples."""
        self.plan = self.folder.plan or SweepPlan(
            options.policy, (plain_arm(options.widths),), options.widths, seed=options.seed
        )
        """The plan; only the plain arm before `run_pilot`."""
        self.samples: dict[SampleJob, SweepSample] = {}
        """Samples collected so far."""
        self.budget_exhausted = False
        """Whether the ceiling ended the sweep."""
        self._failed = 0

    async def run_pilot(self) -> SweepEstimate:
        """Collect the pilot, make the plan, and estimate the cost; the pilot's samples are part of the sweep."""
        pilot = range(min(PILOT_QUESTIONS, len(self.questions)))
        await self.collect_jobs([SampleJob(question, 0, 0) for question in pilot])
        if self.folder.plan is None:
            self.plan = replace(self.plan, arms=(*self.plan.arms, *self.plan_forced_arms()), notes=self.plan_notes())
        await self.collect_jobs(
            [SampleJob(question, arm, 0) for question in pilot for arm in range(len(self.plan.arms))]
        )
        self._check_pilot()
        spends = {
            arm: [sample.spend for job, sample in self.samples.items() if job.arm == arm]
            for arm in range(len(self.plan.arms))
        }
        each = cost_per_question(self.plan, spends)
        self.plan = replace(
            self.plan, questions=affordable_questions(self.plan, each, len(self.questions), self.ceiling)
        )
        self.folder.save_plan(self.plan)
        collected = len({task for task, _ in self.folder.journal.recorded} | set(map(self.job_name, self.samples)))
        return estimate_sweep(
            self.plan,
            each,
            collected,
            self.driver.ledger.spent,
            available=len(self.questions),
            concurrency=self.concurrency,
            pilot=len(self.samples),
        )

    async def collect(self, on_progress: OnSweepProgress = lambda *_: None) -> Path:
        """Collect the missing samples, question by question, and write the rollouts; returns the folder.

        Every sample is on disk at once, so a killed sweep resumes where it was. A ceiling that is reached ends it
        early.
        """
        jobs = [
            SampleJob(question, arm, number)
            for question in range(self.plan.questions)
            for arm, settings in enumerate(self.plan.arms)
            for number in range(settings.draws)
        ]
        await self.collect_jobs(jobs, lambda: on_progress(len(self.samples), len(jobs), self.driver.ledger.spent))
        rows: dict[int, list[dict[str, Any]]] = {arm: [] for arm in range(len(self.plan.arms))}
        for job in sorted(self.samples, key=lambda job: (job.question, job.number)):
            rows[job.arm].append(self.samples[job].row)
        self.folder.write_samples(rows, self.questions[: self.plan.questions], self.options.policy)
        return self.folder.path

    async def collect_jobs(self, jobs: Sequence[SampleJob], on_sample: Callable[[], None] = lambda: None) -> None:
        """Collect those of the jobs that have no sample yet, in parallel."""
        waiting = iter([job for job in jobs if job not in self.samples])
        on_sample()
        await gather_or_cancel(self._work(waiting, on_sample) for _ in range(self.concurrency))

    async def _work(self, waiting: Iterator[SampleJob], on_sample: Callable[[], None]) -> None:
        for job in waiting:
            if self.budget_exhausted:
                return
            question, arm = self.questions[job.question], self.plan.arms[job.arm]
            task = self.options.policy.task(question.prompt, name=self.job_name(job), seed=self.options.seed)
            result = await self.driver.solve(arm.strategy, task)
            if self.was_cut_short(result):
                self.budget_exhausted = True
            elif result.answer.chosen is None or result.answer.stopped == "budget":  # no complete reply
                self._count_failure(result)
            else:
                self._failed = 0
                self.samples[job] = SweepSample.from_result(question, job.number, arm.name, result)
            on_sample()

    def job_name(self, job: SampleJob) -> str:
        """Return the name of a job's task in the journal."""
        return f"{self.questions[job.question].name} | {self.plan.arms[job.arm].name} | {job.number}"

    def was_cut_short(self, result: SolveResult) -> bool:
        """Say whether the ceiling refused or shortened a sample: it does not compare with the others."""
        if self.ceiling is None:
            return result.budget_exhausted
        cut = result.answer.chosen is not None and result.answer.chosen.finish == "length"
        left = self.ceiling - self.driver.ledger.spent.output_tokens
        return result.budget_exhausted or (cut and left < self.options.policy.sampling.max_tokens)

    def _count_failure(self, result: SolveResult) -> None:
        error = result.last_error or ServerError("The server sent nothing.", "Look at its log.")
        if error.fatal:
            raise error
        self._failed += 1
        if self._failed >= MAX_FAILURES_IN_A_ROW:
            raise ServerError(
                f"{self._failed} samples in a row failed, the last because: {error.problem}",
                f"Mend the server, then run the same command again: what arrived is kept in {self.folder.path}.",
            )

    def _check_pilot(self) -> None:
        if self.budget_exhausted:
            raise SettingsError("The ceiling was reached before every arm had one sample.", "Raise --budget-tokens.")
        if len({job.arm for job in self.samples}) < len(self.plan.arms):
            raise ServerError(
                "The pilot did not get a sample of every arm.",
                "Look at the server's log, then run the same command again.",
            )

    def plan_forced_arms(self) -> tuple[Arm, ...]:
        """Return the arms with forced thinking; the pilot shows whether the model marks its thinking."""
        if self.plan_notes():
            return ()
        budgets, plain = self.options.budgets, [sample for job, sample in self.samples.items() if job.arm == 0]
        if budgets is None:
            natural = sum(sample.thinking_tokens for sample in plain) / max(1, len(plain))
            budgets = usual_budgets(natural, self.options.policy.sampling.max_tokens)
        thinking = Thinking() if any(sample.has_reasoning for sample in plain) else UNMARKED_THINKING
        return forced_arms(budgets, thinking, self.options.draws)

    def plan_notes(self) -> tuple[str, ...]:
        """Return why thinking is not forced, where it is not."""
        if self.options.budgets == ():
            return ("Thinking was not forced, as asked: only widths were measured.",)
        if "prefix" not in self.driver.sampler.offers:
            return (
                (
                    "This server cannot continue a given prefix of a reply, so thinking could not be forced to a"
                    " budget: only widths were measured."
                ),
            )
        return ()
