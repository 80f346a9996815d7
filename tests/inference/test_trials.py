"""Trial answers: the three confidences by hand, and trials that tell nothing."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from breadth.base.errors import SettingsError
from breadth.inference.halts.closed_brace import ClosedBrace
from breadth.inference.halts.phrase import Phrase
from breadth.inference.records import Candidate, Sampling, Task
from breadth.inference.trials import Trial, Tried

CLOSE = "</think>"
TASK = Task("q", sampling=Sampling(0.6, max_tokens=500, stop=("x",), thinking_tokens=5))


def trial(*probabilities: float, text: str = "{4}\n</think>") -> Candidate:
    return Candidate(text, logprobs=np.log(np.array(probabilities, dtype=np.float32)), tokens=len(probabilities))


def test_the_three_measures() -> None:
    # The first token is the brace. Mean of .99, .99, .90 = .96; geometric (.99 * .99 * .90)^(1/3) = .9590; least .90.
    made = trial(0.2, 0.99, 0.99, 0.90)
    assert Trial("mean").confidence(made, CLOSE) == pytest.approx(0.96, abs=1e-6)
    assert Trial("geometric").confidence(made, CLOSE) == pytest.approx((0.99 * 0.99 * 0.9) ** (1 / 3), abs=1e-6)
    assert Trial("geometric").confidence(made, CLOSE) == pytest.approx(0.959, abs=5e-4)
    assert Trial("min").confidence(made, CLOSE) == pytest.approx(0.90, abs=1e-6)


def test_the_geometric_mean_wants_the_thinking_closed() -> None:
    open_ended = trial(1, 0.99, 0.99, text="{4}\nHowever")
    assert Trial("geometric").confidence(open_ended, CLOSE) == 0
    assert Trial("geometric").confidence(open_ended, "") == pytest.approx(0.99, abs=1e-6)
    assert Trial("mean").confidence(open_ended, CLOSE) == pytest.approx(0.99, abs=1e-6)


def test_a_server_that_sets_thinking_apart_shows_that_it_was_closed_by_what_follows() -> None:
    made = replace(trial(1, 0.99, 0.99, text=""), reasoning="{4}\n")
    assert Trial("geometric").confidence(made, CLOSE) == 0
    assert Trial("geometric").confidence(replace(made, text="The"), CLOSE) == pytest.approx(0.99, abs=1e-6)


def test_a_trial_without_a_word_is_unsure_not_without_log_probs() -> None:
    assert Trial().confidence(Candidate(""), CLOSE) == 0


@pytest.mark.parametrize("measure", ["mean", "geometric", "min"])
def test_trials_that_tell_nothing(measure: str) -> None:
    tried = Trial(measure)  # type: ignore[arg-type]  # one of the three
    assert tried.confidence(trial(0.99), CLOSE) == 0
    assert tried.confidence(trial(), CLOSE) == 0
    assert tried.confidence(trial(0.9, math.nan, 0.9), CLOSE) == 0
    impossible = Candidate("{4}\n</think>", logprobs=np.array([-0.1, -np.inf], dtype=np.float32))
    assert tried.confidence(impossible, CLOSE) == 0
    assert tried.confidence(Candidate("{4}"), CLOSE) is None


def test_a_trial_is_greedy_short_and_not_independent() -> None:
    ask = Trial().ask(TASK, "so", CLOSE)
    assert ask.prefix == "so\n**Final Answer**\n\\boxed"
    assert ask.sampling == Sampling(0.0, max_tokens=20, top_logprobs=1)
    assert ask.halt == ClosedBrace()
    assert not ask.independent
    assert ask.purpose == "trial"
    assert Trial("geometric").ask(TASK, "so", CLOSE).halt == Phrase((CLOSE,))
    assert Trial("geometric").ask(TASK, "so", "").halt == ClosedBrace()


def test_what_the_trials_came_to() -> None:
    tried = Tried()
    tried.note([trial(1, 0.5, 0.5)], 0.5, sure=False)
    tried.note([trial(1, 0.99)], 0.99, sure=True)
    assert tried.figures == {"trials": 2, "trial_tokens": 5, "trial_confidence": 0.99, "exited": 1}
    assert not tried.notes
    tried.note([trial()], None, sure=False)
    assert "without log-probs" in tried.notes[0]


def test_bad_settings_are_refused() -> None:
    with pytest.raises(SettingsError, match="one of mean, geometric, min"):
        Trial("avg1")  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(SettingsError, match="tokens"):
        Trial(tokens=1)
