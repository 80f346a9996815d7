"""Prompts that say more than the task's."""

from __future__ import annotations

from dataclasses import replace

from breadth.inference.prompts import rewrite_asks, with_model, with_suffix, with_system, with_turns
from breadth.inference.records import Answer, Ask, Candidate, Fork, Judge, Prompt, Run
from breadth.inference.strategy import SyncDriver

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
