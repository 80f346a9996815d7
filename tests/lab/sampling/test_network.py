"""The forward pass for many rows gives the model's own logits, whatever the batch; other models are refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from breadth.base.errors import ServerError
from breadth.inference.records import Sampling
from breadth.lab.reasoner import Reasoner, ReasonerShape, build_reasoner
from breadth.lab.sampling.batch import CompletionJob, ThinkingMarks, initial_rows
from breadth.lab.sampling.network import CACHE_STRIDE, ReasonerNetwork, TokenChoice, choose_tokens, splitmix64, uniforms
from breadth.lab.task.teacher import ArithmeticFacts, Teacher

torch = pytest.importorskip("torch", reason="the extra 'train' is not installed")


def lively(layers: int = 2) -> Reasoner:
    """Build a reasoner with weights large enough for each token to depend on all before it."""
    reasoner = build_reasoner(
        Teacher(ArithmeticFacts(prime=7)), ReasonerShape(hidden=32, layers=layers, heads=2, inner=32, context=128)
    )
    with torch.no_grad():
        for weight in reasoner.model.parameters():
            if weight.dim() == 2:
                weight *= 12
    return reasoner


def test_logits_are_the_models_for_rows_of_any_length() -> None:
    model = lively().model
    rng = np.random.default_rng(0)
    texts = [torch.from_numpy(rng.integers(0, 20, length)) for length in (3, 40, 17)]
    network = ReasonerNetwork(model)
    cache = network.cache()
    with torch.inference_mode():
        theirs = [model(input_ids=text[None]).logits[0] for text in texts]
        for position in range(40):
            rows = [text[min(position, len(text) - 1)] for text in texts]
            places = torch.tensor([min(position, len(text) - 1) for text in texts])
            cache.reserve(3, position + 1)
            logits = network.step(torch.stack(rows), places, cache)
            for row, text in enumerate(texts):
                assert position >= len(text) or torch.allclose(logits[row], theirs[row][position], atol=1e-4)
        assert logits.std() > 0.5, "logits that hardly differ would prove nothing"


def test_the_cache_grows_and_rows_move_with_all_they_hold() -> None:
    network = ReasonerNetwork(lively().model)
    cache = network.cache()
    with torch.inference_mode():
        cache.reserve(2, 5)
        block = network.prefill(torch.tensor([[1, 2, 3, 4, 5], [6, 7, 8, 9, 9]]))
        cache.put(torch.tensor([0, 1]), block, torch.tensor([1, 0]))
        cache.reserve(40, 6 + CACHE_STRIDE)
        assert cache.store.shape[2] >= 40
        assert cache.store.shape[4] >= 6 + CACHE_STRIDE
        assert torch.equal(cache.store[:, :, 0, :, :5], block[:, :, 1])
        cache.move(torch.tensor([1]), torch.tensor([0]), 5)
        assert torch.equal(cache.store[:, :, 1, :, :5], block[:, :, 1])
        cache.clear(slice(0, 1))
        assert cache.store[:, :, 0].abs().sum() == 0
        cache.release()
        assert cache.store.numel() == 0


def test_what_the_model_learns_later_does_not_reach_it() -> None:
    reasoner = lively()
    network = ReasonerNetwork(reasoner.model)
    before = network.head.clone()
    with torch.no_grad():
        reasoner.model.lm_head.weight += 1
    assert torch.equal(network.head, before)


def test_other_models_are_refused() -> None:
    reasoner = lively()
    reasoner.model.model.layers[0].mlp.act_fn = torch.nn.Identity()
    with pytest.raises(ServerError, match="differ by") as caught:
        ReasonerNetwork(reasoner.model)
    assert caught.value.fatal
    reasoner.model.config.num_key_value_heads = 1
    with pytest.raises(ServerError, match="2 query and 1 key heads"):
        ReasonerNetwork(reasoner.model)


FOUR = (0.5, 0.3, 0.15, 0.05)
WHOLE = 2**64


def choose(chances: tuple[float, ...], sampling: Sampling, seeds: int = 4000) -> TokenChoice:
    rows = initial_rows(
        [(seed, CompletionJob((1,), sampling, seed)) for seed in range(seeds)], ThinkingMarks(9, 9, 9, 9), 100
    )
    return choose_tokens(torch.tensor(chances).log().expand(seeds, -1), rows)


def plain(**settings: Any) -> Sampling:
    return Sampling(**{"temperature": 1.0, "top_p": 1.0, **settings})


def test_the_hash_is_splitmix64() -> None:
    # The generator seeded with 0 adds the golden gamma to its state at each call; its published first three outputs.
    gamma = 0x9E3779B97F4A7C15
    states = np.array([0, gamma, 2 * gamma % WHOLE], np.uint64)
    assert splitmix64(states).tolist() == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


def test_chance_is_of_seed_and_place_alone_and_even() -> None:
    seeds, places = np.arange(20000, dtype=np.uint64) // np.uint64(100), np.arange(20000) % 100
    drawn = uniforms(seeds, places)
    assert drawn[4321] == uniforms(seeds[4321:4322], places[4321:4322])[0]
    assert len(np.unique(drawn)) == 20000
    # A mean of 20,000 even numbers has deviation sqrt(1/12/20000) = 0.002; a correlation of as many pairs 0.007.
    assert abs(drawn.mean() - 0.5) < 0.008
    table = drawn.reshape(200, 100)
    assert abs(np.corrcoef(table[:-1].ravel(), table[1:].ravel())[0, 1]) < 0.028
    assert abs(np.corrcoef(table[:, :-1].ravel(), table[:, 1:].ravel())[0, 1]) < 0.028


@pytest.mark.parametrize(
    ("sampling", "shares"),
    [
        (plain(), FOUR),
        # squares: 0.25, 0.09, 0.0225, 0.0025 of 0.365
        (plain(temperature=0.5), (0.25 / 0.365, 0.09 / 0.365, 0.0225 / 0.365, 0.0025 / 0.365)),
        # 0.5 is short of 0.75, 0.8 is not: two are kept
        (plain(top_p=0.75), (0.625, 0.375, 0, 0)),
        (plain(top_k=3), (0.5 / 0.95, 0.3 / 0.95, 0.15 / 0.95, 0)),
        (plain(top_k=9), FOUR),
        # a fifth of the likeliest is 0.1
        (plain(min_p=0.2), (0.5 / 0.95, 0.3 / 0.95, 0.15 / 0.95, 0)),
        # of three, the first two have 0.8 / 0.95 = 0.842: enough for 0.84, which of all four they would not be
        (plain(top_k=3, top_p=0.84), (0.625, 0.375, 0, 0)),
        (plain(top_p=0.84), (0.5 / 0.95, 0.3 / 0.95, 0.15 / 0.95, 0)),
        (plain(temperature=0.0), (1, 0, 0, 0)),
    ],
)
def test_tokens_come_as_often_as_they_should(sampling: Sampling, shares: tuple[float, ...]) -> None:
    ids = choose(FOUR, sampling).ids
    for token, share in enumerate(shares):
        assert abs((ids == token).mean() - share) <= 4 * math.sqrt(share * (1 - share) / len(ids))


def test_each_row_has_its_own_rule_and_the_raw_numbers() -> None:
    rules = [plain(), plain(top_k=1), plain(temperature=0.0), plain(temperature=0.3, top_p=0.9)]
    rows = initial_rows(
        [(place, CompletionJob((1,), rule, 11)) for place, rule in enumerate(rules)], ThinkingMarks(9, 9, 9, 9), 100
    )
    logits = torch.tensor(FOUR).log()[[3, 2, 0, 1]] + 7.0
    choice = choose_tokens(logits.expand(4, -1), rows)
    alone = [int(choose_tokens(logits[None], rows[place : place + 1]).ids[0]) for place in range(4)]
    assert choice.ids.tolist() == alone
    assert choice.ids[1] == choice.ids[2] == 2
    assert choice.raw[3].exp().tolist() == pytest.approx([0.05, 0.15, 0.5, 0.3])
    # 0.5 ln 2 + 0.3 ln(10/3) + 0.15 ln(20/3) + 0.05 ln 20 = 0.3466 + 0.3612 + 0.2846 + 0.1498
    assert choice.entropies.tolist() == pytest.approx([1.1421] * 4, abs=1e-4)


def test_what_has_no_chance_is_never_drawn() -> None:
    ids = choose((0.0, 0.4, 0.0, 0.6, 0.0), plain(temperature=0.9), 2000).ids
    assert set(ids.tolist()) == {1, 3}
