"""Counters."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from breadth.base.errors import ServerError
from breadth.inference.records import Answer, Candidate, Prices, Spend, Task
from breadth.runtime.driver import SolveResult
from breadth.runtime.ledger import Ledger
from breadth.runtime.proxy.metrics import CountedSampler, Metrics
from breadth.runtime.sampler import Meter, SampleRequest

SOLVED = SolveResult(Task("?"), Answer(stopped="agreed"), Spend(), (), 5, 0, 0, {}, None, 0.1, False, "t")


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


class Scripted:
    """Answers, fails or hangs."""

    offers = frozenset({"seed"})
    closed = False

    async def sample(self, request: SampleRequest, meter: Meter) -> Candidate:
        if request.model == "bad":
            raise ServerError("no", "no")
        if request.model == "slow":
            await asyncio.Event().wait()
        return Candidate("x")

    async def close(self) -> None:
        self.closed = True


def test_every_draw_is_counted_by_what_became_of_it() -> None:
    async def main() -> None:
        metrics = Metrics(Ledger())
        sampler = CountedSampler(inner := Scripted(), metrics)
        assert sampler.offers == {"seed"}
        assert (await sampler.sample(SampleRequest("?"), Meter())).text == "x"
        with pytest.raises(ServerError):
            await sampler.sample(SampleRequest("?", model="bad"), Meter())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(sampler.sample(SampleRequest("?", model="slow"), Meter()), 0.01)
        for outcome in ("arrived", "failed", "discarded"):
            assert value(metrics, "breadth_samples_total", outcome=outcome) == 1
        await sampler.close()
        assert inner.closed

    asyncio.run(main())


def test_tokens_and_money_are_the_ledgers() -> None:
    ledger = Ledger(prices=Prices(input=1.0, cached=0.5, output=2.0))
    metrics = Metrics(ledger)
    ledger.settle(None, Spend(2, 1_000_000, 400_000, 500_000, 1.0))
    assert [value(metrics, "breadth_tokens_total", direction=way) for way in ("in", "cached", "out")] == [1e6, 4e5, 5e5]
    assert value(metrics, "breadth_upstream_requests_total") == 2
    assert value(metrics, "breadth_money_total") == pytest.approx(0.6 + 0.2 + 1.0)


def test_saved_draws_are_those_a_decided_vote_did_not_need() -> None:
    metrics = Metrics(Ledger())
    metrics.count_saved(SOLVED, 40)
    metrics.count_saved(SOLVED, None)
    metrics.count_saved(replace(SOLVED, answer=Answer(stopped="most")), 40)
    assert value(metrics, "breadth_samples_saved_total") == 35


def test_the_page_is_prometheus_text() -> None:
    metrics = Metrics(Ledger())
    metrics.count_request("/v1/completions", "vote", 200, 0.3)
    page = metrics.render().decode()
    assert 'breadth_requests_total{path="/v1/completions",policy="vote",status="200"} 1.0' in page
    assert 'breadth_request_seconds_bucket{le="0.5",policy="vote"} 1.0' in page
