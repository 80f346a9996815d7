"""Every strategy once on the real llama.cpp server, small: what it asked for came, what it says of it is true.

What a small model writes differs between processors. So the server holds it to a grammar: a word, or words without end.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from breadth.inference.catalogue import STRATEGIES
from breadth.inference.confidence import Gauge
from breadth.inference.records import Answer, Candidate, Reading, Sampling, Task
from breadth.inference.strategies.adaptive_vote import AdaptiveVote
from breadth.inference.strategies.batch_exploration import BatchExploration
from breadth.inference.strategies.best_of_n import BestOfN
from breadth.inference.strategies.budget_forcing import BudgetForcing
from breadth.inference.strategies.cascade import Cascade, CascadeStage
from breadth.inference.strategies.confidence_vote import ConfidenceVote
from breadth.inference.strategies.early_exit import EarlyExit, Trial
from breadth.inference.strategies.online_confidence_vote import OnlineConfidenceVote
from breadth.inference.strategies.panel import Panel
from breadth.inference.strategies.parallel_thinking import ParallelThinking
from breadth.inference.strategies.prompt_variation import PromptVariation
from breadth.inference.strategies.revision import Revision
from breadth.inference.strategies.single import Single
from breadth.inference.strategies.split import Split
from breadth.inference.strategies.vote import Vote
from breadth.inference.strategy import Strategy
from breadth.inference.thinking import UNMARKED_THINKING
from breadth.runtime.connect import connect
from breadth.runtime.driver import Driver, SolveResult
from breadth.runtime.solve_context import Judgement, JudgeSampler

TURNS = (("Capital of Italy?", "Rome"), ("Capital of Spain?", "Madrid"))
SHOWN = tuple(
    {"role": role, "content": said} for turn in TURNS for role, said in zip(("user", "assistant"), turn, strict=True)
)
TASK = Task(
    (*SHOWN, {"role": "user", "content": "Capital of France?"}),
    sampling=Sampling(temperature=1.0, max_tokens=24),
    reading=Reading("whole"),
    seed=1,
    options={"grammar": "root ::= [A-Z] [a-z]{2,8}"},
)
"""Answered in a word."""
GREEDY = replace(TASK, sampling=replace(TASK.sampling, temperature=0.0))
TALK = replace(
    TASK,
    prompt=({"role": "user", "content": "What is 6 times 7? Think step by step, then state the answer."},),
    options={"grammar": 'root ::= ([a-z]{1,8} " ")+', "ignore_eos": True},
)
"""Answered at length: it never ends by itself."""


class AnyText(Reading):
    """Takes any text for the answer, cut or not; no two are alike, so no vote ends early."""

    def read(self, text: str, *, ended: bool = True) -> str | None:
        return text.strip() or None


EACH_TOKEN = Gauge(window=1)
ON_THE_PLAIN_SERVER: dict[str, tuple[Strategy, Task]] = {name: (kind.make_example(), TASK) for name, kind in STRATEGIES}
ON_THE_PLAIN_SERVER |= {
    "adaptive-vote": (AdaptiveVote(8), GREEDY),
    "best-of-n": (BestOfN(3, weighted=False), TASK),
    "confidence-vote": (ConfidenceVote(6, keep=0.5, trust=True, gauge=EACH_TOKEN), TASK),
    "online-confidence-vote": (
        OnlineConfidenceVote(4, 28, keep=0.01, consensus=1.0, trust=True, gauge=Gauge(window=4)),
        replace(TALK, reading=AnyText()),
    ),
    "budget-forcing": (BudgetForcing(cues=0, minimum=12, maximum=12, thinking=UNMARKED_THINKING), TALK),
    "early-exit": (EarlyExit(threshold=0.0, turns=(" ",), thinking=UNMARKED_THINKING), TALK),
    "parallel-thinking": (ParallelThinking(72, width=3), TASK),
    "revision": (Revision(rounds=2), TASK),
    "split": (Split(2, Revision(rounds=2)), TASK),
    "batch-exploration": (BatchExploration(batch=3, rounds=2), GREEDY),
    "prompt-variation": (PromptVariation(vote=AdaptiveVote(6, 6)), TASK),
    "panel": (Panel(BudgetForcing(cues=0, minimum=6, maximum=6, thinking=UNMARKED_THINKING), 2), TALK),
    "cascade": (Cascade((CascadeStage(Single()), CascadeStage(Vote(2)))), TASK),
}


async def by_length(task: Task, candidate: Candidate, draw: JudgeSampler) -> Judgement:
    return Judgement(score=float(len(candidate.text)))


async def solve_all(url: str, runs: dict[str, tuple[Strategy, Task]]) -> dict[str, SolveResult]:
    sampler = await connect([url])
    try:
        driver = Driver(sampler, judges={"default": by_length})
        return {name: await driver.solve(*run) for name, run in runs.items()}
    finally:
        await sampler.close()


@pytest.fixture(scope="module")
def solved(llama: str) -> dict[str, SolveResult]:
    return asyncio.run(solve_all(llama, ON_THE_PLAIN_SERVER))


def drawn(answer: Answer) -> Candidate:
    assert answer.chosen is not None
    return answer.chosen


@pytest.mark.parametrize("name", STRATEGIES.names())
def test_all_of_them_answer_within_their_caps_and_account_for_every_token(
    name: str, solved: dict[str, SolveResult]
) -> None:
    result = solved[name]
    assert (result.failed, dict(result.errors), result.budget_exhausted) == (0, {}, False)
    assert result.answer.text
    assert drawn(result.answer).model == "smollm2"
    assert all(candidate.tokens <= TASK.sampling.max_tokens for candidate in result.arrived)
    assert len({candidate.seed for candidate in result.arrived}) == len(result.arrived)
    kept = {candidate.draw_id for candidate in result.answer.candidates}
    assert kept <= {candidate.draw_id for candidate in result.arrived}
    if not result.discarded:
        assert result.spend.output_tokens == sum(candidate.tokens for candidate in result.arrived)


def test_a_vote_counts_what_the_texts_say(solved: dict[str, SolveResult]) -> None:
    answer = solved["vote"].answer
    assert len(answer.candidates) == 4
    assert sum(answer.votes.values()) + answer.unread == 4
    assert all(
        candidate.answer == candidate.text.strip() for candidate in answer.candidates if candidate.finish == "stop"
    )


def test_four_greedy_draws_agree_and_end_the_vote(solved: dict[str, SolveResult]) -> None:
    answer = solved["adaptive-vote"].answer
    assert (answer.stopped, len(answer.candidates), len(answer.votes)) == ("agreed", 4, 1)
    assert answer.confidence == pytest.approx(1 - 0.5**5)


def test_the_judge_chooses(solved: dict[str, SolveResult]) -> None:
    answer = solved["best-of-n"].answer
    readable = [candidate for candidate in answer.candidates if candidate.key is not None]
    assert drawn(answer).score == max(len(candidate.text) for candidate in readable or answer.candidates)


def test_weights_come_from_the_servers_log_probs(solved: dict[str, SolveResult]) -> None:
    answer = solved["confidence-vote"].answer
    voters = [candidate for candidate in answer.candidates if candidate.key is not None]
    sure = {candidate.draw_id: lowest(candidate, 1) for candidate in voters}
    bar = np.percentile(list(sure.values()), 50)
    assert answer.figures["threshold"] == pytest.approx(bar, abs=1e-5)
    kept = [candidate for candidate in voters if sure[candidate.draw_id] >= bar - 1e-6]
    assert answer.figures["kept"] == len(kept)
    assert sum(answer.votes.values()) == pytest.approx(sum(sure[candidate.draw_id] for candidate in kept), abs=1e-4)


def test_unsure_completions_are_ended_while_they_are_written(solved: dict[str, SolveResult]) -> None:
    answer = solved["online-confidence-vote"].answer
    warm_up, later = answer.candidates[:4], answer.candidates[4:]
    threshold = answer.figures["threshold"]
    assert threshold == pytest.approx(np.percentile([lowest(candidate, 4) for candidate in warm_up], 99), abs=1e-5)
    halted = [candidate for candidate in later if candidate.finish == "halt"]
    assert len(later) == 24  # that none of them falls below the best of four has a chance of 1 in 20,000
    assert len(halted) == answer.figures["halted"] >= 1
    for candidate in later:
        unsure = candidate.tokens >= 4 and lowest(candidate, 4) < threshold
        assert unsure == (candidate.finish == "halt")


def test_each_round_reads_what_went_before(solved: dict[str, SolveResult]) -> None:
    first, second = solved["revision"].answer.candidates
    assert second.prompt_tokens > first.prompt_tokens + first.tokens + 30  # the reply and the instruction
    assert (first.independent, second.independent) == (True, False)
    assert sorted(candidate.independent for candidate in solved["split"].answer.candidates) == [
        False,
        False,
        True,
        True,
    ]
    explored = solved["batch-exploration"].answer.candidates
    assert len({candidate.prompt_tokens for candidate in explored[:3]}) == 1
    assert all(candidate.prompt_tokens > explored[0].prompt_tokens + 20 for candidate in explored[3:])


def test_prompts_vary_and_are_counted(solved: dict[str, SolveResult]) -> None:
    result = solved["prompt-variation"]
    assert len({candidate.prompt_tokens for candidate in result.arrived}) > 1
    assert sum(result.answer.figures.values()) == result.started


def test_every_run_of_a_panel_answers_behind_its_own_thinking(solved: dict[str, SolveResult]) -> None:
    candidates = solved["panel"].answer.candidates
    thoughts = [candidate for candidate in candidates if not candidate.prefix]
    answers = [candidate for candidate in candidates if candidate.prefix]
    assert [candidate.tokens for candidate in thoughts] == [6, 6]
    assert {candidate.prefix for candidate in answers} == {
        thought.text.rstrip("\n") + "\nFinal Answer:" for thought in thoughts
    }


def test_an_answer_without_confidence_goes_on_to_the_next_stage(solved: dict[str, SolveResult]) -> None:
    answer = solved["cascade"].answer
    assert (answer.figures["stages"], len(answer.candidates)) == (2, 3)


def test_thinking_that_ends_is_cued_twice_and_closed_once(thinking_llama: str) -> None:
    task = replace(TASK, sampling=Sampling(max_tokens=100))  # each piece of thinking is a word
    result = asyncio.run(solve_all(thinking_llama, {"forced": (BudgetForcing(cues=2, maximum=60), task)}))["forced"]
    first, second, third, answer = result.answer.candidates
    assert second.prefix == f"<think>\n{first.reasoning}Wait"
    assert third.prefix == f"{second.prefix}{second.reasoning}Wait"
    assert answer.prefix == f"{third.prefix}{third.reasoning}\n</think>\n\n"
    assert (answer.reasoning, bool(answer.text)) == ("", True)  # the server, too, takes the thinking for closed
    assert result.answer.figures["cues"] == 2
    assert result.spend.output_tokens <= 100


def test_a_model_that_stops_in_its_thinking_is_made_to_answer(thinking_llama: str) -> None:
    task = replace(TASK, sampling=Sampling(max_tokens=100))
    result = asyncio.run(solve_all(thinking_llama, {"exit": (EarlyExit(), task)}))["exit"]
    piece, answer = result.answer.candidates
    assert (piece.finish, piece.text) == ("stop", "")  # it thinks, and ends its turn there
    assert answer.prefix == f"<think>\n{piece.reasoning}\n</think>\n\n"
    assert answer.text


def test_a_trial_is_made_inside_the_thinking(thinking_llama: str) -> None:
    task = replace(TALK, sampling=Sampling(0.0, max_tokens=60))
    trials = (Trial("mean"), Trial("geometric"))
    runs: dict[str, tuple[Strategy, Task]] = {
        trial.measure: (EarlyExit(threshold=0.0, trials=1, turns=(" ",), trial=trial), task) for trial in trials
    }
    for result in asyncio.run(solve_all(thinking_llama, runs)).values():
        piece, trial = result.answer.candidates[:2]
        assert (piece.finish, piece.text) == ("halt", "")
        assert trial.prefix.startswith("<think>\n")
        assert trial.reasoning
        assert trial.logprobs is not None
        assert 1 <= len(trial.logprobs) <= trial.tokens <= 20
        assert drawn(result.answer).text


def lowest(candidate: Candidate, window: int) -> float:
    assert candidate.confidences is not None
    values = candidate.confidences.astype(float)
    return min(float(values[start : start + window].mean()) for start in range(max(1, len(values) - window + 1)))
