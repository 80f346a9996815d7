"""Find out what a server supports, once, with a dozen requests of a few tokens each; saved as TOML."""

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
from breadth.runtime.dialect import CHAT_PATH, ServerDialect, ServerIdentity
from breadth.runtime.sampler import Meter, SampleRequest
from breadth.runtime.samplers.completion import THINKING_SLACK
from breadth.runtime.samplers.openai import OpenAISampler
from breadth.runtime.samplers.server_errors import quote

Support = Literal["yes", "no", "unknown"]
"""Result of a trial; where it is unknown, a remark gives the reason."""


@dataclass(frozen=True)
class Capabilities:
    """What one server supports, by a probe."""

    url: str
    """Its address."""
    model: str
    """Model that was tried."""
    dialect: ServerDialect
    """How its requests are written, adapted to it."""
    top_logprobs: int = 0
    """Most alternatives it sent for a token, of the numbers tried; 0 when it sends no log-probs."""
    logprobs: Literal["raw", "processed", "unknown"] = "unknown"
    """Whether log-probs are the model's own, or those after temperature and top-p: their confidences cannot be
    compared.
    """
    prefix: Support = "unknown"
    """Whether it continues a given prefix of a reply."""
    seed: Support = "unknown"
    """Whether the same seed gave the same text, in parallel with other samples, and another seed another text."""
    n: Support = "unknown"
    """Whether it gives several completions for one request. Samples are separate requests either way."""
    thinking: Support = "unknown"
    """Whether it separates thinking from the reply."""
    thinking_cap: Support = "unknown"
    """Whether it respects a cap on thinking."""
    usage: Support = "unknown"
    """Whether a stream reports its usage; otherwise tokens are counted by events, a little too low."""
    speculative: Support = "unknown"
    """Whether it reports speculative decoding; caps on thinking and logit processors may then be ignored."""
    context: int | None = None
    """Tokens of prompt and reply together at most, as it reports."""
    slots: int | None = None
    """Completions it works on at a time, as it reports; more wait."""
    remarks: tuple[str, ...] = ()
    """Refusals, and why something is unknown."""

    @property
    def offers(self) -> frozenset[str]:
        """What a sampler of this server supports; where that is unknown, what the dialect has."""
        results: dict[str, Support] = {
            "logprobs": "yes" if self.top_logprobs else "no",
            "confidences": "yes" if self.top_logprobs > 1 else "no",
            "prefix": self.prefix,
            "seed": self.seed,
            "thinking": self.thinking_cap,
        }
        kept = {name for name in self.dialect.offers if results.get(name, "unknown") != "no"}
        return frozenset(kept | {name for name, result in results.items() if result == "yes"})

    def rows(self) -> list[tuple[str, str]]:
        """Return the results as rows of a table: name and value."""
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
            ("continues a prefix", self.prefix),
            ("respects seeds", self.seed),
            ("several completions per request", self.n),
            ("separates thinking", self.thinking),
            ("caps thinking", self.thinking_cap),
            ("counts tokens in streams", self.usage),
            ("speculative decoding", self.speculative),
            ("context", "unknown" if self.context is None else f"{self.context} tokens"),
            ("parallel completions", "unknown" if self.slots is None else str(self.slots)),
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
"""A question with several likely first words, where log-probs and seeds make a difference."""
COUNTING_PROMPT = ({"role": "user", "content": "Count from 1 to 20, separated by commas."},)
COUNTING_PREFIX = "1, 2, 3, 4, 5, 6, 7, 8,"
"""A prefix that continues with 9, and with nothing else if it was read."""
HALF_REPLY_TOKENS, MATCH_CHARACTERS = 32, 12
"""Tokens of the model's own reply of which half is given back, and characters that identify the other half."""
THINKING_PROMPT = ({"role": "user", "content": "What is 7*8? Think first."},)
THINKING_CAP = 4
"""Thinking tokens allowed in the trial of caps."""
MIN_LOGPROB_GAP = 0.05
"""Smallest distance of the two likeliest log-probs that separates raw from processed ones."""


class Trials:
    """Trials of one model of one server."""

    def __init__(self, client: ServerClient, sampler: OpenAISampler, model: str) -> None:
        self.remarks: list[str] = []
        """Refusals, and why something is unknown."""
        self._client, self._sampler, self._model = client, sampler, model

    @property
    def dialect(self) -> ServerDialect:
        """How requests are written."""
        return self._sampler.dialect

    async def check_usage(self) -> Support:
        """Sample two tokens, and return whether the stream counts them.

        Raises ServerError when nothing can be sampled at all.
        """
        path, body = self._request(Sampling(max_tokens=2))
        events = await self._client.post(path, body)
        return "yes" if b'"completion_tokens"' in events else "no"

    async def count_top_logprobs(self) -> int:
        """Return the largest number of alternatives that the server sends, of those worth trying."""
        for top in sorted({self.dialect.max_top_logprobs, 20, 5, 1}, reverse=True):
            try:
                count = len(await self.first_token_logprobs(1.0, top))
            except ServerError as error:
                self.record_refusal(f"{top} log-probs a token", error)
                continue
            if count == 0:
                self.remarks.append(f"{top} log-probs a token were asked for, and none were sent.")
            return count
        return 0

    async def classify_logprobs(self) -> Literal["raw", "processed", "unknown"]:
        """Classify log-probs: at a quarter of the temperature, processed ones are four times as far apart."""
        try:
            warm, cold = await asyncio.gather(self.first_token_logprobs(1.0, 5), self.first_token_logprobs(0.25, 5))
        except ServerError as error:
            self.record_refusal("log-probs at two temperatures", error)
            return "unknown"
        last = min(len(warm), len(cold)) - 1
        if last < 1 or warm[0] - warm[last] < MIN_LOGPROB_GAP:
            self.remarks.append(
                "Whether log-probs are raw is unknown: the likeliest tokens were equally likely, or not sent."
            )
            return "unknown"
        return "processed" if (cold[0] - cold[last]) > 2 * (warm[0] - warm[last]) else "raw"

    async def check_prefix(self) -> Support:
        """Check prefix continuation: the model goes on counting, or completes half of its own reply."""
        try:
            candidate = await self._sample(
                SampleRequest(COUNTING_PROMPT, Sampling(temperature=0, max_tokens=8), prefix=COUNTING_PREFIX)
            )
            return "yes" if candidate.text.lstrip().startswith("9") else await self.continue_own_reply()
        except (ServerError, StrategyError) as error:
            return self.record_refusal("continuing a prefix of a reply", error)

    async def continue_own_reply(self) -> Support:
        """Give a model that cannot count half of its own reply: it should write the other half."""
        greedy = Sampling(temperature=0, max_tokens=HALF_REPLY_TOKENS)
        whole = await self._sample(SampleRequest(COUNTING_PROMPT, greedy))
        words = (whole.reasoning or whole.text).split()
        prefix = " ".join(words[: len(words) // 2])
        rest, again = "".join(words[len(words) // 2 :])[:MATCH_CHARACTERS], "".join(words)[:MATCH_CHARACTERS]
        if not words:
            return "no"
        if again.startswith(rest):
            self.remarks.append("Whether a prefix is continued is unknown: the model repeats the same text.")
            return "unknown"
        candidate = await self._sample(
            SampleRequest(COUNTING_PROMPT, greedy, prefix=f"{Thinking().open}{prefix}" if whole.reasoning else prefix)
        )
        text = "".join((candidate.reasoning + candidate.text).split())
        return "yes" if text.startswith(rest) else "no"

    async def check_seed(self) -> Support:
        """Check that the same seed gives the same text, and another seed another text."""
        sampling = Sampling(temperature=1.0, top_p=1.0, max_tokens=16)
        try:
            candidates = await asyncio.gather(
                *(self._sample(SampleRequest(COLOUR_PROMPT, sampling, seed=seed)) for seed in (1, 1, 2))
            )
        except ServerError as error:
            return self.record_refusal("seeds", error)
        first, again, other = (candidate.reasoning + candidate.text for candidate in candidates)
        if first != again:
            return "no"
        if first == other:
            self.remarks.append("Whether seeds are respected is unknown: every sample gave the same text.")
            return "unknown"
        return "yes"

    async def check_n(self) -> Support:
        """Check whether one request gives several completions."""
        path, body = self._request(Sampling(max_tokens=1))
        try:
            reply = await self._client.post_json(path, disable_streaming(body) | {"n": 2})
        except ServerError as error:
            return self.record_refusal("two completions in one request", error)
        return "yes" if len(_objects_in(reply, "choices")) == 2 else "no"

    async def check_thinking(self) -> tuple[Support, Support]:
        """Check whether thinking is separated, and whether a cap on it is respected."""
        sampling = Sampling(temperature=0, max_tokens=64)
        try:
            free = await self._sample(SampleRequest(THINKING_PROMPT, sampling))
        except ServerError as error:
            return self.record_refusal("a question to think about", error), "unknown"
        if not free.reasoning:
            self.remarks.append(
                "Whether thinking can be capped is unknown: the model did no thinking that is separated."
            )
            return "no", "unknown"
        try:
            capped = await self._sample(SampleRequest(THINKING_PROMPT, replace(sampling, thinking_tokens=THINKING_CAP)))
        except (ServerError, StrategyError) as error:
            return "yes", self.record_refusal("a cap on thinking", error)
        if capped.thinking_tokens > THINKING_CAP + THINKING_SLACK or (
            capped.reasoning == free.reasoning and free.thinking_tokens > THINKING_CAP
        ):
            return "yes", "no"
        return "yes", "yes" if len(capped.reasoning) < len(free.reasoning) else "unknown"

    async def first_token_logprobs(self, temperature: float, top: int) -> list[float]:
        """Return the log-probs of the likeliest first tokens, largest first."""
        path, body = self._request(Sampling(temperature=temperature, top_p=1.0, max_tokens=1, top_logprobs=top))
        reply = await self._client.post_json(path, disable_streaming(body))
        logprobs = next(iter(_objects_in(reply, "choices")), {}).get("logprobs")
        entries = next(iter(_objects_in(logprobs, "content")), {}).get("top_logprobs")
        values = [entry.get("logprob") for entry in _objects_in({"all": entries}, "all")]
        return sorted((float(value) for value in values if isinstance(value, int | float)), reverse=True)

    def _request(self, sampling: Sampling) -> tuple[str, dict[str, Any]]:
        path, body = self.dialect.build_request(SampleRequest(COLOUR_PROMPT, sampling, model=self._model))
        assert path == CHAT_PATH  # noqa: S101 - the prompts here are chats
        return path, body

    async def _sample(self, request: SampleRequest) -> Any:
        return await self._sampler.sample(replace(request, model=self._model), Meter())

    def record_refusal(self, what: str, error: ServerError | StrategyError) -> Support:
        """Keep the message; a refusal is a no, a failure leaves it unknown."""
        self.remarks.append(f"{what}: {error.problem}")
        return "no" if isinstance(error, StrategyError) or 400 <= (error.status or 0) < 500 else "unknown"


def disable_streaming(body: dict[str, Any]) -> dict[str, Any]:
    """Return a request for a reply that is not streamed."""
    return {name: value for name, value in body.items() if name != "stream_options"} | {"stream": False}


def _objects_in(reply: Any, name: str) -> list[dict[str, Any]]:
    """Return the objects of a list in a reply; none where the list is missing."""
    items = reply.get(name) if isinstance(reply, Mapping) else None
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


async def probe(
    url: str, *, key: str | None = None, model: str = "", dialect: ServerDialect | None = None, seconds: float = 60.0
) -> Capabilities:
    """Try a server out and return what it supports; ``seconds`` is for each request.

    Its kind comes from its own pages, everything else from trials: log-probs and their cap, raw or processed, prefix
    continuation, seeds, n, thinking and its cap. Raises ServerError when it cannot be reached or samples nothing at all
    (wrong model, wrong key).
    """
    async with ServerClient(url, key=key, seconds=seconds) as client:
        identity = await identify(client.url, key)
        check_model(identity, model, client.url)
        chosen = recognise_dialect(identity) if dialect is None else dialect.fit_to(identity)
        sampler = OpenAISampler(client.url, dialect=chosen, key=key, attempts=2, seconds=seconds)
        name = model or only_model(client.url, identity)
        try:
            return await collect_capabilities(Trials(client, sampler, name), identity, client.url, name)
        finally:
            await sampler.close()


def only_model(url: str, identity: ServerIdentity) -> str:
    """Return the name of the only model; raises ServerError when there are several to choose from."""
    names = model_names(identity)
    if len(names) > 1:
        problem = f"{url} serves several models, and none was named: {quote(', '.join(names))}."
        raise ServerError(problem, "Name one of them with --model.", fatal=True)
    return names[0] if names else ""


async def collect_capabilities(trials: Trials, identity: ServerIdentity, url: str, model: str) -> Capabilities:
    """Run every trial and return the results."""
    usage = await trials.check_usage()
    top = await trials.count_top_logprobs()
    thinking, cap = await trials.check_thinking()
    speculates = trials.dialect.speculates(identity)
    page = identity.props.get("/props")
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
        speculative="unknown" if speculates is None else "yes" if speculates else "no",
        context=context_length(identity, model),
        slots=positive_int(page.get("total_slots")) if isinstance(page, Mapping) else None,
        remarks=tuple(trials.remarks),
    )


def context_length(identity: ServerIdentity, model: str) -> int | None:
    """Return the context length from the list of models (vLLM and SGLang have one field for it, llama.cpp another)."""
    entries = identity.models.get("data")
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, Mapping) and entry.get("id") == model:
            meta = entry.get("meta")
            return positive_int(
                entry.get("max_model_len") or (meta.get("n_ctx") if isinstance(meta, Mapping) else None)
            )
    return None


def positive_int(value: Any) -> int | None:
    """Return a value that is a positive whole number; None for any other."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
