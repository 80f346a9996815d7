"""What the proxy's clients may use at most, and how long they are waited for."""

from __future__ import annotations

from dataclasses import dataclass, fields

from breadth.base.checks import require
from breadth.inference.budget import Budget

LONGEST = 7 * 24 * 3600.0


@dataclass(frozen=True)
class Limits:
    """Ceilings the operator sets; no request gets past them."""

    body: int = 8_000_000
    """Bytes of a request's body at most: a long chat with a picture or two; more is refused before it is read."""
    clients: int = 256
    """Requests answered at once at most; more are told to come back (429), so that those being answered are not starved."""
    draws: int = 256
    """Draws for one request at most, whatever its policy says. Papers vote over 40 to 512 draws (arXiv 2203.11171, 2508.15260)."""
    seconds: float = 600.0
    """Deadline of a request; what has arrived by then is answered with. The openai SDK gives up after as long."""
    heartbeat: float = 5.0
    """Seconds of silence after which a streamed vote sends a comment, so that nothing on the way takes it for dead; most proxies wait 30 s
    or more. Until the first one an error still has its own HTTP status."""
    drain: float = 25.0
    """Seconds that requests in flight are given when the server is told to end; Kubernetes kills after 30."""

    def __post_init__(self) -> None:
        require(self, "body", self.body >= 1, "at least one byte")
        require(self, "clients", self.clients >= 1, "at least one request at once")
        require(self, "draws", self.draws >= 1, "at least one draw")
        require(self, "seconds", 0 < self.seconds <= LONGEST, "more than 0 seconds and at most a week")
        require(self, "heartbeat", 0 < self.heartbeat <= LONGEST, "more than 0 seconds and at most a week")
        require(self, "drain", 0 <= self.drain <= LONGEST, "0 or more seconds and at most a week")

    @property
    def budget(self) -> Budget:
        """The ceilings as a budget."""
        return Budget(calls=self.draws, seconds=self.seconds)


def tightest(*budgets: Budget) -> Budget:
    """Return the budget that holds all of several."""
    ceilings = {}
    for spec in fields(Budget):
        given = [value for budget in budgets if (value := getattr(budget, spec.name)) is not None]
        ceilings[spec.name] = min(given, default=None)
    return Budget(**ceilings)
