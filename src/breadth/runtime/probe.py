"""Find out what a server can do: once, with a dozen requests of a few tokens each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from breadth.base.errors import ServerError
from breadth.runtime.capabilities import Capabilities, Found
from breadth.runtime.connect import check_model, model_names
from breadth.runtime.dialect import Dialect, Identity
from breadth.runtime.identity import identify, recognised
from breadth.runtime.samplers.openai import OpenAISampler
from breadth.runtime.samplers.refusals import quoted
from breadth.runtime.site import Site
from breadth.runtime.trials import Trials


async def probe(
    url: str, *, key: str | None = None, model: str = "", dialect: Dialect | None = None, seconds: float = 60.0
) -> Capabilities:
    """Try a server out and return what it was found to do; ``seconds`` is for each request.

    What a server is, it says itself; what it does is tried: log-probs and their cap, raw or processed, prefix continuation, seeds, n,
    thinking and its cap. Raises ServerError when it cannot be reached or draws nothing at all (wrong model, wrong key).
    """
    async with Site(url, key=key, seconds=seconds) as site:
        identity = await identify(site.url, key)
        check_model(identity, model, site.url)
        chosen = recognised(identity) if dialect is None else dialect.fitted(identity)
        sampler = OpenAISampler(site.url, dialect=chosen, key=key, attempts=2, seconds=seconds)
        name = model or only_model(site.url, identity)
        try:
            return await _tried(Trials(site, sampler, name), identity, site.url, name)
        finally:
            await sampler.close()


def only_model(url: str, identity: Identity) -> str:
    """Return the name of the only model; raises ServerError when there are several to choose from."""
    names = model_names(identity)
    if len(names) > 1:
        problem = f"{url} serves several models, and none was named: {quoted(', '.join(names))}."
        raise ServerError(problem, "Name one of them with --model.", fatal=True)
    return names[0] if names else ""


async def _tried(trials: Trials, identity: Identity, url: str, model: str) -> Capabilities:
    usage = await trials.alive()
    top = await trials.top_logprobs()
    thinking, cap = await trials.thinking()
    speculates = trials.dialect.speculates(identity)
    return Capabilities(
        url=url,
        model=model,
        dialect=trials.dialect,
        top_logprobs=top,
        logprobs=await trials.logprobs() if top > 1 else "unknown",
        prefix=await trials.prefix(),
        seed=await trials.seed(),
        n=await trials.n(),
        thinking=thinking,
        thinking_cap=cap,
        usage=usage,
        speculative=_found(speculates),
        context=_context(identity, model),
        slots=_slots(identity),
        remarks=tuple(trials.remarks),
    )


def _found(told: bool | None) -> Found:
    return "unknown" if told is None else "yes" if told else "no"


def _context(identity: Identity, model: str) -> int | None:
    """Return the length of the context, where the list of models tells it (vLLM and SGLang one way, llama.cpp another)."""
    for entry in _models(identity):
        meta = entry.get("meta")
        told = entry.get("max_model_len") or (meta.get("n_ctx") if isinstance(meta, Mapping) else None)
        if entry.get("id") == model:
            return _count(told)
    return None


def _slots(identity: Identity) -> int | None:
    page = identity.props.get("/props")
    return _count(page.get("total_slots")) if isinstance(page, Mapping) else None


def _models(identity: Identity) -> list[Mapping[str, Any]]:
    entries = identity.models.get("data")
    return [entry for entry in entries if isinstance(entry, Mapping)] if isinstance(entries, list) else []


def _count(told: Any) -> int | None:
    return told if isinstance(told, int) and not isinstance(told, bool) and told > 0 else None
