"""The sweep behind ``breadth tune``: plain draws and forced thinking budgets on the same questions, with its cost estimated first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from breadth.base.errors import ServerError, SettingsError
from breadth.inference.budget import Budget, Spend
from breadth.inference.sweep_plan import Arm, SweepPlan, check_budgets, forced_arms, plain_arm, usual_budgets
from breadth.inference.thinking import UNMARKED_THINKING, Thinking
from breadth.runtime.driver import Driver, SolveResult
from breadth.runtime.ledger import Ledger
from breadth.runtime.questions import Question, hash_questions, shuffle_questions
from breadth.runtime.sampler import Sampler
from breadth.runtime.solve_context import gather_or_cancel
from breadth.runtime.sweep_folder import SweepFolder, SweepOptions, sample_row

CEILING_MARGIN = 0.9
"""Share of a ceiling that is planned with: a pilot of a few questions errs by some tenths."""


@dataclass(frozen=True)
class SweepEstimate:
    """What is still to be drawn, and about what it takes."""

    questions: int
    """Questions of the sweep."""
    available: int
    """Questions in the file."""
    samples: int
    """Samples of the whole sweep."""
    collected: int
    """Of those, drawn already: the pilot, or an earlier attempt."""
    remaining: Spend
    """What the others will use; seconds on the clock, with all streams busy."""
    spent: Spend
    """What has been used so far."""
    pilot: int
    """Samples it was told from."""


def cost_per_question(plan: SweepPlan, pilot: Mapping[int, Sequence[Spend]]) -> Spend:
    """Return what one question will use over all arms, by the mean of each arm's pilot samples."""
    parts = [
        _scaled(sum(samples, Spend()), plan.arms[arm].draws / len(samples)) for arm, samples in pilot.items() if samples
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
            f"Raise --budget-tokens to {int(12 * each.output_tokens / CEILING_MARGIN):,} or more, or try fewer --widths and"
            " --budgets.",
        )
    return number


def estimate_sweep(
    plan: SweepPlan, each: Spend, collected: int, spent: Spend, *, available: int, concurrency: int, pilot: int
) -> SweepEstimate:
    """Sum up: what the samples that are missing will use, at the pilot's rates."""
    samples = plan.questions * plan.samples_each
    missing = max(0, samples - collected) / plan.samples_each
    coming = _scaled(each, missing)
    streams = max(1, min(concurrency, samples - collected))
    clock = Spend(
        coming.calls,
        coming.input_tokens,
        coming.cached_tokens,
        coming.output_tokens,
        coming.seconds / streams,
        coming.money,
    )
    return SweepEstimate(plan.questions, available, samples, min(collected, samples), clock, spent, pilot)


def _scaled(spend: Spend, factor: float) -> Spend:
    return Spend(
        round(spend.calls * factor),
        round(spend.input_tokens * factor),
        round(spend.cached_tokens * factor),
        round(spend.output_tokens * factor),
        spend.seconds * factor,
        spend.money * factor,
    )


SAMPLE_CONCURRENCY = 8
"""Samples drawn side by side unless told otherwise: the slots a small llama.cpp server is usually given."""
PILOT_QUESTIONS = 3
"""Questions of the pilot: one sample of each at every arm, which the sweep keeps."""
MAX_FAILURES_IN_A_ROW = 8
"""Samples in a row that may fail before the sweep gives the server up."""

OnSweepProgress = Callable[[int, int, Spend], None]
"""Told after each sample: how many are there, how many there will be, what all of it has used."""


@dataclass(frozen=True)
class SampleJob:
    """One sample to be drawn."""

    question: int
    """Place of the question in the random order."""
    arm: int
    """Place of the arm in the plan."""
    number: int
    """Which of the arm's samples of the question."""


@dataclass(frozen=True)
class SweepSample:
    """One sample that is there."""

    row: dict[str, Any]
    """Its rollout."""
    spend: Spend
    """What it used."""
    has_reasoning: bool
    """Whether the server set its thinking apart."""
    thinking_tokens: int
    """Tokens of its thinking, or of all of it where thinking is not told apart."""

    @classmethod
    def from_result(cls, question: Question, number: int, label: str, solved: SolveResult) -> SweepSample:
        """Sum up a sample that has a reply."""
        chosen = solved.answer.chosen
        assert chosen is not None  # noqa: S101 - the caller has looked
        thought = chosen.thinking_tokens or solved.spend.output_tokens
        return cls(sample_row(question, number, label, solved), solved.spend, bool(chosen.reasoning), thought)


class Sweep:
    """Draws a sweep: first `begin`, which needs a few samples to plan and to tell what the rest will cost, then `collect`."""

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
        """The questions in random order."""
        self.options = options
        """What is wanted."""
        self.ceiling = ceiling
        """Output tokens at most, those of earlier attempts included; None for no ceiling."""
        self.concurrency = concurrency
        """Samples drawn side by side."""
        if options.budgets is not None:
            check_budgets(options.budgets, options.policy.sampling.max_tokens)
        self.folder = SweepFolder(folder, options, hash_questions(questions))
        """Where it is kept."""
        self.driver = Driver(
            sampler, Ledger(Budget(output_tokens=ceiling), options.policy.prices), journal=self.folder.journal
        )
        """What draws."""
        self.plan = self.folder.plan or SweepPlan(
            options.policy, (plain_arm(options.widths),), options.widths, seed=options.seed
        )
        """What is measured; only the plain arm before `begin`."""
        self.samples: dict[SampleJob, SweepSample] = {}
        """What is there."""
        self.budget_exhausted = False
        """Whether the ceiling ended the sweep."""
        self._failed = 0

    async def run_pilot(self) -> SweepEstimate:
        """Draw the pilot, make the plan, and say what the sweep will cost; everything drawn is part of it."""
        pilot = range(min(PILOT_QUESTIONS, len(self.questions)))
        await self._draw([SampleJob(question, 0, 0) for question in pilot])
        if self.folder.plan is None:
            self.plan = replace(self.plan, arms=(*self.plan.arms, *self._forced()), notes=self._notes())
        await self._draw([SampleJob(question, arm, 0) for question in pilot for arm in range(len(self.plan.arms))])
        self._require_pilot()
        spends = {
            arm: [sample.spend for job, sample in self.samples.items() if job.arm == arm]
            for arm in range(len(self.plan.arms))
        }
        each = cost_per_question(self.plan, spends)
        self.plan = replace(
            self.plan, questions=affordable_questions(self.plan, each, len(self.questions), self.ceiling)
        )
        self.folder.save_plan(self.plan)
        drawn = len({event for event, _ in self.folder.journal.recorded} | set(map(self._name, self.samples)))
        about = {"of": len(self.questions), "at_once": self.concurrency, "pilot": len(self.samples)}
        return estimate_sweep(self.plan, each, drawn, self.driver.ledger.spent, **about)

    async def collect(self, on_progress: OnSweepProgress = lambda *_: None) -> Path:
        """Draw what is missing, question by question, and write the rollouts; returns the folder.

        What arrived is on disk at once, so a sweep that is killed goes on from there. A ceiling that is reached ends it
        early.
        """
        jobs = [
            SampleJob(question, arm, number)
            for question in range(self.plan.questions)
            for arm, settings in enumerate(self.plan.arms)
            for number in range(settings.draws)
        ]
        await self._draw(jobs, lambda: on_progress(len(self.samples), len(jobs), self.driver.ledger.spent))
        rows: dict[int, list[dict[str, Any]]] = {arm: [] for arm in range(len(self.plan.arms))}
        for job in sorted(self.samples, key=lambda job: (job.question, job.number)):
            rows[job.arm].append(self.samples[job].row)
        self.folder.write_samples(rows, self.questions[: self.plan.questions], self.options.policy)
        return self.folder.path

    async def _draw(self, jobs: Sequence[SampleJob], told: Callable[[], None] = lambda: None) -> None:
        waiting = iter([job for job in jobs if job not in self.samples])
        told()
        await gather_or_cancel(self._work(waiting, told) for _ in range(self.concurrency))

    async def _work(self, waiting: Iterator[SampleJob], told: Callable[[], None]) -> None:
        for job in waiting:
            if self.budget_exhausted:
                return
            question, arm = self.questions[job.question], self.plan.arms[job.arm]
            task = self.options.policy.task(question.prompt, name=self._name(job), seed=self.options.seed)
            solved = await self.driver.solve(arm.strategy, task)
            if self._cut_short(solved):
                self.budget_exhausted = True
            elif (
                solved.answer.chosen is None or solved.answer.stopped == "budget"
            ):  # it broke off before its reply was complete
                self._count_failure(solved)
            else:
                self._failed = 0
                self.samples[job] = SweepSample.from_result(question, job.number, arm.name, solved)
            told()

    def _name(self, job: SampleJob) -> str:
        return f"{self.questions[job.question].name} | {self.plan.arms[job.arm].name} | {job.number}"

    def _cut_short(self, solved: SolveResult) -> bool:
        """Say whether the ceiling refused or shortened a draw: such a sample is not like the others."""
        if self.ceiling is None:
            return solved.budget_exhausted
        cut = solved.answer.chosen is not None and solved.answer.chosen.finish == "length"
        left = self.ceiling - self.driver.ledger.spent.output_tokens
        return solved.budget_exhausted or (cut and left < self.options.policy.sampling.max_tokens)

    def _count_failure(self, solved: SolveResult) -> None:
        error = solved.last_error or ServerError("The server sent nothing.", "Look at its log.")
        if error.fatal:
            raise error
        self._failed += 1
        if self._failed >= MAX_FAILURES_IN_A_ROW:
            raise ServerError(
                f"{self._failed} samples in a row failed, the last because: {error.problem}",
                f"Mend the server, then run the same command again: what arrived is kept in {self.folder.path}.",
            )

    def _require_pilot(self) -> None:
        if self.budget_exhausted:
            raise SettingsError("The ceiling was reached before every arm had one sample.", "Raise --budget-tokens.")
        if len({job.arm for job in self.samples}) < len(self.plan.arms):
            raise ServerError(
                "The pilot did not get a sample of every arm.",
                "Look at the server's log, then run the same command again.",
            )

    def _forced(self) -> tuple[Arm, ...]:
        """Return the arms with forced thinking, for a model that marks its thinking or one that does not, as the pilot shows."""
        if self._notes():
            return ()
        wanted, plain = self.options.budgets, [sample for job, sample in self.samples.items() if job.arm == 0]
        if wanted is None:
            natural = sum(sample.thinking_tokens for sample in plain) / max(1, len(plain))
            wanted = usual_budgets(natural, self.options.policy.sampling.max_tokens)
        thinking = Thinking() if any(sample.has_reasoning for sample in plain) else UNMARKED_THINKING
        return forced_arms(wanted, thinking, self.options.draws)

    def _notes(self) -> tuple[str, ...]:
        if self.options.budgets == ():
            return ("Thinking was not forced, as asked: only widths were measured.",)
        if "prefix" not in self.driver.sampler.offers:
            return (
                (
                    "This server cannot continue a reply that is begun for it, so thinking could not be forced to a"
                    " budget: only widths were measured."
                ),
            )
        return ()
