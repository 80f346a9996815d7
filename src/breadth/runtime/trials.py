"""The trials a server is put to by the probe: each asks for very little and says what the replies show."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from breadth.base.errors import ServerError, StrategyError
from breadth.inference.records import Sampling
from breadth.inference.thinking import Thinking
from breadth.runtime.capabilities import Found
from breadth.runtime.dialect import CHAT, Dialect
from breadth.runtime.sampler import Draw, Meter
from breadth.runtime.samplers.completion import THINKING_SLACK
from breadth.runtime.samplers.openai import OpenAISampler
from breadth.runtime.site import Site

COLOUR = ({"role": "user", "content": "Name a colour."},)
"""A question with several likely first words, so that log-probs and seeds have something to show."""
COUNTING = ({"role": "user", "content": "Count from 1 to 20, separated by commas."},)
COUNTED = "1, 2, 3, 4, 5, 6, 7, 8,"
"""A beginning that is continued by 9, and by nothing else if it was read."""
HALVED, TELLING_TEXT = 32, 12
"""Tokens of the model's own reply of which half is given back, and characters (without blanks) by which the other half is known."""
PUZZLE = ({"role": "user", "content": "What is 7*8? Think first."},)
CAP = 4
"""Thinking tokens allowed in the trial of caps."""
TELLING_GAP = 0.05
"""Least distance of the two likeliest log-probs that tells raw from processed ones."""


class Trials:
    """One model of one server on trial."""

    def __init__(self, site: Site, sampler: OpenAISampler, model: str) -> None:
        self.remarks: list[str] = []
        """What was refused, and why something could not be told."""
        self._site, self._sampler, self._model = site, sampler, model

    @property
    def dialect(self) -> Dialect:
        """How the server is spoken to."""
        return self._sampler.dialect

    async def alive(self) -> Found:
        """Draw two tokens, and say whether the stream counts them. Raises ServerError when nothing can be drawn at all."""
        path, body = self._request(Sampling(max_tokens=2))
        events = await self._site.post(path, body)
        return "yes" if b'"completion_tokens"' in events else "no"

    async def top_logprobs(self) -> int:
        """Return the largest number of alternatives that the server sends, of some that are worth trying."""
        for top in sorted({self.dialect.largest_top_logprobs, 20, 5, 1}, reverse=True):
            try:
                got = len(await self._alternatives(1.0, top))
            except ServerError as error:
                self._refused(f"{top} log-probs a token", error)
                continue
            if got == 0:
                self.remarks.append(f"{top} log-probs a token were asked for, and none were sent.")
            return got
        return 0

    async def logprobs(self) -> Literal["raw", "processed", "unknown"]:
        """Tell raw log-probs from processed ones: at a quarter of the temperature, processed ones lie four times as far apart."""
        try:
            warm, cold = await asyncio.gather(self._alternatives(1.0, 5), self._alternatives(0.25, 5))
        except ServerError as error:
            self._refused("log-probs at two temperatures", error)
            return "unknown"
        last = min(len(warm), len(cold)) - 1
        if last < 1 or warm[0] - warm[last] < TELLING_GAP:
            self.remarks.append("Whether log-probs are raw could not be told: the likeliest tokens were equally likely, or not sent.")
            return "unknown"
        return "processed" if (cold[0] - cold[last]) > 2 * (warm[0] - warm[last]) else "raw"

    async def prefix(self) -> Found:
        """Say whether the beginning of a reply is continued: counting goes on where it stood, or half of the model's own reply does."""
        try:
            drawn = await self._draw(Draw(COUNTING, Sampling(temperature=0, max_tokens=8), prefix=COUNTED))
            return "yes" if drawn.text.lstrip().startswith("9") else await self._own_half()
        except (ServerError, StrategyError) as error:
            return self._refused("continuing the beginning of a reply", error)

    async def _own_half(self) -> Found:
        """Give half of what the model itself writes back to it, for one that cannot count: it should write the other half."""
        greedy = Sampling(temperature=0, max_tokens=HALVED)
        whole = await self._draw(Draw(COUNTING, greedy))
        words = (whole.reasoning or whole.text).split()
        begun = " ".join(words[: len(words) // 2])
        rest, again = "".join(words[len(words) // 2 :])[:TELLING_TEXT], "".join(words)[:TELLING_TEXT]
        if not words:
            return "no"
        if again.startswith(rest):
            self.remarks.append("Whether the beginning of a reply is continued could not be told: the model says the same over and over.")
            return "unknown"
        drawn = await self._draw(Draw(COUNTING, greedy, prefix=f"{Thinking().open}{begun}" if whole.reasoning else begun))
        said = "".join((drawn.reasoning + drawn.text).split())
        return "yes" if said.startswith(rest) else "no"

    async def seed(self) -> Found:
        """Say whether the same seed draws the same text, and another one another."""
        sampling = Sampling(temperature=1.0, top_p=1.0, max_tokens=16)
        try:
            drawn = await asyncio.gather(*(self._draw(Draw(COLOUR, sampling, seed=seed)) for seed in (1, 1, 2)))
        except ServerError as error:
            return self._refused("seeds", error)
        first, again, other = (candidate.reasoning + candidate.text for candidate in drawn)
        if first != again:
            return "no"
        if first == other:
            self.remarks.append("Whether seeds are kept to could not be told: every draw gave the same text.")
            return "unknown"
        return "yes"

    async def n(self) -> Found:
        """Say whether one request gives several completions."""
        path, body = self._request(Sampling(max_tokens=1))
        try:
            reply = await self._site.post_json(path, _whole(body) | {"n": 2})
        except ServerError as error:
            return self._refused("two completions in one request", error)
        return "yes" if len(_list(reply, "choices")) == 2 else "no"

    async def thinking(self) -> tuple[Found, Found]:
        """Say whether thinking is set apart, and whether a cap on it is kept to."""
        sampling = Sampling(temperature=0, max_tokens=64)
        try:
            free = await self._draw(Draw(PUZZLE, sampling))
        except ServerError as error:
            return self._refused("a question to think about", error), "unknown"
        if not free.reasoning:
            self.remarks.append("Whether thinking can be capped could not be told: the model did no thinking that is set apart.")
            return "no", "unknown"
        try:
            capped = await self._draw(Draw(PUZZLE, replace(sampling, thinking_tokens=CAP)))
        except (ServerError, StrategyError) as error:
            return "yes", self._refused("a cap on thinking", error)
        if capped.thinking_tokens > CAP + THINKING_SLACK or (capped.reasoning == free.reasoning and free.thinking_tokens > CAP):
            return "yes", "no"
        return "yes", "yes" if len(capped.reasoning) < len(free.reasoning) else "unknown"

    async def _alternatives(self, temperature: float, top: int) -> list[float]:
        """Return the log-probs of the likeliest first tokens, largest first."""
        path, body = self._request(Sampling(temperature=temperature, top_p=1.0, max_tokens=1, top_logprobs=top))
        reply = await self._site.post_json(path, _whole(body))
        logprobs = next(iter(_list(reply, "choices")), {}).get("logprobs")
        entries = next(iter(_list(logprobs, "content")), {}).get("top_logprobs")
        values = [entry.get("logprob") for entry in _list({"all": entries}, "all")]
        return sorted((float(value) for value in values if isinstance(value, int | float)), reverse=True)

    def _request(self, sampling: Sampling) -> tuple[str, dict[str, Any]]:
        path, body = self.dialect.request(Draw(COLOUR, sampling, model=self._model))
        assert path == CHAT  # noqa: S101 - the prompts here are chats
        return path, body

    async def _draw(self, draw: Draw) -> Any:
        return await self._sampler.draw(replace(draw, model=self._model), Meter())

    def _refused(self, what: str, error: ServerError | StrategyError) -> Found:
        """Keep what was said; a refusal is a no, a failure says nothing."""
        self.remarks.append(f"{what}: {error.problem}")
        return "no" if isinstance(error, StrategyError) or 400 <= (error.status or 0) < 500 else "unknown"


def _whole(body: dict[str, Any]) -> dict[str, Any]:
    """Return a request for a reply that is not streamed."""
    return {name: value for name, value in body.items() if name != "stream_options"} | {"stream": False}


def _list(found: Any, name: str) -> list[dict[str, Any]]:
    """Return the objects of a list that a reply should have; what is not there is empty."""
    items = found.get(name) if isinstance(found, Mapping) else None
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
