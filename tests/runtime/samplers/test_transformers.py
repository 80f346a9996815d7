"""A model in this process: exact log-probs, confidences and entropies, prefixes, halts, seeds, cancelling."""

from __future__ import annotations

import asyncio
import json
import math
import threading
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from breadth.base.errors import BrokenFileError, ServerError
from breadth.inference.halting import Halt, Watcher
from breadth.inference.records import Sampling
from breadth.runtime.sampler import Meter, SampleRequest
from breadth.runtime.samplers.transformers import (
    TransformersSampler,
    sample_token,
)
from breadth.testing.fake_server import wait_until

torch = pytest.importorskip("torch", reason="the extra 'train' is not installed")


PLAIN = Sampling(temperature=1.0, top_p=1.0)
LOGITS = [math.log(share) for share in (0.5, 0.3, 0.15, 0.05)]


def drawn(
    sampling: Sampling, count: int = 400, prompt: tuple[int, ...] = (), written: tuple[int, ...] = ()
) -> Counter[int]:
    generator = torch.Generator().manual_seed(0)
    return Counter(sample_token(torch.tensor(LOGITS), sampling, prompt, written, generator) for _ in range(count))


def test_shares_are_those_of_the_model() -> None:
    counts = drawn(PLAIN, 4000)
    for token, share in enumerate((0.5, 0.3, 0.15, 0.05)):
        assert counts[token] / 4000 == pytest.approx(share, abs=4 * math.sqrt(share * (1 - share) / 4000))


def test_temperature_sharpens_and_zero_is_greedy() -> None:
    assert drawn(replace(PLAIN, temperature=0.0)) == {0: 400}
    # At 0.5 shares are squared: .25, .09, .0225, .0025 of .365 in all.
    assert drawn(replace(PLAIN, temperature=0.5), 4000)[0] / 4000 == pytest.approx(0.25 / 0.365, abs=0.03)


@pytest.mark.parametrize(
    ("cut", "kept"),
    [
        ({"top_k": 2}, {0, 1}),
        ({"top_k": 9}, {0, 1, 2, 3}),
        ({"top_p": 0.5}, {0}),
        ({"top_p": 0.6}, {0, 1}),
        ({"top_p": 0.81}, {0, 1, 2}),
        ({"min_p": 0.5}, {0, 1}),
        ({"min_p": 0.2}, {0, 1, 2}),
        ({"top_k": 3, "top_p": 0.9}, {0, 1, 2}),
    ],
)
def test_cuts(cut: dict[str, Any], kept: set[int]) -> None:
    assert set(drawn(replace(PLAIN, **cut))) == kept


def test_penalties() -> None:
    greedy = replace(PLAIN, temperature=0.0)
    # ln .5 = -0.69 doubled is -1.39, below ln .3 = -1.20.
    assert drawn(replace(greedy, repetition_penalty=2.0), 1, prompt=(0,)) == {1: 1}
    assert drawn(replace(greedy, presence_penalty=1.0), 1, prompt=(0,)) == {0: 1}, "only the reply counts"
    assert drawn(replace(greedy, presence_penalty=1.0), 1, written=(0, 0)) == {1: 1}
    # 0.2 once leaves -0.89; three times -1.29, below -1.20.
    assert drawn(replace(greedy, frequency_penalty=0.2), 1, written=(0,)) == {0: 1}
    assert drawn(replace(greedy, frequency_penalty=0.2), 1, written=(0, 0, 0)) == {1: 1}


transformers = pytest.importorskip("transformers", reason="the extra 'train' is not installed")


CHAT = ({"role": "user", "content": "hi"},)
TEMPLATE = (
    "{% for message in messages %}[{{ message['role'] }}]{{ message['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)
END = 256


def tokenizer() -> Any:
    """Return a tokenizer whose tokens are bytes."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    bytes_ = Tokenizer(models.BPE({letter: place for place, letter in enumerate(letters)} | {"<end>": END}, []))
    bytes_.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytes_.decoder = decoders.ByteLevel()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=bytes_, eos_token="<end>", chat_template=TEMPLATE)


@pytest.fixture(scope="module")
def sampler() -> TransformersSampler:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    sizes = transformers.LlamaConfig(
        vocab_size=257,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=256,
        initializer_range=0.5,
        eos_token_id=END,
        bos_token_id=None,
    )
    return TransformersSampler(transformers.LlamaForCausalLM(sizes).eval(), tokenizer())


def drawn_transformers(sampler: TransformersSampler, draw: SampleRequest, meter: Meter | None = None) -> Any:
    return asyncio.run(sampler.sample(draw, meter or Meter()))


def test_numbers_are_those_of_one_pass_over_the_whole(sampler: TransformersSampler) -> None:
    meter = Meter()
    candidate = drawn_transformers(
        sampler, SampleRequest(CHAT, Sampling(temperature=0, max_tokens=12, top_logprobs=5)), meter
    )
    prompt = sampler.tokenizer("[user]hi[assistant]")["input_ids"]
    ids, logprobs = list(prompt), []
    with torch.no_grad():
        for _ in range(candidate.tokens):
            raw = sampler.model(torch.tensor([ids])).logits[0, -1].log_softmax(-1)
            logprobs.append(raw)
            ids.append(int(raw.argmax()))
    rows = torch.stack(logprobs)
    assert candidate.tokens == len(candidate.logprobs) > 0
    assert candidate.logprobs.tolist() == pytest.approx(rows.max(-1).values.tolist(), abs=1e-4)
    assert candidate.confidences.tolist() == pytest.approx(
        (-rows.clamp(min=-50).topk(5).values.mean(-1)).tolist(), abs=1e-4
    )
    assert candidate.message["entropies"].tolist() == pytest.approx((-(rows.exp() * rows).sum(-1)).tolist(), abs=1e-4)
    assert meter == Meter(calls=1, prompt_tokens=len(prompt), tokens=candidate.tokens)


def test_the_same_seed_draws_the_same(sampler: TransformersSampler) -> None:
    sampling = Sampling(temperature=1.0, top_p=1.0, max_tokens=12)
    texts = [drawn_transformers(sampler, SampleRequest(CHAT, sampling, seed=seed)).text for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


def test_a_beginning_is_continued(sampler: TransformersSampler) -> None:
    greedy = Sampling(temperature=0, max_tokens=8)
    whole = drawn_transformers(sampler, SampleRequest("count: ", greedy))
    meter = Meter()
    rest = drawn_transformers(sampler, SampleRequest("count", greedy, prefix=": "), meter)
    assert rest.text == whole.text
    assert (rest.prefix, meter.prompt_tokens) == (": ", 7)
    assert whole.tokens > 0


def test_caps_stop_texts_and_the_end(sampler: TransformersSampler) -> None:
    long = drawn_transformers(sampler, SampleRequest(CHAT, Sampling(temperature=0, max_tokens=20)))
    assert long.tokens <= 20
    assert long.finish == ("length" if long.tokens == 20 else "stop")
    mark = next(letter for letter in long.text[2:] if letter.strip())
    stopped = drawn_transformers(sampler, SampleRequest(CHAT, Sampling(temperature=0, max_tokens=20, stop=(mark,))))
    assert (stopped.text, stopped.finish) == (long.text[: long.text.index(mark)], "stop")
    sampler.model.generation_config.eos_token_id, kept = list(range(257)), sampler.model.generation_config.eos_token_id
    try:
        ended = drawn_transformers(sampler, SampleRequest(CHAT, Sampling(temperature=0)))
        assert (ended.text, ended.tokens, ended.finish) == ("", 1, "stop")
    finally:
        sampler.model.generation_config.eos_token_id = kept


@dataclass(frozen=True)
class After(Halt):
    """Ends a completion after some tokens."""

    tokens: int = 3

    def watch(self) -> Watcher:
        return _Counter(self.tokens)


@dataclass
class _Counter:
    left: int

    def push(self, text: str, logprob: float, confidence: float) -> bool:
        self.left -= 1
        return self.left <= 0


def test_a_halt_rule_ends_it(sampler: TransformersSampler) -> None:
    candidate = drawn_transformers(sampler, SampleRequest(CHAT, Sampling(temperature=0), halt=After(3)))
    assert (candidate.tokens, candidate.finish) == (3, "halt")


def test_characters_of_several_tokens_come_whole(sampler: TransformersSampler) -> None:
    from breadth.runtime.samplers.transformers import DECODE_WINDOW_TOKENS, _Text

    said = "naïve 🙂 – " + "x" * (2 * DECODE_WINDOW_TOKENS) + " déjà"
    text = _Text(sampler.tokenizer)
    for token in sampler.tokenizer(said)["input_ids"]:
        text.add(token)
    assert text.whole == said
    assert "\N{REPLACEMENT CHARACTER}" not in "".join(text.pieces)
    assert "🙂" in text.pieces


def test_a_cancelled_draw_stops_before_its_next_token(
    sampler: TransformersSampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes, third, cancelled = [], threading.Event(), threading.Event()
    forward = sampler.model.forward

    def held_at_the_third(*arguments: Any, **named: Any) -> Any:
        passes.append(arguments)
        if len(passes) == 3:
            third.set()
            cancelled.wait(20)
        return forward(*arguments, **named)

    async def main() -> None:
        meter, waiting = Meter(), Meter()
        long = Sampling(temperature=1.0, top_p=1.0, max_tokens=200)
        first = asyncio.create_task(sampler.sample(SampleRequest(CHAT, long, seed=5), meter))
        second = asyncio.create_task(sampler.sample(SampleRequest(CHAT, long), waiting))
        await wait_until(third.is_set)
        first.cancel()
        second.cancel()
        asyncio.get_running_loop().call_later(0.05, cancelled.set)
        assert all(
            isinstance(one, asyncio.CancelledError)
            for one in await asyncio.gather(first, second, return_exceptions=True)
        )
        assert (len(passes), meter.tokens, waiting.calls) == (3, 3, 0)

    monkeypatch.setattr(sampler.model, "forward", held_at_the_third)
    asyncio.run(main())


def test_a_draw_that_takes_too_long_fails(sampler: TransformersSampler) -> None:
    with pytest.raises(ServerError, match="longer than"):
        drawn_transformers(sampler, SampleRequest(CHAT, Sampling(max_tokens=200), seconds=0.001))


def test_what_does_not_fit_is_refused(sampler: TransformersSampler) -> None:
    with pytest.raises(ServerError, match="context holds 256") as caught:
        drawn_transformers(sampler, SampleRequest("x" * 256, Sampling(max_tokens=20)))
    assert caught.value.fatal
    cut = drawn_transformers(sampler, SampleRequest("x" * 250, Sampling(temperature=0, max_tokens=20)))
    assert cut.tokens <= 6
    assert cut.finish == "length" or cut.tokens < 6
    with pytest.raises(ServerError, match="no tokens"):
        drawn_transformers(sampler, SampleRequest("", Sampling(max_tokens=20)))


def test_closing_ends_the_thread() -> None:
    sampler = TransformersSampler(None, None)
    asyncio.run(sampler.close())
    assert sampler.offers == {"logprobs", "confidences", "prefix", "seed", "halt"}
    with pytest.raises(RuntimeError):
        asyncio.run(sampler.sample(SampleRequest("q"), Meter()))


def test_a_model_with_code_of_its_own_is_refused_without_a_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    monkeypatch.setattr("builtins.input", asked.append)
    maps = {"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model", "AutoTokenizer": ["own.Tokenizer", None]}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "own-kind", "auto_map": maps}))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"auto_map": maps, "tokenizer_class": "Own"}))
    (tmp_path / "own.py").write_text("raise AssertionError('the code was run')\n")
    with pytest.raises(ValueError, match="trust_remote_code"):
        TransformersSampler.load(tmp_path)
    assert asked == []


def test_pickled_weights_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    monkeypatch.setattr(AutoTokenizer, "from_pretrained", lambda *_, **__: None)
    size = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=8, **size))
    model.config.save_pretrained(tmp_path)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(BrokenFileError, match="safetensors"):
        TransformersSampler.load(tmp_path)
    model.save_pretrained(tmp_path)
    assert TransformersSampler.load(tmp_path).model.config.hidden_size == 8
