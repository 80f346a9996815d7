"""Requests, read strictly."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from breadth.adapters import llama_cpp, sglang, vllm
from breadth.inference.records import Budget, Reading, Sampling
from breadth.runtime.proxy.client_request import ClientRequest, read_request
from breadth.runtime.proxy.errors import ApiError

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
HELLO = [{"role": "user", "content": "Hello"}]


def chat(**fields: Any) -> ClientRequest:
    return read_request(CHAT, orjson.dumps({"messages": HELLO} | fields))


def refused(path: str, body: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        read_request(path, body if isinstance(body, bytes) else orjson.dumps(body))
    assert caught.value.status == 400
    return caught.value


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": "hello"}, "messages"),
        ({"messages": ["hello"]}, "messages[0]"),
        ({"messages": [*HELLO, {"content": "x"}]}, "messages[1].role"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": "  "}]}, "messages"),
        ({"messages": HELLO, "model": 3}, "model"),
        ({"messages": HELLO, "stream": "yes"}, "stream"),
        ({"messages": HELLO, "stream": 1}, "stream"),
        ({"messages": HELLO, "stream_options": True}, "stream_options"),
        ({"messages": HELLO, "n": 0}, "n"),
        ({"messages": HELLO, "n": "2"}, "n"),
        ({"messages": HELLO, "seed": 1.5}, "seed"),
        ({"messages": HELLO, "temperature": "hot"}, "temperature"),
        ({"messages": HELLO, "temperature": True}, "temperature"),
        ({"messages": HELLO, "max_tokens": 1.5}, "max_tokens"),
        ({"messages": HELLO, "max_completion_tokens": "9"}, "max_completion_tokens"),
        ({"messages": HELLO, "stop": [3]}, "stop"),
        ({"messages": HELLO, "stop": ""}, "stop"),
        ({"messages": HELLO, "tools": {}}, "tools"),
        ({"messages": HELLO, "breadth": "vote"}, "breadth"),
        ({"messages": HELLO, "breadth": {"polcy": "vote"}}, "breadth"),
        ({"messages": HELLO, "breadth": {"budget": {"calls": -1}}}, "breadth"),
        ({"messages": HELLO, "breadth": {"budget": 3}}, "breadth"),
        ({"messages": HELLO, "breadth": {"reading": "loud"}}, "breadth"),
    ],
)
def test_what_is_wrong_with_a_chat_is_named(fields: dict[str, Any], param: str) -> None:
    assert refused(CHAT, fields).param == param


@pytest.mark.parametrize("prompt", [None, "", [], {}, 3, [None], [True]])
def test_a_completion_needs_a_prompt(prompt: Any) -> None:
    assert refused(TEXT, {"prompt": prompt}).param == "prompt"


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"3", b"null", b'{"messages": NaN}', b"\xff"])
def test_a_body_that_is_no_object_is_refused(raw: bytes) -> None:
    assert refused(CHAT, raw).code == "bad_json"


def test_millions_of_lists_are_refused_before_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(_: bytes) -> None:
        raise AssertionError("the body was read")

    monkeypatch.setattr(orjson, "loads", never)
    with pytest.raises(ApiError, match="lists and objects") as caught:
        read_request("/v1/chat/completions", b'{"messages": [' + b"[]," * 300_000 + b"[]]}")
    assert caught.value.status == 400


@pytest.mark.parametrize(
    "fields",
    [
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}] * 20_000}]},
        {"messages": HELLO, "stop": ["a"] * 100_000},
        {"messages": HELLO, "logit_bias": {str(token): 1 for token in range(100_000)}},
    ],
)
def test_a_body_of_too_many_values_is_refused_before_it_is_read(
    fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = orjson.dumps(fields)
    monkeypatch.setattr(orjson, "loads", lambda _: pytest.fail("the body was read"))
    assert "use at most" in refused(CHAT, raw).message


@pytest.mark.parametrize("text", ['{"a": [1, "b"]},\n' * 50_000, '\\"' * 200_000, "[" * 300_000])
def test_what_stands_in_a_long_text_is_not_counted(text: str) -> None:
    messages = [{"role": "user", "content": text}]
    assert read_request(CHAT, orjson.dumps({"messages": messages})).prompt == tuple(messages)


def test_a_prompt_of_a_million_token_ids_is_read() -> None:
    assert read_request(TEXT, orjson.dumps({"prompt": [1] * 1_000_000})).total_replies == 1


@pytest.mark.parametrize(
    "name",
    [
        *("truncate_prompt_tokens", "chat_template", "prompt_embeds", "input_ids", "prompt_token_ids", "prompt"),
        *("add_special_tokens", "mm_processor_kwargs", "use_beam_search", "num_return_sequences", "max_new_tokens"),
        *("max_output_tokens", "MAX_TOKENS", "options", "models", "route", "custom_logit_processor", "vllm_xargs"),
        *(f"chat_template_kwargs.{name}" for name in ("chat_template", "truncation", "max_length", "conversation")),
    ],
)
def test_a_field_that_may_get_past_the_policy_is_refused(name: str) -> None:
    table, _, inner = name.rpartition(".")
    error = refused(CHAT, {"messages": HELLO} | ({table: {inner: True}} if table else {name: 1}))
    assert (error.code, error.param) == ("field_not_allowed", name)
    body = orjson.dumps({"messages": HELLO, name: 1})
    assert table or read_request(CHAT, body, frozenset({name})).fields[name] == 1


def test_a_table_of_a_template_may_be_allowed_as_a_whole() -> None:
    fields = {"chat_template_kwargs": {"odd": 1}}
    call = read_request(CHAT, orjson.dumps({"messages": HELLO} | fields), frozenset(fields))
    assert call.passthrough_fields == fields
    assert refused(CHAT, {"messages": HELLO, "chat_template_kwargs": 3}).param == "chat_template_kwargs"
    assert chat(chat_template_kwargs={"enable_thinking": False}).passthrough_fields


@pytest.mark.parametrize("server", [llama_cpp, vllm, sglang])
def test_what_the_doctor_prescribes_and_what_we_send_ourselves_is_handed_on(server: Any) -> None:
    dialect = getattr(server, {llama_cpp: "LlamaCppDialect", vllm: "VllmDialect", sglang: "SglangDialect"}[server])()
    fields = dialect.sampling_fields(Sampling()) | dialect.thinking_fields(9)
    for render in server.SETTINGS.fields.values():
        fields |= render(2)
    assert chat(**fields).fields.keys() >= fields.keys()


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens", "n_predict"])
def test_a_cap_of_no_token_is_refused(name: str) -> None:
    assert refused(CHAT, {"messages": HELLO, name: 0}).param == name
    assert refused(TEXT, {"prompt": "Once", name: 0}).param == name


def test_a_text_is_scored_without_a_token_more() -> None:
    call = read_request(TEXT, orjson.dumps({"prompt": "Once", "echo": True, "logprobs": 1, "max_tokens": 0}))
    assert call.sampling_fields["max_tokens"] == 0
    assert not call.exceeds(5)


def test_a_misspelt_wish_gets_the_nearest_spelling() -> None:
    assert "'policy'" in refused(CHAT, {"messages": HELLO, "breadth": {"polcy": "vote"}}).message


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(
            [
                "messages",
                "prompt",
                "model",
                "stream",
                "n",
                "temperature",
                "stop",
                "breadth",
                "tools",
                "seed",
                "logprobs",
                "top_k",
            ]
        ),
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers(-3, 9)
            | st.floats(allow_nan=False, allow_infinity=False)
            | st.text(max_size=4),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.sampled_from(["role", "content", "policy", "budget"]), inner)
            ),
            max_leaves=6,
        ),
    ),
    st.sampled_from([CHAT, TEXT]),
)
def test_any_json_is_read_or_refused_and_never_breaks(body: dict[str, Any], path: str) -> None:
    status = 200
    try:
        call = read_request(path, orjson.dumps(body))
        call.merge_sampling(Sampling())
        assert isinstance(call.passthrough_reason, str)
        assert "messages" not in call.passthrough_fields
    except ApiError as refusal:
        status = refusal.status
    assert status in (200, 400)


def test_sampling_fields_of_the_request_replace_the_policys() -> None:
    call = chat(temperature=0, top_p=1, max_completion_tokens=7, repeat_penalty=1.1, stop="END", top_k=-1)
    drawn = call.merge_sampling(Sampling(temperature=0.9, min_p=0.1))
    assert drawn == Sampling(
        temperature=0.0, top_p=1.0, max_tokens=7, repetition_penalty=1.1, stop=("END",), top_k=0, min_p=0.1
    )


def test_a_sampling_value_outside_its_range_is_named() -> None:
    with pytest.raises(ApiError, match="top_p") as caught:
        chat(top_p=1.5).merge_sampling(Sampling())
    assert (caught.value.status, caught.value.param) == (400, "top_p")


def test_nulls_count_as_absent_as_sdks_send_them() -> None:
    call = chat(
        temperature=None, n=None, tools=None, breadth={"policy": "vote", "budget": {"calls": None, "seconds": 2}}
    )
    assert call.sampling_fields == {}
    assert call.options.budget == Budget(seconds=2.0)


def test_the_rest_is_passed_on_untouched_and_ours_is_not() -> None:
    call = chat(
        model="m",
        seed=3,
        user="u",
        response_format={"type": "json_object"},
        logit_bias={"5": 1},
        breadth={"policy": "vote"},
        n=1,
    )
    assert call.passthrough_fields == {"user": "u", "response_format": {"type": "json_object"}, "logit_bias": {"5": 1}}


@pytest.mark.parametrize(
    ("fields", "need"),
    [
        ({}, ""),
        ({"tools": []}, ""),
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"tools": [{"type": "function"}], "tool_choice": "none"}, ""),
        ({"functions": [{"name": "f"}]}, "tools"),
        ({"logprobs": False}, ""),
        ({"logprobs": True, "top_logprobs": 2}, "logprobs"),
        ({"logprobs": 0}, "logprobs"),
        ({"echo": True}, "echo"),
        ({"best_of": 1}, ""),
        ({"best_of": 3}, "best_of"),
    ],
)
def test_what_only_a_raw_draw_can_give(fields: dict[str, Any], need: str) -> None:
    assert chat(**fields).passthrough_reason == need


def test_a_task_has_the_seed_reading_system_and_model_of_its_request() -> None:
    call = chat(seed=7, breadth={"reading": "whole"})
    task = call.to_task(Sampling(), Reading(), model="m", system="Be brief.", seed=1)
    assert (task.seed, task.reading.how, task.model) == (7, "whole", "m")
    assert task.prompt == ({"role": "system", "content": "Be brief."}, *HELLO)
    assert chat(seed=7, breadth={"seed": 0}).to_task(Sampling(), Reading(), model="", system="", seed=1).seed == 0
    assert chat().to_task(Sampling(), Reading(), model="", system="", seed=1).seed == 1


def test_a_plain_completion_is_a_text_and_several_can_only_be_passed_on() -> None:
    def text(prompt: Any) -> ClientRequest:
        return read_request(TEXT, orjson.dumps({"prompt": prompt}))

    assert text("Once").prompt == "Once"
    assert text(["Once"]).prompt == "Once"
    for several in (["a", "b"], [1, 2], [[1], [2]]):
        assert text(several).prompt is None
        with pytest.raises(ApiError) as caught:
            text(several).to_task(Sampling(), Reading(), model="", system="", seed=0)
        assert caught.value.param == "prompt"


def test_a_picture_or_a_tool_call_is_something_to_answer() -> None:
    picture = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}
    assert read_request(CHAT, orjson.dumps({"messages": [picture]})).prompt == (picture,)
    called = {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}
    assert read_request(CHAT, orjson.dumps({"messages": [called]})).prompt == (called,)


@pytest.mark.parametrize("field", ["x", "temperature", "breadth", "messages", "stop"])
@pytest.mark.parametrize("depth", [300, 1000])
def test_nesting_too_deep_to_be_passed_on_is_refused(field: str, depth: int) -> None:
    raw = orjson.dumps({"messages": HELLO} | {field: 0}).replace(
        f'"{field}":0'.encode(), f'"{field}":{"[" * depth}{"]" * depth}'.encode()
    )
    assert refused(CHAT, raw).code == "bad_json"


def test_every_name_of_a_cap_is_a_cap_and_none_is_passed_on_beside_it() -> None:
    call = chat(n_predict=50, n_cmpl=1)
    assert call.merge_sampling(Sampling()).max_tokens == 50
    assert call.passthrough_fields == {}


@pytest.mark.parametrize(
    ("path", "fields", "each", "replies"),
    [
        (CHAT, {"messages": HELLO}, 1, 1),
        (CHAT, {"messages": HELLO, "n": 3}, 3, 3),
        (CHAT, {"messages": HELLO, "n_cmpl": 4}, 4, 4),
        (TEXT, {"prompt": ["a", "b"], "n": 2, "best_of": 5}, 2, 10),
        (TEXT, {"prompt": [1, 2, 3]}, 1, 1),
        (TEXT, {"prompt": [[1, 2], [3]]}, 1, 2),
    ],
)
def test_how_many_replies_are_asked_for(path: str, fields: dict[str, Any], each: int, replies: int) -> None:
    call = read_request(path, orjson.dumps(fields))
    assert (call.replies_per_prompt, call.total_replies) == (each, replies)


@pytest.mark.parametrize("name", ["n", "n_cmpl", "best_of"])
@pytest.mark.parametrize("count", [0, -1, 1.5, "2", True])
def test_a_number_of_replies_is_one(name: str, count: Any) -> None:
    assert refused(CHAT, {"messages": HELLO, name: count}).param == name
