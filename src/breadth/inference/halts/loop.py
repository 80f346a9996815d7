"""End a completion that goes round in circles."""

from __future__ import annotations

from dataclasses import dataclass

from breadth.base.checks import require
from breadth.inference.halting import Halt, Watcher
from breadth.measure.degeneracy import tail_loop

_KEPT = 8192
# Characters looked back on: room for four turns of a loop of 200 tokens at ten characters each.
_PROBE = 24
# A text whose last characters did not occur before is in no loop: a cheap test that spares nearly all of the dear one.


@dataclass(frozen=True)
class Loop(Halt):
    """End a completion whose last ``least`` tokens or more are one passage over and over, at least four times.

    Passages of up to 200 rough tokens (see `breadth.measure.degeneracy.tail_loop`), whatever the server calls a token. Looked for
    every ``every`` tokens, which bounds what a loop wastes. No published rule was found: both numbers are ours; honest
    tables and rows of marks repeat for less than 200 tokens. White space without end is a loop too, from four characters a token.
    Harm: a task whose right answer is one line repeated (a matrix of zeros, a drawing) is cut.
    """

    least: int = 200
    """Rough tokens the loop must have lasted."""
    every: int = 32
    """Tokens from one look to the next."""

    def __post_init__(self) -> None:
        require(self, "least", self.least >= 4, "at least four tokens")
        require(self, "every", self.every >= 1, "at least one token")

    def watch(self) -> Watcher:
        """Return a watcher for one completion."""
        return _Tail(self)


class _Tail:
    """The end of a text as it grows."""

    def __init__(self, rule: Loop) -> None:
        self.rule = rule
        self.text = ""
        self.fresh: list[str] = []

    def push(self, text: str, logprob: float, confidence: float) -> bool:
        """Take the next token; look at the text every so often."""
        del logprob, confidence
        self.fresh.append(text)
        return len(self.fresh) >= self.rule.every and self._looped()

    def _looped(self) -> bool:
        self.text = (self.text + "".join(self.fresh))[-_KEPT:]
        self.fresh.clear()
        if self.text.rfind(self.text[-_PROBE:], 0, -1) < 0:
            return False
        if len(self.text) - len(self.text.rstrip()) >= 4 * self.rule.least:
            return True
        loop = tail_loop(self.text)
        return loop is not None and loop.length >= self.rule.least
