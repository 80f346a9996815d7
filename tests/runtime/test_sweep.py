"""The sweep: every sample once, the same after a kill, within its ceiling, and honest about what a server lacks."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from breadth.base.errors import ServerError, SettingsError
from breadth.inference.policy import Policy
from breadth.inference.records import Candidate, Prices, Sampling, Spend
from breadth.inference.sweep_plan import SweepPlan, forced_arms, plain_arm
from breadth.inference.thinking import UNMARKED_THINKING
from breadth.runs.reader import Run
from breadth.runtime.questions import Question
from breadth.runtime.recording import SweepOptions
from breadth.runtime.sampler import Meter, SampleRequest
from breadth.runtime.sweep import Sweep, affordable_questions, cost_per_question, estimate_sweep
from breadth.testing.strategies import HumpModel

PLAN = SweepPlan(Policy(), (plain_arm((1, 8)), *forced_arms([64], UNMARKED_THINKING, 2)), (1, 8), 10)
PILOT = {0: [Spend(1, 10, 0, 20, 1.0, 0.1), Spend(1, 10, 4, 40, 3.0, 0.3)], 1: [Spend(3, 90, 0, 70, 5.0, 0.5)]}


def test_one_question_takes_each_arm_s_mean_times_its_draws() -> None:
    # Plain: 8 x (1, 10, 2, 30, 2 s, 0.2); forced: 2 x (3, 90, 0, 70, 5 s, 0.5).
    each = cost_per_question(PLAN, PILOT)
    assert (each.calls, each.input_tokens, each.cached_tokens, each.output_tokens) == (8 + 6, 80 + 180, 16, 240 + 140)
    assert (each.seconds, each.money) == pytest.approx((16.0 + 10.0, 1.6 + 1.0))


def test_what_is_missing_is_scaled_and_shared_over_streams() -> None:
    told = estimate_sweep(PLAN, cost_per_question(PLAN, PILOT), 50, Spend(3), available=12, concurrency=4, pilot=3)
    # 100 samples of which 50 are there: five questions' worth; 26 s each over four streams.
    assert (told.samples, told.collected, told.questions, told.available) == (100, 50, 10, 12)
    assert told.remaining.output_tokens == 5 * 380
    assert told.remaining.calls == 70
    assert told.remaining.seconds == pytest.approx(5 * 26 / 4)
    assert told.spent == Spend(3)


def test_nothing_is_to_come_when_all_is_there() -> None:
    assert (
        estimate_sweep(
            PLAN, cost_per_question(PLAN, PILOT), 100, Spend(), available=10, concurrency=4, pilot=3
        ).remaining
        == Spend()
    )
    # More may be there from an attempt with a higher ceiling: of these 100 samples it is all.
    assert (
        estimate_sweep(
            PLAN, cost_per_question(PLAN, PILOT), 160, Spend(), available=10, concurrency=4, pilot=3
        ).collected
        == 100
    )


def test_a_ceiling_pays_for_nine_tenths_of_itself() -> None:
    each = Spend(output_tokens=100)
    assert affordable_questions(PLAN, each, 50, 2000) == 18
    assert affordable_questions(PLAN, each, 10, 2000) == 10
    assert affordable_questions(PLAN, each, 50, None) == 50
    with pytest.raises(SettingsError, match="about 100"):
        affordable_questions(PLAN, each, 50, 300)


TRUTHS = {f"What is {number} + 1?": str(number + 1) for number in range(6)}
QUESTIONS = [Question(f"q{place}", text, answer) for place, (text, answer) in enumerate(TRUTHS.items())]
WISHES = SweepOptions(Policy(sampling=Sampling(max_tokens=256)), (1, 3), (16, 64), 2)
STEADY = "SELECT * EXCLUDE (extra) REPLACE (split AS split) FROM rollouts ORDER BY step, problem, sample"


def model(**settings: Any) -> HumpModel:
    return HumpModel(lambda words: 0.2 if words < 40 else 0.8, TRUTHS, **settings)


def swept(sampler: Any, folder: Path, wishes: SweepOptions = WISHES, **settings: Any) -> Sweep:
    async def main() -> Sweep:
        sweep = Sweep(sampler, QUESTIONS, wishes, folder, **settings)
        await sweep.run_pilot()
        await sweep.collect()
        return sweep

    return asyncio.run(main())


def rows(folder: Path) -> list[dict[str, Any]]:
    return list(Run.open(folder).query(STEADY).to_pylist())


def test_every_sample_of_every_arm_is_a_rollout(tmp_path: Path) -> None:
    sweep = swept(model(), tmp_path / "run")
    run = Run.open(tmp_path / "run")
    counts = run.query(
        "SELECT step, count(*) AS samples, min(tokens) AS least, max(tokens) AS most FROM rollouts GROUP BY step ORDER"
        " BY step"
    )
    # Plain: 32 words and 4 tokens of answer. Forced: the budget and the answer.
    assert counts.to_pylist() == [
        {"step": 0, "samples": 18, "least": 36, "most": 36},
        {"step": 1, "samples": 12, "least": 20, "most": 20},
        {"step": 2, "samples": 12, "least": 68, "most": 68},
    ]
    right = {
        row["step"]: row["right"]
        for row in run.query("SELECT step, avg(CAST(correct AS INT)) AS right FROM rollouts GROUP BY step").to_pylist()
    }
    assert right[2] > right[1]
    assert sweep.driver.ledger.spent.output_tokens == 18 * 36 + 12 * 20 + 12 * 68
    assert dict(zip(*run.query("SELECT problem, reference FROM problems").to_pydict().values(), strict=True)) == {
        q.name: q.reference for q in QUESTIONS
    }


def test_the_estimate_comes_true(tmp_path: Path) -> None:
    async def main() -> None:
        wishes = SweepOptions(Policy(sampling=Sampling(max_tokens=256), prices=Prices(output=1e6)), (1, 3), (16, 64), 2)
        sweep = Sweep(model(), QUESTIONS, wishes, tmp_path / "run")
        told = await sweep.run_pilot()
        before = sweep.driver.ledger.spent
        await sweep.collect()
        after = sweep.driver.ledger.spent
        assert (told.questions, told.available, told.samples, told.collected, told.pilot) == (6, 6, 42, 9, 9)
        assert told.spent == before
        # Five sixths of the arms are alike in tokens here, so the mean of a pilot errs only by which arms it drew
        # already.
        assert told.remaining.output_tokens == pytest.approx(after.output_tokens - before.output_tokens, rel=0.15)
        assert told.remaining.money == pytest.approx(told.remaining.output_tokens, rel=0.01)

    asyncio.run(main())


def test_budgets_are_chosen_by_what_the_model_writes(tmp_path: Path) -> None:
    wishes = SweepOptions(Policy(sampling=Sampling(max_tokens=256)), (1, 2), None, 1)
    sweep = swept(model(), tmp_path / "run", wishes)
    # 36 tokens by itself: 18, 36, 72, 144 are nearest to 16, 32, 64, 128.
    assert [arm.budget for arm in sweep.plan.serial] == [16, 32, 64, 128]


def test_progress_is_told_up_to_the_end(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []

    def told(done: int, total: int, spent: Spend) -> None:
        seen.append((done, total))

    async def main() -> None:
        sweep = Sweep(model(), QUESTIONS, WISHES, tmp_path / "run")
        await sweep.run_pilot()
        await sweep.collect(told)

    asyncio.run(main())
    assert seen[0] == (9, 42)
    assert seen[-1] == (42, 42)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


KILLED = """
import asyncio, os, sys
from pathlib import Path
sys.path.insert(0, {here!r})
from test_sweep import QUESTIONS, WISHES, model
from breadth.runtime.sweep import Sweep

class Doomed:
    offers = model().offers
    inner = model()
    async def sample(self, request, meter):
        if len(self.inner.drawn) >= {after}:
            os._exit(9)
        return await self.inner.sample(request, meter)

async def main():
    sweep = Sweep(Doomed(), QUESTIONS, WISHES, Path({folder!r}))
    await sweep.run_pilot()
    await sweep.collect()

asyncio.run(main())
"""


@pytest.mark.parametrize("after", [2, 14, 60])
def test_a_killed_sweep_goes_on_and_ends_as_if_nothing_had_happened(tmp_path: Path, after: int) -> None:
    script = KILLED.format(here=str(Path(__file__).parent), after=after, folder=str(tmp_path / "killed"))
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).returncode == 9
    whole = model()
    straight = swept(whole, tmp_path / "whole")
    rest = model()
    resumed = swept(rest, tmp_path / "killed")
    assert rows(tmp_path / "killed") == rows(tmp_path / "whole")
    assert resumed.plan == straight.plan
    assert len(rest.drawn) == len(whole.drawn) - after
    assert resumed.driver.ledger.spent.output_tokens == straight.driver.ledger.spent.output_tokens


def test_a_finished_sweep_draws_nothing_more_and_changes_nothing(tmp_path: Path) -> None:
    swept(model(), tmp_path / "run")
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "run" / "rollouts").iterdir()}
    again = model()
    swept(again, tmp_path / "run")
    assert again.drawn == []
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "run" / "rollouts").iterdir()} == before


def test_a_ceiling_is_kept_and_asks_fewer_questions_whole(tmp_path: Path) -> None:
    # A question takes 3 x 36 + 2 x 20 + 2 x 68 = 284 tokens; nine tenths of 1,000 pay for three.
    sweep = swept(model(), tmp_path / "run", ceiling=1000)
    assert sweep.plan.questions == 3
    assert sweep.driver.ledger.spent.output_tokens <= 1000
    assert len(rows(tmp_path / "run")) == 3 * 7


def test_a_ceiling_that_pays_for_nothing_is_refused_with_what_it_takes(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="not even three questions") as caught:
        swept(model(), tmp_path / "run", ceiling=800)
    assert "--budget-tokens" in caught.value.remedy
    with pytest.raises(SettingsError, match="ceiling was reached"):
        swept(model(), tmp_path / "other", ceiling=100)


def test_a_raised_ceiling_goes_on_with_more_questions(tmp_path: Path) -> None:
    swept(model(), tmp_path / "run", ceiling=1000)
    more = swept(model(), tmp_path / "run", ceiling=2000)
    assert more.plan.questions == 6
    assert rows(tmp_path / "run") == rows(swept(model(), tmp_path / "whole").folder.path)


def test_without_prefixes_only_widths_are_measured_and_that_is_said(tmp_path: Path) -> None:
    sweep = swept(model(offers=frozenset({"seed"})), tmp_path / "run")
    assert [arm.name for arm in sweep.plan.arms] == ["as it comes"]
    assert "cannot continue a given prefix of a reply" in sweep.plan.notes[0]


def test_budgets_may_be_left_out(tmp_path: Path) -> None:
    sweep = swept(model(), tmp_path / "run", SweepOptions(WISHES.policy, (1, 3), ()))
    assert len(sweep.plan.arms) == 1
    assert "as asked" in sweep.plan.notes[0]


class Failing:
    """Fails with an error, from the first draw or from a later one on."""

    offers = frozenset({"prefix"})

    def __init__(self, error: ServerError, after: int = 0) -> None:
        self.error, self.after, self.inner = error, after, model()

    async def sample(self, request: SampleRequest, meter: Meter) -> Candidate:
        if len(self.inner.drawn) >= self.after:
            raise self.error
        return await self.inner.sample(request, meter)

    async def close(self) -> None: ...


def test_a_fatal_error_ends_the_sweep_at_once(tmp_path: Path) -> None:
    with pytest.raises(ServerError, match="no such model"):
        swept(Failing(ServerError("no such model", "look", fatal=True)), tmp_path / "run")


def test_a_server_that_goes_down_ends_the_sweep_and_what_failed_is_drawn_when_it_is_back(tmp_path: Path) -> None:
    with pytest.raises(ServerError, match="in a row failed, the last because: out of memory") as caught:
        swept(Failing(ServerError("out of memory", "look"), after=50), tmp_path / "run")
    assert "run the same command again" in caught.value.remedy
    swept(model(), tmp_path / "run")
    assert rows(tmp_path / "run") == rows(swept(model(), tmp_path / "whole").folder.path)


def test_a_budget_without_room_is_refused_before_anything_is_drawn(tmp_path: Path) -> None:
    sampler = model()
    with pytest.raises(SettingsError, match="budget of 250"):
        swept(sampler, tmp_path / "run", SweepOptions(WISHES.policy, (1,), (250,)))
    assert sampler.drawn == []
