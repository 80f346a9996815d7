"""llama.cpp's server: its requests, and the doctor's changes as its settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from breadth.base.errors import StrategyError
from breadth.doctor.trainer_config import ServerPatch
from breadth.inference.records import Sampling
from breadth.runtime.dialect import ServerDialect, ServerIdentity
from breadth.runtime.sampler import SampleRequest

DRY = 0.8
"""Multiplier of the DRY sampler, as its author proposes; it makes the next turn of a loop less likely, and is off by
default.
"""

SETTINGS = ServerPatch(
    "llama-cpp",
    fields={
        "thinking_budget": lambda tokens: {"reasoning_budget_tokens": int(tokens)},
        "votes": lambda count: {"n": int(count)},
        "top_logprobs": lambda count: {"logprobs": True, "top_logprobs": int(count)},
        "logprobs_raw": lambda _: {"post_sampling_probs": False},
        "loop_guard": lambda _: {"dry_multiplier": DRY},
    },
    flags={"votes": lambda count: [f"--parallel {int(count)}"]},
)
"""The dialect of the catalogue; fields of llama.cpp b10586, which draws no more at a time than it has slots."""


OPEN, CLOSE = "<think>", "</think>"
RANDOM_SEED = 2**32 - 1
"""The seed that means "any"; larger ones are cut to 32 bits."""


@dataclass(frozen=True)
class LlamaCppDialect(ServerDialect):
    """llama.cpp's server (``llama-server`` and what embeds it), tried against the real one.

    It ignores fields it does not know and model names it does not have, without a word; its silent defaults
    (temperature 0.8, top-k 40, top-p 0.95, min-p 0.05, and whatever samplers it was started with) are all overridden
    here. Log-probs are raw: before temperature, top-k and logit bias. It sends as many alternatives as the vocabulary
    has. It frees the slot of a stream that is dropped within some 50 ms, but finishes a request that is not streamed.
    Penalties look at the last 64 tokens, unless it was started with another ``--repeat-last-n``: in a request it takes
    no word for "all".

    A last message of the assistant's is continued. On a template that opens thinking by itself the server would close
    it before that message; so there a beginning that starts with ``<think>`` goes into ``reasoning_content``, which the
    template writes as it is.
    """

    thinks: bool = False
    """Whether the chat template has a place for thinking; the probe finds out, and a plain template drops what is put
    there.
    """

    tested_live: ClassVar[bool] = True
    offers: ClassVar[frozenset[str]] = ServerDialect.offers | {"prefix", "thinking"}
    max_top_logprobs: ClassVar[int] = 1000
    model_owner: ClassVar[str | None] = "llamacpp"
    server_header: ClassVar[str | None] = "llama.cpp"
    own_setting: ClassVar[str | None] = "default_generation_settings"

    def fit_to(self, identity: ServerIdentity) -> LlamaCppDialect:
        """Return the dialect as this server needs it: its chat template says whether it has a place for thinking."""
        template = properties_page(identity).get("chat_template")
        return replace(self, thinks=isinstance(template, str) and "reasoning_content" in template)

    def speculates(self, identity: ServerIdentity) -> bool | None:
        """Whether the server decodes speculatively; None if it does not report it."""
        defaults = properties_page(identity).get("default_generation_settings") or {}
        kinds = (defaults.get("params") or {}).get("speculative.types")
        return None if kinds is None else kinds != "none"

    def build_request(self, request: SampleRequest) -> tuple[str, dict[str, Any]]:
        """Return path and body of the streaming request for a sample."""
        if request.sampling.thinking_tokens is not None and request.prefix.startswith(OPEN):
            if CLOSE not in request.prefix:
                raise StrategyError(
                    "A cap on thinking was asked for in a reply whose thinking has begun, but llama.cpp counts what was"
                    " given as well.",
                    "Cap one or the other: leave thinking_tokens unset where a strategy continues thinking, and let it"
                    " set max_tokens.",
                )
            request = replace(
                request, sampling=replace(request.sampling, thinking_tokens=None)
            )  # nothing is left to be capped
        path, body = super().build_request(request)
        if isinstance(body.get("seed"), int):
            body["seed"] %= RANDOM_SEED
        return path, body

    def sampling_fields(self, sampling: Sampling) -> dict[str, Any]:
        """Return the sampling fields under the server's names, and switch off every other sampler."""
        ours = {"top_k": sampling.top_k, "min_p": sampling.min_p, "repeat_penalty": sampling.repetition_penalty}
        off = {
            "typical_p": 1.0,
            "top_n_sigma": -1.0,
            "xtc_probability": 0.0,
            "dry_multiplier": 0.0,
            "mirostat": 0,
            "dynatemp_range": 0.0,
        }
        return super().sampling_fields(sampling) | ours | off

    def thinking_fields(self, tokens: int) -> dict[str, Any]:
        """Return the field that caps thinking; it works in chats whose template separates thinking."""
        return {"reasoning_budget_tokens": tokens}

    def prompt_fields(self, request: SampleRequest) -> dict[str, Any]:
        """Return the prompt, with the beginning of the reply as the assistant's last message."""
        if isinstance(request.prompt, str) or not request.prefix:
            return super().prompt_fields(request)
        messages = [dict(message) for message in request.prompt]
        if not (self.thinks and request.prefix.startswith(OPEN)):
            return {"messages": [*messages, {"role": "assistant", "content": request.prefix}]}
        thought = request.prefix.removeprefix(OPEN).removeprefix("\n")
        if not thought:
            return {"messages": messages}  # the template itself opens the thinking
        return {"messages": [*messages, {"role": "assistant", "content": "", "reasoning_content": thought}]}


def properties_page(identity: ServerIdentity) -> Mapping[str, Any]:
    """Return the server's page of properties, if it has one."""
    page = identity.props.get("/props")
    return page if isinstance(page, Mapping) else {}
