"""A client's request: its body read strictly, with errors that name the wrong field."""

from __future__ import annotations

import reprlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import orjson

from breadth.base.errors import SettingsError
from breadth.base.settings import from_table
from breadth.inference.halting import Halt
from breadth.inference.records import Budget, Prompt, Reading, Sampling, Task, text_of
from breadth.runtime.dialect import CHAT_PATH
from breadth.runtime.proxy.errors import ApiError

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
"""Sampling fields of a request that override the policy's, with their types."""
SAMPLING_ALIASES = {
    "max_completion_tokens": "max_tokens",
    "n_predict": "max_tokens",
    "repeat_penalty": "repetition_penalty",
}
"""Other names for some of them: OpenAI's newer one, and llama.cpp's, which take precedence there."""
CAP_FIELDS = ("max_tokens", *(name for name, ours in SAMPLING_ALIASES.items() if ours == "max_tokens"))
"""Names of the most tokens of a reply."""
COUNT_FIELDS = ("n", "n_cmpl", "best_of")
"""Fields that ask for several completions of one prompt; the second is llama.cpp's."""
MAX_BODY_OBJECTS = 20_000
"""Lists and objects in a body at most: a chat of thousands of turns with tool calls has fewer. Each takes hundreds of
bytes in memory and is looked at for every sample, and 8 MB hold millions.
"""
MAX_BODY_TEXTS = 100_000
"""Texts and names of fields in a body at most."""
_OWN_FIELDS = frozenset(
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
"""Fields that are not passed on to samples as they are."""
_FURTHER_FIELDS = {
    "OpenAI": (
        "audio best_of echo function_call functions logit_bias metadata modalities moderation parallel_tool_calls"
        " prediction prompt_cache_key prompt_cache_options prompt_cache_retention reasoning_effort response_format"
        " safety_identifier service_tier store suffix tool_choice tools user verbosity web_search_options"
    ),
    "vLLM": (
        "add_generation_prompt allowed_token_ids bad_words cache_salt continue_final_message documents guided_choice"
        " guided_decoding_backend guided_grammar guided_json guided_regex guided_whitespace_pattern ignore_eos"
        " include_reasoning include_stop_str_in_output length_penalty logprob_token_ids min_tokens prompt_logprobs"
        " repetition_detection return_token_ids return_tokens_as_token_ids skip_special_tokens"
        " spaces_between_special_tokens stop_token_ids structural_tag structured_outputs thinking_token_budget"
    ),
    "SGLang": (
        "custom_params ebnf json_schema min_new_tokens no_stop_trim regex sampling_seed separate_reasoning stop_regex"
        " stream_reasoning"
    ),
    "llama.cpp": (
        "adaptive_decay adaptive_target cache_prompt dry_allowed_length dry_base dry_multiplier dry_penalty_last_n"
        " dry_sequence_breakers dynatemp_exponent dynatemp_range grammar min_keep mirostat mirostat_eta mirostat_tau"
        " n_indent n_probs penalize_nl post_sampling_probs reasoning_budget_message reasoning_budget_tokens"
        " reasoning_format reasoning_in_content repeat_last_n return_progress return_tokens samplers t_max_predict_ms"
        " tfs_z timings_per_token top_n_sigma typical_p xtc_probability xtc_threshold"
    ),
    "other servers": "enable_thinking reasoning thinking thinking_budget_tokens",
    "a chat template": " ".join(
        f"chat_template_kwargs.{name}"
        for name in ("enable_thinking", "thinking", "reasoning_effort", "thinking_budget", "clear_thinking")
    ),
}
"""Further fields that are handed on, by where they come from.

All others are refused. Some drop the operator's system message (``truncate_prompt_tokens``, ``chat_template``,
``prompt_embeds``, ``input_ids``, a template's ``truncation``) or write more than its tokens (``use_beam_search``,
``num_return_sequences``, ``options``, ``models``), and which of them a server knows changes with every release.
"""
PASSED_FIELDS = _OWN_FIELDS.union(*(names.split() for names in _FURTHER_FIELDS.values()))
"""Fields that a request may have; those of a table inside it with its name and a dot."""
TABLE_FIELD = "chat_template_kwargs"
"""The field whose own fields are looked at: servers give them to the code that fills in a template."""


@dataclass(frozen=True)
class RequestOptions:
    """The field ``breadth`` of a request."""

    policy: str = ""
    """A policy the server has a name for, or a strategy with settings; empty for the server's own."""
    budget: Budget = Budget()
    """Ceilings for this request."""
    seed: int | None = None
    """Random seed, like the request's own field ``seed``; this one wins."""
    reading: Literal["stated", "number", "whole"] | None = None
    """How the answer is extracted from a completion."""
    thinking_tokens: int | None = None
    """Most thinking tokens of one sample, where the upstream can cap them."""


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
    """Its field ``breadth``."""
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
        """Completions sampled for it when it is passed on: for all its prompts, including those ``best_of`` drops."""
        prompt = self.fields.get("prompt")
        prompts = len(prompt) if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int) else 1
        return prompts * max(self.replies_per_prompt, int(self.fields.get("best_of", 1)))

    @property
    def top_logprobs(self) -> int:
        """Alternatives that it wants for each token, under any name."""
        wanted = (self.fields.get(name) for name in ("top_logprobs", "logprobs", "n_probs", "prompt_logprobs"))
        return max([0, *(count for count in wanted if isinstance(count, int))])

    def exceeds(self, max_tokens: int) -> bool:
        """Say whether it asks for longer replies than this, under any name; a negative number asks for no end."""
        return any(not 0 <= self.fields.get(name, 0) <= max_tokens for name in CAP_FIELDS)

    @property
    def passthrough_reason(self) -> str:
        """The feature it needs that only a passed-on sample has; empty when any policy can answer it."""
        if (self.fields.get("tools") or self.fields.get("functions")) and self.fields.get("tool_choice") != "none":
            return "tools"
        if self.fields.get("logprobs", False) is not False:  # 0 asks for them in plain completions
            return "logprobs"
        wanted = {name: self.fields.get(name) for name in ("echo", "suffix", "best_of")}
        return next((name for name, value in wanted.items() if value and (name != "best_of" or value != 1)), "")

    @property
    def passthrough_fields(self) -> dict[str, Any]:
        """Fields that samples pass on unchanged."""
        return {name: value for name, value in self.fields.items() if name not in _OWN_FIELDS}

    def merge_sampling(self, default: Sampling, max_tokens: int | None = None) -> Sampling:
        """Return the policy's sampling with the request's own fields on top, no reply longer than ``max_tokens``."""
        fields = dict(self.sampling_fields)
        if fields.get("top_k") == -1:  # vLLM writes all tokens like this
            fields["top_k"] = 0
        if self.options.thinking_tokens is not None:
            fields["thinking_tokens"] = self.cap_thinking(default)
        if max_tokens is not None:
            fields["max_tokens"] = min(fields.get("max_tokens", default.max_tokens), max_tokens)
        try:
            return replace(default, **fields)
        except SettingsError as error:
            name = next((name for name in fields if f" {name} =" in error.problem), None)
            raise ApiError(400, f"{error.problem} {error.remedy}", param=name, code="invalid_value") from error

    def cap_thinking(self, default: Sampling) -> int | None:
        """Return the most thinking tokens of a sample, the smaller of request and policy; None for no cap."""
        caps = (self.options.thinking_tokens, default.thinking_tokens)
        return min((cap for cap in caps if cap is not None), default=None)

    def to_task(
        self, sampling: Sampling, reading: Reading, *, model: str, system: str, seed: int, halt: Halt | None = None
    ) -> Task:
        """Return the request as a task."""
        prompt = self.prompt
        if prompt is None:
            raise ApiError(
                400, "A policy answers one prompt of text: send one string, or use the policy single.", param="prompt"
            )
        prompt = prepend_system(prompt, system)
        reading = reading if self.options.reading is None else Reading(self.options.reading)
        own_seed = self.options.seed if self.options.seed is not None else self.fields.get("seed")
        seed = seed if own_seed is None else own_seed
        return Task(prompt, "request", model, sampling, reading, seed, self.passthrough_fields, halt=halt)


def prepend_system(prompt: Any, system: str) -> Any:
    """Return a prompt behind a system message: a chat gets a first message, a text its first lines.

    Raises ApiError for token ids: nothing can be put before them.
    """
    if not system:
        return prompt
    if isinstance(prompt, tuple):
        return ({"role": "system", "content": system}, *prompt)
    if isinstance(prompt, str):
        return f"{system}\n\n{prompt}"
    if isinstance(prompt, list) and all(isinstance(text, str) for text in prompt):
        return [prepend_system(text, system) for text in prompt]
    message = "The policy of this server begins with a system message: send the prompt as text, not as token ids."
    raise ApiError(400, message, param="prompt", code="invalid_value")


def check_size(raw: bytes) -> None:
    """Refuse a body of too many values before they are read; the inside of a text is not counted, however long."""
    if count_brackets(raw) <= MAX_BODY_OBJECTS and raw.count(b'"') <= 2 * MAX_BODY_TEXTS:
        return
    bare = raw.replace(rb"\\", b"").replace(rb"\"", b"")  # every quote that is left begins or ends a text
    texts = bare.count(b'"') // 2
    if texts > MAX_BODY_TEXTS:
        message = f"The body has {texts:,} texts and names of fields: use at most {MAX_BODY_TEXTS:,}."
        raise ApiError(400, message, code="bad_json")
    objects = count_brackets(b"".join(bare.split(b'"')[::2]))
    if objects > MAX_BODY_OBJECTS:
        message = f"The body has {objects:,} lists and objects: use at most {MAX_BODY_OBJECTS:,}."
        raise ApiError(400, message, code="bad_json")


def count_brackets(raw: bytes) -> int:
    """Return the opening brackets in some bytes."""
    return raw.count(b"[") + raw.count(b"{")


def check_names(path: str, fields: Mapping[str, Any], allowed: Collection[str]) -> None:
    """Refuse a field that is not known to keep to the operator's policy, unless the operator has ``allowed`` it."""
    names = [name for name in fields if name != TABLE_FIELD]
    if TABLE_FIELD in fields and TABLE_FIELD not in allowed:
        inner = check_type(fields, TABLE_FIELD, dict, "an object")
        names += [f"{TABLE_FIELD}.{name}" for name in inner]
    other = "prompt" if path == CHAT_PATH else "messages"
    unknown = next((name for name in names if name not in allowed and (name not in PASSED_FIELDS or name == other)), "")
    if unknown:
        name = unknown[:80]
        message = (
            f"The field '{name}' is not handed on, only those of OpenAI and the usual ones for sampling: leave it out,"
            f" or ask this server's operator to allow it (--allow-field {name})."
        )
        raise ApiError(400, message, param=name, code="field_not_allowed")


def check_caps(path: str, fields: Mapping[str, Any]) -> None:
    """Refuse a cap of no token, which some servers take for no cap; only a text that is repeated goes without."""
    scores = path != CHAT_PATH and fields.get("echo") is True
    for name in CAP_FIELDS:
        if fields.get(name) == 0 and not (scores and name == "max_tokens"):
            raise value_error(name, 0, "at least one token, or left out")


def read_request(path: str, raw: bytes, allowed: Collection[str] | None = ()) -> ClientRequest:
    """Read a request; raises ApiError with the name of the wrong field.

    Fields in ``allowed`` are handed on as well; with None all are, as a server does that hands on nothing.
    """
    check_size(raw)
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise ApiError(400, f"The body is not JSON: {error}.", code="bad_json") from error
    if not isinstance(body, dict):
        raise ApiError(400, "The body is no JSON object: send one with 'messages' or 'prompt'.", code="bad_json")
    fields = {name: value for name, value in body.items() if value is not None}
    try:
        orjson.dumps(fields)  # it reads some 1,000 levels and writes some 250
    except TypeError as error:
        raise ApiError(400, "The body is nested too deep: use less than 250 levels.", code="bad_json") from error
    options = read_options(fields.pop("breadth", {}))
    check_type(fields, "model", str, "a text")
    check_type(fields, "stream", bool, "true or false")
    check_type(fields, "stream_options", dict, "an object")
    check_type(fields, "seed", int, "a whole number")
    check_type(fields, "tools", list, "a list")
    for name in COUNT_FIELDS:
        if check_type(fields, name, int, "a whole number from 1 up") is not None and fields[name] < 1:
            raise value_error(name, fields[name], "a whole number from 1 up")
    if allowed is not None:
        check_names(path, fields, allowed)
    prompt = read_messages(fields.get("messages")) if path == CHAT_PATH else read_prompt(fields.get("prompt"))
    sampling = read_sampling(fields)
    check_caps(path, fields)
    return ClientRequest(path, fields, prompt, fields.get("model", ""), options, sampling)


def read_options(table: Any) -> RequestOptions:
    """Read the field ``breadth``."""
    if not isinstance(table, dict):
        raise value_error("breadth", table, "an object")
    if not table:
        return RequestOptions()
    try:
        return from_table(RequestOptions, drop_nulls(table), "breadth")
    except SettingsError as error:
        raise ApiError(400, f"{error.problem} {error.remedy}", param="breadth", code="bad_policy") from error


def drop_nulls(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table without fields that are null, at any depth."""
    return {
        name: drop_nulls(value) if isinstance(value, dict) else value
        for name, value in table.items()
        if value is not None
    }


def read_sampling(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sampling fields of a request under our names."""
    sampling: dict[str, Any] = {}
    for name in (*SAMPLING_ALIASES, *SAMPLING_FIELDS):
        if name not in fields:
            continue
        ours = SAMPLING_ALIASES.get(name, name)
        kind = SAMPLING_FIELDS[ours]
        value = check_type(
            fields, name, (int, float) if kind is float else int, "a number" if kind is float else "a whole number"
        )
        sampling.setdefault(ours, kind(value))
    stop = fields.get("stop")
    if stop is not None:
        texts = [stop] if isinstance(stop, str) else stop
        if not isinstance(texts, list) or not all(isinstance(text, str) and text for text in texts):
            raise value_error("stop", stop, "a text or a list of texts, none of them empty")
        sampling["stop"] = tuple(texts)
    return sampling


def read_messages(messages: Any) -> Prompt:
    """Read the field ``messages`` of a chat."""
    if not isinstance(messages, list) or not messages:
        raise value_error("messages", messages, "a list of at least one message")
    for number, message in enumerate(messages):
        where = f"messages[{number}]"
        if not isinstance(message, dict):
            raise value_error(where, message, "an object with role and content")
        if not isinstance(message.get("role"), str) or not message["role"]:
            raise value_error(f"{where}.role", message.get("role"), "a text such as 'user'")
        if not isinstance(message.get("content"), (str, list, type(None))):
            raise value_error(f"{where}.content", message["content"], "a text or a list of parts")
    if not any(has_content(message) for message in messages):
        raise ApiError(
            400, "The messages hold nothing to answer: all of them are empty.", param="messages", code="invalid_value"
        )
    return tuple(messages)


def has_content(message: Mapping[str, Any]) -> bool:
    """Say whether a message holds text, a picture or a tool call."""
    content = message.get("content")
    has_parts = isinstance(content, list) and any(
        isinstance(part, dict) and part.get("type") not in (None, "text") for part in content
    )
    return has_parts or bool(text_of(content).strip()) or bool(message.get("tool_calls"))


def read_prompt(prompt: Any) -> Prompt | None:
    """Read the field ``prompt``; None for one that can only be passed on."""
    if (
        isinstance(prompt, list)
        and prompt
        and isinstance(prompt[0], (str, int, list))
        and not isinstance(prompt[0], bool)
    ):
        return prompt[0] if len(prompt) == 1 and isinstance(prompt[0], str) and prompt[0] else None
    if not isinstance(prompt, str) or not prompt:
        raise value_error("prompt", prompt, "a text that is not empty")
    return prompt


def check_type(fields: Mapping[str, Any], name: str, kind: type | tuple[type, ...], expected: str) -> Any:
    """Return a field, or None when it is absent; refuse one of another type."""
    value = fields.get(name)
    if value is not None and (not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool)):
        raise value_error(name, value, expected)
    return value


_SHORT = reprlib.Repr()
"""Shows a value without writing all of it out."""
_SHORT.maxother = 80


def value_error(name: str, value: Any, expected: str) -> ApiError:
    """Return the error for a field with a wrong value."""
    got = "nothing" if value is None else repr(value[:80]) if isinstance(value, str) else _SHORT.repr(value)
    return ApiError(
        400,
        f"'{name}' must be {expected}; got {got if len(got) <= 80 else got[:77] + '...'}.",
        param=name,
        code="invalid_value",
    )
