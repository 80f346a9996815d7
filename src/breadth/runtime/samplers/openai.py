"""Completions from any OpenAI-compatible server: one cancellable stream per draw."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import aiohttp

from breadth.base.errors import ServerError
from breadth.inference.records import Candidate, text_of
from breadth.runtime.dialect import ServerDialect
from breadth.runtime.sampler import Meter, SampleRequest
from breadth.runtime.samplers.completion import CompletionBuilder, build_candidate
from breadth.runtime.samplers.connection import Connection, Endpoint, Endpoints, IdleTimeout, hang_up
from breadth.runtime.samplers.server_errors import Backoff, quote
from breadth.runtime.wire import EventParser

DEFAULT_CHARACTERS_PER_TOKEN = 4.0
"""Characters of a token before anything was learned: the rule of thumb for English."""
TEMPLATE_CHARACTERS = 16
"""Characters that the chat template adds for each message, roughly."""
MAX_KNOWN_PROMPTS = 1024
"""Prompts whose count is remembered exactly."""


class PromptTokenEstimator:
    """Counts by prompt; for a prompt not seen before, by its characters."""

    def __init__(self) -> None:
        self._known: dict[int, int] = {}
        self._characters = 0.0
        self._tokens = 0.0

    def estimate(self, draw: SampleRequest) -> int:
        """Return the tokens of a draw's prompt and prefix: as counted before for the very same, else estimated from its length."""
        known = self._known.get(_identity(draw))
        if known is not None:
            return known
        each = self._characters / self._tokens if self._tokens else DEFAULT_CHARACTERS_PER_TOKEN
        return max(1, round(count_characters(draw) / max(each, 0.25)))

    def learn(self, draw: SampleRequest, tokens: int) -> None:
        """Take in what a server counted."""
        if tokens < 1:
            return
        if len(self._known) >= MAX_KNOWN_PROMPTS:
            self._known.pop(next(iter(self._known)))
        self._known[_identity(draw)] = tokens
        self._characters += count_characters(draw)
        self._tokens += tokens


def count_characters(draw: SampleRequest) -> int:
    """Return the characters of a draw's prompt and prefix, the chat template's share included."""
    if isinstance(draw.prompt, str):
        return len(draw.prompt) + len(draw.prefix)
    return len(draw.prefix) + sum(len(text_of(message.get("content"))) + TEMPLATE_CHARACTERS for message in draw.prompt)


def _identity(draw: SampleRequest) -> int:
    if isinstance(draw.prompt, str):
        return hash((draw.prompt, draw.prefix, draw.model))
    return hash((draw.prefix, draw.model, *(text_of(message.get("content")) for message in draw.prompt)))


DRAIN_SECONDS = 0.1
"""Seconds to wait for the end of a stream whose end mark was seen, so that its connection can be used again."""
RUNAWAY_FACTOR = 16
"""Times its cap in events (a token may be sent in pieces), and `SLACK` more, after which a completion is cut: the cap
is not heeded.
"""
RUNAWAY_SLACK = 1024


class OpenAISampler:
    """Draws completions from one server or several of the same model.

    Every draw is a streaming request of its own (n = 1), so cancelling it closes its connection at once and the server
    stops writing. A draw goes to the least loaded server; one that fails rests while others get the work. Server
    errors, rate limits (Retry-After is kept to), streams that break off, cannot be read or fall silent are tried again
    after a growing wait; what no repetition mends is not. An incomplete completion never becomes a candidate, and an
    error never becomes text.

    The three attempts are the openai SDK's default. Silence is borne for long, for a long prompt is read, and a full
    server keeps requests waiting, before the first byte comes; the deadline of a draw ends it earlier.
    """

    def __init__(
        self,
        urls: str | Sequence[str],
        *,
        dialect: ServerDialect = ServerDialect(),
        key: str | None = None,
        offers: frozenset[str] | None = None,
        seconds: float | None = None,
        first_seconds: float = 600.0,
        idle_seconds: float = 120.0,
        attempts: int = 3,
        max_wait_seconds: float = 60.0,
        backoff: Backoff = Backoff(),  # noqa: B008 - frozen
    ) -> None:
        self.endpoints = Endpoints(urls)
        """The servers."""
        self.dialect = dialect
        """How they are spoken to."""
        self.seconds = seconds
        """Seconds for a draw that states none; None for no limit."""
        self.first_seconds = first_seconds
        """Seconds until a reply must have begun, and as many again until its first event."""
        self.idle_seconds = idle_seconds
        """Seconds of silence in the middle of a reply."""
        self.attempts = attempts
        """Requests at most for one draw."""
        self.max_wait_seconds = max_wait_seconds
        """Seconds waited at most before the next attempt; a server that asks for longer is given up."""
        self.backoff = backoff
        """Waits between attempts where the server asks for none."""
        self.prompt_estimator = PromptTokenEstimator()
        """What prompts are likely to cost, learned on the way."""
        self._offers = dialect.offers if offers is None else offers
        self._asked: dict[Endpoint, asyncio.Task[str]] = {}
        self._connection = Connection(key=key, first_seconds=first_seconds)

    @property
    def offers(self) -> frozenset[str]:
        """What the servers can do, by their dialect or by what a probe found."""
        return self._offers

    async def sample(self, request: SampleRequest, meter: Meter) -> Candidate:
        """Draw one completion; see `Sampler`."""
        if request.halt is not None and request.halt.top_logprobs > request.sampling.top_logprobs:
            request = replace(request, sampling=replace(request.sampling, top_logprobs=request.halt.top_logprobs))
        seconds = self.seconds if request.seconds is None else request.seconds
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                return await self._persist(request, meter, limit.when())
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise ServerError(
                f"A draw took longer than the {seconds:g} s it may take: {meter.tokens} tokens in {meter.calls}"
                " requests.",
                "Allow more seconds or fewer tokens, or draw less at a time.",
            ) from error

    async def list_models(self) -> list[str]:
        """Return the names of the models served, over all servers, in order."""
        lists = [await self._connection.list_models(endpoint.url) for endpoint in self.endpoints.all]
        return list(dict.fromkeys(name for names in lists for name in names))

    async def close(self) -> None:
        """Close every connection."""
        for asked in self._asked.values():
            asked.cancel()
        await asyncio.gather(*self._asked.values(), return_exceptions=True)
        self._asked.clear()
        await self._connection.close()

    async def _persist(self, draw: SampleRequest, meter: Meter, deadline: float | None) -> Candidate:
        """Make requests until one gives a whole completion, or trying again makes no sense."""
        attempt = 1
        while True:
            endpoint = self.endpoints.choose()
            await self._pause(self.endpoints.seconds_blocked(endpoint), deadline, None)
            try:
                with self.endpoints.track_request(endpoint):
                    return await self._attempt(endpoint, draw, meter)
            except ServerError as error:
                if error.fatal:
                    raise
                if attempt >= self.attempts:
                    raise _tried(error, attempt) from error
                await self._pause(self._wait(endpoint, error, attempt, draw.seed), deadline, error)
                attempt += 1

    def _wait(self, failed: Endpoint, error: ServerError, attempt: int, seed: int) -> float:
        """Return the seconds until the next attempt: none where another server is awake."""
        following = self.endpoints.choose()
        if following is not failed and not self.endpoints.is_resting(following):
            return 0.0
        return max(self.backoff.wait_seconds(attempt, seed), error.retry_after or 0.0)

    async def _pause(self, seconds: float, deadline: float | None, error: ServerError | None) -> None:
        """Wait before the next attempt, unless that is too long to be worth it."""
        left = (
            self.max_wait_seconds
            if deadline is None
            else min(self.max_wait_seconds, deadline - asyncio.get_running_loop().time())
        )
        if seconds > left:
            raise error or ServerError(
                f"Every server asks to be left alone for {seconds:.0f} s more.",
                "Try again later.",
                status=429,
                retry_after=seconds,
            )
        if seconds > 0:
            await asyncio.sleep(seconds)

    async def _attempt(self, endpoint: Endpoint, draw: SampleRequest, meter: Meter) -> Candidate:
        """Make one request and return its completion."""
        started = time.perf_counter()
        named = draw if draw.model else replace(draw, model=await self._only_model(endpoint))
        path, body = self.dialect.build_request(named)
        body |= {"stream": True} | ({"n": 1} if "n" in body else {})
        meter.calls += 1
        response = await self._connection.post(endpoint.url, path, body)
        try:
            assembly = CompletionBuilder(
                meter,
                url=endpoint.url,
                prompt_tokens=self.prompt_estimator.estimate(draw),
                top=draw.sampling.top_logprobs,
                watcher=None if draw.halt is None else draw.halt.watch(),
                max_tokens=RUNAWAY_FACTOR * draw.sampling.max_tokens + RUNAWAY_SLACK,
            )
            await self._read(response, assembly, endpoint)
            candidate = build_candidate(assembly, draw, url=endpoint.url, seconds=time.perf_counter() - started)
            await self._let_go(response, assembly)
        except BaseException:
            hang_up(response)
            raise
        if assembly.usage is not None:
            self.prompt_estimator.learn(draw, assembly.own_usage.prompt_tokens)
        return candidate

    async def _read(self, response: aiohttp.ClientResponse, assembly: CompletionBuilder, endpoint: Endpoint) -> None:
        """Read the stream to its end, or until the halt rule ends it."""
        events, readany, now = EventParser(), response.content.readany, asyncio.get_running_loop().time
        patience = IdleTimeout(self.first_seconds, self.idle_seconds, response.close)
        try:
            while data := await readany():
                patience.last_received = now()
                if assembly.add_events(events.feed(data)):
                    return
            assembly.add_events(events.finish())
            if patience.expired and assembly.finish is None:
                raise self._lost(endpoint.url, assembly, patience, TimeoutError())
        except asyncio.CancelledError:
            with suppress(ServerError, aiohttp.ClientError, OSError):
                assembly.add_events(
                    events.feed(response.content.read_nowait())
                )  # it came before the end, and so is to be paid
            raise
        except (aiohttp.ClientError, OSError) as error:
            if assembly.finish is None:  # after the reason for the end only the count is missing
                raise self._lost(endpoint.url, assembly, patience, error) from error
        finally:
            patience.stop()

    async def _let_go(self, response: aiohttp.ClientResponse, assembly: CompletionBuilder) -> None:
        """Close the connection of a halted completion; leave that of a whole one open for the next draw."""
        if assembly.done and not assembly.halted:
            try:
                async with asyncio.timeout(DRAIN_SECONDS):
                    await response.content.readany()
            except (TimeoutError, aiohttp.ClientError, OSError):
                response.close()
        else:
            hang_up(response)
        response.release()
        await asyncio.sleep(0)  # the connection is closed in the next turn of the loop

    async def _only_model(self, endpoint: Endpoint) -> str:
        """Return the name of a server's only model, for a draw that names none; draws that start together ask once."""
        if endpoint.model is None:
            asked = self._asked.get(endpoint)
            if asked is None or asked.done():
                asked = self._asked[endpoint] = asyncio.create_task(self._ask_model(endpoint))
            endpoint.model = await asyncio.shield(asked)
        return endpoint.model

    async def _ask_model(self, endpoint: Endpoint) -> str:
        """Ask a server for its only model; empty when it lists none."""
        try:
            names = await self._connection.list_models(endpoint.url)
        except ServerError as error:
            if error.status not in (404, 405):
                raise
            names = []
        if len(names) > 1:
            problem = f"{endpoint.url} serves several models, and none was named: {quote(', '.join(names))}."
            raise ServerError(problem, "Name one of them.", fatal=True)
        return names[0] if names else ""

    @staticmethod
    def _lost(url: str, assembly: CompletionBuilder, patience: IdleTimeout, error: Exception) -> ServerError:
        if patience.expired:
            how = f"fell silent for {patience.seconds:g} s"
        else:
            how = f"broke its stream off ({quote(str(error)) or type(error).__name__})"
        return ServerError(
            f"{url} {how} after {assembly.counted} tokens.", "Look at the server's log, and at what stands between us."
        )


def _tried(error: ServerError, attempts: int) -> ServerError:
    """Return an error that says how often it was tried."""
    if attempts == 1:
        return error
    return ServerError(
        f"{error.problem} (attempt {attempts} of {attempts})",
        error.remedy,
        status=error.status,
        retry_after=error.retry_after,
    )
