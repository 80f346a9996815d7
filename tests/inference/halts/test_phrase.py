"""The phrase halt: found across tokens, asleep behind a mark."""

from __future__ import annotations

import pytest

from breadth.base.errors import SettingsError
from breadth.inference.halts.phrase import Phrase

NONE = float("nan")


def halted_at(rule: Phrase, tokens: list[str]) -> int | None:
    watcher = rule.watch()
    return next((place for place, token in enumerate(tokens) if watcher.push(token, NONE, NONE)), None)


def test_a_phrase_is_found_within_and_across_tokens() -> None:
    assert halted_at(Phrase(("Wait",)), ["So ", "it is 4.", " Wait,", " no"]) == 2
    assert halted_at(Phrase(("Wait",)), ["So ", "Wa", "it", " no"]) == 2
    assert halted_at(Phrase(("Alternatively", "Wait")), ["W", "ai", "s Altern", "ative", "ly"]) == 4


def test_a_phrase_is_not_made_up_of_parts_with_something_between() -> None:
    assert halted_at(Phrase(("Wait",)), ["Wa", "-", "it"]) is None


def test_single_characters_do() -> None:
    assert halted_at(Phrase(("\n",)), ["a", "b\nc"]) == 1


def test_it_sleeps_behind_the_mark() -> None:
    rule = Phrase(("Wait",), until="</think>")
    assert halted_at(rule, ["x</thi", "nk>", " Wait"]) is None
    assert halted_at(rule, ["</think> Wait"]) is None
    assert halted_at(rule, ["Wait</think>"]) == 0
    assert halted_at(rule, ["</think", "Wait"]) == 1


@pytest.mark.parametrize("texts", [(), ("",), ("a", "")])
def test_bad_settings_are_refused(texts: tuple[str, ...]) -> None:
    with pytest.raises(SettingsError, match="texts"):
        Phrase(texts)
