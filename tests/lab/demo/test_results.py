"""The results of a demo, and the sentences made from them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from breadth.lab import records
from breadth.lab.demo.results import (
    DemoResults,
    ForcedThinking,
    conclude_corners,
    conclude_entropy_law,
    conclude_forced_thinking,
    conclude_plain_training,
    conclude_protection,
)
from breadth.lab.evaluation.corners import Corners, PairedEffect
from breadth.lab.evaluation.evaluate import Evaluation
from breadth.lab.evaluation.training_log import TrainingLog
from breadth.lab.sampling.batch import Completion
from breadth.lab.task.grammar import parse
from breadth.lab.task.problems import read_problem
from breadth.lab.task.vocabulary import vocabulary_words
from breadth.measure.intervals import Interval
from breadth.report.sections import Curve, Severity, Verdict


def test_forced_thinking_is_read_as_a_client_reads_it() -> None:
    problem, words = read_problem("( 3 + 4 ) * ( 5 + 6 ) ="), vocabulary_words(7)
    texts = ["<think> + + </think> 0 <eos>", "<think> </think> 0 <eos>", "<think> </think> 4 <eos>", "<think> add"]
    drawn = tuple(
        Completion(
            np.array([words.index(word) for word in text.split()]),
            np.zeros(1, np.float32),
            np.zeros(1, np.float32),
            np.zeros(1, np.bool_),
            "stop",
        )
        for text in texts
    )
    found = Evaluation((problem,), 7, (drawn,), (tuple(parse(problem, text.split()) for text in texts),))
    forced = ForcedThinking.from_evaluation(2, found)
    assert forced.accuracy == (0.5,)  # 0, 0, 4 and none: 0 is right, also behind thinking that is none
    # (1/2, 1/4, 1/4): 1.5 ln 2, and Miller-Madow adds (3 - 1) / (2 * 4).
    assert forced.answer_entropy[0] == pytest.approx(1.5 * math.log(2) + 0.25)


def test_the_hump(demo_results: DemoResults) -> None:
    hump = demo_results.hump()
    assert hump.is_positive  # twelve of sixteen problems solved at 16 tokens, none at 64
    assert hump.peak == 16
    assert hump.fall.value == 0.75
    assert demo_results.forced[1].accuracy_rate.value == 0.75


def test_json_and_back(demo_results: DemoResults) -> None:
    read = records.record_from_json(DemoResults, records.record_to_json(demo_results))
    assert records.record_to_json(read) == records.record_to_json(
        demo_results
    )  # NaN is not equal to itself, so the texts are compared
    assert read.corners == demo_results.corners


UP, DOWN, UNSEEN = (PairedEffect(Interval(value, value - 0.1, value + 0.1), 0.01) for value in (0.3, -0.3, 0.05))


def table(demo_results: DemoResults, **effects: PairedEffect) -> Corners:
    return replace(demo_results.corners, **effects)  # type: ignore[arg-type]  # every field named is an effect


def test_when_everything_shows(demo_results: DemoResults) -> None:
    found = conclude_corners(
        table(demo_results, vote_when_plain=UP, vote_when_protected=UP, protection_when_parallel=UP, interaction=UP)
    )
    assert found.severity is Severity.GOOD
    assert found.headline.startswith("Each remedy pays")
    assert (
        "a vote beats one long thought after plain training (+0.30, 0.20 to 0.40) and after protected training"
        in found.body
    )
    assert "the vote gains more from a protected policy (+0.30, 0.20 to 0.40)" in found.body
    assert "one training seed" in found.body


def test_when_nothing_shows(demo_results: DemoResults) -> None:
    names = (
        "vote_when_plain",
        "vote_when_protected",
        "protection_when_parallel",
        "protection_when_extended",
        "interaction",
    )
    found = conclude_corners(table(demo_results, **dict.fromkeys(names, UNSEEN)))
    assert found.severity is Severity.NOTE
    assert found.headline.startswith("This run shows neither")
    assert (
        "a vote and one long thought do not differ significantly after plain training (+0.05, -0.05 to 0.15) or after"
        in found.body
    )
    assert "protection has no significant effect on the vote (+0.05, -0.05 to 0.15) or the long thought" in found.body
    assert "show no significant interaction" in found.body


def test_when_it_is_the_other_way_round(demo_results: DemoResults) -> None:
    found = conclude_corners(
        table(
            demo_results, vote_when_plain=DOWN, vote_when_protected=UP, protection_when_parallel=DOWN, interaction=DOWN
        )
    )
    assert found.severity is Severity.NOTE
    assert (
        "one long thought beats a vote after plain training (-0.30, -0.40 to -0.20), while a vote beats one long"
        in found.body
    )
    assert "protection takes from the vote (-0.30" in found.body
    assert "the vote gains less" in found.body


@pytest.mark.parametrize(
    ("votes", "kept", "words"),
    [
        (UP, UNSEEN, "this run shows no further gain from protected training"),
        (UNSEEN, UP, "Protected training gives the vote more"),
    ],
)
def test_when_one_remedy_shows(demo_results: DemoResults, votes: PairedEffect, kept: PairedEffect, words: str) -> None:
    found = conclude_corners(
        table(demo_results, vote_when_plain=votes, vote_when_protected=votes, protection_when_parallel=kept)
    )
    assert words in found.headline


def test_several_seeds_are_said(demo_results: DemoResults) -> None:
    assert "over 5 training seeds" in conclude_corners(replace(demo_results.corners, seeds=5)).body


def test_narrowing(demo_results: DemoResults) -> None:
    # pass@1 of sixteen problems from 4 to 8, pass@8 from 16 to 8, entropy from 1.0 to 0.4.
    found = conclude_plain_training(demo_results)
    assert found.severity is Severity.WARNING
    assert found.headline == "Plain GRPO traded breadth for pass@1: entropy fell to 40% of the base's, and pass@8 fell."
    assert [fact.value.value for fact in found.numbers[:2]] == [0.25, -0.5]  # type: ignore[union-attr]  # both are intervals
    same = conclude_plain_training(replace(demo_results, plain=demo_results.base))
    assert same.severity is Severity.NOTE
    assert "this run does not show a fall in pass@8" in same.headline
    lost = conclude_plain_training(
        replace(
            demo_results,
            plain=replace(demo_results.plain, curve=demo_results.plain.curve[1:] + demo_results.base.curve[:1]),
        )
    )
    assert lost.headline.startswith("Plain GRPO lost breadth")


def test_protection(demo_results: DemoResults) -> None:
    corners = demo_results.corners
    assert (
        conclude_protection(demo_results).severity is Severity.GOOD
    )  # pass@8 from 8 to 14 of sixteen, pass@1 the same
    for kept, paid, words in (
        (UP, DOWN, "at the cost of pass@1"),
        (UNSEEN, UNSEEN, "does not show protected training keeping more pass@8, nor a cost"),
    ):
        found = conclude_protection(
            replace(demo_results, corners=replace(corners, pass_k_kept=kept, pass_1_change=paid))
        )
        assert found.severity is Severity.NOTE
        assert words in found.headline


def test_overthinking(demo_results: DemoResults) -> None:
    found = conclude_forced_thinking(demo_results)
    assert found.severity is Severity.WARNING
    assert "best at 16 tokens and lower at 64" in found.headline
    rising = tuple(
        replace(one, accuracy=demo_results.forced[place].accuracy)
        for place, one in zip((2, 0, 1), demo_results.forced, strict=True)
    )
    assert conclude_forced_thinking(replace(demo_results, forced=rising)).severity is Severity.NOTE
    flat = tuple(replace(one, accuracy=demo_results.forced[0].accuracy) for one in demo_results.forced)
    assert conclude_forced_thinking(replace(demo_results, forced=flat)).severity is Severity.CANNOT_TELL


STEPS = tuple(range(1, 41))
ENTROPY = tuple(0.6 - 0.01 * step for step in STEPS)
LAWFUL = tuple(
    0.9 - 0.4 * math.exp(entropy) + 1e-4 * (-1) ** step for step, entropy in zip(STEPS, ENTROPY, strict=True)
)


def course(entropy: tuple[float, ...], reward: tuple[float, ...]) -> TrainingLog:
    return TrainingLog(STEPS[: len(entropy)], reward, entropy, planning=entropy, execution=entropy)


def test_a_course_that_keeps_the_law(demo_results: DemoResults) -> None:
    verdict, picture = conclude_entropy_law(replace(demo_results, plain_training=course(ENTROPY, LAWFUL)))
    assert isinstance(verdict, Verdict)
    assert "forecasts the rest better than any simple baseline" in verdict.headline
    assert "it holds" in verdict.body
    facts = {fact.name: fact.value for fact in verdict.numbers}
    assert facts["typical error of the forecast"] == pytest.approx(0.0, abs=1e-3)
    assert facts["score at zero entropy, by the whole fit"].value == pytest.approx(0.5, abs=1e-3)  # type: ignore[union-attr]  # b - a; an interval
    assert isinstance(picture, Curve)
    assert [event.x for event in picture.events] == [6]  # 15 % of forty
    whole, first = (list(line.y) for line in picture.series[1:])
    assert first == pytest.approx(whole, abs=2e-3)


def test_a_course_that_breaks_it(demo_results: DemoResults) -> None:
    turned = LAWFUL[:10] + tuple(LAWFUL[9] for _ in STEPS[10:])
    verdict, _ = conclude_entropy_law(replace(demo_results, plain_training=course(ENTROPY, turned)))
    assert isinstance(verdict, Verdict)
    assert "does not forecast the rest better than the best simple baseline, the last early score" in verdict.headline
    assert "does not hold" in verdict.body


def test_generations_without_an_entropy_are_left_out(demo_results: DemoResults) -> None:
    holed = (*ENTROPY[:3], math.nan, *ENTROPY[4:])
    _, picture = conclude_entropy_law(replace(demo_results, plain_training=course(holed, LAWFUL)))
    assert isinstance(picture, Curve)
    assert len(picture.series[0].x) == 39


def test_a_course_too_short_to_forecast(demo_results: DemoResults) -> None:
    (verdict,) = conclude_entropy_law(replace(demo_results, plain_training=course(ENTROPY[:24], LAWFUL[:24])))
    assert isinstance(verdict, Verdict)
    assert verdict.severity is Severity.CANNOT_TELL
