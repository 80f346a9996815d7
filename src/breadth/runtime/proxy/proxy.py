"""What all requests of one proxy share, and what each leaves for the log and the counters."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from aiohttp import web

from breadth.base.errors import ServerError
from breadth.inference.records import Budget
from breadth.runtime.driver import Driver, SolveResult
from breadth.runtime.ledger import Ledger
from breadth.runtime.proxy.access import ClientSlots, Keys, ProxyLimits, tightest_budget
from breadth.runtime.proxy.client_request import ClientRequest
from breadth.runtime.proxy.errors import ApiError
from breadth.runtime.proxy.metrics import CountedSampler, Metrics
from breadth.runtime.proxy.routing import ChosenPolicy, ModelCache, Policies
from breadth.runtime.proxy.upstream import MAX_WAIT_SECONDS, UpstreamClient
from breadth.runtime.samplers.connection import Connection
from breadth.runtime.samplers.openai import OpenAISampler
from breadth.runtime.samplers.redaction import Redactor
from breadth.runtime.solve_context import new_trace_id


@dataclass
class RequestRecord:
    """What is known about one request when it is over."""

    path: str
    """Where it was sent."""
    redactor: Redactor = field(default_factory=Redactor)
    """Takes the upstream's key out of the stream to the client."""
    read_seconds: float = ProxyLimits.read_seconds
    """Seconds that the client has to take a piece of its reply."""
    trace: str = field(default_factory=new_trace_id)
    """Its id: in the reply, in the header ``x-request-id`` and in the log."""
    started_at: float = field(default_factory=time.monotonic)
    """When it came, on the monotonic clock."""
    policy: str = "none"
    """Policy that answered it; ``none`` when it was refused before that was known."""
    result: SolveResult | None = None
    """Its result, where it got that far."""
    stream: web.StreamResponse | None = None
    """The stream to the client, once started: no other reply can be sent then."""
    status: int | None = None
    """How it ended when that differs from the status sent: a stream that broke."""

    @property
    def seconds(self) -> float:
        """Seconds since it came."""
        return time.monotonic() - self.started_at

    def log_line(self, status: int) -> str:
        """Return the line of this request in the log."""
        line = f"{self.trace} {self.path} policy={self.policy} status={status} seconds={self.seconds:.3f}"
        result = self.result
        if result is None:
            return line
        samples = f"{result.started} arrived={len(result.arrived)} failed={result.failed} discarded={result.discarded}"
        upstream = "" if result.last_error is None else f" upstream={result.last_error.status or 'unreachable'}"
        return f"{line} samples={samples} tokens={result.spend.input_tokens}+{result.spend.output_tokens}{upstream}"


class Proxy:
    """One upstream (or several of the same models), the policies, and the ledger of everything sampled.

    Tokens are priced as the server's own policy says, whatever policy a request names.
    """

    def __init__(
        self,
        sampler: OpenAISampler,
        policies: Policies,
        *,
        key: str | None = None,
        keys: Keys = Keys(),  # noqa: B008 - frozen
        limits: ProxyLimits = ProxyLimits(),  # noqa: B008 - frozen
        attempts: int = 3,
    ) -> None:
        # A client waits for the reply: it is asked to retry later instead.
        sampler.max_wait_seconds = min(sampler.max_wait_seconds, MAX_WAIT_SECONDS)
        self.sampler = sampler
        """Where samples come from."""
        self.policies = policies
        """How requests are answered."""
        self.keys = keys
        """Keys that clients need."""
        self.limits = limits
        """Ceilings for clients."""
        self.ledger = Ledger(prices=policies.default.policy.prices)
        """The account of everything sampled."""
        self.metrics = Metrics(self.ledger)
        """Counters for Prometheus."""
        self.driver = Driver(CountedSampler(sampler, self.metrics), self.ledger)
        """Runs policies."""
        for chosen in (policies.default, *policies.named.values()):
            self.driver.check(chosen.policy.strategy)  # now, not at the first request
        self.redactor = Redactor(key)
        """Takes the upstream's key out of everything that goes to clients and into the log."""
        self._connection = Connection(key=key)
        self.upstream_client = UpstreamClient(sampler.endpoints, key=key, attempts=attempts)
        """Passes requests on."""
        self.models = ModelCache(self.list_models)
        """Models of the upstreams."""
        self.bodies = ClientSlots(limits.max_bodies)
        """Bodies being received."""
        self.reading = asyncio.Lock()
        """Held while a large body is made sense of, which keeps the loop busy."""
        self.in_flight = 0
        """Requests that have come and are not answered yet."""
        self.answering = 0
        """Of those, the ones whose body has been read."""
        self.draining = False
        """Whether it is about to end and takes nothing new."""

    @property
    def upstreams(self) -> Sequence[str]:
        """Addresses of the upstreams, to be kept out of replies."""
        return [endpoint.url for endpoint in self.sampler.endpoints.all]

    async def choose(self, call: ClientRequest) -> tuple[ChosenPolicy, str]:
        """Return the policy for a request and the model to ask, without its policy suffix."""
        model, suffix = call.model, ""
        if "@" in model:
            try:
                known = await self.models.get()
            except ServerError:  # the request itself will show what is wrong with the upstream
                known = []
            model, suffix = self.policies.split(model, known)
        chosen = self.policies.choose(call.options.policy or suffix)
        most = tightest_budget(chosen.policy.budget, self.limits.budget).calls or 1
        if call.total_replies > most:
            message = (
                f"The request asks for {call.total_replies} replies, but this server samples at most {most} times for"
                " one."
            )
            raise ApiError(400, message, param="n", code="too_many_samples")
        if call.replies_per_prompt > 1 and not chosen.is_single:
            raise ApiError(
                400,
                f"The policy {chosen.label} gives one answer: leave n out, or use the policy single.",
                param="n",
                code="invalid_value",
            )
        return chosen, model or chosen.policy.model

    def budget(self, call: ClientRequest, chosen: ChosenPolicy) -> Budget:
        """Return the ceilings of a request: the tightest of its own, the policy's and the operator's."""
        return tightest_budget(call.options.budget, chosen.policy.budget, self.limits.budget)

    def max_reply_tokens(self, chosen: ChosenPolicy) -> int:
        """Return the most tokens of one reply: the operator's limit, and that of a policy that sets the sampling."""
        own = chosen.policy.sampling.max_tokens if chosen.sets_sampling else self.limits.max_tokens
        return min(own, self.limits.max_tokens)

    async def list_models(self) -> list[str]:
        """Return the models of every upstream that answers; raises ServerError when none does."""
        requests = [self._connection.list_models(url) for url in self.upstreams]
        replies = await asyncio.gather(*requests, return_exceptions=True)
        lists = [names for names in replies if not isinstance(names, BaseException)]
        if not lists:
            raise next(error for error in replies if isinstance(error, BaseException))
        return list(dict.fromkeys(name for names in lists for name in names))

    async def close(self) -> None:
        """Close the connections to the upstreams."""
        await self.models.close()
        await self._connection.close()
        await self.upstream_client.close()
        await self.sampler.close()


PIECE_BYTES = 2**16
"""Bytes that a client must take in the time it has for reading them."""


class RedactedStream(web.StreamResponse):
    """A stream to a client without the upstream's key; a client that does not read it is cut off."""

    redactor = Redactor()
    seconds = ProxyLimits.read_seconds
    transport: asyncio.Transport | None = None
    """Connection to the client."""

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send some bytes; raises ConnectionResetError when the client takes none for too long."""
        clean = memoryview(self.redactor.clean(bytes(data)))
        try:
            for start in range(0, len(clean), PIECE_BYTES):
                async with asyncio.timeout(self.seconds):
                    await super().write(clean[start : start + PIECE_BYTES])
        except TimeoutError as error:
            if self.transport is not None:
                self.transport.abort()
            raise ConnectionResetError("The client does not read its reply.") from error


async def start_stream(request: web.Request, record: RequestRecord) -> web.StreamResponse:
    """Send the head of a stream; its headers keep proxies on the way from buffering it."""
    response = RedactedStream(
        headers={
            "Content-Type": "text/event-stream; charset=utf-8",
            "Cache-Control": "no-cache",
            "X-Accel-Buffering": "no",
            "x-request-id": record.trace,
        }
    )
    response.redactor, response.seconds, response.transport = record.redactor, record.read_seconds, request.transport
    record.stream = response
    await response.prepare(request)
    return response


def random_seed() -> int:
    """Return a seed for a request without one: the same question asked twice is then sampled twice."""
    return secrets.randbits(31)
