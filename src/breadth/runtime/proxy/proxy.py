"""What all requests of one proxy share, and what each leaves behind for the log and the counters."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from aiohttp import web

from breadth.base.errors import ServerError
from breadth.inference.budget import Budget
from breadth.runtime.driver import Driver, SolveResult
from breadth.runtime.ledger import Ledger
from breadth.runtime.proxy.access import Keys, ProxyLimits, tightest_budget
from breadth.runtime.proxy.client_request import ClientRequest
from breadth.runtime.proxy.errors import ApiError
from breadth.runtime.proxy.metrics import CountedSampler, Metrics
from breadth.runtime.proxy.routing import ChosenPolicy, ModelCache, Policies
from breadth.runtime.proxy.upstream import MAX_WAIT_SECONDS, UpstreamClient
from breadth.runtime.samplers.connection import Connection
from breadth.runtime.samplers.openai import OpenAISampler
from breadth.runtime.solve_context import new_trace_id


@dataclass
class RequestRecord:
    """What is known about one request when it is over."""

    path: str
    """Where it was sent."""
    trace: str = field(default_factory=new_trace_id)
    """Its id: in the reply, in the header ``x-request-id`` and in the log."""
    started_at: float = field(default_factory=time.monotonic)
    """When it came, on the monotonic clock."""
    policy: str = "none"
    """What answered it; ``none`` when it was refused before that was known."""
    result: SolveResult | None = None
    """What came of it, where it got that far."""
    stream: web.StreamResponse | None = None
    """The stream to the client, once it has begun: no other reply can be sent any more."""
    status: int | None = None
    """How it ended when that is another status than the one sent: a stream that broke."""

    @property
    def seconds(self) -> float:
        """Seconds since it came."""
        return time.monotonic() - self.started_at


class Proxy:
    """One upstream (or several of the same models), the policies, and the account of everything drawn for anybody.

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
        sampler.max_wait_seconds = min(
            sampler.max_wait_seconds, MAX_WAIT_SECONDS
        )  # somebody waits for the reply: he is told to come back instead
        self.sampler = sampler
        """Where draws come from."""
        self.policies = policies
        """What to do with a request."""
        self.keys = keys
        """Who may ask."""
        self.limits = limits
        """How much."""
        self.ledger = Ledger(prices=policies.default.policy.prices)
        """The account of everything drawn."""
        self.metrics = Metrics(self.ledger)
        """What is counted."""
        self.driver = Driver(CountedSampler(sampler, self.metrics), self.ledger)
        """What runs policies."""
        for chosen in (policies.default, *policies.named.values()):
            self.driver.check(chosen.policy.strategy)  # now, not at the first request
        self._connection = Connection(key=key)
        self.upstream_client = UpstreamClient(sampler.endpoints, key=key, attempts=attempts)
        """What passes requests on."""
        self.models = ModelCache(self._listed)
        """What the upstreams have."""
        self.in_flight = 0
        """Requests being answered."""
        self.draining = False
        """Whether it is about to end and takes nothing new."""

    @property
    def upstreams(self) -> Sequence[str]:
        """Addresses of the upstreams, to be kept out of replies."""
        return [endpoint.url for endpoint in self.sampler.endpoints.all]

    async def choose(self, call: ClientRequest) -> tuple[ChosenPolicy, str]:
        """Return the policy for a request and the model to ask, its suffix taken off."""
        model, suffix = call.model, ""
        if "@" in model:
            model, suffix = self.policies.split(model, await self._known_models())
        chosen = self.policies.choose(call.options.policy or suffix)
        if call.total_replies > self.limits.max_samples:
            message = (
                f"The request asks for {call.total_replies} replies, but this server draws at most {self.limits.max_samples} times"
                " for one."
            )
            raise ApiError(400, message, param="n", code="too_many_draws")
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

    async def close(self) -> None:
        """Let go of the upstreams."""
        await self.models.close()
        await self._connection.close()
        await self.upstream_client.close()
        await self.sampler.close()

    async def _listed(self) -> list[str]:
        """Return the models of every upstream that answers; raises ServerError when none does."""
        asked = [self._connection.list_models(url) for url in self.upstreams]
        lists = await asyncio.gather(*asked, return_exceptions=True)
        answered = [names for names in lists if not isinstance(names, BaseException)]
        if not answered:
            raise next(error for error in lists if isinstance(error, BaseException))
        return list(dict.fromkeys(name for names in answered for name in names))

    async def _known_models(self) -> list[str]:
        try:
            return await self.models.get()
        except ServerError:  # the request itself will say what is wrong with the upstream
            return []


async def start_stream(request: web.Request, note: RequestRecord) -> web.StreamResponse:
    """Send the head of a stream; nothing on the way may keep it back."""
    response = web.StreamResponse(
        headers={
            "Content-Type": "text/event-stream; charset=utf-8",
            "Cache-Control": "no-cache",
            "X-Accel-Buffering": "no",
            "x-request-id": note.trace,
        }
    )
    note.stream = response
    await response.prepare(request)
    return response


def random_seed() -> int:
    """Return a seed for a request that gives none, so that the same question asked twice is drawn twice."""
    return secrets.randbits(31)
