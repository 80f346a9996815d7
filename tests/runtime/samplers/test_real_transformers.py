"""The same GGUF file in transformers and in a real llama.cpp server: log-probs agree up to quantised arithmetic."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import numpy as np
import pytest

from breadth.adapters.llama_cpp import LlamaCppDialect
from breadth.inference.records import Candidate, Sampling
from breadth.runtime.sampler import Meter, SampleRequest
from breadth.runtime.samplers.openai import OpenAISampler

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch", reason="the extra 'train' is not installed")
pytest.importorskip("transformers", reason="the extra 'train' is not installed")
pytest.importorskip("gguf", reason="gguf, with which transformers reads the model of the tests, is not installed")

from breadth.runtime.samplers.transformers import TransformersSampler  # noqa: E402 - only where torch is

CHAT = ({"role": "user", "content": "What is 7 times 8?"},)
GREEDY = Sampling(temperature=0, max_tokens=12, top_logprobs=20)
# llama.cpp multiplies 4-bit weights with activations rounded to 8 bits and keeps its cache in half precision;
# transformers unpacks the weights to float32. Measured on four prompts of 24 tokens: likely tokens (5 % and more)
# differ by 0.03 to 0.11 nats in the mean, all 20 by 0.09 to 0.14, without a common direction; another processor, and so
# another text, may double that. Weights read wrongly would differ by nats.
LIKELY, ALL = 0.3, 0.4
pytestmark = pytest.mark.skipif(
    "BREADTH_TEST_ROPE_SCALE" in os.environ, reason="the server's model is changed, the one in transformers is not"
)


@pytest.fixture(scope="module")
def local(smollm2: Path) -> TransformersSampler:
    torch.set_num_threads(1)
    return TransformersSampler.load(smollm2.parent, gguf_file=smollm2.name)


def post(url: str, body: dict[str, Any]) -> Any:
    request = Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})  # noqa: S310 - our own server
    with urlopen(request, timeout=60) as reply:  # noqa: S310 - our own server
        return json.load(reply)


def test_both_read_the_prompt_as_the_same_tokens(llama: str, local: TransformersSampler) -> None:
    rendered = post(f"{llama}/apply-template", {"messages": [dict(message) for message in CHAT]})["prompt"]
    theirs = post(f"{llama}/tokenize", {"content": rendered, "add_special": False, "parse_special": True})["tokens"]
    assert local._prompt_ids(SampleRequest(CHAT)) == theirs


def test_the_top_20_agree_token_by_token(llama: str, local: TransformersSampler) -> None:
    reply = post(
        f"{llama}/v1/chat/completions",
        {
            "messages": [dict(message) for message in CHAT],
            "temperature": 0,
            "max_tokens": 12,
            "logprobs": True,
            "top_logprobs": 20,
        },
    )
    entries = reply["choices"][0]["logprobs"]["content"]
    written = [entry["id"] for entry in entries]
    prompt = local._prompt_ids(SampleRequest(CHAT))
    with torch.inference_mode():
        rows = (
            local.model(torch.tensor([prompt + written]))
            .logits[0, len(prompt) - 1 : -1]
            .float()
            .log_softmax(-1)
            .numpy()
        )
    likely, every = [], []
    for row, entry in zip(rows, entries, strict=True):
        ids = [one["id"] for one in entry["top_logprobs"]]
        theirs = np.array([one["logprob"] for one in entry["top_logprobs"]])
        every += (row[ids] - theirs).tolist()
        likely += (row[ids] - theirs)[theirs > np.log(0.05)].tolist()
        assert len(set(ids) & set(np.argsort(-row)[:20].tolist())) >= 16, (
            "the twenty likeliest are nearly the same ones"
        )
    assert np.abs(likely).mean() < LIKELY
    assert np.abs(every).mean() < ALL
    assert abs(np.mean(every)) < LIKELY, "no common direction"


def test_both_samplers_draw_alike(llama: str, local: TransformersSampler) -> None:
    async def served() -> Candidate:
        sampler = OpenAISampler(llama, dialect=LlamaCppDialect())
        try:
            return await sampler.sample(SampleRequest(CHAT, GREEDY), Meter())
        finally:
            await sampler.close()

    there, here = asyncio.run(served()), asyncio.run(local.sample(SampleRequest(CHAT, GREEDY), Meter()))
    assert there.prompt_tokens == here.prompt_tokens
    assert there.logprobs is not None
    assert here.logprobs is not None
    assert there.confidences is not None
    assert here.confidences is not None
    # Of the first token, which both choose behind the same text; from where their choices differ, everything may.
    assert abs(here.logprobs[0] - there.logprobs[0]) < LIKELY
    assert abs(here.confidences[0] - there.confidences[0]) < ALL
    assert (here.message["entropies"] >= 0).all()
    assert (here.message["entropies"] <= np.log(49152) + 1e-3).all()
