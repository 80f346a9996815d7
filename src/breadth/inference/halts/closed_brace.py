"""End a completion when the brace it opened is closed."""

from __future__ import annotations

from dataclasses import dataclass

from breadth.inference.halting import Halt, Watcher


@dataclass(frozen=True)
class ClosedBrace(Halt):
    r"""End a completion when the first brace it opens is closed again: the end of what follows ``\boxed``."""

    def watch(self) -> Watcher:
        """Return a watcher for one completion."""
        return _BraceWatcher()


@dataclass
class _BraceWatcher:
    depth: int = 0

    def push(self, text: str, logprob: float, confidence: float) -> bool:
        del logprob, confidence
        for character in text:
            if character == "{":
                self.depth += 1
            elif character == "}" and self.depth:
                self.depth -= 1
                if not self.depth:
                    return True
        return False
