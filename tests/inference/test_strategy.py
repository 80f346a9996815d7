"""The strategy, its changes to prompts, and the driver without a server."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest

from breadth.base.errors import CatalogueError, SettingsError
from breadth.base.settings import dumps, from_table, loads, to_table
from breadth.inference.catalogue import STRATEGIES
from breadth.inference.confidence import Gauge
from breadth.inference.records import Answer, Ask, Candidate, Finish, Fork, Judge, Prompt, Reading, Run, Sampling, Task
from breadth.inference.strategies.batch_exploration import BatchExploration
from breadth.inference.strategies.budget_forcing import BudgetForcing
from breadth.inference.strategies.cascade import Cascade, CascadeStage
from breadth.inference.strategies.confidence_vote import ConfidenceVote
from breadth.inference.strategies.early_exit import EarlyExit, Trial
from breadth.inference.strategies.online_confidence_vote import OnlineConfidenceVote
from breadth.inference.strategies.panel import Panel
from breadth.inference.strategies.parallel_thinking import ParallelThinking
from breadth.inference.strategies.revision import Revision
from breadth.inference.strategies.single import Single
from breadth.inference.strategies.split import Split
from breadth.inference.strategies.vote import Vote
from breadth.inference.strategy import (
    Strategy,
    SyncDriver,
    rewrite_asks,
    with_model,
    with_suffix,
    with_system,
    with_turns,
)
from breadth.inference.thinking import UNMARKED_THINKING
from breadth.testing.strategies import drive


@dataclass(frozen=True)
class Second(Strategy):
    """Take the second of two, if there is one."""

    def __call__(self, task: Task) -> Run:
        """Draw two."""
        drawn: list[Candidate] = yield Ask(2)
        return Answer(drawn[-1] if drawn else None, candidates=tuple(drawn))


def test_a_strategy_of_ones_own() -> None:
    assert drive(Second(), Task("q"), [Candidate("a"), Candidate("b")]).answer.text == "b"
    assert Second().needs == frozenset()


def test_without_a_call_it_is_no_strategy() -> None:
    with pytest.raises(TypeError, match="__call__"):
        Strategy()  # type: ignore[abstract]  # wrong on purpose


@pytest.mark.parametrize("name", STRATEGIES.names())
def test_by_name(name: str) -> None:
    strategy = STRATEGIES.load(name).make_example()
    assert isinstance(strategy, Strategy)
    assert to_table(strategy)["kind"] == name
    assert loads(Strategy, dumps(strategy)) == strategy  # type: ignore[type-abstract]  # the table names the class


def test_a_file_names_its_strategy() -> None:
    assert loads(Strategy, 'kind = "vote"\nn = 3') == Vote(3)  # type: ignore[type-abstract]  # the table names the class
    assert loads(Strategy, 'kind = "single"') == Single()  # type: ignore[type-abstract]  # the table names the class


def test_a_misspelt_strategy_or_setting_names_the_nearest() -> None:
    with pytest.raises(CatalogueError, match="adaptive-vote"):
        from_table(Strategy, {"kind": "adaptive-votes"})  # type: ignore[type-abstract]  # the table names the class
    with pytest.raises(SettingsError, match="most"):
        from_table(Strategy, {"kind": "adaptive-vote", "mots": 3})  # type: ignore[type-abstract]  # the table names the class


# --- whatever comes

TEXTS = (
    *("", "\n", "The answer is 42.", "The answer is 41", "\\boxed{7}", "{42}", "I could not say.", "x" * 50),
    *(
        "</think>",
        "</thi",
        "hm</think>\n\nThe answer is 9.",
        "Wait",
        "Wait, \\boxed{3}",
        "\U0001f600 \u7b54\u6848 \u00bd",
    ),
)
FINISHES: tuple[Finish, ...] = ("stop", "stop", "stop", "length", "tool_calls", "content_filter")
TRIED: tuple[Strategy, ...] = (
    *(kind.make_example() for _, kind in STRATEGIES),
    *(kind() for name, kind in STRATEGIES if name != "cascade"),
    Cascade((CascadeStage(Panel(EarlyExit(), 2)), CascadeStage(BudgetForcing()), CascadeStage(Vote(3)))),
    ConfidenceVote(6, trust=True),
    OnlineConfidenceVote(3, 9, trust=True, gauge=Gauge(window=4)),
    EarlyExit(thinking=UNMARKED_THINKING, turns=("Wait", "\n")),
    EarlyExit(trial=Trial("geometric"), threshold=0.5),
    BudgetForcing(cues=3, minimum=20, thinking=UNMARKED_THINKING),
    Revision(judge="default"),
    Split(3, Revision(rounds=2, judge="default", weighted=True)),
    BatchExploration(judge="default"),
    ParallelThinking(100, 3),
)


def anything(rng: random.Random, task: Task) -> Callable[[Ask, int], Candidate | None]:
    """Reply what no server should: any text, any ending, gaps in the log-probs, or nothing."""

    def reply(ask: Ask, number: int) -> Candidate | None:
        cap = (ask.sampling or task.sampling).max_tokens
        text, tokens = rng.choice(TEXTS), min(cap, rng.choice((0, 1, 2, 5, 30, cap)))
        finish = rng.choice(FINISHES if ask.halt is None else (*FINISHES, "halt", "halt", "halt"))
        answer, key = task.reading.read_with_key(ask.prefix + text, ended=finish in ("stop", "tool_calls"))
        logprobs, confidences = (
            np.array([rng.choice(values) for _ in range(tokens)], dtype=np.float32) if rng.random() < 0.8 else None
            for values in ((-0.01, -0.02, -1, math.nan, -math.inf), (1, 5, 20, math.nan, math.inf))
        )
        drawn = Candidate(
            text,
            answer,
            key,
            finish,
            rng.choice(("", "", *TEXTS)),
            tokens=tokens,
            logprobs=logprobs,
            confidences=confidences,
        )
        return None if rng.random() < 0.15 else drawn

    return reply


@pytest.mark.parametrize("strategy", TRIED, ids=lambda strategy: type(strategy).__name__)
@pytest.mark.parametrize("seed", range(25))
def test_whatever_comes_it_ends_answers_from_it_and_accounts_for_it(strategy: Strategy, seed: int) -> None:
    rng = random.Random(seed)
    sampling = Sampling(max_tokens=rng.choice((1, 2, 3, 10, 64, 400)))
    task = Task("Q:", sampling=sampling, reading=Reading(rng.choice(("stated", "number", "whole"))), seed=seed)

    def judge(candidate: Candidate) -> Candidate:
        return replace(
            candidate, score=rng.choice((None, 0.0, 0.5, -1.0, math.nan)), solved=rng.choice((None, True, False))
        )

    result = drive(strategy, task, anything(rng, task), budget=rng.choice((None, 0, 1, 2, 5, 9)), judge=judge)
    answer = result.answer
    assert sorted(candidate.draw_id for candidate in answer.candidates) == sorted(
        candidate.draw_id for candidate in result.delivered
    )
    assert (answer.chosen is None) == (not result.delivered)
    assert answer.chosen is None or answer.chosen in answer.candidates
    assert answer.confidence is None or (0 <= answer.confidence <= 1 and answer.basis)
    assert all(math.isfinite(figure) for figure in answer.figures.values())
    assert answer.stopped


def number(ask: Ask, place: str) -> Candidate:
    return Candidate(place, place, place)


def test_it_sends_what_was_waited_for_and_keeps_the_rest() -> None:
    got: list[list[str]] = []

    def asking() -> Run:
        for request in (Ask(3, wait=1), Ask(1, wait=0), Ask(0, wait=2), Ask(0), Ask(0, wait=1)):
            drawn: list[Candidate] = yield request
            got.append([candidate.text for candidate in drawn])
        return Answer()

    pump = SyncDriver(number)
    pump.run(asking())
    assert got == [["0.0"], [], ["0.1", "0.2"], ["1.0"], []]
    assert len(pump.drawn) == 4


def test_draws_that_fail_do_not_come() -> None:
    def asking() -> Run:
        drawn: list[Candidate] = yield Ask(4)
        return Answer(candidates=tuple(drawn))

    answer = SyncDriver(lambda ask, place: None if place.endswith("1") else number(ask, place)).run(asking())
    assert [candidate.text for candidate in answer.candidates] == ["0.0", "0.2", "0.3"]


def test_forks_have_places_of_their_own_and_judges_are_asked() -> None:
    def part() -> Run:
        drawn: list[Candidate] = yield Ask(1, independent=False)
        return Answer(drawn[0])

    def whole() -> Run:
        answers: list[Answer] = yield Fork((part(), part(), part()), wait=2)
        judged: list[Candidate] = yield Judge(tuple(answer.chosen for answer in answers if answer.chosen))
        return Answer(candidates=tuple(judged))

    answer = SyncDriver(number, lambda candidate, by: replace(candidate, feedback=by)).run(whole())
    assert [(candidate.text, candidate.feedback, candidate.independent) for candidate in answer.candidates] == [
        ("0.0/0.0", "default", False),
        ("0.1/0.0", "default", False),
    ]


def test_a_run_that_asks_nothing_has_an_answer_all_the_same() -> None:
    def silent(asks: tuple[Ask, ...] = ()) -> Run:
        yield from asks
        return Answer(stopped="at once")

    assert SyncDriver(number).run(silent()).stopped == "at once"


USER = {"role": "user", "content": "What is 6 times 7?"}
SYSTEM = {"role": "system", "content": "Be brief."}
CHAT: Prompt = (SYSTEM, USER)


def test_turns_follow_the_chat() -> None:
    assert with_turns(CHAT, [("42", "Sure?"), ("", "Well?")]) == (
        *CHAT,
        {"role": "assistant", "content": "42"},
        {"role": "user", "content": "Sure?"},
        {"role": "assistant", "content": "(no reply)"},
        {"role": "user", "content": "Well?"},
    )
    assert with_turns("Q: 6 * 7\nA:", [(" 42", "Sure?")]) == "Q: 6 * 7\nA: 42\n\nSure?\n\n"


def test_a_suffix_ends_the_last_user_message() -> None:
    earlier: Prompt = (USER, {"role": "assistant", "content": "41"}, USER, {"role": "assistant", "content": "So"})
    changed = with_suffix(earlier, "Check it.")
    assert changed[2] == {"role": "user", "content": "What is 6 times 7?\n\nCheck it."}
    assert (changed[:2], changed[3]) == (earlier[:2], earlier[3])
    assert earlier[2] == USER


def test_a_suffix_without_a_user_message_becomes_one() -> None:
    assert with_suffix((SYSTEM,), "Go.") == (SYSTEM, {"role": "user", "content": "Go."})


def test_parts_get_a_further_part() -> None:
    parts: Prompt = ({"role": "user", "content": [{"type": "text", "text": "See"}]},)
    assert with_suffix(parts, "this") == (
        {"role": "user", "content": [{"type": "text", "text": "See"}, {"type": "text", "text": "this"}]},
    )


def test_a_system_line_is_added_to_the_one_there_is() -> None:
    assert with_system(CHAT, "Be kind.")[0] == {"role": "system", "content": "Be brief.\n\nBe kind."}
    assert with_system((USER,), "Be kind.") == ({"role": "system", "content": "Be kind."}, USER)


def test_a_text_to_continue_keeps_its_end() -> None:
    assert with_suffix("A:", "Check.") == "Check.\n\nA:"
    assert with_system("A:", "Kind.") == "Kind.\n\nA:"


def test_nothing_changes_nothing() -> None:
    assert with_suffix(CHAT, "") is CHAT
    assert with_system(CHAT, "") is CHAT
    assert with_turns(CHAT, []) == CHAT


def asking(model: str | None) -> Run:
    drawn = yield Ask(1, model=model)
    return Answer(drawn[0])


def forking() -> Run:
    (first, second) = yield Fork((asking(None), asking("own")))
    (scored,) = yield Judge((first.chosen,), "x")
    return Answer(scored, candidates=(first.chosen, second.chosen))


def named(ask: Ask, place: str) -> Candidate:
    return Candidate(place, model=ask.model or "task's")


def test_another_model_reaches_forked_runs_and_spares_those_that_name_one() -> None:
    pump = SyncDriver(named, lambda candidate, by: replace(candidate, feedback=by))
    answer = pump.run(with_model(forking(), "small"))
    assert [candidate.model for candidate in answer.candidates] == ["small", "own"]
    assert answer.chosen is not None
    assert answer.chosen.feedback == "x"


def test_no_name_changes_nothing() -> None:
    run = asking(None)
    assert with_model(run, "") is run


def test_a_run_closed_early_closes_the_one_inside() -> None:
    inner = asking(None)
    run = rewrite_asks(inner, lambda ask: replace(ask, n=3))
    assert next(run) == Ask(3)
    run.close()
    assert next(inner, None) is None
