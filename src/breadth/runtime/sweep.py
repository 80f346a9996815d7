"""The sweep behind ``breadth tune``: plain draws and forced thinking budgets on the same questions, with its cost estimated first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from breadth.base.errors import ServerError, SettingsError
from breadth.inference.budget import Budget, Spend
from breadth.inference.sweep_plan import Arm, SweepPlan, checked_budgets, forced_arms, plain_arm, usual_budgets
from breadth.inference.thinking import PLAIN, Thinking
from breadth.runtime.driver import Driver, Solved
from breadth.runtime.ledger import Ledger
from breadth.runtime.questions import Question, digest, drawn_order
from breadth.runtime.sampler import Sampler
from breadth.runtime.solve_context import together
from breadth.runtime.sweep_folder import SweepFolder, Wishes, sample_row

MARGIN = 0.9
"""Share of a ceiling that is planned with: a pilot of a few questions errs by some tenths."""


@dataclass(frozen=True)
class Estimate:
    """What is still to be drawn, and about what it takes."""

    questions: int
    """Questions of the sweep."""
    of: int
    """Questions in the file."""
    samples: int
    """Samples of the whole sweep."""
    drawn: int
    """Of those, drawn already: the pilot, or an earlier attempt."""
    coming: Spend
    """What the others will use; seconds on the clock, with all streams busy."""
    spent: Spend
    """What has been used so far."""
    pilot: int
    """Samples it was told from."""


def needed(plan: SweepPlan, pilot: Mapping[int, Sequence[Spend]]) -> Spend:
    """Return what one question will use over all arms, by the mean of each arm's pilot samples."""
    parts = [
        _scaled(sum(samples, Spend()), plan.arms[arm].draws / len(samples)) for arm, samples in pilot.items() if samples
    ]
    return sum(parts, Spend())


def affordable(plan: SweepPlan, each: Spend, there: int, ceiling: int | None) -> int:
    """Return how many questions the ceiling on output tokens pays for; refuse one that pays for fewer than three."""
    if ceiling is None or each.output_tokens == 0:
        return there
    number = min(there, int(MARGIN * ceiling / each.output_tokens))
    if number < min(3, there):
        raise SettingsError(
            f"The ceiling is {ceiling:,} output tokens, but one question takes about {each.output_tokens:,} "
            f"({plan.samples_each} samples): that is not even three questions.",
            f"Raise --budget-tokens to {int(12 * each.output_tokens / MARGIN):,} or more, or try fewer --widths and"
            " --budgets.",
        )
    return number


def estimate(plan: SweepPlan, each: Spend, drawn: int, spent: Spend, *, of: int, at_once: int, pilot: int) -> Estimate:
    """Sum up: what the samples that are missing will use, at the pilot's rates."""
    samples = plan.questions * plan.samples_each
    missing = max(0, samples - drawn) / plan.samples_each
    coming = _scaled(each, missing)
    streams = max(1, min(at_once, samples - drawn))
    clock = Spend(
        coming.calls,
        coming.input_tokens,
        coming.cached_tokens,
        coming.output_tokens,
        coming.seconds / streams,
        coming.money,
    )
    return Estimate(plan.questions, of, samples, min(drawn, samples), clock, spent, pilot)


def _scaled(spend: Spend, factor: float) -> Spend:
    return Spend(
        round(spend.calls * factor),
        round(spend.input_tokens * factor),
        round(spend.cached_tokens * factor),
        round(spend.output_tokens * factor),
        spend.seconds * factor,
        spend.money * factor,
    )


AT_ONCE = 8
"""Samples drawn side by side unless told otherwise: the slots a small llama.cpp server is usually given."""
PILOT = 3
"""Questions of the pilot: one sample of each at every arm, which the sweep keeps."""
PATIENCE = 8
"""Samples in a row that may fail before the sweep gives the server up."""

Told = Callable[[int, int, Spend], None]
"""Told after each sample: how many are there, how many there will be, what all of it has used."""


@dataclass(frozen=True)
class Job:
    """One sample to be drawn."""

    question: int
    """Place of the question in the random order."""
    arm: int
    """Place of the arm in the plan."""
    number: int
    """Which of the arm's samples of the question."""


@dataclass(frozen=True)
class Sample:
    """One sample that is there."""

    row: dict[str, Any]
    """Its rollout."""
    spend: Spend
    """What it used."""
    reasoned: bool
    """Whether the server set its thinking apart."""
    thought: int
    """Tokens of its thinking, or of all of it where thinking is not told apart."""

    @classmethod
    def of(cls, question: Question, number: int, label: str, solved: Solved) -> Sample:
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
        wishes: Wishes,
        folder: Path,
        *,
        ceiling: int | None = None,
        at_once: int = AT_ONCE,
    ) -> None:
        self.questions = drawn_order(questions, wishes.seed)
        """The questions in random order."""
        self.wishes = wishes
        """What is wanted."""
        self.ceiling = ceiling
        """Output tokens at most, those of earlier attempts included; None for no ceiling."""
        self.at_once = at_once
        """Samples drawn side by side."""
        if wishes.budgets is not None:
            checked_budgets(wishes.budgets, wishes.policy.sampling.max_tokens)
        self.folder = SweepFolder(folder, wishes, digest(questions))
        """Where it is kept."""
        self.driver = Driver(
            sampler, Ledger(Budget(output_tokens=ceiling), wishes.policy.prices), journal=self.folder.journal
        )
        """What draws."""
        self.plan = self.folder.plan or SweepPlan(
            wishes.policy, (plain_arm(wishes.widths),), wishes.widths, seed=wishes.seed
        )
        """What is measured; only the plain arm before `begin`."""
        self.samples: dict[Job, Sample] = {}
        """What is there."""
        self.spent = False
        """Whether the ceiling ended the sweep."""
        self._failed = 0

    async def begin(self) -> Estimate:
        """Draw the pilot, make the plan, and say what the sweep will cost; everything drawn is part of it."""
        pilot = range(min(PILOT, len(self.questions)))
        await self._draw([Job(question, 0, 0) for question in pilot])
        if self.folder.plan is None:
            self.plan = replace(self.plan, arms=(*self.plan.arms, *self._forced()), notes=self._notes())
        await self._draw([Job(question, arm, 0) for question in pilot for arm in range(len(self.plan.arms))])
        self._require_pilot()
        spends = {
            arm: [sample.spend for job, sample in self.samples.items() if job.arm == arm]
            for arm in range(len(self.plan.arms))
        }
        each = needed(self.plan, spends)
        self.plan = replace(self.plan, questions=affordable(self.plan, each, len(self.questions), self.ceiling))
        self.folder.keep(self.plan)
        drawn = len({event for event, _ in self.folder.journal.recorded} | set(map(self._name, self.samples)))
        about = {"of": len(self.questions), "at_once": self.at_once, "pilot": len(self.samples)}
        return estimate(self.plan, each, drawn, self.driver.ledger.spent, **about)

    async def collect(self, told: Told = lambda *_: None) -> Path:
        """Draw what is missing, question by question, and write the rollouts; returns the folder.

        What arrived is on disk at once, so a sweep that is killed goes on from there. A ceiling that is reached ends it
        early.
        """
        jobs = [
            Job(question, arm, number)
            for question in range(self.plan.questions)
            for arm, settings in enumerate(self.plan.arms)
            for number in range(settings.draws)
        ]
        await self._draw(jobs, lambda: told(len(self.samples), len(jobs), self.driver.ledger.spent))
        rows: dict[int, list[dict[str, Any]]] = {arm: [] for arm in range(len(self.plan.arms))}
        for job in sorted(self.samples, key=lambda job: (job.question, job.number)):
            rows[job.arm].append(self.samples[job].row)
        self.folder.write(rows, self.questions[: self.plan.questions], self.wishes.policy)
        return self.folder.path

    async def _draw(self, jobs: Sequence[Job], told: Callable[[], None] = lambda: None) -> None:
        waiting = iter([job for job in jobs if job not in self.samples])
        told()
        await together(self._work(waiting, told) for _ in range(self.at_once))

    async def _work(self, waiting: Iterator[Job], told: Callable[[], None]) -> None:
        for job in waiting:
            if self.spent:
                return
            question, arm = self.questions[job.question], self.plan.arms[job.arm]
            task = self.wishes.policy.task(question.prompt, name=self._name(job), seed=self.wishes.seed)
            solved = await self.driver.solve(arm.strategy, task)
            if self._cut_short(solved):
                self.spent = True
            elif (
                solved.answer.chosen is None or solved.answer.stopped == "budget"
            ):  # it broke off before its reply was complete
                self._count_failure(solved)
            else:
                self._failed = 0
                self.samples[job] = Sample.of(question, job.number, arm.name, solved)
            told()

    def _name(self, job: Job) -> str:
        return f"{self.questions[job.question].name} | {self.plan.arms[job.arm].name} | {job.number}"

    def _cut_short(self, solved: Solved) -> bool:
        """Say whether the ceiling refused or shortened a draw: such a sample is not like the others."""
        if self.ceiling is None:
            return solved.spent
        cut = solved.answer.chosen is not None and solved.answer.chosen.finish == "length"
        left = self.ceiling - self.driver.ledger.spent.output_tokens
        return solved.spent or (cut and left < self.wishes.policy.sampling.max_tokens)

    def _count_failure(self, solved: Solved) -> None:
        error = solved.last_error or ServerError("The server sent nothing.", "Look at its log.")
        if error.fatal:
            raise error
        self._failed += 1
        if self._failed >= PATIENCE:
            raise ServerError(
                f"{self._failed} samples in a row failed, the last because: {error.problem}",
                f"Mend the server, then run the same command again: what arrived is kept in {self.folder.path}.",
            )

    def _require_pilot(self) -> None:
        if self.spent:
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
        wanted, plain = self.wishes.budgets, [sample for job, sample in self.samples.items() if job.arm == 0]
        if wanted is None:
            natural = sum(sample.thought for sample in plain) / max(1, len(plain))
            wanted = usual_budgets(natural, self.wishes.policy.sampling.max_tokens)
        thinking = Thinking() if any(sample.reasoned for sample in plain) else PLAIN
        return forced_arms(wanted, thinking, self.wishes.draws)

    def _notes(self) -> tuple[str, ...]:
        if self.wishes.budgets == ():
            return ("Thinking was not forced, as asked: only widths were measured.",)
        if "prefix" not in self.driver.sampler.offers:
            return (
                (
                    "This server cannot continue a reply that is begun for it, so thinking could not be forced to a"
                    " budget: only widths were measured."
                ),
            )
        return ()
