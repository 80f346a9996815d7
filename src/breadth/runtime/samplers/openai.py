"""Completions from any OpenAI-compatible server: one cancellable stream per sample."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import aiohttp

from breadth.base.errors import ServerError
from breadth.inference.records import Candidate, Prompt, text_of
from breadth.runtime.dialect import ServerDialect
from breadth.runtime.sampler import Meter, SampleRequest
from breadth.runtime.samplers.completion import CompletionBuilder, build_candidate
from breadth.runtime.samplers.connection import (
    Connection,
    Endpoint,
    Endpoints,
    IdleTimeout,
    hang_up,
    pause_before_retry,
)
from breadth.runtime.samplers.redaction import Redactor
from breadth.runtime.samplers.server_errors import Backoff, quote
from breadth.runtime.wire import EventParser

DEFAULT_CHARACTERS_PER_TOKEN = 4.0
"""Used before any count has come: the rule of thumb for English."""
TEMPLATE_CHARACTERS = 16
"""Characters that the chat template adds for each message, roughly."""
MAX_KNOWN_PROMPTS = 1024
"""Prompts whose count is remembered exactly."""


class PromptTokenEstimator:
    """Token counts by prompt; for a prompt not seen before, estimated from its characters."""

    def __init__(self) -> None:
        self._known: dict[int, int] = {}
        self._characters = 0.0
        self._tokens = 0.0
        self._measured: tuple[Prompt, int, int] = ("", hash(""), 0)

    def estimate(self, request: SampleRequest) -> int:
        """Return the tokens of prompt and prefix: as counted before for the very same, else estimated by length."""
        key, characters = self._measure(request)
        known = self._known.get(key)
        if known is not None:
            return known
        ratio = self._characters / self._tokens if self._tokens else DEFAULT_CHARACTERS_PER_TOKEN
        return max(1, round(characters / max(ratio, 0.25)))

    def learn(self, request: SampleRequest, tokens: int) -> None:
        """Remember a server's count."""
        if tokens < 1:
            return
        if len(self._known) >= MAX_KNOWN_PROMPTS:
            self._known.pop(next(iter(self._known)))
        key, characters = self._measure(request)
        self._known[key] = tokens
        self._characters += characters
        self._tokens += tokens

    def _measure(self, request: SampleRequest) -> tuple[int, int]:
        """Return a hash and the characters of prompt and prefix; a prompt sampled many times is walked once."""
        if request.prompt is not self._measured[0]:
            self._measured = (request.prompt, *measure_prompt(request.prompt))
        _, texts, characters = self._measured
        return hash((texts, request.prefix, request.model)), characters + len(request.prefix)


def measure_prompt(prompt: Prompt) -> tuple[int, int]:
    """Return a hash of a prompt's texts, and their characters with those of the chat template."""
    if isinstance(prompt, str):
        return hash(prompt), len(prompt)
    texts = [text_of(message.get("content")) for message in prompt]
    return hash(tuple(texts)), sum(len(text) + TEMPLATE_CHARACTERS for text in texts)


DRAIN_SECONDS = 0.1
"""Seconds to wait for the end of a stream whose end mark was seen: its connection can then be used again."""
RUNAWAY_FACTOR = 16
"""A completion is cut after this many times its cap in events (a token may come in pieces), and `RUNAWAY_SLACK` more:
the server ignores the cap.
"""
RUNAWAY_SLACK = 1024


class OpenAISampler:
    """Samples completions from one server or several of the same model.

    Every sample is a streaming request of its own (n = 1): cancelling it closes its connection at once, and the server
    stops writing. A request goes to the least loaded server; one that fails cools down while others get the work.
    Server errors, rate limits (Retry-After is followed) and streams that break off, cannot be read or fall silent are
    retried after a growing wait; errors that no retry can mend are not. An incomplete completion never becomes a
    candidate, and an error never becomes text.

    The three attempts are the openai SDK's default. Long silence is tolerated before the first byte: a long prompt
    takes time to read, and a full server queues requests. The deadline of a request ends it earlier.
    """

    def __init__(
        self,
        urls: str | Sequence[str],
        *,
        dialect: ServerDialect = ServerDialect(),  # noqa: B008 - frozen
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
        """How their requests are written."""
        self.seconds = seconds
        """Seconds for a request that sets none; None for no limit."""
        self.first_seconds = first_seconds
        """Seconds until a reply must have started, and as many again until its first event."""
        self.idle_seconds = idle_seconds
        """Seconds of silence in the middle of a reply."""
        self.attempts = attempts
        """Requests at most for one sample."""
        self.max_wait_seconds = max_wait_seconds
        """Seconds waited at most before the next attempt; a server that asks for longer is given up on."""
        self.backoff = backoff
        """Waits between attempts where the server asks for none."""
        self.prompt_estimator = PromptTokenEstimator()
        """Token counts of prompts, learned on the way."""
        self._offers = dialect.offers if offers is None else offers
        self._model_tasks: dict[Endpoint, asyncio.Task[str]] = {}
        self._redactor = Redactor(key)
        self._connection = Connection(key=key, first_seconds=first_seconds)

    @property
    def offers(self) -> frozenset[str]:
        """What the servers support, by their dialect or by a probe."""
        return self._offers

    async def sample(self, request: SampleRequest, meter: Meter) -> Candidate:
        """Sample one completion; see `Sampler`."""
        if request.halt is not None and request.halt.top_logprobs > request.sampling.top_logprobs:
            request = replace(request, sampling=replace(request.sampling, top_logprobs=request.halt.top_logprobs))
        seconds = self.seconds if request.seconds is None else request.seconds
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                return self._redactor.clean_candidate(await self._retry(request, meter, limit.when()))
        except ServerError as error:
            raise self._redactor.clean_error(error)  # noqa: B904 - the same error
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise ServerError(
                f"A sample took longer than the {seconds:g} s it may take: {meter.tokens} tokens in {meter.calls}"
                " requests.",
                "Allow more seconds or fewer tokens, or sample less at a time.",
            ) from error

    async def list_models(self) -> list[str]:
        """Return the names of the models served, over all servers, in order."""
        lists = [await self._connection.list_models(endpoint.url) for endpoint in self.endpoints.all]
        return list(dict.fromkeys(name for names in lists for name in names))

    async def close(self) -> None:
        """Close every connection."""
        for task in self._model_tasks.values():
            task.cancel()
        await asyncio.gather(*self._model_tasks.values(), return_exceptions=True)
        self._model_tasks.clear()
        await self._connection.close()

    async def _retry(self, request: SampleRequest, meter: Meter, deadline: float | None) -> Candidate:
        """Make requests until one gives a whole completion, or another attempt makes no sense."""
        attempt = 1
        while True:
            endpoint = self.endpoints.choose()
            await self._pause(self.endpoints.seconds_blocked(endpoint), deadline, None)
            try:
                with self.endpoints.track_request(endpoint):
                    return await self._attempt(endpoint, request, meter)
            except ServerError as error:
                if error.fatal:
                    raise
                if attempt >= self.attempts:
                    raise count_attempts(error, attempt) from error
                backoff = self.backoff.wait_seconds(attempt, request.seed)
                await self._pause(self.endpoints.retry_wait(endpoint, error, backoff), deadline, error)
                attempt += 1

    async def _pause(self, seconds: float, deadline: float | None, error: ServerError | None) -> None:
        await pause_before_retry(seconds, self.max_wait_seconds, deadline, error)

    async def _attempt(self, endpoint: Endpoint, request: SampleRequest, meter: Meter) -> Candidate:
        """Make one request and return its completion."""
        started = time.perf_counter()
        named = request if request.model else replace(request, model=await self._only_model(endpoint))
        path, body = self.dialect.build_request(named)
        body |= {"stream": True} | ({"n": 1} if "n" in body else {})
        meter.calls += 1
        prompt_tokens = self.prompt_estimator.estimate(request)
        try:
            response = await self._connection.post(endpoint.url, path, body)
        except asyncio.CancelledError:
            meter.prompt_tokens += prompt_tokens  # it was sent; how much was read nobody will say
            raise
        try:
            builder = CompletionBuilder(
                meter,
                url=endpoint.url,
                prompt_tokens=prompt_tokens,
                top=request.sampling.top_logprobs,
                watcher=None if request.halt is None else request.halt.watch(),
                max_tokens=RUNAWAY_FACTOR * request.sampling.max_tokens + RUNAWAY_SLACK,
            )
            await self._read(response, builder, endpoint)
            candidate = build_candidate(builder, request, url=endpoint.url, seconds=time.perf_counter() - started)
            await self._release(response, builder)
        except BaseException:
            hang_up(response)
            raise
        if builder.usage is not None:
            self.prompt_estimator.learn(request, builder.own_usage.prompt_tokens)
        return candidate

    async def _read(self, response: aiohttp.ClientResponse, builder: CompletionBuilder, endpoint: Endpoint) -> None:
        """Read the stream to its end, or until the halt rule ends it."""
        events, readany, now = EventParser(), response.content.readany, asyncio.get_running_loop().time
        idle = IdleTimeout(self.first_seconds, self.idle_seconds, response.close)
        try:
            while data := await readany():
                idle.last_received = now()
                if builder.add_events(events.feed(data)):
                    return
            builder.add_events(events.finish())
            if idle.expired and builder.finish is None:
                raise stream_loss_error(endpoint.url, builder, idle, TimeoutError())
        except asyncio.CancelledError:
            with suppress(ServerError, aiohttp.ClientError, OSError):
                builder.add_events(
                    events.feed(response.content.read_nowait())
                )  # it came before the end and is paid for
            raise
        except (aiohttp.ClientError, OSError) as error:
            if builder.finish is None:  # after the reason for the end only the count is missing
                raise stream_loss_error(endpoint.url, builder, idle, error) from error
        finally:
            idle.stop()

    async def _release(self, response: aiohttp.ClientResponse, builder: CompletionBuilder) -> None:
        """Close the connection of a halted completion; keep that of a whole one for the next request."""
        if builder.done and not builder.halted:
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
        """Return a server's only model, for a request without one; requests that start together ask once."""
        if endpoint.model is None:
            task = self._model_tasks.get(endpoint)
            if task is None or task.done():
                task = self._model_tasks[endpoint] = asyncio.create_task(self._ask_model(endpoint))
            endpoint.model = await asyncio.shield(task)
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


def stream_loss_error(url: str, builder: CompletionBuilder, idle: IdleTimeout, error: Exception) -> ServerError:
    """Return the error for a stream that fell silent or broke off."""
    if idle.expired:
        how = f"fell silent for {idle.seconds:g} s"
    else:
        how = f"broke its stream off ({quote(str(error)) or type(error).__name__})"
    return ServerError(
        f"{url} {how} after {builder.counted} tokens.", "Look at the server's log, and at any proxy in between."
    )


def count_attempts(error: ServerError, attempts: int) -> ServerError:
    """Return an error with the number of attempts in its message."""
    if attempts == 1:
        return error
    return ServerError(
        f"{error.problem} (attempt {attempts} of {attempts})",
        error.remedy,
        status=error.status,
        retry_after=error.retry_after,
    )
