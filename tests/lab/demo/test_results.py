"""What a demo has found, read from a run's curve and from replies, with its test for a hump; JSON and back."""

from __future__ import annotations

import math

import numpy as np
import pytest

from breadth.lab import records
from breadth.lab.demo.results import DemoResults, ForcedThinking
from breadth.lab.evaluation.evaluate import Evaluation
from breadth.lab.sampling.batch import Completion
from breadth.lab.task.grammar import parse
from breadth.lab.task.problems import read_problem
from breadth.lab.task.vocabulary import vocabulary_words


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
