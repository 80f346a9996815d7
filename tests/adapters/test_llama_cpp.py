"""llama.cpp's dialect, against the real server."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any
from urllib.request import Request, urlopen

import pytest

from breadth.adapters.llama_cpp import SETTINGS, LlamaCppDialect
from breadth.base.errors import StrategyError
from breadth.doctor.finding import Change
from breadth.doctor.trainer_config import TrainerConfig
from breadth.inference.records import Candidate, Sampling
from breadth.runtime.dialect import CHAT_PATH, COMPLETIONS_PATH, ServerIdentity
from breadth.runtime.sampler import Meter, SampleRequest
from breadth.runtime.samplers.openai import OpenAISampler


def fields(*changes: Change) -> dict[str, Any]:
    request = SETTINGS.patch(changes, TrainerConfig())[0]
    found: dict[str, Any] = json.loads(request.removeprefix("request: "))
    return found


def chat_reply(url: str, **more: Any) -> Any:
    body = {
        "messages": [{"role": "user", "content": "Say a word again and again."}],
        "temperature": 0.0,
        "seed": 1,
        **more,
    }
    request = Request(f"{url}/v1/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"})  # noqa: S310 - ours
    with urlopen(request, timeout=120) as reply:  # noqa: S310 - the address of our own server
        return json.load(reply)


def test_fields_are_those_of_the_dialect() -> None:
    assert fields(Change("thinking_budget", 64)) == LlamaCppDialect().thinking_fields(64)
    assert SETTINGS.patch([Change("votes", 4)], TrainerConfig()) == ('request: {"n": 4}', "server: --parallel 4")


def test_the_real_server_votes_caps_and_sends_raw_alternatives(llama: str) -> None:
    reply = chat_reply(
        llama,
        **fields(Change("votes", 2), Change("max_tokens", 5), Change("top_logprobs", 3), Change("logprobs_raw", True)),
    )
    assert len(reply["choices"]) == 2
    assert all(choice["finish_reason"] == "length" for choice in reply["choices"])
    assert [len(one["top_logprobs"]) for one in reply["choices"][0]["logprobs"]["content"]] == [3] * 5


def test_the_real_server_s_guard_against_loops_changes_what_it_writes(llama: str) -> None:
    plain = chat_reply(llama, max_tokens=120, dry_multiplier=0.0)["choices"][0]["message"]["content"]
    guarded = chat_reply(llama, max_tokens=120, **fields(Change("loop_guard", True)))["choices"][0]["message"][
        "content"
    ]
    assert plain != guarded


def test_the_real_server_keeps_to_a_cap_on_thinking(thinking_llama: str) -> None:
    def thought(budget: int) -> str:
        reply = chat_reply(thinking_llama, max_tokens=80, **fields(Change("thinking_budget", budget)))
        return str(reply["choices"][0]["message"].get("reasoning_content") or "")

    assert len(thought(5)) < len(thought(60))


QUESTION = ({"role": "user", "content": "What is 7*8?"},)
GREEDY = Sampling(temperature=0.0, max_tokens=8)


def drawn(url: str, *draws: SampleRequest, dialect: LlamaCppDialect | None = None) -> list[Candidate]:
    async def main() -> list[Candidate]:
        sampler = OpenAISampler(url, dialect=dialect or LlamaCppDialect(), attempts=1, seconds=60)
        try:
            return list(await asyncio.gather(*(sampler.sample(draw, Meter()) for draw in draws)))
        finally:
            await sampler.close()

    return asyncio.run(main())


def server_reply(url: str, path: str, body: dict[str, Any] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = Request(url + path, data, {"content-type": "application/json"})  # noqa: S310 - the address of our own server
    with urlopen(request, timeout=60) as reply:  # noqa: S310 - the same
        return json.load(reply)


def rendered(url: str, dialect: LlamaCppDialect, prefix: str) -> str:
    """Return the reply's beginning as the server's chat template writes it."""
    _, body = dialect.build_request(SampleRequest(QUESTION, prefix=prefix))
    prompt: str = server_reply(url, "/apply-template", {"messages": body["messages"]})["prompt"]
    return prompt.rpartition("<|im_start|>assistant\n")[2]


def test_the_server_takes_every_sampling_field_under_these_names(llama: str) -> None:
    sampling = Sampling(
        temperature=0.5,
        top_p=0.75,
        top_k=7,
        min_p=0.125,
        repetition_penalty=1.5,
        presence_penalty=0.25,
        frequency_penalty=0.375,
        max_tokens=1,
    )
    path, body = LlamaCppDialect().build_request(SampleRequest(QUESTION, sampling, seed=11))
    seen = server_reply(llama, path, body | {"stream": False, "stream_options": None, "verbose": True})["__verbose"][
        "generation_settings"
    ]
    names = {
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "repeat_penalty",
        "presence_penalty",
        "frequency_penalty",
        "max_tokens",
        "seed",
    }
    others = {"typical_p", "top_n_sigma", "xtc_probability", "dry_multiplier", "mirostat", "dynatemp_range"}
    assert body.keys() >= names | others
    assert {name: seen[name] for name in names | others} == {name: body[name] for name in names | others}


def test_the_same_seed_draws_the_same_text_and_huge_ones_are_folded(llama: str) -> None:
    sampling = Sampling(temperature=1.0, top_p=1.0, max_tokens=12)
    seeds = (3, 3, 4, 2**32 - 1, 2**32 - 1)
    texts = [
        candidate.text for candidate in drawn(llama, *(SampleRequest(QUESTION, sampling, seed=seed) for seed in seeds))
    ]
    assert texts[0] == texts[1] != texts[2]
    assert texts[3] == texts[4]  # sent as it is, this one would be drawn at random
    assert LlamaCppDialect().build_request(SampleRequest(QUESTION, seed=2**32 + 4))[1]["seed"] == 5


def test_log_probs_are_raw_and_as_many_as_asked(llama: str) -> None:
    ways = ((1.0, 40), (0.25, 40), (1.0, 5))
    warm, cold, few = drawn(
        llama,
        *(
            SampleRequest(QUESTION, Sampling(temperature=heat, top_k=1, max_tokens=6, top_logprobs=top))
            for heat, top in ways
        ),
    )
    assert warm.text == cold.text == few.text
    assert warm.logprobs is not None
    assert cold.logprobs is not None
    # Batches of other shapes round differently; at a quarter of the temperature processed ones would be far off.
    assert warm.logprobs == pytest.approx(cold.logprobs, abs=0.02)
    assert warm.confidences is not None
    assert few.confidences is not None
    assert (warm.confidences > few.confidences + 0.5).all()  # the mean of 40 log-probs is below that of the 5 largest


def test_a_beginning_is_continued_and_not_repeated(llama: str) -> None:
    begun, whole = drawn(
        llama,
        SampleRequest(QUESTION, replace(GREEDY, stop=(".",)), prefix="7*8 ="),
        SampleRequest("The capital of France", GREEDY, prefix=" is"),
    )
    assert begun.text.strip().startswith("56")
    assert begun.prefix == "7*8 ="
    assert whole.text.startswith(" Paris")


def test_plain_text_goes_to_completions_with_log_probs(llama: str) -> None:
    draw = SampleRequest("The capital of France is", replace(GREEDY, top_logprobs=5))
    assert LlamaCppDialect().build_request(draw)[0] == COMPLETIONS_PATH
    (candidate,) = drawn(llama, draw)
    assert candidate.logprobs is not None
    assert len(candidate.logprobs) == candidate.tokens == 8


def test_it_recognises_the_server_and_fits_itself(llama: str, thinking_llama: str) -> None:
    for url, thinks in ((llama, False), (thinking_llama, True)):
        nothing = ServerIdentity({}, {}, {})
        identity = ServerIdentity(server_reply(url, "/v1/models"), {}, {"/props": server_reply(url, "/props")})
        assert LlamaCppDialect().recognises(identity)
        assert LlamaCppDialect().recognises(replace(identity, props={}))
        assert LlamaCppDialect().recognises(replace(identity, models={}))
        assert LlamaCppDialect().recognises(replace(nothing, headers={"server": "llama.cpp"}))
        assert not LlamaCppDialect().recognises(nothing)
        assert LlamaCppDialect().fit_to(identity).thinks is thinks
        assert LlamaCppDialect().speculates(identity) is False
        assert LlamaCppDialect().speculates(nothing) is None


@pytest.mark.parametrize(
    "prefix",
    [
        "<think>\n",
        "<think>\nSeven eights",
        "<think>\nSeven eights\n</think>\n\n",
        "<think>\nIt is 56.\n</think>\nFinal Answer:",
    ],
)
def test_begun_thinking_is_rendered_as_it_is(thinking_llama: str, prefix: str) -> None:
    assert rendered(thinking_llama, LlamaCppDialect(thinks=True), prefix) == prefix


def test_a_plain_template_gets_thinking_as_text(llama: str) -> None:
    assert rendered(llama, LlamaCppDialect(), "<think>\nSeven eights") == "<think>\nSeven eights"


def test_open_thinking_goes_on_as_thinking_and_closed_thinking_as_reply(thinking_llama: str) -> None:
    dialect = LlamaCppDialect(thinks=True)
    thinking, reply = drawn(
        thinking_llama,
        SampleRequest(QUESTION, GREEDY, prefix="<think>\nSeven eights"),
        SampleRequest(QUESTION, GREEDY, prefix="<think>\nSeven eights are 56.\n</think>\n\nThe answer is"),
        dialect=dialect,
    )
    assert thinking.reasoning
    assert not thinking.text
    assert reply.text
    assert not reply.reasoning


def test_a_cap_on_thinking_is_kept(thinking_llama: str) -> None:
    long = replace(GREEDY, max_tokens=40)
    question = ({"role": "user", "content": "What is 7*8? Think first."},)
    free, capped = drawn(
        thinking_llama,
        SampleRequest(question, long),
        SampleRequest(question, replace(long, thinking_tokens=4)),
        dialect=LlamaCppDialect(thinks=True),
    )
    assert 0 < len(capped.reasoning) < len(free.reasoning)
    assert free.reasoning.startswith(capped.reasoning)
    assert "cap_ignored" not in capped.message


def test_a_cap_and_begun_thinking_do_not_go_together() -> None:
    capped = Sampling(thinking_tokens=5)
    with pytest.raises(StrategyError, match="thinking has begun"):
        LlamaCppDialect(thinks=True).build_request(SampleRequest(QUESTION, capped, prefix="<think>\nSeven"))
    path, body = LlamaCppDialect(thinks=True).build_request(
        SampleRequest(QUESTION, capped, prefix="<think>\nSeven\n</think>\n")
    )
    assert path == CHAT_PATH
    assert "reasoning_budget_tokens" not in body
    assert LlamaCppDialect().build_request(SampleRequest(QUESTION, capped))[1]["reasoning_budget_tokens"] == 5


def test_nonsense_is_not_recognised() -> None:
    junk = ServerIdentity({"data": None}, {}, {"/props": [1], "/server_info": "x", "/get_server_info": 3})
    assert not LlamaCppDialect().recognises(junk)
    assert LlamaCppDialect().speculates(junk) is None
