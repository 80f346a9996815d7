"""One reply as it is being written: tokens in, pieces of text out, held back while they may turn out to begin a stop text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from breadth.lab.server.requests import Wanted
from breadth.lab.task.wording import Wording

if TYPE_CHECKING:
    from breadth.lab.sampling.engine import Token


@dataclass(frozen=True)
class Entry:
    """The log-prob of a token, with the likeliest ones at its place."""

    text: str
    """What the token adds."""
    logprob: float
    """Its log-prob."""
    top: tuple[tuple[str, float], ...]
    """The likeliest tokens there, by text, likeliest first."""


@dataclass(frozen=True)
class Piece:
    """What a token adds to a reply."""

    raw: str
    """As the model wrote it."""
    shown: str
    """As the client is shown it: without the marks of thinking where that is set apart."""
    thought: bool
    """Whether it belongs to thinking that is set apart."""
    entry: Entry | None
    """Its log-prob, where asked for; None as well for what a stop text left of a token."""


class Writing:
    """One reply of a request.

    Thinking is set apart from the answer when ``apart``, else it stands in the text with its marks.
    """

    def __init__(self, wanted: Wanted, wording: Wording, index: int = 0, *, apart: bool = False) -> None:
        self.index = index
        """Which reply of the request it is."""
        self.finish: str | None = None
        """Why it ended; None while it goes on."""
        self.tokens = 0
        """Tokens drawn, the end and those that a stop text swallowed included."""
        self.thinking = 0
        """Of those, the ones between the marks of thinking."""
        self._wording, self._stops, self._alternatives = wording, wanted.sampling.stop, wanted.alternatives
        self._apart = apart and wanted.chat
        self._before, self._fresh = wanted.before[-1:], False
        self._thinks = wording.thinks(wanted.tokens)
        self._held: list[Piece] = []

    def take(self, token: Token) -> list[Piece]:
        """Take a token in and return the pieces that can be shown."""
        if self.finish is not None:
            return []  # it was drawn before the engine heard that the reply has ended
        self.tokens += 1
        if token.id != self._wording.end:
            self._held.append(self._piece(token))
        if (end := self._stopped()) is not None:
            self.finish = "stop"
            return self._until(end)
        self.finish = token.last or None
        return self._release(0 if self.finish else self._doubtful())

    def _piece(self, token: Token) -> Piece:
        """Return what a token adds, and follow the marks of thinking."""
        raw = self._wording.text(token.id, self._before)
        opens = token.id == self._wording.open and not self._thinks
        closes = token.id == self._wording.close and self._thinks
        thought = opens or self._thinks
        self.thinking += thought and not opens and not closes
        shown = raw.lstrip() if self._fresh and self._apart else raw
        piece = Piece(
            raw, "" if self._apart and (opens or closes) else shown, thought and self._apart, self._entry(token, raw)
        )
        self._thinks, self._fresh, self._before = thought and not closes, opens or closes, raw[-1:]
        return piece

    def _entry(self, token: Token, raw: str) -> Entry | None:
        if self._alternatives is None:
            return None
        top = tuple(
            (self._wording.text(other, self._before), logprob) for other, logprob in token.top[: self._alternatives]
        )
        return Entry(raw, token.logprob, top)

    def _stopped(self) -> int | None:
        """Return where in the text held back the first stop text begins."""
        text = "".join(piece.raw for piece in self._held)
        return min((place for stop in self._stops if (place := text.find(stop)) >= 0), default=None)

    def _doubtful(self) -> int:
        """Return how many characters at the end may be the beginning of a stop text."""
        text = "".join(piece.raw for piece in self._held)
        return max(
            (size for stop in self._stops for size in range(1, len(stop)) if text.endswith(stop[:size])), default=0
        )

    def _release(self, doubtful: int) -> list[Piece]:
        """Give out the pieces that end before the last so many characters."""
        kept = 0
        while doubtful > 0:
            kept += 1
            doubtful -= len(self._held[-kept].raw)
        out, self._held = self._held[: len(self._held) - kept], self._held[len(self._held) - kept :]
        return out

    def _until(self, end: int) -> list[Piece]:
        """Give out the text before a place; of a token that is cut in two, what is left has no log-prob."""
        out: list[Piece] = []
        for piece in self._held:
            if len(piece.raw) <= end:
                out.append(piece)
            elif end > 0:
                cut = "" if not piece.shown else piece.raw[:end]
                out.append(Piece(piece.raw[:end], cut, piece.thought, None))
            end -= len(piece.raw)
            if end <= 0:
                break
        return out
