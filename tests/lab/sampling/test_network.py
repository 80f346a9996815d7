"""The forward pass for many rows: the model's own logits, whatever stands beside a row; models it cannot follow are refused."""

from __future__ import annotations

import numpy as np
import pytest

from breadth.base.errors import ServerError
from breadth.lab.model.reasoner import Reasoner, Shape, build
from breadth.lab.task.facts import Facts
from breadth.lab.task.teacher import Teacher

torch = pytest.importorskip("torch", reason="the extra 'train' is not installed")

from breadth.lab.sampling.network import STRIDE, Network  # noqa: E402 - only where torch is


def lively(layers: int = 2) -> Reasoner:
    """Build a reasoner with weights large enough for each token to depend on all before it."""
    reasoner = build(Teacher(Facts(prime=7)), Shape(hidden=32, layers=layers, heads=2, inner=32, context=128))
    with torch.no_grad():
        for weight in reasoner.model.parameters():
            if weight.dim() == 2:
                weight *= 12
    return reasoner


def test_logits_are_the_models_for_rows_of_any_length() -> None:
    model = lively().model
    rng = np.random.default_rng(0)
    texts = [torch.from_numpy(rng.integers(0, 20, length)) for length in (3, 40, 17)]
    network = Network(model)
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
    network = Network(lively().model)
    cache = network.cache()
    with torch.inference_mode():
        cache.reserve(2, 5)
        block = network.read(torch.tensor([[1, 2, 3, 4, 5], [6, 7, 8, 9, 9]]))
        cache.put(torch.tensor([0, 1]), block, torch.tensor([1, 0]))
        cache.reserve(40, 6 + STRIDE)
        assert cache.store.shape[2] >= 40
        assert cache.store.shape[4] >= 6 + STRIDE
        assert torch.equal(cache.store[:, :, 0, :, :5], block[:, :, 1])
        cache.move(torch.tensor([1]), torch.tensor([0]), 5)
        assert torch.equal(cache.store[:, :, 1, :, :5], block[:, :, 1])
        cache.clear(slice(0, 1))
        assert cache.store[:, :, 0].abs().sum() == 0
        cache.release()
        assert cache.store.numel() == 0


def test_what_the_model_learns_later_does_not_reach_it() -> None:
    reasoner = lively()
    network = Network(reasoner.model)
    before = network.head.clone()
    with torch.no_grad():
        reasoner.model.lm_head.weight += 1
    assert torch.equal(network.head, before)


def test_other_models_are_refused() -> None:
    reasoner = lively()
    reasoner.model.model.layers[0].mlp.act_fn = torch.nn.Identity()
    with pytest.raises(ServerError, match="differ by") as caught:
        Network(reasoner.model)
    assert caught.value.fatal
    reasoner.model.config.num_key_value_heads = 1
    with pytest.raises(ServerError, match="2 query and 1 key heads"):
        Network(reasoner.model)
