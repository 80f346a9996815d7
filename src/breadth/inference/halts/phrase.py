"""End a completion when a phrase appears in it."""

from __future__ import annotations

from dataclasses import dataclass

from breadth.base.checks import require
from breadth.inference.halting import Halt, Watcher


@dataclass(frozen=True)
class Phrase(Halt):
    """End a completion when one of some phrases appears.

    Unlike a stop text, the phrase stays in what was drawn, and the completion ends as halted: a server's 'stop' does not tell a stop
    text from the model's own ending.
    """

    texts: tuple[str, ...]
    """Phrases to look for."""
    until: str = ""
    """Once this has appeared the rule sleeps; empty is never. A closing mark, where only thinking is to be watched."""

    def __post_init__(self) -> None:
        require(self, "texts", len(self.texts) > 0 and all(self.texts), "one phrase or more, none empty")

    def watch(self) -> Watcher:
        """Return a watcher for one completion."""
        return _PhraseWatcher(self)


@dataclass
class _PhraseWatcher:
    rule: Phrase
    tail: str = ""
    asleep: bool = False

    def push(self, text: str, logprob: float, confidence: float) -> bool:
        del logprob, confidence
        if self.asleep:
            return False
        self.tail += text
        found = [place for phrase in self.rule.texts if (place := self.tail.find(phrase)) >= 0]
        end = self.tail.find(self.rule.until) if self.rule.until else -1
        self.asleep = end >= 0 and all(end < place for place in found)
        kept = max(map(len, (*self.rule.texts, self.rule.until))) - 1
        self.tail = self.tail[-kept:] if kept else ""
        return bool(found) and not self.asleep
