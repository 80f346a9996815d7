"""The ledger: ceilings that are never passed, reservations that free what was not used, everything charged."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from dataclasses import astuple
from typing import Any, TypeVar

import pytest

from breadth.base.errors import SettingsError
from breadth.inference.records import Budget, Prices, Spend
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


def test_an_account_starts_with_nothing_spent_and_nothing_held() -> None:
    ledger = Ledger()
    assert ledger.spent == Spend()
    assert ledger.reservations == []
    assert ledger.reserved == Reservation(0, 0, 0, 0.0)


def test_what_is_held_is_the_sum_of_what_is_in_flight() -> None:
    ledger = Ledger(prices=Prices(input=1.0, output=2.0))
    first, second, third = reserved(ledger, 10, 100), reserved(ledger, 20, 50), reserved(ledger, 40, 30)
    # Money in millionths: 10 + 200, 20 + 100, 40 + 60.
    assert astuple(ledger.reserved) == pytest.approx((3, 70, 180, 430e-6))
    ledger.settle(second, Spend(calls=1))
    assert astuple(ledger.reserved) == pytest.approx((2, 50, 130, 310e-6))
    ledger.settle(first, Spend(calls=1))
    assert astuple(ledger.reserved) == pytest.approx((1, 40, 30, 100e-6))
    assert ledger.reservations == [third]


def account(budget: Budget, prices: Prices = Prices()) -> Ledger:  # noqa: B008 - frozen
    """An account that spent 2 calls of 30 and 40 tokens, and holds 1 of 10 and 20."""
    ledger = Ledger(prices=prices)
    for _ in range(2):
        ledger.settle(reserved(ledger, 15, 20), Spend(calls=1, input_tokens=15, output_tokens=20))
    reserved(ledger, 10, 20)
    ledger.budget = budget
    return ledger


@pytest.mark.parametrize(
    ("budget", "input_tokens", "room"),
    [
        (Budget(), 1, float("inf")),
        (Budget(calls=3), 1, 0.0),
        (Budget(calls=4), 1, float("inf")),
        (Budget(input_tokens=45), 5, float("inf")),
        (Budget(input_tokens=45), 6, 0.0),
        (Budget(output_tokens=100), 1, 40.0),
        (Budget(calls=4, input_tokens=45, output_tokens=61), 5, 1.0),
    ],
)
def test_spent_and_held_tokens_both_take_room(budget: Budget, input_tokens: int, room: float) -> None:
    assert account(budget).output_room(input_tokens) == room


def test_spent_and_held_money_both_take_room() -> None:
    prices = Prices(input=10.0, output=20.0)
    # In millionths: 2 times 150 + 400 spent, 100 + 400 held, 100 for this prompt. Of 2,000 are 300 left, at 20 each.
    ledger = account(Budget(money=0.0020), prices)
    assert ledger.output_room(10) == pytest.approx(15.0)
    assert account(Budget(money=0.0020, output_tokens=70), prices).output_room(10) == 10.0


def test_where_writing_is_free_money_is_for_the_prompt_only() -> None:
    prices = Prices(input=1.0)
    assert Ledger(Budget(money=10e-6), prices).output_room(10) == float("inf"), "exactly enough"
    assert Ledger(Budget(money=10e-6), prices).output_room(11) == 0.0


def test_the_nearest_deadline_of_account_and_parent_counts() -> None:
    now = [100.0]

    def clock() -> float:
        return now[0]

    parent = Ledger(Budget(seconds=10), clock=clock)
    now[0] = 104.0
    child = Ledger(Budget(seconds=7), parent=parent, clock=clock)
    assert (parent.time_left, child.time_left) == (6.0, 6.0)
    assert (parent.seconds_since_open, child.seconds_since_open) == (4.0, 0.0)
    parent.budget = Budget()
    now[0] = 110.0
    assert (parent.time_left, child.time_left) == (None, 1.0)
    before, now[0] = child.is_out_of_time, 111.0
    assert (before, child.is_out_of_time) == (False, True), "the deadline itself is too late"
    assert child.grantable_tokens(0, 10) == 0
    assert not parent.is_out_of_time


def test_only_whole_completions_say_what_a_draw_needs() -> None:
    ledger = Ledger(Budget(output_tokens=150))
    ledger.settle(reserved(ledger), Spend(calls=1, output_tokens=90), whole=False)
    assert ledger.mean_completion_tokens.count == 0
    assert reserved(ledger) == Reservation(1, 10, 60, 0.0), "a cut sample does not say that 60 tokens are too few"


def test_exactly_the_usual_length_is_enough() -> None:
    ledger = Ledger(Budget(output_tokens=150))
    ledger.settle(reserved(ledger), Spend(calls=1, output_tokens=75))
    assert ledger.mean_completion_tokens.count == 1
    assert reserved(ledger) == Reservation(1, 10, 75, 0.0)


def test_a_draw_that_wants_little_is_not_held_to_the_usual_length() -> None:
    ledger = Ledger(Budget(output_tokens=100))
    ledger.settle(reserved(ledger), Spend(calls=1, output_tokens=80))
    assert ledger.grantable_tokens(0, 20) == 20
    assert ledger.grantable_tokens(0, 21) == 0, "20 are left: less than wanted, and less than 21 is a waste"


def test_a_draw_that_wants_more_than_is_free_waits_only_while_some_is_held() -> None:
    ledger = Ledger(Budget(output_tokens=100))
    first = reserved(ledger, 0, 60)
    assert ledger.grantable_tokens(0, 40) == 40, "exactly what is free"
    assert ledger.grantable_tokens(0, 41) is None
    ledger.settle(first, Spend(calls=1, output_tokens=50), whole=False)
    assert ledger.grantable_tokens(0, 51) == 50


@pytest.mark.parametrize(("of_parent", "of_child"), [(60, 80), (80, 60)])
def test_the_account_with_least_left_grants(of_parent: int, of_child: int) -> None:
    parent = Ledger(Budget(output_tokens=of_parent))
    assert Ledger(Budget(output_tokens=of_child), parent=parent).grantable_tokens(0, 100) == 60


def test_a_charge_carries_its_price_in_every_account() -> None:
    parent = Ledger(prices=Prices(input=1.0, output=2.0))
    child = Ledger(prices=Prices(input=99.0), parent=parent)
    charged = child.settle(None, Spend(1, 10, 0, 20, 3.0))
    assert astuple(charged) == pytest.approx((1, 10, 0, 20, 3.0, 50e-6))
    assert child.spent == parent.spent == charged
    assert parent.mean_completion_tokens.value == 20.0
    assert child.accounts == [child, parent]


def test_everybody_who_waits_is_woken_and_one_who_left_does_no_harm() -> None:
    async def main() -> list[Reservation | None]:
        ledger = Ledger(Budget(output_tokens=100))
        first = await ledger.reserve(0, 100)
        gone, *waiting = [asyncio.create_task(ledger.reserve(0, 30)) for _ in range(3)]
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.sleep(0)
        ledger.settle(first, Spend(calls=1, output_tokens=10))
        return [await task for task in waiting]

    assert run(main()) == [Reservation(1, 0, 30, 0.0)] * 2


def test_it_waits_for_just_the_time_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now, waits = [0.0], list[float]()

    async def wait(futures: list[asyncio.Future[None]], timeout: float) -> None:
        waits.append(timeout)
        now[0] += timeout

    async def main() -> Reservation | None:
        ledger = Ledger(Budget(calls=1, seconds=0.25), clock=lambda: now[0])
        await ledger.reserve(0, 10)
        return await ledger.reserve(0, 10)

    with monkeypatch.context() as patch:
        patch.setattr("breadth.runtime.ledger.asyncio.wait", wait)
        assert asyncio.run(main()) is None
    assert waits == [0.25]


def test_a_single_token_is_granted_where_none_or_one_is_usual() -> None:
    ledger = Ledger(Budget(output_tokens=2))
    ledger.settle(None, Spend(calls=1, output_tokens=1), whole=False)
    assert ledger.grantable_tokens(0, 5) == 1
    short = Ledger(Budget(output_tokens=2))
    short.settle(None, Spend(calls=1, output_tokens=1))
    assert short.grantable_tokens(0, 5) == 1
    empty = Ledger(Budget(output_tokens=1))
    empty.settle(None, Spend(calls=1, output_tokens=1))
    assert empty.grantable_tokens(0, 5) == 0
