"""What a client asks for: the body of a request, read strictly, with the name of the field when something is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import orjson

from breadth.base.errors import SettingsError
from breadth.base.settings import from_table
from breadth.inference.budget import Budget
from breadth.inference.records import Prompt, Reading, Sampling, Task, text_of
from breadth.runtime.proxy.errors import ApiError
from breadth.runtime.wire import CHAT_PATH

SAMPLING_FIELDS: Mapping[str, type] = {
    "temperature": float,
    "top_p": float,
    "min_p": float,
    "repetition_penalty": float,
    "presence_penalty": float,
    "frequency_penalty": float,
    "top_k": int,
    "max_tokens": int,
}
"""Sampling fields of a request that replace the policy's, with their types."""
SAMPLING_ALIASES = {
    "max_completion_tokens": "max_tokens",
    "n_predict": "max_tokens",
    "repeat_penalty": "repetition_penalty",
}
"""Other names for some of them: OpenAI's newer one, llama.cpp's, which there go before the usual ones."""
COUNT_FIELDS = ("n", "n_cmpl", "best_of")
"""Fields that ask for several completions of one prompt; the second is llama.cpp's."""
_TAKEN = frozenset(
    {
        *SAMPLING_FIELDS,
        *SAMPLING_ALIASES,
        "stop",
        "seed",
        "model",
        "messages",
        "prompt",
        "stream",
        "stream_options",
        "n",
        "n_cmpl",
        "breadth",
        "logprobs",
        "top_logprobs",
    }
)
"""Fields that are not passed on to draws as they are."""


@dataclass(frozen=True)
class RequestOptions:
    """What the field ``breadth`` of a request may say."""

    policy: str = ""
    """A policy the server was given a name for, or a strategy with settings; empty for the server's own."""
    budget: Budget = Budget()
    """Ceilings for this request."""
    seed: int | None = None
    """Root of every seed, like the field ``seed`` beside it."""
    reading: Literal["stated", "number", "whole"] | None = None
    """How the answer is found in a completion."""
    thinking_tokens: int | None = None
    """Most thinking tokens of one draw, where the upstream can cap them."""


@dataclass(frozen=True)
class ClientRequest:
    """One request for a completion."""

    path: str
    """Where it was sent: chats or plain completions."""
    fields: Mapping[str, Any]
    """The body without the field ``breadth`` and without fields that are null."""
    prompt: Prompt | None
    """The chat or the text; None for prompts that can only be passed on (several at once, token ids)."""
    model: str = ""
    """Model asked for; empty for the policy's, or the upstream's only one."""
    options: RequestOptions = RequestOptions()
    """What it says about breadth."""
    sampling_fields: Mapping[str, Any] = field(default_factory=dict)
    """Sampling fields it sets."""

    @property
    def stream(self) -> bool:
        """Whether it wants the reply as a stream."""
        return bool(self.fields.get("stream"))

    @property
    def wants_usage(self) -> bool:
        """Whether it wants the usage at the end of a stream."""
        return bool((self.fields.get("stream_options") or {}).get("include_usage"))

    @property
    def replies_per_prompt(self) -> int:
        """Replies it wants to one prompt."""
        return max(int(self.fields.get(name, 1)) for name in ("n", "n_cmpl"))

    @property
    def total_replies(self) -> int:
        """Completions that are drawn for it when it is passed on: of all its prompts, those thrown away for better ones included."""
        prompt = self.fields.get("prompt")
        prompts = len(prompt) if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int) else 1
        return prompts * max(self.replies_per_prompt, int(self.fields.get("best_of", 1)))

    @property
    def passthrough_reason(self) -> str:
        """What it asks for that only a single draw, passed on as it comes, can give; empty when any policy can answer it."""
        if (self.fields.get("tools") or self.fields.get("functions")) and self.fields.get("tool_choice") != "none":
            return "tools"
        if self.fields.get("logprobs", False) is not False:  # 0 asks for them in plain completions
            return "logprobs"
        wanted = {name: self.fields.get(name) for name in ("echo", "suffix", "best_of")}
        return next((name for name, value in wanted.items() if value and (name != "best_of" or value != 1)), "")

    @property
    def passthrough_fields(self) -> dict[str, Any]:
        """Fields that draws pass on untouched."""
        return {name: value for name, value in self.fields.items() if name not in _TAKEN}

    def merge_sampling(self, default: Sampling) -> Sampling:
        """Return how to draw: the policy's way, with what the request sets in its place."""
        chosen = dict(self.sampling_fields)
        if chosen.get("top_k") == -1:  # vLLM's way to say all
            chosen["top_k"] = 0
        if self.options.thinking_tokens is not None:
            chosen["thinking_tokens"] = self.options.thinking_tokens
        try:
            return replace(default, **chosen)
        except SettingsError as error:
            name = next((name for name in chosen if f" {name} =" in error.problem), None)
            raise ApiError(400, f"{error.problem} {error.remedy}", param=name, code="invalid_value") from error

    def to_task(self, sampling: Sampling, reading: Reading, *, model: str, system: str, seed: int) -> Task:
        """Return the question as a task."""
        prompt = self.prompt
        if prompt is None:
            raise ApiError(
                400, "A policy answers one prompt of text: send one string, or use the policy single.", param="prompt"
            )
        if system and not isinstance(prompt, str):
            prompt = ({"role": "system", "content": system}, *prompt)
        reading = reading if self.options.reading is None else Reading(self.options.reading)
        chosen = self.options.seed if self.options.seed is not None else self.fields.get("seed")
        return Task(
            prompt, "request", model, sampling, reading, seed if chosen is None else chosen, self.passthrough_fields
        )


def read_request(path: str, raw: bytes) -> ClientRequest:
    """Read a request; raises Refusal with the name of the field that is wrong."""
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise ApiError(400, f"The body is not JSON: {error}.", code="bad_json") from error
    if not isinstance(body, dict):
        raise ApiError(400, "The body is no JSON object: send one with 'messages' or 'prompt'.", code="bad_json")
    fields = {name: value for name, value in body.items() if value is not None}
    _shallow(fields)
    wishes = _wishes(fields.pop("breadth", {}))
    _typed(fields, "model", str, "a text")
    _typed(fields, "stream", bool, "true or false")
    _typed(fields, "stream_options", dict, "an object")
    _typed(fields, "seed", int, "a whole number")
    _typed(fields, "tools", list, "a list")
    for name in COUNT_FIELDS:
        if _typed(fields, name, int, "a whole number from 1 up") is not None and fields[name] < 1:
            raise _wrong(name, fields[name], "a whole number from 1 up")
    prompt = _chat(fields.get("messages")) if path == CHAT_PATH else _text(fields.get("prompt"))
    return ClientRequest(path, fields, prompt, fields.get("model", ""), wishes, _chosen(fields))


def _shallow(fields: Mapping[str, Any]) -> None:
    """Refuse what is nested too deep to be passed on: it can be read some 1,000 levels deep and be written some 250."""
    try:
        orjson.dumps(fields)
    except TypeError as error:
        raise ApiError(400, "The body is nested too deep: use less than 250 levels.", code="bad_json") from error


def _wishes(table: Any) -> RequestOptions:
    if not isinstance(table, dict):
        raise _wrong("breadth", table, "an object")
    if not table:
        return RequestOptions()
    try:
        return from_table(RequestOptions, _without_nulls(table), "breadth")
    except SettingsError as error:
        raise ApiError(400, f"{error.problem} {error.remedy}", param="breadth", code="bad_policy") from error


def _without_nulls(table: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _without_nulls(value) if isinstance(value, dict) else value
        for name, value in table.items()
        if value is not None
    }


def _chosen(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sampling fields of a request under our names."""
    chosen: dict[str, Any] = {}
    for name in (*SAMPLING_ALIASES, *SAMPLING_FIELDS):
        if name not in fields:
            continue
        ours = SAMPLING_ALIASES.get(name, name)
        kind = SAMPLING_FIELDS[ours]
        value = _typed(
            fields, name, (int, float) if kind is float else int, "a number" if kind is float else "a whole number"
        )
        chosen.setdefault(ours, kind(value))
    stop = fields.get("stop")
    if stop is not None:
        texts = [stop] if isinstance(stop, str) else stop
        if not isinstance(texts, list) or not all(isinstance(text, str) and text for text in texts):
            raise _wrong("stop", stop, "a text or a list of texts, none of them empty")
        chosen["stop"] = tuple(texts)
    return chosen


def _chat(messages: Any) -> Prompt:
    if not isinstance(messages, list) or not messages:
        raise _wrong("messages", messages, "a list of at least one message")
    for place, message in enumerate(messages):
        where = f"messages[{place}]"
        if not isinstance(message, dict):
            raise _wrong(where, message, "an object with role and content")
        if not isinstance(message.get("role"), str) or not message["role"]:
            raise _wrong(f"{where}.role", message.get("role"), "a text such as 'user'")
        if not isinstance(message.get("content"), (str, list, type(None))):
            raise _wrong(f"{where}.content", message["content"], "a text or a list of parts")
    if not any(_says_something(message) for message in messages):
        raise ApiError(
            400, "The messages hold nothing to answer: all of them are empty.", param="messages", code="invalid_value"
        )
    return tuple(messages)


def _says_something(message: Mapping[str, Any]) -> bool:
    content = message.get("content")
    pictured = isinstance(content, list) and any(
        isinstance(part, dict) and part.get("type") not in (None, "text") for part in content
    )
    return pictured or bool(text_of(content).strip()) or bool(message.get("tool_calls"))


def _text(prompt: Any) -> Prompt | None:
    if (
        isinstance(prompt, list)
        and prompt
        and isinstance(prompt[0], (str, int, list))
        and not isinstance(prompt[0], bool)
    ):
        return prompt[0] if len(prompt) == 1 and isinstance(prompt[0], str) and prompt[0] else None
    if not isinstance(prompt, str) or not prompt:
        raise _wrong("prompt", prompt, "a text that is not empty")
    return prompt


def _typed(fields: Mapping[str, Any], name: str, kind: type | tuple[type, ...], wanted: str) -> Any:
    """Return a field, or None when it is absent; refuse one of another type."""
    value = fields.get(name)
    if value is not None and (not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool)):
        raise _wrong(name, value, wanted)
    return value


def _wrong(name: str, value: Any, wanted: str) -> ApiError:
    got = "nothing" if value is None else repr(value)
    return ApiError(
        400,
        f"'{name}' must be {wanted}; got {got if len(got) <= 80 else got[:77] + '...'}.",
        param=name,
        code="invalid_value",
    )
