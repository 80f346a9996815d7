"""vLLM's server: its requests, and the doctor's changes as its settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from breadth.doctor.trainer_config import ServerPatch
from breadth.inference.records import Sampling
from breadth.runtime.dialect import ServerDialect, ServerIdentity
from breadth.runtime.sampler import SampleRequest

LOOP = {"min_pattern_size": 50, "max_pattern_size": 200, "min_count": 4}
"""Four turns of a passage of 50 to 200 tokens: what our own loop guard ends, 200 tokens of one passage over and over.
"""

SETTINGS = ServerPatch(
    "vllm",
    fields={
        "thinking_budget": lambda tokens: {"thinking_token_budget": int(tokens)},
        "votes": lambda count: {"n": int(count)},
        "top_logprobs": lambda count: {"logprobs": True, "top_logprobs": int(count)},
        "loop_guard": lambda _: {"repetition_detection": LOOP},
    },
    flags={
        "thinking_budget": lambda _: ["--reasoning-parser <the model's>"],
        "top_logprobs": lambda count: [f"--max-logprobs {int(count)}"] if count > 20 else [],
        "logprobs_raw": lambda _: ["--logprobs-mode raw_logprobs"],
    },
)
"""The dialect of the catalogue; flags and fields of vLLM 0.28."""


@dataclass(frozen=True)
class VllmDialect(ServerDialect):
    """vLLM's server, written from its source (August 2026); no real one has answered it in our tests.

    Log-probs are raw unless the server was started with another ``--logprobs-mode``; more than 20 alternatives need
    ``--max-logprobs``. A cap on thinking is a top-level field (inside ``chat_template_kwargs`` it is ignored) and is
    refused by a server without ``--reasoning-parser`` or ``--reasoning-config``; under speculative decoding it may have
    no effect. A beginning of the reply is continued through the chat template: one that rewrites the text
    before ``</think>`` may refuse or lose it.
    """

    offers: ClassVar[frozenset[str]] = ServerDialect.offers | {"prefix", "thinking"}
    model_owner: ClassVar[str | None] = "vllm"

    def speculates(self, identity: ServerIdentity) -> bool | None:
        """Whether the server decodes speculatively; only one in development mode reports it."""
        page = identity.props.get("/server_info")
        config = page.get("vllm_config") if isinstance(page, Mapping) else None
        if not isinstance(config, str) or "speculative_config=" not in config:
            return None
        return "speculative_config=None" not in config

    def sampling_fields(self, sampling: Sampling) -> dict[str, Any]:
        """Return the sampling fields under the server's names; -1 keeps all tokens in every version."""
        ours = {
            "top_k": sampling.top_k or -1,
            "min_p": sampling.min_p,
            "repetition_penalty": sampling.repetition_penalty,
        }
        return super().sampling_fields(sampling) | ours

    def thinking_fields(self, tokens: int) -> dict[str, Any]:
        """Return the field that caps thinking."""
        return {"thinking_token_budget": tokens}

    def prompt_fields(self, request: SampleRequest) -> dict[str, Any]:
        """Return the prompt, with the beginning of the reply as a last message that is left open."""
        if isinstance(request.prompt, str) or not request.prefix:
            return super().prompt_fields(request)
        messages = [*(dict(message) for message in request.prompt), {"role": "assistant", "content": request.prefix}]
        return {"messages": messages, "continue_final_message": True, "add_generation_prompt": False}
