"""The confidence gate: open on evidence only, and on the right evidence."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from breadth.base.errors import BrokenFileError, MeasureError, SettingsError
from breadth.base.settings import dump, load
from breadth.inference.confidence import Gauge
from breadth.inference.gate import ConfidenceGate, agreement, fit_gate, rule
from breadth.inference.records import Candidate, Task
from breadth.inference.voting import Poll
from breadth.measure.intervals import Interval

GAUGE = Gauge(window=64)
OPEN = ConfidenceGate(Interval(0.7, 0.6, 0.8), Interval(0.75, 0.7, 0.8), 30, 480, gauge=GAUGE, model="small")


def evidence(
    questions: int, each: int, lift: float, *, seed: int = 0, difficulty: float = 0.0
) -> tuple[list[float], list[bool], list[str]]:
    """Make completions whose confidence rises by ``lift`` where they are right, and with how easy their question is."""
    rng = np.random.default_rng(seed)
    scores, correct, names = [], [], []
    for question in range(questions):
        easy = rng.uniform(0.1, 0.9)
        right = rng.random(each) < easy
        scores += (rng.normal(size=each) + lift * right + difficulty * easy).tolist()
        correct += right.tolist()
        names += [f"q{question}"] * each
    return scores, correct, names


def test_pairs_of_one_question_by_hand() -> None:
    # a: right 5, 3 against wrong 4 and 3: 5 beats both, 3 loses one and ties one: 2.5 of 4. b: right 1 against 2: 0 of 1. c: no pair.
    gate = fit_gate([5, 3, 4, 3, 1, 2, 9], [1, 1, 0, 0, 1, 0, 1], ["a", "a", "a", "a", "b", "b", "c"], gauge=GAUGE)
    assert gate.within.value == pytest.approx(2.5 / 5)
    assert (gate.questions, gate.completions) == (2, 7)
    # Pooled: right 5, 3, 1, 9 against wrong 4, 3, 2: 3 + 1.5 + 0 + 3 of 12.
    assert gate.pooled.value == pytest.approx(7.5 / 12)
    assert not gate.open
    assert "at least 8" in gate.reason


def test_a_confidence_that_tells_right_from_wrong_opens_it() -> None:
    gate = fit_gate(*evidence(60, 16, 1.0), gauge=GAUGE)
    # Two normals one apart: AUROC = Phi(1 / sqrt 2) = 0.760.
    assert gate.within.low < 0.760 < gate.within.high
    assert gate.within.value == pytest.approx(0.760, abs=0.03)
    assert gate.open
    assert f"AUROC {gate.within.value:.3f}" in gate.reason
    assert gate.questions == 59  # one had right completions only
    assert "59 questions" in gate.reason


def test_a_confidence_that_only_knows_easy_questions_does_not_open_it() -> None:
    gate = fit_gate(*evidence(60, 16, 0.0, difficulty=6.0), gauge=GAUGE)
    assert gate.pooled.low > 0.6
    assert 0.5 in gate.within
    assert not gate.open


def test_a_useless_confidence_opens_it_about_as_seldom_as_the_level_says() -> None:
    opened = sum(fit_gate(*evidence(12, 8, 0.0, seed=seed, difficulty=4.0), gauge=GAUGE).open for seed in range(200))
    assert opened <= 13  # 2.5 % of 200 is 5; more than 13 would come up once in a thousand


def test_an_inverted_confidence_stays_shut() -> None:
    assert not fit_gate(*evidence(60, 16, -1.0), gauge=GAUGE).open


def test_seven_questions_are_too_few_and_eight_are_not() -> None:
    for questions, opened in ((7, False), (8, True)):
        gate = fit_gate(*evidence(questions, 40, 3.0), gauge=GAUGE)
        assert gate.questions == questions
        assert gate.open is opened


def test_perfect_separation_opens_it() -> None:
    right = [True, False] * 12
    gate = fit_gate([float(one) for one in right], right, np.repeat(np.arange(12), 2), gauge=GAUGE)
    assert gate.within.value == 1
    assert gate.open


@pytest.mark.parametrize("correct", [[True] * 6, [False] * 6, [True, False] * 3])
def test_one_completion_a_question_or_one_outcome_is_no_evidence(correct: list[bool]) -> None:
    gate = fit_gate(range(6), correct, list("abcdef"), gauge=GAUGE)
    assert (gate.within.low, gate.within.high, gate.questions) == (0, 1, 0)
    assert not gate.open


@pytest.mark.parametrize(
    ("scores", "correct", "problems"),
    [([], [], []), ([1.0, float("nan")], [1, 0], "ab"), ([1, 2], [1], ["a", "b"]), ([1, 2], [1, 2], ["a", "b"])],
)
def test_bad_evidence_is_refused(scores: Any, correct: Any, problems: Any) -> None:
    with pytest.raises(MeasureError):
        fit_gate(scores, correct, list(problems), gauge=GAUGE)


def test_it_is_a_file(tmp_path: Path) -> None:
    for number, gate in enumerate(
        (OPEN, fit_gate(*evidence(9, 8, 0.5), gauge=Gauge("tail", 32, 5), evidence="self-consistent", model="m"))
    ):
        path = tmp_path / f"{number}.toml"
        dump(gate, path)
        assert load(ConfidenceGate, path) == gate
        assert pickle.loads(pickle.dumps(gate)) == gate
    path.write_text(path.read_text().replace("self-consistent", "hearsay"))
    with pytest.raises(BrokenFileError, match="hearsay"):
        load(ConfidenceGate, path)


@pytest.mark.parametrize(
    "wrong", [{"within": Interval(0.7, 0.8, 0.9)}, {"pooled": Interval(1.2, 0.5, 1.3)}, {"questions": 481}, {"evidence": "x"}]
)
def test_bad_gates_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=next(iter(wrong))):
        replace(OPEN, **wrong)


def test_rulings() -> None:
    shut = replace(OPEN, within=Interval(0.53, 0.46, 0.60))
    assert rule(OPEN, GAUGE, model="small").open
    assert "0.700" in rule(OPEN, GAUGE).note
    assert not rule(shut, GAUGE).open
    assert "AUROC 0.530, 95% interval 0.460 to 0.600" in rule(shut, GAUGE).note
    assert not rule(None, GAUGE).open
    assert "trust = true" in rule(None, GAUGE).note
    assert rule(None, GAUGE, trust=True).open
    assert "without evidence" in rule(None, GAUGE, trust=True).note


def test_evidence_about_another_gauge_or_model_is_none() -> None:
    assert "window=64" in rule(OPEN, Gauge()).note
    assert not rule(OPEN, Gauge()).open
    assert "small, not on large" in rule(OPEN, GAUGE, model="large").note
    assert not rule(OPEN, GAUGE, model="large").open
    assert rule(replace(OPEN, model=""), GAUGE, model="large").open


def poll_of(*keys: str | None, task: Task | None = None) -> Poll:
    poll = Poll(task or Task("q"))
    poll.add(Candidate("", key, key) for key in keys)
    return poll


def test_agreement_with_the_full_vote() -> None:
    assert agreement(poll_of("4", None, "5", "4")) == [True, None, False, True]
    assert agreement(poll_of("4", "5", None)) == [None, None, None]  # tied
    assert agreement(poll_of(None)) == [None]
    assert agreement(poll_of()) == []


def test_agreement_counts_equivalent_answers_as_one() -> None:
    task = Task("q", equivalent=lambda first, second: {first, second} == {"0.5", "half"})
    assert agreement(poll_of("0.5", "half", "half", "3", task=task)) == [True, True, True, False]
