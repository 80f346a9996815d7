"""Early exit with a scripted model that turns every ten tokens."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from breadth.base.errors import SettingsError
from breadth.inference.halting import ClosedBrace, Phrase
from breadth.inference.records import Ask, Candidate, Sampling, Task
from breadth.inference.strategies.early_exit import EarlyExit, Trial, TrialLog
from breadth.inference.thinking import UNMARKED_THINKING
from breadth.testing.strategies import check_strategy, drive

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
    tried = TrialLog()
    tried.record([trial(1, 0.5, 0.5)], 0.5, confident=False)
    tried.record([trial(1, 0.99)], 0.99, confident=True)
    assert tried.figures == {"trials": 2, "trial_tokens": 5, "trial_confidence": 0.99, "exited": 1}
    assert not tried.notes
    tried.record([trial()], None, confident=False)
    assert "without log-probs" in tried.notes[0]


def test_bad_settings_are_refused() -> None:
    with pytest.raises(SettingsError, match="one of mean, geometric, min"):
        Trial("avg1")  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(SettingsError, match="tokens"):
        Trial(tokens=1)


EARLY_EXIT_TASK = Task(({"role": "user", "content": "6 * 7?"},), sampling=Sampling(max_tokens=1000))
Model = Callable[[Ask, int], Candidate]


def model(turns: int, probability: Callable[[int], float] | None, *, keep_word: bool = True) -> Model:
    """Turn a number of times, ten tokens each, then close and answer; trial confidence depends on the turns so far."""

    def reply(ask: Ask, number: int) -> Candidate:
        made = ask.prefix.count("Wait")
        if ask.purpose == "trial":
            logprobs = None if probability is None else np.log(np.full(4, probability(made), dtype=np.float32))
            return Candidate("{42}\n</think>", tokens=4, logprobs=logprobs)
        if ask.purpose == "answer":
            return Candidate("The answer is 42.", "42", "42", tokens=5)
        if isinstance(ask.halt, Phrase) and made < turns:
            return Candidate(f"step {made}. " + "Wait," * keep_word, tokens=10, finish="halt")
        rest = "".join(f"step {number}. Wait," for number in range(made, turns))
        return Candidate(f"{rest}done.\n</think>\n\nThe answer is 42.", "42", "42", tokens=10 * (turns - made) + 8)

    return reply


def test_it_leaves_when_a_trial_is_sure() -> None:
    result = drive(EarlyExit(), EARLY_EXIT_TASK, model(8, lambda made: 0.5 if made < 3 else 0.99))
    # Three trials at 0.5; the fourth, before the fourth 'Wait', is sure: the thinking is closed before that word.
    assert (
        result.answer.text == "<think>\nstep 0. Wait,step 1. Wait,step 2. Wait,step 3. \n</think>\n\nThe answer is 42."
    )
    assert result.answer.figures == {
        "trials": 4,
        "trial_tokens": 16,
        "trial_confidence": pytest.approx(0.99),
        "exited": 1,
    }
    assert result.answer.key == "42"
    assert sum(candidate.tokens for candidate in result.answer.candidates) == 4 * 10 + 4 * 4 + 5 == result.total_tokens


def test_a_trial_is_made_before_the_word_and_thrown_away() -> None:
    result = drive(EarlyExit(), EARLY_EXIT_TASK, model(1, lambda _: 0.5))
    trial = next(ask for ask in result.requests if isinstance(ask, Ask) and ask.purpose == "trial")
    assert trial.prefix == "<think>\nstep 0. \n**Final Answer**\n\\boxed"
    assert result.answer.text == "<think>\nstep 0. Wait,done.\n</think>\n\nThe answer is 42."
    assert result.answer.figures["exited"] == 0


def test_a_threshold_of_one_never_leaves_and_changes_nothing_of_the_reply() -> None:
    never = drive(EarlyExit(threshold=1.0), EARLY_EXIT_TASK, model(5, lambda _: 1.0)).answer
    without = drive(EarlyExit(trials=0), EARLY_EXIT_TASK, model(5, lambda _: 1.0)).answer
    assert never.text == without.text
    assert (never.figures["trials"], without.figures["trials"]) == (5, 0)


@pytest.mark.parametrize(("measure", "exits"), [("mean", 1), ("geometric", 1), ("min", 0)])
def test_the_measures_decide(measure: str, exits: int) -> None:
    def reply(ask: Ask, number: int) -> Candidate:
        drawn = model(1, lambda _: 1.0)(ask, number)
        sure = np.log(np.array([0.2, 0.99, 0.99, 0.90], dtype=np.float32))
        return replace(drawn, logprobs=sure) if ask.purpose == "trial" else drawn

    strategy = EarlyExit(trial=Trial(measure))  # type: ignore[arg-type]  # one of the three
    assert drive(strategy, EARLY_EXIT_TASK, reply).answer.figures["exited"] == exits


def test_after_ten_trials_it_thinks_to_the_end() -> None:
    result = drive(EarlyExit(), EARLY_EXIT_TASK, model(30, lambda _: 0.5))
    assert result.answer.figures["trials"] == 10
    last = result.requests[-1]
    assert isinstance(last, Ask)
    assert last.halt is None
    assert result.answer.text.count("Wait") == 30


def test_without_log_probs_it_says_so_and_thinks_to_the_end() -> None:
    answer = drive(EarlyExit(), EARLY_EXIT_TASK, model(5, None)).answer
    assert answer.figures["trials"] == 1
    assert "without log-probs" in answer.notes[0]
    assert answer.key == "42"
    assert answer.text.count("Wait") == 5


def test_a_sampler_that_leaves_the_word_out_has_it_put_back() -> None:
    result = drive(EarlyExit(), EARLY_EXIT_TASK, model(2, lambda _: 0.5, keep_word=False))
    assert result.answer.text == "<think>\nstep 0. Waitstep 1. Waitdone.\n</think>\n\nThe answer is 42."


def test_near_the_limit_it_is_closed_without_a_trial() -> None:
    # 90 % of 150 tokens is 135; with 90 of them written, 50 or fewer are left.
    task = replace(EARLY_EXIT_TASK, sampling=Sampling(max_tokens=150))
    result = drive(EarlyExit(), task, model(12, lambda _: 0.5))
    assert result.answer.figures["trials"] == 8
    assert result.answer.text.endswith("step 7. Wait,step 8. \n</think>\n\nThe answer is 42.")
    caps = [
        ask.sampling.max_tokens
        for ask in result.requests
        if isinstance(ask, Ask) and ask.sampling and ask.purpose != "trial"
    ]
    assert caps == [135, 125, 115, 105, 95, 85, 75, 65, 55, 60]


def test_a_short_completion_is_tried_in_its_first_half() -> None:
    # 90 % of 60 is 54: tried at 10 and 20 tokens, closed at 30, beyond its half.
    task = replace(EARLY_EXIT_TASK, sampling=Sampling(max_tokens=60))
    assert drive(EarlyExit(), task, model(12, lambda _: 0.5)).answer.figures["trials"] == 2


def test_thinking_cut_at_the_limit_is_closed_but_a_cut_answer_goes_on() -> None:
    cut = [Candidate("on and on", tokens=900, finish="length"), Candidate("The answer is 7.", "7", "7", tokens=5)]
    assert drive(EarlyExit(), EARLY_EXIT_TASK, cut).answer.text == "<think>\non and on\n</think>\n\nThe answer is 7."
    late = [Candidate("so\n</think>\nThe ans", tokens=900, finish="length"), Candidate("wer is 7.", "7", "7", tokens=5)]
    apart = [
        Candidate("The ans", reasoning="so", tokens=900, finish="length"),
        Candidate("wer is 7.", "7", "7", tokens=5),
    ]
    assert drive(EarlyExit(), EARLY_EXIT_TASK, apart).answer.text == "<think>\nso\n</think>\n\nThe answer is 7."
    assert drive(EarlyExit(), EARLY_EXIT_TASK, late).answer.text == "<think>\nso\n</think>\nThe answer is 7."


def test_a_model_that_stops_in_its_thinking_is_made_to_answer() -> None:
    replies = [Candidate("so \\boxed{5}?", "5", "5", tokens=9), Candidate("The answer is 7.", "7", "7", tokens=5)]
    answer = drive(EarlyExit(), EARLY_EXIT_TASK, replies).answer
    assert answer.text == "<think>\nso \\boxed{5}?\n</think>\n\nThe answer is 7."
    assert (answer.key, answer.stopped) == ("7", "answered")
    apart = [Candidate("", reasoning="so 5?", tokens=9), Candidate("The answer is 7.", "7", "7", tokens=5)]
    assert drive(EarlyExit(), EARLY_EXIT_TASK, apart).answer.text == "<think>\nso 5?\n</think>\n\nThe answer is 7."


def test_a_plain_model_that_stops_has_replied() -> None:
    answer = drive(
        EarlyExit(thinking=UNMARKED_THINKING), EARLY_EXIT_TASK, [Candidate("The answer is 7.", "7", "7", tokens=9)]
    ).answer
    assert (answer.key, answer.stopped) == ("7", "answered")


def test_a_model_that_closes_its_thinking_at_once_has_replied() -> None:
    result = drive(EarlyExit(), EARLY_EXIT_TASK, [Candidate("\n</think>\n\nThe answer is 7.", "7", "7", tokens=9)])
    assert (result.answer.key, len(result.requests)) == ("7", 1)


def test_a_filtered_or_tool_calling_piece_is_a_reply() -> None:
    for finish in ("content_filter", "tool_calls"):
        result = drive(EarlyExit(), EARLY_EXIT_TASK, [Candidate("no", finish=finish, tokens=3)])
        assert (result.answer.stopped, len(result.requests)) == ("answered", 1)


def test_when_nothing_comes_nothing_more_is_asked_for() -> None:
    assert len(drive(EarlyExit(), EARLY_EXIT_TASK, []).requests) == 1


def test_only_the_answer_counts_as_a_draw_of_the_task() -> None:
    result = drive(EarlyExit(), EARLY_EXIT_TASK, model(8, lambda made: 0.5 if made < 3 else 0.99))
    assert [candidate.independent for candidate in result.answer.candidates] == [False] * 8 + [True]


def test_the_published_defaults() -> None:
    strategy = EarlyExit()
    assert (strategy.threshold, strategy.trials, strategy.share, strategy.turns) == (0.95, 10, 0.9, ("Wait",))
    assert (strategy.trial.measure, strategy.trial.tokens) == ("mean", 20)


def test_a_plain_model_leaves_to_a_final_answer() -> None:
    replies = [
        Candidate("One.\n\n", tokens=3, finish="halt"),
        Candidate("{42}", tokens=3, logprobs=np.zeros(3, dtype=np.float32)),
        Candidate(" 42", "42", "42", tokens=2),
    ]
    answer = drive(EarlyExit(turns=("\n\n",), thinking=UNMARKED_THINKING), EARLY_EXIT_TASK, replies).answer
    assert answer.text == "One.\nFinal Answer: 42"
    assert answer.key == "42"


@pytest.mark.parametrize("budget", range(1, 9))
def test_a_budget_that_dies_between_trials(budget: int) -> None:
    result = drive(EarlyExit(), EARLY_EXIT_TASK, model(8, lambda made: 0.5 if made < 3 else 0.99), budget=budget)
    assert len(result.answer.candidates) == budget
    assert result.answer.chosen is not None
    assert result.answer.stopped == "budget"


@pytest.mark.parametrize(
    "strategy",
    [EarlyExit(), EarlyExit(thinking=UNMARKED_THINKING), EarlyExit(trial=Trial("geometric")), EarlyExit(trials=0)],
)
def test_the_contract(strategy: EarlyExit) -> None:
    check_strategy(strategy)


@pytest.mark.parametrize("bad", [{"threshold": 1.1}, {"trials": -1}, {"share": 1.0}, {"turns": ()}, {"turns": ("",)}])
def test_bad_settings_are_refused_early_exit(bad: dict[str, object]) -> None:
    with pytest.raises(SettingsError, match=next(iter(bad))):
        EarlyExit(**bad)  # type: ignore[arg-type]  # wrong on purpose
