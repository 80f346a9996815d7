"""Find out what a server can do, once, with a dozen requests of a few tokens each; the result is saved as TOML."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from breadth.base import settings
from breadth.base.errors import ServerError, StrategyError
from breadth.inference.records import Sampling
from breadth.inference.thinking import Thinking
from breadth.runtime.connect import ServerClient, check_model, identify, model_names, recognise_dialect
from breadth.runtime.dialect import ServerDialect, ServerIdentity
from breadth.runtime.sampler import Meter, SampleRequest
from breadth.runtime.samplers.completion import THINKING_SLACK
from breadth.runtime.samplers.openai import OpenAISampler
from breadth.runtime.samplers.server_errors import quote
from breadth.runtime.wire import CHAT_PATH

Support = Literal["yes", "no", "unknown"]
"""What a trial showed; unknown where it could show nothing, and a remark says why."""


@dataclass(frozen=True)
class Capabilities:
    """One server, as a probe found it."""

    url: str
    """Its address."""
    model: str
    """Model that was tried."""
    dialect: ServerDialect
    """How it is spoken to, as fitted to it."""
    top_logprobs: int = 0
    """Alternatives it sent for a token at most, of the numbers tried; 0 when it sends no log-probs."""
    logprobs: Literal["raw", "processed", "unknown"] = "unknown"
    """Whether log-probs are those of the model, or those after temperature and top-p: confidences of the two do not
    compare.
    """
    prefix: Support = "unknown"
    """Whether it continues the given beginning of a reply."""
    seed: Support = "unknown"
    """Whether the same seed drew the same text, side by side with other draws, and another seed another."""
    n: Support = "unknown"
    """Whether it gives several completions for one request. Draws are separate requests either way."""
    thinking: Support = "unknown"
    """Whether it sets thinking apart from the reply."""
    thinking_cap: Support = "unknown"
    """Whether it keeps to a cap on thinking."""
    usage: Support = "unknown"
    """Whether a stream says what was used; without, tokens are counted by events, a little short of the truth."""
    speculative: Support = "unknown"
    """Whether it decodes speculatively, by its own word; caps on thinking and logit processors may then be passed over.
    """
    context: int | None = None
    """Tokens of prompt and reply together at most, by its own word."""
    slots: int | None = None
    """Completions it works on at a time, by its own word; more wait."""
    remarks: tuple[str, ...] = ()
    """What it refused, and why something is unknown."""

    @property
    def offers(self) -> frozenset[str]:
        """What a sampler of this server can do; what could not be told is believed of the dialect."""
        found: dict[str, Support] = {
            "logprobs": "yes" if self.top_logprobs else "no",
            "confidences": "yes" if self.top_logprobs > 1 else "no",
            "prefix": self.prefix,
            "seed": self.seed,
            "thinking": self.thinking_cap,
        }
        kept = {name for name in self.dialect.offers if found.get(name, "unknown") != "no"}
        return frozenset(kept | {name for name, verdict in found.items() if verdict == "yes"})

    def rows(self) -> list[tuple[str, str]]:
        """Return what was found as lines of a table: what, and how it is."""
        name = settings.to_table(self.dialect)["kind"]
        logprobs = f"{self.logprobs}, {self.top_logprobs} alternatives" if self.top_logprobs else "none"
        return [
            ("server", self.url),
            ("model", self.model),
            (
                "dialect",
                (
                    name
                    if self.dialect.tested_live or name == "openai"
                    else f"{name} (no real server has answered it in our tests)"
                ),
            ),
            ("log-probs", logprobs),
            ("continues a beginning", self.prefix),
            ("keeps to seeds", self.seed),
            ("several completions a request", self.n),
            ("sets thinking apart", self.thinking),
            ("caps thinking", self.thinking_cap),
            ("counts tokens in streams", self.usage),
            ("speculative decoding", self.speculative),
            ("context", "unknown" if self.context is None else f"{self.context} tokens"),
            ("works side by side", "unknown" if self.slots is None else f"{self.slots} completions"),
            *(("remark", remark) for remark in self.remarks),
        ]

    def save(self, path: Path) -> None:
        """Write it to a TOML file, whole or not at all."""
        settings.dump(self, path)

    @classmethod
    def load(cls, path: Path) -> Capabilities:
        """Read it from a TOML file."""
        return settings.load(cls, path)


COLOUR_PROMPT = ({"role": "user", "content": "Name a colour."},)
"""A question with several likely first words, so that log-probs and seeds have something to show."""
COUNTING_PROMPT = ({"role": "user", "content": "Count from 1 to 20, separated by commas."},)
COUNTING_PREFIX = "1, 2, 3, 4, 5, 6, 7, 8,"
"""A beginning that is continued by 9, and by nothing else if it was read."""
HALF_REPLY_TOKENS, MATCH_CHARACTERS = 32, 12
"""Tokens of the model's own reply of which half is given back, and characters (without blanks) by which the other half
is known.
"""
THINKING_PROMPT = ({"role": "user", "content": "What is 7*8? Think first."},)
THINKING_CAP = 4
"""Thinking tokens allowed in the trial of caps."""
MIN_LOGPROB_GAP = 0.05
"""Least distance of the two likeliest log-probs that tells raw from processed ones."""


class Trials:
    """One model of one server on trial."""

    def __init__(self, site: ServerClient, sampler: OpenAISampler, model: str) -> None:
        self.remarks: list[str] = []
        """What was refused, and why something could not be told."""
        self._site, self._sampler, self._model = site, sampler, model

    @property
    def dialect(self) -> ServerDialect:
        """How the server is spoken to."""
        return self._sampler.dialect

    async def check_usage(self) -> Support:
        """Draw two tokens, and say whether the stream counts them.

        Raises ServerError when nothing can be drawn at all.
        """
        path, body = self._request(Sampling(max_tokens=2))
        events = await self._site.post(path, body)
        return "yes" if b'"completion_tokens"' in events else "no"

    async def count_top_logprobs(self) -> int:
        """Return the largest number of alternatives that the server sends, of some that are worth trying."""
        for top in sorted({self.dialect.max_top_logprobs, 20, 5, 1}, reverse=True):
            try:
                got = len(await self._alternatives(1.0, top))
            except ServerError as error:
                self._refused(f"{top} log-probs a token", error)
                continue
            if got == 0:
                self.remarks.append(f"{top} log-probs a token were asked for, and none were sent.")
            return got
        return 0

    async def classify_logprobs(self) -> Literal["raw", "processed", "unknown"]:
        """Tell raw log-probs from processed ones: at a quarter of the temperature, processed ones lie four times as far apart."""
        try:
            warm, cold = await asyncio.gather(self._alternatives(1.0, 5), self._alternatives(0.25, 5))
        except ServerError as error:
            self._refused("log-probs at two temperatures", error)
            return "unknown"
        last = min(len(warm), len(cold)) - 1
        if last < 1 or warm[0] - warm[last] < MIN_LOGPROB_GAP:
            self.remarks.append(
                "Whether log-probs are raw could not be told: the likeliest tokens were equally likely, or not sent."
            )
            return "unknown"
        return "processed" if (cold[0] - cold[last]) > 2 * (warm[0] - warm[last]) else "raw"

    async def check_prefix(self) -> Support:
        """Say whether the beginning of a reply is continued: counting goes on where it stood, or half of the model's own reply does."""
        try:
            drawn = await self._draw(
                SampleRequest(COUNTING_PROMPT, Sampling(temperature=0, max_tokens=8), prefix=COUNTING_PREFIX)
            )
            return "yes" if drawn.text.lstrip().startswith("9") else await self._own_half()
        except (ServerError, StrategyError) as error:
            return self._refused("continuing the beginning of a reply", error)

    async def _own_half(self) -> Support:
        """Give half of what the model itself writes back to it, for one that cannot count: it should write the other half."""
        greedy = Sampling(temperature=0, max_tokens=HALF_REPLY_TOKENS)
        whole = await self._draw(SampleRequest(COUNTING_PROMPT, greedy))
        words = (whole.reasoning or whole.text).split()
        begun = " ".join(words[: len(words) // 2])
        rest, again = "".join(words[len(words) // 2 :])[:MATCH_CHARACTERS], "".join(words)[:MATCH_CHARACTERS]
        if not words:
            return "no"
        if again.startswith(rest):
            self.remarks.append(
                "Whether the beginning of a reply is continued could not be told: the model says the same over and"
                " over."
            )
            return "unknown"
        drawn = await self._draw(
            SampleRequest(COUNTING_PROMPT, greedy, prefix=f"{Thinking().open}{begun}" if whole.reasoning else begun)
        )
        said = "".join((drawn.reasoning + drawn.text).split())
        return "yes" if said.startswith(rest) else "no"

    async def check_seed(self) -> Support:
        """Say whether the same seed draws the same text, and another one another."""
        sampling = Sampling(temperature=1.0, top_p=1.0, max_tokens=16)
        try:
            drawn = await asyncio.gather(
                *(self._draw(SampleRequest(COLOUR_PROMPT, sampling, seed=seed)) for seed in (1, 1, 2))
            )
        except ServerError as error:
            return self._refused("seeds", error)
        first, again, other = (candidate.reasoning + candidate.text for candidate in drawn)
        if first != again:
            return "no"
        if first == other:
            self.remarks.append("Whether seeds are kept to could not be told: every draw gave the same text.")
            return "unknown"
        return "yes"

    async def check_n(self) -> Support:
        """Say whether one request gives several completions."""
        path, body = self._request(Sampling(max_tokens=1))
        try:
            reply = await self._site.post_json(path, _whole(body) | {"n": 2})
        except ServerError as error:
            return self._refused("two completions in one request", error)
        return "yes" if len(_list(reply, "choices")) == 2 else "no"

    async def check_thinking(self) -> tuple[Support, Support]:
        """Say whether thinking is set apart, and whether a cap on it is kept to."""
        sampling = Sampling(temperature=0, max_tokens=64)
        try:
            free = await self._draw(SampleRequest(THINKING_PROMPT, sampling))
        except ServerError as error:
            return self._refused("a question to think about", error), "unknown"
        if not free.reasoning:
            self.remarks.append(
                "Whether thinking can be capped could not be told: the model did no thinking that is set apart."
            )
            return "no", "unknown"
        try:
            capped = await self._draw(SampleRequest(THINKING_PROMPT, replace(sampling, thinking_tokens=THINKING_CAP)))
        except (ServerError, StrategyError) as error:
            return "yes", self._refused("a cap on thinking", error)
        if capped.thinking_tokens > THINKING_CAP + THINKING_SLACK or (
            capped.reasoning == free.reasoning and free.thinking_tokens > THINKING_CAP
        ):
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
        path, body = self.dialect.build_request(SampleRequest(COLOUR_PROMPT, sampling, model=self._model))
        assert path == CHAT_PATH
        return path, body

    async def _draw(self, draw: SampleRequest) -> Any:
        return await self._sampler.sample(replace(draw, model=self._model), Meter())

    def _refused(self, what: str, error: ServerError | StrategyError) -> Support:
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


async def probe(
    url: str, *, key: str | None = None, model: str = "", dialect: ServerDialect | None = None, seconds: float = 60.0
) -> Capabilities:
    """Try a server out and return what it was found to do; ``seconds`` is for each request.

    What a server is, it says itself; what it does is tried: log-probs and their cap, raw or processed, prefix
    continuation, seeds, n, thinking and its cap. Raises ServerError when it cannot be reached or draws nothing at all
    (wrong model, wrong key).
    """
    async with ServerClient(url, key=key, seconds=seconds) as site:
        identity = await identify(site.url, key)
        check_model(identity, model, site.url)
        chosen = recognise_dialect(identity) if dialect is None else dialect.fit_to(identity)
        sampler = OpenAISampler(site.url, dialect=chosen, key=key, attempts=2, seconds=seconds)
        name = model or only_model(site.url, identity)
        try:
            return await _tried(Trials(site, sampler, name), identity, site.url, name)
        finally:
            await sampler.close()


def only_model(url: str, identity: ServerIdentity) -> str:
    """Return the name of the only model; raises ServerError when there are several to choose from."""
    names = model_names(identity)
    if len(names) > 1:
        problem = f"{url} serves several models, and none was named: {quote(', '.join(names))}."
        raise ServerError(problem, "Name one of them with --model.", fatal=True)
    return names[0] if names else ""


async def _tried(trials: Trials, identity: ServerIdentity, url: str, model: str) -> Capabilities:
    usage = await trials.check_usage()
    top = await trials.count_top_logprobs()
    thinking, cap = await trials.check_thinking()
    speculates = trials.dialect.speculates(identity)
    return Capabilities(
        url=url,
        model=model,
        dialect=trials.dialect,
        top_logprobs=top,
        logprobs=await trials.classify_logprobs() if top > 1 else "unknown",
        prefix=await trials.check_prefix(),
        seed=await trials.check_seed(),
        n=await trials.check_n(),
        thinking=thinking,
        thinking_cap=cap,
        usage=usage,
        speculative=_found(speculates),
        context=_context(identity, model),
        slots=_slots(identity),
        remarks=tuple(trials.remarks),
    )


def _found(told: bool | None) -> Support:
    return "unknown" if told is None else "yes" if told else "no"


def _context(identity: ServerIdentity, model: str) -> int | None:
    """Return the length of the context, where the list of models tells it (vLLM and SGLang one way, llama.cpp another)."""
    for entry in _models(identity):
        meta = entry.get("meta")
        told = entry.get("max_model_len") or (meta.get("n_ctx") if isinstance(meta, Mapping) else None)
        if entry.get("id") == model:
            return _count(told)
    return None


def _slots(identity: ServerIdentity) -> int | None:
    page = identity.props.get("/props")
    return _count(page.get("total_slots")) if isinstance(page, Mapping) else None


def _models(identity: ServerIdentity) -> list[Mapping[str, Any]]:
    entries = identity.models.get("data")
    return [entry for entry in entries if isinstance(entry, Mapping)] if isinstance(entries, list) else []


def _count(told: Any) -> int | None:
    return told if isinstance(told, int) and not isinstance(told, bool) and told > 0 else None
