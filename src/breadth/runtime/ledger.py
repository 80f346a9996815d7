"""The ledger: what has been spent, what is reserved for samples in flight, and how much is left.

A sample reserves before it starts and settles when it ends, however it ends: what an aborted or discarded sample used
is charged like any other. A reservation is for the worst case, so no ceiling is ever exceeded; the unused part is free
again when it settles.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from breadth.base.stats import Mean
from breadth.inference.records import Budget, Prices, Spend


@dataclass(frozen=True)
class Reservation:
    """What is reserved for one sample."""

    calls: int
    """Requests: 1."""
    input_tokens: int
    """Tokens of its prompt, estimated."""
    output_tokens: int
    """Tokens it may write at most."""
    money: float
    """Cost at most."""

    def __add__(self, other: Reservation) -> Reservation:
        return Reservation(
            self.calls + other.calls,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.money + other.money,
        )

    def __sub__(self, other: Reservation) -> Reservation:
        return self + Reservation(-other.calls, -other.input_tokens, -other.output_tokens, -other.money)


class Ledger:
    """One account: spent, reserved, ceilings. It may have a parent, whose ceilings apply too."""

    def __init__(
        self,
        budget: Budget = Budget(),  # noqa: B008 - frozen
        prices: Prices = Prices(),  # noqa: B008 - frozen
        *,
        parent: Ledger | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.budget = budget
        """Its ceilings."""
        self.prices: Prices = prices if parent is None else parent.prices
        """Prices of tokens."""
        self.parent = parent
        """The account this one is part of."""
        self.spent = Spend()
        """What settled samples used."""
        self.reservations: list[Reservation] = []
        """Reservations not yet settled."""
        self.reserved = Reservation(0, 0, 0, 0.0)
        """Their sum."""
        self.mean_completion_tokens = Mean()
        """Mean tokens of the completions that arrived whole: what a sample is expected to need."""
        self._clock = clock
        self._started = clock()
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def seconds_since_open(self) -> float:
        """Seconds since the account was opened."""
        return self._clock() - self._started

    @property
    def time_left(self) -> float | None:
        """Seconds until the nearest deadline of this account and its parents; None without one."""
        own = None if self.budget.seconds is None else self.budget.seconds - self.seconds_since_open
        above = None if self.parent is None else self.parent.time_left
        return min((left for left in (own, above) if left is not None), default=None)

    async def reserve(self, input_tokens: int, output_tokens: int) -> Reservation | None:
        """Reserve what a sample may need at most; None when the budget can never allow it.

        Where less output is left than wanted, the sample gets the rest once nothing else is in flight, unless that is
        less than completions usually need: a sample that will be cut is a waste. It waits only while samples in flight
        may still free some: an exhausted account refuses at once, whatever other accounts do.
        """
        while (granted := self.grantable_tokens(input_tokens, output_tokens)) is None:
            await self._wait_for_settlement()
        if not granted:
            return None
        reservation = Reservation(1, input_tokens, granted, self.price(input_tokens, granted))
        for account in self.accounts:
            account.reservations.append(reservation)
            account.reserved += reservation
        return reservation

    def settle(self, reservation: Reservation | None, used: Spend, *, whole: bool = True) -> Spend:
        """Charge what a sample used, with its price, and free its reservation; ``whole`` when it ended by itself."""
        used = Spend(
            used.calls,
            used.input_tokens,
            used.cached_tokens,
            used.output_tokens,
            used.seconds,
            self.prices.cost_of(used),
        )
        for account in self.accounts:
            account.spent += used
            if reservation is not None:
                account.reservations.remove(reservation)
                account.reserved = (
                    account.reserved - reservation if account.reservations else Reservation(0, 0, 0, 0.0)
                )  # no rounding left over
            if whole:
                account.mean_completion_tokens += Mean(used.output_tokens, 1)
        root = self.accounts[-1]
        waiting, root._waiting = root._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)
        return used

    @property
    def accounts(self) -> list[Ledger]:
        """The account and its parents."""
        return [self] if self.parent is None else [self, *self.parent.accounts]

    @property
    def is_out_of_time(self) -> bool:
        """Whether a deadline of this account or its parents has passed."""
        left = self.time_left
        return left is not None and left <= 0

    def grantable_tokens(self, input_tokens: int, output_tokens: int) -> int | None:
        """Return the output tokens every account can reserve now; 0 when none ever can, None while some may be freed.

        Only an account's own reservations can become free in it: samples of other accounts are not waited for.
        """
        if self.is_out_of_time:
            return 0
        rooms = [(account.output_room(input_tokens), bool(account.reservations)) for account in self.accounts]
        short = [(room, busy) for room, busy in rooms if room < output_tokens]
        least = (
            max(1.0, min(self.mean_completion_tokens.value, output_tokens))
            if self.mean_completion_tokens.count
            else 1.0
        )
        if any(room < least and not busy for room, busy in short):
            return 0
        if any(busy for _, busy in short):
            return None
        return int(min((room for room, _ in short), default=output_tokens))

    def output_room(self, input_tokens: int) -> float:
        """Return the output tokens this account has left for a sample with this prompt."""
        limits, spent, held = self.budget, self.spent, self.reserved
        if limits.calls is not None and spent.calls + held.calls + 1 > limits.calls:
            return 0.0
        if (
            limits.input_tokens is not None
            and spent.input_tokens + held.input_tokens + input_tokens > limits.input_tokens
        ):
            return 0.0
        room = (
            float("inf")
            if limits.output_tokens is None
            else limits.output_tokens - spent.output_tokens - held.output_tokens
        )
        if limits.money is not None:
            money = limits.money - spent.money - held.money - self.price(input_tokens, 0)
            if self.prices.output:
                affordable = money / self.prices.output * 1e6 * (1 + 1e-12)
            else:
                affordable = float("inf") if money >= 0 else 0.0
            room = min(room, affordable)
        return room

    def price(self, input_tokens: int, output_tokens: int) -> float:
        """Return the cost of so many tokens."""
        return self.prices.cost_of(Spend(input_tokens=input_tokens, output_tokens=output_tokens))

    async def _wait_for_settlement(self) -> None:
        """Wait until some sample settles, or the time is up."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.accounts[-1]._waiting.append(future)
        left = self.time_left
        if left is None:
            await future
        else:
            await asyncio.wait([future], timeout=max(left, 0))
