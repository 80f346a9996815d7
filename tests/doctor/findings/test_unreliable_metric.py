"""A verdict is withdrawn only where something contradicts it, a collapse only where it is clearly absent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from breadth.doctor.diagnosis import diagnose_run
from breadth.doctor.evidence.record import Evidence
from breadth.doctor.finding import CannotTell, Check, Excluded, Finding
from breadth.doctor.findings import entropy_collapse, entropy_explosion
from breadth.doctor.findings.entropy_collapse import FINDING as COLLAPSE
from breadth.doctor.findings.entropy_explosion import FINDING as EXPLOSION
from breadth.doctor.findings.unreliable_metric import (
    FINDING,
    report_interleaved_writers,
    verdicts_invalidated_by,
)
from breadth.doctor.findings.unreliable_metric import FINDING as ARTEFACT
from breadth.measure.trends import Trend, trend
from breadth.report.sections import Severity
from breadth.runs.reader import Run
from breadth.runs.writer import RunWriter
from breadth.testing.findings import check_finding, check_outcome

N = 120
T = np.linspace(0, 1, N)
LATE = np.arange(N) >= 70
RISING = 0.3 + 0.3 * T


def test_it_keeps_the_contract() -> None:
    check_finding(FINDING, "unreliable-metric")


def restarted(
    make: Any, first: Mapping[str, Any], *, at: int = 70, every: int = 1, overlap: Mapping[str, Any] | None = None
) -> Evidence:
    """Return a run that restarts at step ``at``; ``overlap`` is what the first start logged there too."""
    before = {name: np.asarray(values)[:at] for name, values in first.items()}
    made: Evidence = make()
    assert made.run is not None
    writer = RunWriter(made.run.folder)
    for place in range(at):
        writer.metrics(every * (place + 1), {name: float(values[place]) for name, values in before.items()}, attempt=0)
    for place in range(len(next(iter((overlap or {"none": []}).values())))):
        writer.metrics(
            every * (at + place + 1),
            {name: float(values[place]) for name, values in (overlap or {}).items()},
            attempt=0,
        )
    for place in range(at, N):
        writer.metrics(every * (place + 1), {name: float(values[place]) for name, values in first.items()}, attempt=1)
    return Evidence("made", Run.open(made.run.folder))


def seamed(around: Callable[..., Any], times: float, left: float = 0.8) -> dict[str, Any]:
    """Return metrics whose entropy falls to a share and is multiplied by a number behind the seam."""
    entropy = 0.8 * left**T * np.exp(around(0 * T, 0.03)) * np.where(LATE, times, 1.0)
    return {"entropy": entropy, "reward": around(RISING, 0.02, 1), "length": around(300 + 0 * T, 10, 2)}


@pytest.mark.parametrize(("times", "void"), [(0.2, "entropy-collapse"), (4.0, "entropy-explosion")])
def test_a_jump_at_a_restart_takes_the_verdict_that_rests_on_it_back(
    make: Any, around: Callable[..., Any], times: float, void: str
) -> None:
    evidence = restarted(make, seamed(around, times))
    found = FINDING.check(evidence)
    assert isinstance(found, Finding)
    check_outcome(found, "unreliable-metric")
    assert found.invalidates == (void,)
    assert found.severity is Severity.WARNING
    assert "at step 71, where the run was restarted; reward and length did not" in found.headline
    checks: dict[str, Check] = {
        "entropy-collapse": entropy_collapse.FINDING,
        "entropy-explosion": entropy_explosion.FINDING,
        "unreliable-metric": FINDING,
    }
    said = diagnose_run(evidence, checks)
    assert [one.name for one in said.findings] == ["unreliable-metric"]
    assert void in {one.name for one in said.cannot_tell}


def test_a_collapse_that_is_there_without_the_jump_is_never_taken_back(make: Any, around: Callable[..., Any]) -> None:
    evidence = restarted(make, seamed(around, 0.4, left=0.05))
    found = FINDING.check(evidence)
    assert isinstance(found, Finding)
    assert found.invalidates == ()
    assert found.severity is Severity.NOTE
    said = diagnose_run(evidence, {"entropy-collapse": entropy_collapse.FINDING, "unreliable-metric": FINDING})
    assert said.findings[0].name == "entropy-collapse"


def test_a_jump_that_hides_a_collapse_says_so(make: Any, around: Callable[..., Any]) -> None:
    found = FINDING.check(restarted(make, seamed(around, 8.0, left=0.1)))
    assert isinstance(found, Finding)
    assert found.severity is Severity.WARNING
    assert found.cost == "Without the artefact entropy has collapsed: the logged number hides that."


def test_a_restart_without_a_jump_is_nothing(make: Any, around: Callable[..., Any]) -> None:
    assert isinstance(FINDING.check(restarted(make, seamed(around, 1.0))), Excluded)


def test_a_jump_without_a_restart_is_nothing(make: Any, around: Callable[..., Any]) -> None:
    assert isinstance(FINDING.check(make(**seamed(around, 0.2))), Excluded)


def test_a_jump_that_the_reward_shares_is_one_of_the_policy(make: Any, around: Callable[..., Any]) -> None:
    series = seamed(around, 0.2)
    assert isinstance(
        FINDING.check(restarted(make, {**series, "reward": series["reward"] + np.where(LATE, 0.3, 0.0)})), Excluded
    )


def test_a_fall_that_begins_at_a_restart_is_real(make: Any, around: Callable[..., Any]) -> None:
    # Gone within five steps: too fast for a curve, but the first step behind the restart is where the checkpoint was.
    ramp = np.clip((np.arange(N) - 69) / 5, 0, 1)
    series = {**seamed(around, 1.0), "entropy": 0.8 * 0.15**ramp * np.exp(around(0 * T, 0.02))}
    assert isinstance(FINDING.check(restarted(make, series)), Excluded)


def test_where_a_point_stands_for_ten_steps_nothing_is_taken_back(make: Any, around: Callable[..., Any]) -> None:
    found = FINDING.check(restarted(make, seamed(around, 0.2), every=10))
    assert isinstance(found, Finding)
    assert found.invalidates == ()
    assert found.severity is Severity.NOTE


def test_steps_logged_by_both_starts_are_shown(make: Any, around: Callable[..., Any]) -> None:
    series = seamed(around, 0.25)
    lost = {"entropy": 4 * series["entropy"][70:82], "reward": series["reward"][70:82]}
    found = FINDING.check(restarted(make, series, overlap=lost))
    assert isinstance(found, Finding)
    assert found.confidence == "strong"
    twice = next(fact for fact in found.evidence if "logged twice" in fact.name)
    assert twice.value == pytest.approx(0.25)
    assert twice.note == "12 steps"


def test_behind_missing_steps_a_jump_is_a_note_and_a_steady_fall_is_nothing(
    make: Any, around: Callable[..., Any]
) -> None:
    def holed(entropy: Any) -> Evidence:
        made: Evidence = make()
        assert made.run is not None
        writer = RunWriter(made.run.folder)
        for place, step in enumerate([*range(1, 61), *range(161, 221)]):
            writer.metrics(step, {"entropy": float(entropy[place]), "reward": 0.5}, attempt=0)
        return Evidence("made", Run.open(made.run.folder))

    steps = np.array([*range(1, 61), *range(161, 221)])
    jumped = FINDING.check(holed(around(np.where(steps < 100, 0.8, 0.2), 0.01)))
    assert isinstance(jumped, Finding)
    check_outcome(jumped, "unreliable-metric")
    assert (jumped.severity, jumped.invalidates) == (Severity.NOTE, ())
    assert "after 100 missing steps" in jumped.headline
    assert isinstance(FINDING.check(holed(around(0.8 - 0.6 * steps / 220, 0.01))), Excluded)


def test_more_nats_than_a_token_can_have_are_a_sum(make: Any, around: Callable[..., Any]) -> None:
    length = 400 * 0.2**T * np.exp(around(0 * T, 0.05))
    found = FINDING.check(make(entropy=0.3 * length, length=length, reward=RISING))
    assert isinstance(found, Finding)
    check_outcome(found, "unreliable-metric")
    assert (found.confidence, found.invalidates) == ("certain", ("entropy-collapse",))
    # Per token it collapses all the same here: then the verdict stays.
    both = FINDING.check(make(entropy=0.3 * 0.1**T * length, length=length, reward=RISING))
    assert isinstance(both, Finding)
    assert both.invalidates == ()
    # Without a length beside it nothing better is known.
    alone = FINDING.check(make(entropy=0.3 * length, reward=RISING))
    assert isinstance(alone, Finding)
    assert (alone.severity, alone.invalidates) == (Severity.NOTE, ())


def test_the_largest_vocabulary_decides_what_a_token_can_have() -> None:
    assert np.log(262_144) < FINDING.largest < np.log(262_144) + 0.05


def test_short_answers_are_told_by_going_with_the_length(make: Any, around: Callable[..., Any]) -> None:
    length = 20 * 0.2**T * np.exp(around(0 * T, 0.06))
    found = FINDING.check(make(entropy=0.15 * length * np.exp(around(0 * T, 0.02, 1)), length=length, reward=RISING))
    assert isinstance(found, Finding)
    assert found.invalidates == ("entropy-collapse",)
    assert "it is a sum over each sequence" in found.headline


def test_entropy_and_length_that_collapse_together_are_no_sum(make: Any, around: Callable[..., Any]) -> None:
    # In proportion over the run, and not from step to step.
    series = {
        "entropy": 0.5 * 0.1**T * np.exp(around(0 * T, 0.04)),
        "length": 500 * 0.1**T * np.exp(around(0 * T, 0.05, 1)),
    }
    assert isinstance(FINDING.check(make(**series, reward=RISING)), Excluded)


def tokens(
    entropy: Callable[[int], float], length: Callable[[int], int], steps: int = 24
) -> dict[int, dict[str, list[Any]]]:
    """Return rollouts with the entropy of every token, of a mean and a length at each step."""
    rng, rows = np.random.default_rng(0), {}
    for step in range(1, steps + 1):
        own = [rng.exponential(entropy(step), length(step) + number % 3).tolist() for number in range(64)]
        rows[step] = {
            "problem": [f"p{number}" for number in range(64)],
            "entropy": own,
            "tokens": [len(one) for one in own],
        }
    return rows


def counted(rows: Mapping[int, Mapping[str, list[Any]]]) -> Any:
    """Return the mean over all tokens of each step."""
    return np.array([np.concatenate(one["entropy"]).mean() for one in rows.values()])


def test_padding_that_is_averaged_in_is_found_at_its_step(make: Any) -> None:
    rows = tokens(lambda _: 0.5, lambda _: 50)
    padded = counted(rows) * np.where(np.arange(24) >= 12, 0.3, 1.0)
    found = FINDING.check(make(entropy=padded, rollouts=rows))
    assert isinstance(found, Finding)
    check_outcome(found, "unreliable-metric")
    assert (found.confidence, found.severity, found.invalidates) == ("certain", Severity.WARNING, ("entropy-collapse",))
    assert "from 1 to 0.3 times the entropy of the tokens in the rollouts, in one jump at step 13" in found.headline


def test_what_the_tokens_confirm_is_real_even_at_a_restart(make: Any) -> None:
    rows = tokens(lambda step: 0.5 if step <= 12 else 0.05, lambda _: 50)
    made: Evidence = make(rollouts=rows)
    assert made.run is not None
    writer = RunWriter(made.run.folder)
    for step, value in enumerate(counted(rows), 1):
        writer.metrics(step, {"entropy": float(value), "reward": 0.5}, attempt=int(step > 12))
    evidence = Evidence("made", Run.open(made.run.folder))
    assert isinstance(FINDING.check(evidence), Excluded)
    assert isinstance(entropy_collapse.FINDING.check(evidence), Finding)


def test_a_collapse_of_the_tokens_that_the_log_hides(make: Any) -> None:
    rows = tokens(lambda step: 0.5 * 0.05 ** (step / 24), lambda _: 50)
    found = FINDING.check(make(entropy=np.full(24, 0.5), rollouts=rows))
    assert isinstance(found, Finding)
    assert found.severity is Severity.WARNING
    assert "hides that" in found.cost


def test_a_constant_factor_is_no_artefact(make: Any) -> None:
    rows = tokens(lambda step: 0.5 * 0.2 ** (step / 24), lambda _: 50)
    assert isinstance(FINDING.check(make(entropy=1.7 * counted(rows), rollouts=rows)), Excluded)


def test_a_sum_over_sequences_is_recognised_by_the_tokens(make: Any) -> None:
    rows = tokens(lambda _: 0.1, lambda step: 100 - 3 * step)
    summed = np.array([np.mean([np.sum(own) for own in one["entropy"]]) for one in rows.values()])
    found = FINDING.check(make(entropy=summed, rollouts=rows))
    assert isinstance(found, Finding)
    assert "like a sum over each sequence" in found.headline
    assert found.invalidates == ("entropy-collapse",)


def test_without_entropy_there_is_nothing_to_doubt(make: Any) -> None:
    assert isinstance(FINDING.check(make(reward=RISING)), CannotTell)
    assert isinstance(FINDING.check(make(entropy=T[:5])), CannotTell)
    assert FINDING.check(Evidence("a configuration")) is None


LEVEL = np.full(60, 0.5)


def test_numbers_all_along_are_nothing(make: Any, around: Any) -> None:
    case = make(entropy=around(LEVEL, 0.01))
    logged = case.trend("entropy")
    assert report_interleaved_writers(case, logged) is None
    assert diagnose_run(case, {"unreliable-metric": ARTEFACT}).clear == ("unreliable-metric",)


STEPS = np.arange(100)


def falling_to(left: float, spread: float = 0.02) -> Trend:
    """Return the trend of an entropy that goes to a share of its start."""
    noise = np.random.default_rng(0).normal(0, spread, 100)
    return trend(STEPS, left ** (STEPS / 99) * np.exp(noise))


@pytest.mark.parametrize(
    ("logged", "better", "taken"),
    [
        (0.1, 0.9, ("entropy-collapse",)),
        (0.1, 0.3, ()),  # collapsed all the same
        (0.9, 0.9, ()),  # nothing was said
        (4.0, 1.1, ("entropy-explosion",)),
        (4.0, 3.0, ()),
    ],
)
def test_by_hand(logged: float, better: float, taken: Any) -> None:
    assert verdicts_invalidated_by(falling_to(logged), falling_to(better)) == taken


def test_not_knowing_better_takes_nothing_back() -> None:
    assert verdicts_invalidated_by(falling_to(0.1), None) == ()
    wide = falling_to(0.8, spread=1.5)
    assert verdicts_invalidated_by(falling_to(0.1), wide) == ()


def test_the_marks_are_those_of_the_findings() -> None:
    assert COLLAPSE.shows(falling_to(0.1))
    assert not COLLAPSE.shows(falling_to(0.8))
    assert EXPLOSION.shows(falling_to(3.0))
    assert not EXPLOSION.shows(falling_to(1.2))
