"""Counters of the proxy for Prometheus: requests, samples by outcome, tokens, seconds. No label has client text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from breadth.base.errors import ServerError
from breadth.inference.records import Candidate
from breadth.runtime.driver import SolveResult
from breadth.runtime.ledger import Ledger
from breadth.runtime.sampler import Meter, Sampler, SampleRequest

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LATENCY_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
"""Edges of the histogram: from a cached short reply to the default deadline."""


class Metrics:
    """The counters of one proxy, in a registry of their own."""

    def __init__(self, ledger: Ledger) -> None:
        self.registry = CollectorRegistry()
        """What ``/metrics`` prints."""
        registry = self.registry
        self.requests = Counter(
            "breadth_requests",
            "Requests answered, by path, policy and HTTP status.",
            ["path", "policy", "status"],
            registry=registry,
        )
        self.samples = Counter(
            "breadth_samples",
            "Samples from the upstream by outcome: arrived, failed, discarded.",
            ["outcome"],
            registry=registry,
        )
        self.saved = Counter(
            "breadth_samples_saved",
            "Samples that policies were allowed and did not need: the vote was decided.",
            registry=registry,
        )
        self.seconds = Histogram(
            "breadth_request_seconds",
            "Seconds from request to reply.",
            ["policy"],
            buckets=LATENCY_BUCKETS,
            registry=registry,
        )
        self.in_flight = Gauge("breadth_requests_in_flight", "Requests being answered.", registry=registry)
        for outcome in ("arrived", "failed", "discarded"):
            self.samples.labels(outcome)
        self.registry.register(LedgerCollector(ledger))

    def count_request(self, path: str, policy: str, status: int, seconds: float) -> None:
        """Count a request."""
        self.requests.labels(path, policy, str(status)).inc()
        self.seconds.labels(policy).observe(seconds)

    def count_sample(self, outcome: str) -> None:
        """Count a sample."""
        self.samples.labels(outcome).inc()

    def count_saved(self, result: SolveResult, max_samples: int | None) -> None:
        """Count the samples that a vote did not need."""
        if result.answer.stopped == "agreed" and max_samples is not None:
            self.saved.inc(max(max_samples - result.started, 0))

    def render(self) -> bytes:
        """Return all counters in Prometheus' text format."""
        return generate_latest(self.registry)


class LedgerCollector(Collector):
    """Reads the ledger when Prometheus asks; it includes samples that failed or were cancelled."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def collect(self) -> Iterable[Metric]:
        """Yield the totals."""
        spent = self._ledger.spent
        tokens = CounterMetricFamily(
            "breadth_tokens", "Tokens, of aborted samples too: in, of those cached, out.", labels=["direction"]
        )
        for direction, count in (
            ("in", spent.input_tokens),
            ("cached", spent.cached_tokens),
            ("out", spent.output_tokens),
        ):
            tokens.add_metric([direction], count)
        yield tokens
        yield CounterMetricFamily(
            "breadth_upstream_requests", "Requests made to the upstream, retries included.", value=spent.calls
        )
        yield CounterMetricFamily("breadth_money", "What that cost by the prices of the policy.", value=spent.money)


@dataclass
class CountedSampler:
    """A sampler whose samples are counted by outcome."""

    inner: Sampler
    """Where samples come from."""
    metrics: Metrics
    """Where they are counted."""

    @property
    def offers(self) -> frozenset[str]:
        """What the sampler can do."""
        return self.inner.offers

    async def sample(self, request: SampleRequest, meter: Meter) -> Candidate:
        """Sample and count."""
        outcome = "discarded"
        try:
            candidate = await self.inner.sample(request, meter)
            outcome = "arrived"
        except ServerError:
            outcome = "failed"
            raise
        finally:
            self.metrics.count_sample(outcome)
        return candidate

    async def close(self) -> None:
        """Close the sampler."""
        await self.inner.close()
