"""SGLang's server: its requests, and the doctor's changes as its settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from breadth.doctor.trainer_config import ServerPatch
from breadth.inference.records import Sampling
from breadth.runtime.dialect import ServerDialect, ServerIdentity
from breadth.runtime.sampler import SampleRequest

SETTINGS = ServerPatch(
    "sglang",
    fields={
        "thinking_budget": lambda tokens: {"custom_params": {"thinking_budget": int(tokens)}},
        "votes": lambda count: {"n": int(count)},
        "top_logprobs": lambda count: {"logprobs": True, "top_logprobs": int(count)},
    },
    flags={
        "thinking_budget": lambda _: ["--reasoning-parser <the model's>", "--enable-strict-thinking"],
        "logprobs_raw": lambda _: ["SGLANG_RETURN_ORIGINAL_LOGPROB=1"],
    },
)
"""The dialect of the catalogue; flags and fields of SGLang 0.5.18, which has no guard against loops."""


SETTINGS_PAGES = ("/server_info", "/get_server_info")
"""Pages with its settings, in newer and in older versions."""


@dataclass(frozen=True)
class SglangDialect(ServerDialect):
    """SGLang's server, written from its source (August 2026); no real one has answered it in our tests.

    Log-probs of drawn tokens are after the temperature unless it was started with SGLANG_RETURN_ORIGINAL_LOGPROB. Seeds
    hold only under ``--enable-deterministic-inference``. A cap on thinking needs a server with
    ``--enable-strict-thinking``; without it and without a logit processor the field is ignored. The beginning of a
    reply is put behind what the chat template opens a reply with: where that is already ``<think>``, give it without
    the mark.
    """

    offers: ClassVar[frozenset[str]] = (ServerDialect.offers - {"seed"}) | {"prefix", "thinking"}
    max_top_logprobs: ClassVar[int] = 128
    model_owner: ClassVar[str | None] = "sglang"
    own_setting: ClassVar[str | None] = "enable_strict_thinking"

    def speculates(self, identity: ServerIdentity) -> bool | None:
        """Whether the server decodes speculatively; None if it does not report it."""
        settings = settings_page(identity)
        return bool(settings["speculative_algorithm"]) if "speculative_algorithm" in settings else None

    def sampling_fields(self, sampling: Sampling) -> dict[str, Any]:
        """Return the sampling fields under the server's names; -1 keeps all tokens, 0 is refused."""
        ours = {
            "top_k": sampling.top_k or -1,
            "min_p": sampling.min_p,
            "repetition_penalty": sampling.repetition_penalty,
        }
        return super().sampling_fields(sampling) | ours

    def thinking_fields(self, tokens: int) -> dict[str, Any]:
        """Return the field that caps thinking."""
        return {"custom_params": {"thinking_budget": tokens}}

    def prompt_fields(self, request: SampleRequest) -> dict[str, Any]:
        """Return the prompt, with the beginning of the reply as a last message that is left open."""
        if isinstance(request.prompt, str) or not request.prefix:
            return super().prompt_fields(request)
        messages = [*(dict(message) for message in request.prompt), {"role": "assistant", "content": request.prefix}]
        return {"messages": messages, "continue_final_message": True}


def settings_page(identity: ServerIdentity) -> Mapping[str, Any]:
    """Return the server's settings, if a page shows them."""
    pages = (identity.props.get(path) for path in SETTINGS_PAGES)
    return next((page for page in pages if isinstance(page, Mapping)), {})
