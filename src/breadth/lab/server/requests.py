"""Reads the body of a completion request strictly: the prompt in tokens, and how to sample."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import orjson

from breadth.inference.records import Sampling, text_of
from breadth.lab.task.vocabulary import RoutesTokens, prefix_words, question_words
from breadth.runtime.dialect import CHAT_PATH
from breadth.runtime.proxy.client_request import ClientRequest
from breadth.runtime.proxy.errors import ApiError

MAX_REPLIES = 128
"""Replies to one request at most (OpenAI's limit)."""
MIN_TEMPERATURE = 1e-5
"""A temperature below this is 0, the likeliest token (vLLM's limit): dividing by less would overflow."""
THINKING_CAP_FIELDS = ("reasoning_budget_tokens", "thinking_budget_tokens", "thinking_token_budget")
"""Fields that cap thinking: llama.cpp's, its older name for it, vLLM's."""
NEUTRAL_VALUES: Mapping[str, tuple[Any, ...]] = {
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repetition_penalty": (1,),
    "repeat_penalty": (1,),
    "dry_multiplier": (0,),
    "logit_bias": ({}, []),
    "typical_p": (1,),
    "top_n_sigma": (-1,),
    "xtc_probability": (0,),
    "mirostat": (0,),
    "dynatemp_range": (0,),
    "echo": (False,),
    "suffix": ("",),
    "tools": ([],),
    "functions": ([],),
    "response_format": ({"type": "text"},),
}
"""Fields that would change the reply in ways this server has not, with the values that change nothing."""


@dataclass(frozen=True)
class CompletionRequest:
    """One request, ready to be drawn."""

    path: str
    """Where it was sent: chats or plain completions."""
    tokens: tuple[int, ...]
    """The prompt, with the beginning of the reply where one is given."""
    prefix: str
    """Text that the reply continues: the beginning given in a chat, the prompt of a plain completion."""
    sampling: Sampling
    """How to draw; ``max_tokens`` fits the context."""
    replies: int
    """Replies wanted."""
    seed: int
    """Seed of the first."""
    stream: bool
    """Whether the reply is to be streamed."""
    include_usage: bool
    """Whether a stream is to end with what was used."""
    alternatives: int | None
    """Alternatives to show at each token; None for no log-probs at all."""

    @property
    def chat(self) -> bool:
        """Whether it is a chat."""
        return self.path == CHAT_PATH

    def seeds(self) -> list[int]:
        """Return a seed per reply; the first is the request's own, whatever the number of replies."""
        return [
            self.seed,
            *(int(np.random.SeedSequence((self.seed, place)).generate_state(1)[0]) for place in range(1, self.replies)),
        ]


def read_completion_request(call: ClientRequest, wording: RoutesTokens, context: int) -> CompletionRequest:
    """Read a request; raises ApiError with the name of the field that is wrong."""
    _refuse_unsupported(call.fields)
    if not 1 <= call.replies_per_prompt <= MAX_REPLIES or call.fields.get("best_of", 1) > call.replies_per_prompt:
        raise invalid_field("n", f"up to {MAX_REPLIES} replies, and 'best_of' no more than that: none is thrown away")
    tokens, before = read_chat(call, wording) if call.path == CHAT_PATH else read_text_prompt(call, wording)
    room = context - len(tokens)
    if room < 1:
        raise ApiError(
            400,
            f"The prompt has {len(tokens)} tokens, and the model's context length is {context}: shorten it.",
            param="messages" if call.path == CHAT_PATH else "prompt",
            code="context_length_exceeded",
        )
    alternatives = read_alternatives(call)
    asked = call.merge_sampling(Sampling(temperature=1.0, top_p=1.0, max_tokens=room))
    cap = read_thinking_cap(call.fields)
    sampling = replace(
        asked,
        temperature=asked.temperature if asked.temperature >= MIN_TEMPERATURE else 0.0,
        top_k=min(asked.top_k, wording.size),
        max_tokens=min(asked.max_tokens, room),
        thinking_tokens=None if cap is None else min(cap, context),
        top_logprobs=min(alternatives or 0, wording.size),
    )
    options = call.fields.get("stream_options") or {}
    return CompletionRequest(
        call.path,
        tokens,
        before,
        sampling,
        call.replies_per_prompt,
        read_seed(call),
        call.stream,
        bool(options.get("include_usage")),
        alternatives,
    )


def _refuse_unsupported(fields: Mapping[str, Any]) -> None:
    for name, values in NEUTRAL_VALUES.items():
        if name in fields and fields[name] not in values:
            raise invalid_field(
                name,
                f"left out, or {orjson.dumps(values[0]).decode()}: this server does not do what else it may ask for",
            )


def read_chat(call: ClientRequest, wording: RoutesTokens) -> tuple[tuple[int, ...], str]:
    """Return the tokens of a chat, and the beginning of the reply; a last message of the assistant's is one."""
    messages = call.prompt if isinstance(call.prompt, tuple) else ()
    asked = question_words([text_of(message.get("content")) for message in messages if message.get("role") == "user"])
    if not asked:
        raise ApiError(
            400,
            "No message of the user's asks anything: write '( 3 + 4 ) * ( 5 + 6 ) ='.",
            param="messages",
            code="invalid_value",
        )
    last = messages[-1]
    before = text_of(last.get("content")) if last.get("role") == "assistant" else ""
    return wording.tokens([*asked, *prefix_words(before)]), before


def read_text_prompt(call: ClientRequest, wording: RoutesTokens) -> tuple[tuple[int, ...], str]:
    """Return the tokens of a plain completion, and its prompt."""
    if not isinstance(call.prompt, str):
        raise invalid_field("prompt", "one text: send several in requests of their own")
    words = prefix_words(call.prompt)
    if not words:
        raise invalid_field("prompt", "a text that is not empty")
    return wording.tokens(words), call.prompt


def read_thinking_cap(fields: Mapping[str, Any]) -> int | None:
    """Return the cap on thinking; -1 is llama.cpp's word for none."""
    name = next((name for name in THINKING_CAP_FIELDS if name in fields), None)
    if name is None or fields[name] == -1:
        return None
    cap = fields[name]
    if not isinstance(cap, int) or isinstance(cap, bool) or cap < 0:
        raise invalid_field(name, "a whole number of tokens from 0 up, or -1 for no cap")
    return cap


def read_alternatives(call: ClientRequest) -> int | None:
    """Return how many alternatives to show per token, as chats or completions ask for it; None for no log-probs."""
    asked, top = call.fields.get("logprobs"), call.fields.get("top_logprobs")
    if call.path != CHAT_PATH and asked is not True:
        asked, top = asked is not None and asked is not False, asked
    if asked not in (None, True, False):
        raise invalid_field("logprobs", "true or false")
    if top is None or top is False:
        return 0 if asked else None
    if not isinstance(top, int) or isinstance(top, bool) or top < 0:
        raise invalid_field("top_logprobs" if call.path == CHAT_PATH else "logprobs", "a whole number from 0 up")
    if not asked:
        raise invalid_field("top_logprobs", 'given together with "logprobs": true')
    return top


def read_seed(call: ClientRequest) -> int:
    """Return the seed; a request without one, or with llama.cpp's -1, gets one of its own."""
    seed = call.fields.get("seed", -1)
    return secrets.randbits(32) if seed == -1 else seed % 2**64


def invalid_field(name: str, needed: str) -> ApiError:
    """Return the error for a field with a wrong value."""
    return ApiError(400, f"'{name}' must be {needed}.", param=name, code="invalid_value")
