"""Only declared fields are decoded, from what real servers send; the older form of log-probs becomes the newer one."""

from __future__ import annotations

import msgspec
import pytest

from breadth.runtime.samplers.wire import CHUNKS, MODELS, Alternative, Logprobs, TokenLogprob, in_chat_form


def test_a_chunk_of_llama_cpp() -> None:
    chunk = CHUNKS.decode(
        b'{"choices":[{"finish_reason":null,"index":0,"delta":{"content":"That"},"logprobs":{"content":[{"id":5195,"token":"That",'
        b'"bytes":[84,104,97,116],"logprob":-2.34,"top_logprobs":[{"id":1,"token":"The","bytes":[84],"logprob":-0.5}]}]}}],'
        b'"created":1,"id":"chatcmpl-1","model":"smollm2","object":"chat.completion.chunk","timings":{"x":[1,2]}}'
    )
    assert chunk.choices is not None
    choice = chunk.choices[0]
    assert choice.delta is not None
    assert choice.delta.content == "That"
    assert choice.logprobs is not None
    assert choice.logprobs.content == [TokenLogprob("That", -2.34, [Alternative(-0.5)])]
    assert chunk.model == "smollm2"


def test_nulls_are_borne() -> None:
    chunk = CHUNKS.decode(
        b'{"choices":[{"index":0,"delta":{"role":"assistant","content":null},"logprobs":null}],"usage":null,"error":null}'
    )
    assert chunk.choices is not None
    assert chunk.choices[0].delta is not None
    assert chunk.choices[0].delta.content is None


@pytest.mark.parametrize("event", [b"", b"{", b"[]", b'{"choices": 3}', b'{"choices":[{"delta":{"content":5}}]}', b"\xff"])
def test_what_is_no_chunk(event: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        CHUNKS.decode(event)


def test_a_list_of_models() -> None:
    assert [model.id for model in MODELS.decode(b'{"object":"list","data":[{"id":"a","object":"model"},{"id":"b"}]}').data] == ["a", "b"]


def test_the_older_form_of_log_probs() -> None:
    older = Logprobs(tokens=["a", "b"], token_logprobs=[None, -1.0], top_logprobs=[None, {"b": -1.0, "c": None}])
    assert in_chat_form(older) == [TokenLogprob("a", None, []), TokenLogprob("b", -1.0, [Alternative(-1.0), Alternative(None)])]
    assert in_chat_form(Logprobs(token_logprobs=[-1.0])) == [TokenLogprob("", -1.0, [])]
