"""What a request wants: its prompt in tokens, its way to draw, and refusals that name the field."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from breadth.lab.server.requests import MAX_REPLIES, CompletionRequest, read_completion_request
from breadth.lab.task.vocabulary import RoutesTokens, build_tokenizer
from breadth.runtime.dialect import CHAT_PATH, COMPLETIONS_PATH
from breadth.runtime.proxy.client_request import read_request
from breadth.runtime.proxy.errors import ApiError

WORDING = RoutesTokens(build_tokenizer(7))
CONTEXT = 64
ASKED = [{"role": "user", "content": "(3+4)*(5+6)="}]


def read(path: str = CHAT_PATH, /, **fields: Any) -> CompletionRequest:
    given = {"messages": ASKED} if path == CHAT_PATH and "messages" not in fields else {}
    return read_completion_request(read_request(path, orjson.dumps(given | fields), allowed=None), WORDING, CONTEXT)


def refused(path: str = CHAT_PATH, /, **fields: Any) -> ApiError:
    with pytest.raises(ApiError) as refusal:
        read(path, **fields)
    assert refusal.value.status == 400
    return refusal.value


def tokens(text: str) -> tuple[int, ...]:
    return WORDING.tokens(text.split())


def test_defaults_are_openais_and_the_cap_is_what_fits() -> None:
    wanted = read()
    assert wanted.tokens == tokens("( 3 + 4 ) * ( 5 + 6 ) =")  # 13 with the beginning
    assert (wanted.sampling.temperature, wanted.sampling.top_p, wanted.sampling.max_tokens) == (1.0, 1.0, CONTEXT - 13)
    assert (wanted.replies, wanted.stream, wanted.alternatives, wanted.sampling.thinking_tokens) == (
        1,
        False,
        None,
        None,
    )
    assert read(max_tokens=4096).sampling.max_tokens == CONTEXT - 13
    assert read(max_completion_tokens=5).sampling.max_tokens == 5


def test_a_last_message_of_the_assistants_is_continued_and_earlier_ones_are_not_read() -> None:
    begun = read(messages=[*ASKED, {"role": "assistant", "content": "<think>\nadd 3"}])
    assert begun.tokens == tokens("( 3 + 4 ) * ( 5 + 6 ) = <think> add 3")
    assert begun.prefix == "<think>\nadd 3"
    turns = [
        {"role": "system", "content": "1"},
        *ASKED,
        {"role": "assistant", "content": "0"},
        {"role": "user", "content": "(1+1)*1="},
    ]
    assert read(messages=turns).tokens == tokens("( 3 + 4 ) * ( 5 + 6 ) = ( 1 + 1 ) * 1 =")


def test_a_plain_prompt_is_continued_as_it_stands() -> None:
    wanted = read(COMPLETIONS_PATH, prompt="(3+4)*2= <think>", logprobs=3, seed=7)
    assert wanted.tokens == tokens("( 3 + 4 ) * 2 = <think>")
    assert (wanted.alternatives, wanted.seed, wanted.chat) == (3, 7, False)
    assert read(COMPLETIONS_PATH, prompt="3 +").tokens == tokens("3 +")  # no equals sign is added


@pytest.mark.parametrize("name", ["reasoning_budget_tokens", "thinking_budget_tokens", "thinking_token_budget"])
def test_thinking_is_capped_under_every_name_of_it(name: str) -> None:
    assert read(**{name: 9}).sampling.thinking_tokens == 9
    assert read(**{name: -1}).sampling.thinking_tokens is None
    assert refused(**{name: "much"}).param == name


def test_no_number_is_too_large_or_too_small_for_the_engine() -> None:
    huge = 2**64 - 1
    sampling = read(
        top_k=huge, max_tokens=huge, reasoning_budget_tokens=huge, logprobs=True, top_logprobs=huge, temperature=1e-320
    ).sampling
    assert (sampling.top_k, sampling.thinking_tokens, sampling.top_logprobs) == (WORDING.size, CONTEXT, WORDING.size)
    assert sampling.temperature == 0.0
    assert read(seed=huge, n=2).seeds()[0] == huge


def test_log_probs_in_both_forms() -> None:
    assert read(logprobs=True).alternatives == 0
    assert read(logprobs=True, top_logprobs=5).sampling.top_logprobs == 5
    assert read(logprobs=True, top_logprobs=1000).sampling.top_logprobs == WORDING.size
    assert read(logprobs=False).alternatives is None
    assert read(COMPLETIONS_PATH, prompt="3", logprobs=0).alternatives == 0
    assert read(COMPLETIONS_PATH, prompt="3").alternatives is None
    assert refused(top_logprobs=5).param == "top_logprobs"
    assert refused(logprobs=True, top_logprobs=-1).param == "top_logprobs"
    assert refused(logprobs="yes").param == "logprobs"
    assert refused(COMPLETIONS_PATH, prompt="3", logprobs="yes").param == "logprobs"


def test_the_first_reply_does_not_depend_on_how_many_are_wanted() -> None:
    three = read(n=3, seed=5).seeds()
    assert three[0] == 5
    assert len(set(three)) == 3
    assert three == read(n=3, seed=5).seeds()
    assert read(n=1, seed=5).seeds() == [5]
    assert set(three[1:]).isdisjoint(read(n=3, seed=6).seeds())


def test_without_a_seed_every_request_has_its_own() -> None:
    assert len({read().seed for _ in range(4)} | {read(seed=-1).seed for _ in range(4)}) == 8


def test_what_the_dialects_of_llama_cpp_and_vllm_send_is_taken() -> None:
    neutral: dict[str, Any] = {
        "typical_p": 1.0,
        "top_n_sigma": -1.0,
        "xtc_probability": 0.0,
        "dry_multiplier": 0.0,
        "mirostat": 0,
        "dynatemp_range": 0.0,
    }
    drawn: dict[str, Any] = {
        "temperature": 0.7,
        "top_p": 0.9,
        "top_k": 3,
        "min_p": 0.1,
        "repeat_penalty": 1.0,
        "presence_penalty": 0,
        "frequency_penalty": 0.0,
    }
    sampling = read(**neutral, **drawn, stop=["</think>"], anything={"else": 1}).sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p) == (0.7, 0.9, 3, 0.1)
    assert sampling.stop == ("</think>",)
    assert read(top_k=-1, repetition_penalty=1.0, continue_final_message=True).sampling.top_k == 0


@pytest.mark.parametrize(
    ("fields", "param", "said"),
    [
        ({"presence_penalty": 0.5}, "presence_penalty", "left out, or 0"),
        ({"frequency_penalty": -1}, "frequency_penalty", "left out, or 0"),
        ({"repetition_penalty": 1.1}, "repetition_penalty", "left out, or 1"),
        ({"repeat_penalty": 1.1}, "repeat_penalty", "left out, or 1"),
        ({"logit_bias": {"3": 5}}, "logit_bias", "left out"),
        ({"tools": [{"type": "function"}]}, "tools", "left out"),
        ({"response_format": {"type": "json_object"}}, "response_format", '{"type":"text"}'),
        ({"n": 0}, "n", "from 1 up"),
        ({"n": MAX_REPLIES + 1}, "n", "128"),
        ({"temperature": "hot"}, "temperature", "a number"),
        ({"temperature": -1}, "temperature", "from 0 up"),
        ({"top_p": 0}, "top_p", "above 0"),
        ({"max_tokens": 0}, "max_tokens", "at least one"),
        ({"stop": [""]}, "stop", "none of them empty"),
        ({"seed": 1.5}, "seed", "whole number"),
        ({"stream": "yes"}, "stream", "true or false"),
        ({"messages": []}, "messages", "at least one"),
        ({"messages": [{"role": "user", "content": " \n"}]}, "messages", "nothing to answer"),
        ({"messages": [{"role": "system", "content": "Count."}]}, "messages", "No message of the user's"),
        ({"messages": [{"role": "user", "content": "1 " * 70}]}, "messages", "context length is 64"),
    ],
)
def test_what_cannot_be_done_is_refused_with_the_name_of_the_field(
    fields: dict[str, Any], param: str, said: str
) -> None:
    refusal = refused(**fields)
    assert refusal.param == param
    assert said in refusal.message


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": "3", "echo": True}, "echo"),
        ({"prompt": "3", "suffix": "4"}, "suffix"),
        ({"prompt": "3", "best_of": 2}, "n"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": " "}, "prompt"),
        ({"prompt": ["3", "4"]}, "prompt"),
        ({"prompt": [3, 4]}, "prompt"),
        ({}, "prompt"),
    ],
)
def test_plain_completions_refuse_theirs(fields: dict[str, Any], param: str) -> None:
    assert refused(COMPLETIONS_PATH, **fields).param == param
