"""The ledger: ceilings that are never passed, reservations that free what was not used, everything charged."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from breadth.base.errors import SettingsError
from breadth.inference.budget import Budget, Prices, Spend
from breadth.runtime.ledger import Ledger, Reservation

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, 10))


def reserved(ledger: Ledger, input_tokens: int = 10, output_tokens: int = 100) -> Reservation | None:
    return run(ledger.reserve(input_tokens, output_tokens))


def test_an_unlimited_account_grants_what_is_asked() -> None:
    grant = reserved(Ledger(), 10, 100)
    assert grant == Reservation(1, 10, 100, 0.0)


def test_money_is_the_price_of_a_million_tokens() -> None:
    prices = Prices(input=2.0, cached=0.5, output=8.0)
    # 600 fresh at 2, 400 cached at 0.5, 100 written at 8: 1200 + 200 + 800 millionths.
    assert prices.cost_of(Spend(input_tokens=1000, cached_tokens=400, output_tokens=100)) == pytest.approx(0.0022)


def test_what_was_not_used_is_free_again() -> None:
    ledger = Ledger(Budget(output_tokens=150))
    first = reserved(ledger)
    ledger.settle(first, Spend(calls=1, output_tokens=30))
    assert ledger.spent.output_tokens == 30
    assert ledger.reservations == []
    assert reserved(ledger) == Reservation(1, 10, 100, 0.0)


def test_a_reservation_waits_for_draws_in_flight() -> None:
    async def main() -> tuple[bool, Reservation | None]:
        ledger = Ledger(Budget(output_tokens=150))
        first = await ledger.reserve(0, 100)
        second = asyncio.create_task(ledger.reserve(0, 100))
        await asyncio.sleep(0.01)
        waited = not second.done()
        ledger.settle(first, Spend(calls=1, output_tokens=20))
        return waited, await second

    waited, second = run(main())
    assert waited
    assert second is not None
    assert second.output_tokens == 100


def test_the_last_draw_gets_what_is_left_unless_that_is_a_waste() -> None:
    ledger = Ledger(Budget(output_tokens=150))
    ledger.settle(reserved(ledger), Spend(calls=1, output_tokens=90))
    assert reserved(ledger) is None, "60 tokens are left where completions take 90: the draw would be cut"
    roomy = Ledger(Budget(output_tokens=150))
    roomy.settle(reserved(roomy), Spend(calls=1, output_tokens=60))
    assert reserved(roomy) == Reservation(1, 10, 90, 0.0)


def test_the_first_draw_is_capped_by_a_small_budget() -> None:
    assert reserved(Ledger(Budget(output_tokens=7))) == Reservation(1, 10, 7, 0.0)


@pytest.mark.parametrize(
    "budget", [Budget(calls=0), Budget(output_tokens=0), Budget(input_tokens=9), Budget(seconds=0)]
)
def test_a_spent_account_grants_nothing(budget: Budget) -> None:
    assert reserved(Ledger(budget)) is None


def test_money_caps_the_output() -> None:
    ledger = Ledger(Budget(money=0.001), Prices(input=10.0, output=20.0))
    # 10 tokens read cost 0.0001, 0.0009 is left: 45 tokens at 20 a million.
    grant = reserved(ledger)
    assert grant is not None
    assert grant.output_tokens == 45
    assert reserved(Ledger(Budget(money=0.0), Prices(output=1.0))) is None


def test_an_account_above_limits_those_below() -> None:
    whole = Ledger(Budget(calls=2))
    one, two = Ledger(parent=whole), Ledger(parent=whole)
    for part in (one, two):
        part.settle(reserved(part), Spend(calls=1, output_tokens=5))
    assert reserved(one) is None
    assert whole.spent == Spend(calls=2, output_tokens=10)


def test_settling_in_one_account_wakes_another() -> None:
    async def main() -> Reservation | None:
        whole = Ledger(Budget(output_tokens=100))
        one, two = Ledger(parent=whole), Ledger(parent=whole)
        first = await one.reserve(0, 100)
        waiting = asyncio.create_task(two.reserve(0, 50))
        await asyncio.sleep(0)
        one.settle(first, Spend(output_tokens=10))
        return await waiting

    assert run(main()) == Reservation(1, 0, 50, 0.0)


def test_waiting_ends_at_the_deadline() -> None:
    async def main() -> Reservation | None:
        ledger = Ledger(Budget(calls=1, seconds=0.05))
        await ledger.reserve(0, 10)
        return await ledger.reserve(0, 10)

    assert run(main()) is None


def test_no_ceiling_is_ever_passed() -> None:
    async def draw(ledger: Ledger, rng: random.Random) -> None:
        grant = await ledger.reserve(rng.randint(0, 20), rng.randint(1, 60))
        if grant is not None:
            await asyncio.sleep(rng.random() / 1000)
            used = Spend(1, grant.input_tokens, 0, rng.randint(0, grant.output_tokens))
            ledger.settle(grant, used, whole=rng.random() < 0.7)
            assert ledger.spent.output_tokens <= 500
            assert ledger.spent.input_tokens <= 200
            assert ledger.spent.money <= 0.006

    async def main(seed: int) -> Ledger:
        rng = random.Random(seed)
        ledger = Ledger(Budget(input_tokens=200, output_tokens=500, money=0.006), Prices(input=1, output=10))
        await asyncio.gather(*(draw(ledger, rng) for _ in range(60)))
        return ledger

    for seed in range(20):
        ledger = run(main(seed))
        assert ledger.reservations == []
        assert ledger.spent.calls > 5


def test_a_negative_ceiling_is_refused() -> None:
    with pytest.raises(SettingsError, match="output_tokens = -1"):
        Budget(output_tokens=-1)


def test_a_spent_account_does_not_wait_for_what_others_draw() -> None:
    async def main() -> tuple[Reservation | None, Reservation | None]:
        whole = Ledger(Budget(output_tokens=10_000))
        busy = Ledger(parent=whole)
        spent, short = Ledger(Budget(calls=0), parent=whole), Ledger(Budget(output_tokens=30), parent=whole)
        await busy.reserve(0, 100)  # never settles
        return await spent.reserve(0, 100), await short.reserve(0, 100)

    assert run(main()) == (None, Reservation(1, 0, 30, 0.0)), "the second gets all that its account has left"


def test_nothing_is_held_when_nothing_is_promised() -> None:
    ledger = Ledger(Budget(money=1.0), Prices(input=0.1, output=0.7))
    grants = [reserved(ledger, 10 + size, 100 + size) for size in range(20)]
    for grant in reversed(grants):
        ledger.settle(grant, Spend(calls=1))
    assert ledger.reserved == Reservation(0, 0, 0, 0.0)
