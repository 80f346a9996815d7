"""The contract of halt rules: a frozen rule that starts a fresh watcher for each completion."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass

import pytest

from breadth.inference.halting import Halt, Watcher
from breadth.inference.records import Ask


class _Tokens:
    def __init__(self, left: int) -> None:
        self.left = left

    def push(self, text: str, logprob: float, confidence: float) -> bool:
        self.left -= 1
        return self.left <= 0


@dataclass(frozen=True)
class After(Halt):
    """End after a number of tokens."""

    tokens: int = 2
    """How many."""

    def watch(self) -> Watcher:
        """Return a watcher."""
        return _Tokens(self.tokens)


def test_a_rule_of_ones_own_fits_into_a_request() -> None:
    ask = Ask(3, halt=After(2))
    assert ask.halt is not None
    assert ask.halt.top_logprobs == 0
    first, second = ask.halt.watch(), ask.halt.watch()
    assert [first.push("a", -1, 1), first.push("b", -1, 1), second.push("a", -1, 1)] == [False, True, False]
    assert ask == Ask(3, halt=After(2))


def test_what_it_must_see_is_no_setting_unless_it_says_so() -> None:
    with pytest.raises(TypeError):
        After(top_logprobs=3)  # type: ignore[call-arg]  # wrong on purpose
    with pytest.raises(FrozenInstanceError):
        After().tokens = 3  # type: ignore[misc]  # wrong on purpose


def test_a_rule_without_a_watcher_is_no_rule() -> None:
    with pytest.raises(TypeError, match="watch"):
        Halt()  # type: ignore[abstract]  # wrong on purpose
