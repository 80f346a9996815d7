"""Log-probs, entropies and divergences from logits: the numbers by hand, precision, gradient, masking and memory."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from breadth.base.errors import MechanismError
from breadth.training.logits import entropy_and_logprobs, kl_divergence

Z = [2.0, 1.0, 0.0, -1.0]
P = [0.643914, 0.236883, 0.087144, 0.032059]
BY_Z = [-0.326688, 0.116701, 0.130076, 0.079911]


def entropy_of(logits: Tensor, **options: Any) -> Tensor:
    return entropy_and_logprobs(logits, torch.zeros(logits.shape[:-1], dtype=torch.int64), **options)[1]


def test_numbers_of_four_logits() -> None:
    logits = torch.tensor([Z] * 4, requires_grad=True)
    logprobs, entropy = entropy_and_logprobs(logits, torch.arange(4))
    assert logprobs.exp().tolist() == pytest.approx(P, abs=1e-6)
    assert entropy.tolist() == pytest.approx([0.947537] * 4, abs=1e-6)
    (gradient,) = torch.autograd.grad(entropy[0], logits)
    assert gradient[0].tolist() == pytest.approx(BY_Z, abs=1e-6)
    assert not gradient[1:].any()
    assert float(gradient.sum()) == pytest.approx(0.0, abs=1e-7)


@pytest.mark.parametrize(("temperature", "expected"), [(0.5, 0.455429), (1.0, 0.947537), (2.0, 1.245050)])
def test_temperature_divides_the_logits(temperature: float, expected: float) -> None:
    assert float(entropy_of(torch.tensor([Z]), temperature=temperature)) == pytest.approx(expected, abs=1e-6)


def test_only_the_exact_entropy_has_a_usable_gradient() -> None:
    """Averaged over the vocabulary, the gradient of -log p is zero and that of the score function is the entropy's."""
    logits = torch.tensor([Z] * 4, dtype=torch.float64, requires_grad=True)
    logprobs, _ = entropy_and_logprobs(logits, torch.arange(4))
    chance = logprobs.detach().exp()
    (naive,) = torch.autograd.grad((chance * -logprobs).sum(), logits, retain_graph=True)
    assert naive.sum(0).abs().max() < 1e-12
    (score,) = torch.autograd.grad((chance * -logprobs.detach() * logprobs).sum(), logits)
    assert score.sum(0).tolist() == pytest.approx(BY_Z, abs=1e-6)


def change_of_entropy(logits: Tensor, step: Tensor) -> float:
    return float(entropy_of((logits + step)[None]) - entropy_of(logits[None]))


def predicted_change(logits: Tensor, step: Tensor) -> float:
    logprobs, _ = entropy_and_logprobs(logits.expand(len(logits), -1), torch.arange(len(logits)))
    chance = logprobs.exp()
    return float(-(chance * logprobs * step).sum() + (chance * logprobs).sum() * (chance * step).sum())


def natural_and_vanilla_steps(logits: Tensor, advantages: Tensor) -> tuple[Tensor, Tensor]:
    chance = logits.softmax(-1)
    return advantages, chance * (advantages - (chance * advantages).sum())


def test_entropy_change_follows_the_covariance() -> None:
    logits, advantages = (
        torch.tensor(Z, dtype=torch.float64),
        torch.tensor([1.0, -0.5, 0.25, -2.0], dtype=torch.float64),
    )
    assert float((logits.softmax(-1) * advantages).sum()) == pytest.approx(0.483142, abs=1e-6)
    natural, vanilla = natural_and_vanilla_steps(logits, advantages)
    assert change_of_entropy(logits, 0.01 * natural) == pytest.approx(-0.005127, abs=1e-6)
    assert predicted_change(logits, 0.01 * natural) == pytest.approx(-0.005123, abs=1e-6)
    assert change_of_entropy(logits, 0.01 * vanilla) == pytest.approx(-0.001451, abs=1e-6)
    assert predicted_change(logits, 0.01 * vanilla) == pytest.approx(-0.001449, abs=1e-6)
    ratios = [
        change_of_entropy(logits, rate * natural) / predicted_change(logits, rate * natural)
        for rate in (0.1, 0.01, 0.001)
    ]
    assert ratios == pytest.approx([1.005109, 1.000736, 1.000076], abs=1e-6)


def test_entropy_does_not_move_without_a_covariance() -> None:
    logits = torch.tensor(Z, dtype=torch.float64)
    assert abs(change_of_entropy(logits, torch.full((4,), 0.3, dtype=torch.float64))) < 1e-15
    uniform, advantages = (
        torch.zeros(4, dtype=torch.float64),
        torch.tensor([1.0, -0.5, 0.25, -2.0], dtype=torch.float64),
    )
    small, smaller = change_of_entropy(uniform, 0.01 * advantages), change_of_entropy(uniform, 0.001 * advantages)
    assert small / smaller == pytest.approx(100.0, rel=0.02), (
        "of second order: a tenth of the step is a hundredth of the change"
    )


def peaked(count: int, dtype: torch.dtype) -> Tensor:
    """Return logits of a vocabulary of 32,000 at about 0.4 nats, with large values as models have them."""
    dice = torch.Generator().manual_seed(0)
    logits = torch.randn(count, 32_000, generator=dice) + 15.0
    logits[:, 7] = 29.375
    return logits.to(dtype)


def test_bfloat16_logits_lose_nothing() -> None:
    logits = peaked(16, torch.bfloat16)
    exact = torch.distributions.Categorical(logits=logits.double()).entropy()
    assert 0.35 < float(exact.min()) < float(exact.max()) < 0.45
    ours = entropy_of(logits)
    assert ours.dtype == torch.float32
    assert float((ours - exact).abs().max()) < 3e-3
    assert float((ours - exact).abs().max()) < 5e-5, "the promise is 3e-3; float32 inside does far better"


def test_bfloat16_is_where_verl_goes_wrong() -> None:
    verl = pytest.importorskip("verl.utils.torch_functional", reason="verl is not installed")
    logits = peaked(16, torch.bfloat16)
    exact = torch.distributions.Categorical(logits=logits.double()).entropy()
    theirs = float((verl.entropy_from_logits(logits).double() - exact).abs().max())
    ours = float((entropy_of(logits) - exact).abs().max())
    assert theirs > 3e-3
    assert theirs > 100 * ours


@pytest.mark.parametrize("chunk", [1, 3, 100, None])
def test_gradients_agree_with_finite_differences(chunk: int | None) -> None:
    dice = torch.Generator().manual_seed(1)
    logits = torch.randn(2, 4, 5, generator=dice, dtype=torch.float64, requires_grad=True)
    old = torch.randn(2, 4, 5, generator=dice, dtype=torch.float64)
    tokens = torch.randint(5, (2, 4), generator=dice)
    assert torch.autograd.gradcheck(lambda z: entropy_and_logprobs(z, tokens, 0.7, chunk), (logits,))
    assert torch.autograd.gradcheck(lambda z: kl_divergence(old, z, 0.7, chunk), (logits,))


def test_agrees_with_autograd_through_log_softmax() -> None:
    dice = torch.Generator().manual_seed(2)
    ours = torch.randn(3, 6, 11, generator=dice, dtype=torch.float64, requires_grad=True)
    plain = ours.detach().clone().requires_grad_()
    old = torch.randn(3, 6, 11, generator=dice, dtype=torch.float64)
    tokens, pull = torch.randint(11, (3, 6), generator=dice), torch.randn(3, 3, 6, generator=dice, dtype=torch.float64)
    every, then = (plain / 0.6).log_softmax(-1), (old / 0.6).log_softmax(-1)
    expected = (
        every.gather(-1, tokens[..., None])[..., 0],
        -(every.exp() * every).sum(-1),
        (then.exp() * (then - every)).sum(-1),
    )
    got = (*entropy_and_logprobs(ours, tokens, 0.6, 4), kl_divergence(old, ours, 0.6, 4))
    for mine, theirs in zip(got, expected, strict=True):
        assert torch.allclose(mine, theirs, atol=1e-12)
    sum((one * weight).sum() for one, weight in zip(got, pull, strict=True)).backward()
    sum((one * weight).sum() for one, weight in zip(expected, pull, strict=True)).backward()
    assert torch.allclose(ours.grad, plain.grad, atol=1e-12)


def test_gradient_comes_in_the_type_of_the_logits() -> None:
    logits = torch.randn(4, 9, generator=torch.Generator().manual_seed(3)).bfloat16().requires_grad_()
    logprobs, entropy = entropy_and_logprobs(logits, torch.tensor([0, 1, 2, 3]))
    (logprobs + 0.5 * entropy).sum().backward()
    wide = logits.detach().double().requires_grad_()
    logprobs, entropy = entropy_and_logprobs(wide, torch.tensor([0, 1, 2, 3]))
    (logprobs + 0.5 * entropy).sum().backward()
    assert logits.grad.dtype == torch.bfloat16
    assert torch.allclose(logits.grad.double(), wide.grad, atol=4e-3)


def test_masked_vocabulary_is_as_good_as_a_smaller_one() -> None:
    small = torch.tensor([Z], dtype=torch.float64, requires_grad=True)
    large = torch.tensor([[-math.inf, 2.0, 1.0, -math.inf, 0.0, -1.0]], dtype=torch.float64, requires_grad=True)
    kept = [1, 2, 4, 5]
    for logits, token in ((small, 1), (large, 2)):
        logprobs, entropy = entropy_and_logprobs(logits, torch.tensor([token]))
        (2 * logprobs + 3 * entropy).sum().backward()
    assert torch.allclose(large.grad[:, kept], small.grad)
    assert large.grad[:, [0, 3]].tolist() == [[0.0, 0.0]]
    assert float(entropy.detach()) == pytest.approx(0.947537, abs=1e-6)


def test_divergence_of_a_masked_vocabulary() -> None:
    old = torch.tensor([[0.0, 1.0, -math.inf], [0.0, 1.0, 2.0]], dtype=torch.float64)
    now = torch.tensor([[1.0, 0.0, -math.inf], [1.0, 0.0, -math.inf]], dtype=torch.float64, requires_grad=True)
    result = kl_divergence(old, now)
    # p_old = (1, e) / (1 + e), p = (e, 1) / (1 + e): KL = (e - 1) / (e + 1)
    assert float(result[0].detach()) == pytest.approx((math.e - 1) / (math.e + 1), abs=1e-12)
    assert math.isinf(float(result[1].detach())), "the current policy forbids what the old one allowed"
    result[0].backward()
    assert now.grad[0].tolist() == pytest.approx(
        [(math.e - 1) / (math.e + 1), (1 - math.e) / (math.e + 1), 0.0], abs=1e-12
    )
    assert now.grad[1].tolist() == [0.0, 0.0, 0.0]


def test_divergence_from_itself_is_zero_with_zero_gradient() -> None:
    logits = torch.randn(5, 7, generator=torch.Generator().manual_seed(4), dtype=torch.float64, requires_grad=True)
    result = kl_divergence(logits, logits)
    result.sum().backward()
    assert result.abs().max() < 1e-15
    assert logits.grad.abs().max() < 1e-15


def test_garbage_without_an_upstream_gradient_stays_where_it_is() -> None:
    logits = torch.tensor([Z, [math.nan] * 4, [-math.inf] * 4, [math.inf, 0.0, 0.0, 0.0]], requires_grad=True)
    logprobs, entropy = entropy_and_logprobs(logits, torch.tensor([0, 1, 2, -100]))
    kl = kl_divergence(torch.zeros(4, 4), logits)
    mask = torch.tensor([True, False, False, False])
    zero = torch.zeros(())
    torch.where(mask, logprobs + entropy + kl, zero).sum().backward()
    assert torch.isfinite(logits.grad).all()
    assert logits.grad[0].any()
    assert not logits.grad[1:].any()


def test_a_token_outside_the_vocabulary_is_not_a_number() -> None:
    logprobs, entropy = entropy_and_logprobs(torch.tensor([Z] * 3), torch.tensor([-100, 4, 0]))
    assert torch.isnan(logprobs).tolist() == [True, True, False]
    assert torch.isfinite(entropy).all()


def test_shapes() -> None:
    dice = torch.Generator().manual_seed(5)
    logits, tokens = torch.randn(2, 3, 4, 5, generator=dice), torch.randint(5, (2, 3, 4), generator=dice)
    logprobs, entropy = entropy_and_logprobs(logits, tokens)
    assert torch.allclose(logprobs, logits.log_softmax(-1).gather(-1, tokens[..., None])[..., 0])
    sliced = entropy_and_logprobs(logits[:, 1:, :3], tokens[:, 1:, :3], chunk=2)
    assert torch.allclose(sliced[0], logprobs[:, 1:, :3])
    assert torch.allclose(sliced[1], entropy[:, 1:, :3])
    assert entropy_and_logprobs(logits[0, 0, 0], tokens[0, 0, 0])[1].shape == ()
    assert kl_divergence(logits[0, 0, 0], logits[0, 0, 0]).shape == ()
    assert entropy_and_logprobs(torch.zeros(0, 5), torch.zeros(0, dtype=torch.int64))[0].shape == (0,)
    assert torch.allclose(
        kl_divergence(logits[:, 1:], logits[:, :2]), kl_divergence(logits[:, 1:].clone(), logits[:, :2].clone())
    )


@pytest.mark.parametrize(
    "call",
    [
        lambda: entropy_and_logprobs(torch.zeros(2, 3, 4), torch.zeros(2, 2, dtype=torch.int64)),
        lambda: entropy_and_logprobs(torch.zeros(2, 3, dtype=torch.int64), torch.zeros(2, dtype=torch.int64)),
        lambda: entropy_and_logprobs(torch.zeros(2, 0), torch.zeros(2, dtype=torch.int64)),
        lambda: entropy_and_logprobs(torch.zeros(2, 3), torch.zeros(2, dtype=torch.int64), temperature=0.0),
        lambda: entropy_and_logprobs(torch.zeros(2, 3), torch.zeros(2, dtype=torch.int64), temperature=math.nan),
        lambda: entropy_and_logprobs(torch.zeros(2, 3), torch.zeros(2, dtype=torch.int64), chunk=0),
        lambda: kl_divergence(torch.zeros(2, 3), torch.zeros(2, 4)),
        lambda: kl_divergence(torch.zeros(3, 4), torch.zeros(2, 4)),
    ],
)
def test_bad_input_is_refused(call: Callable[[], Any]) -> None:
    with pytest.raises(MechanismError):
        call()


class Allocations(TorchDispatchMode):  # type: ignore[misc]  # torch is untyped here
    """Notes every tensor an operation makes anew: (numbers it holds, type)."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[tuple[int, torch.dtype]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        before = {one.untyped_storage().data_ptr() for one in args if isinstance(one, Tensor)}
        result = func(*args, **(kwargs or {}))
        for one in result if isinstance(result, tuple | list) else [result]:
            if isinstance(one, Tensor) and one.untyped_storage().data_ptr() not in before:
                self.made.append((one.numel(), one.dtype))
        return result

    def of_size(self, least: int, dtype: torch.dtype) -> int:
        return sum(numel >= least and kind == dtype for numel, kind in self.made)


def allocations_of(logits: Tensor, run: Callable[[Tensor], Tensor]) -> Allocations:
    seen = Allocations()
    with seen:
        loss = run(logits)
        if logits.requires_grad:
            loss.backward()
    return seen


def both(logits: Tensor) -> Tensor:
    tokens = torch.zeros(logits.shape[:-1], dtype=torch.int64)
    logprobs, entropy = entropy_and_logprobs(logits, tokens, 0.8, chunk=8)
    return (
        logprobs + entropy + kl_divergence(torch.zeros_like(logits, requires_grad=False), logits, 0.8, chunk=8)
    ).sum()


def alone(logits: Tensor) -> Tensor:
    logprobs, entropy = entropy_and_logprobs(logits, torch.zeros(logits.shape[:-1], dtype=torch.int64), 0.8, chunk=8)
    return (logprobs + entropy).sum()


POSITIONS, VOCABULARY = 64, 500
WHOLE = POSITIONS * VOCABULARY


def test_no_copy_of_half_precision_logits_is_made() -> None:
    logits = torch.randn(POSITIONS, VOCABULARY).bfloat16().requires_grad_()
    seen = allocations_of(logits, alone)
    assert max(numel for numel, dtype in seen.made if dtype == torch.float32) == 8 * VOCABULARY
    assert seen.of_size(WHOLE, torch.bfloat16) == 1, "the gradient and nothing else"
    assert allocations_of(logits.detach().requires_grad_(), both).of_size(WHOLE, torch.float32) == 0


def test_no_copy_of_full_precision_logits_is_made_forward() -> None:
    seen = allocations_of(torch.randn(POSITIONS, VOCABULARY), alone)
    assert max(numel for numel, _ in seen.made) == 8 * VOCABULARY
    seen = allocations_of(torch.randn(POSITIONS, VOCABULARY, requires_grad=True), alone)
    assert seen.of_size(WHOLE, torch.float32) == 1, "the gradient and nothing else"


def test_no_copy_of_sliced_logits_is_made() -> None:
    """A trainer drops the last position; making the slice contiguous would copy all of it."""
    whole = torch.randn(4, POSITIONS // 4 + 1, VOCABULARY)
    seen = allocations_of(whole[:, :-1], alone)
    assert max(numel for numel, _ in seen.made) == 8 * VOCABULARY


def test_nothing_of_the_logits_size_is_kept_for_the_backward_pass() -> None:
    kept: list[Tensor] = []

    def keep(one: Tensor) -> Tensor:
        kept.append(one)
        return one

    logits = torch.randn(POSITIONS, VOCABULARY, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda one: one):
        alone(logits)
    assert {one.data_ptr() for one in kept if one.numel() >= WHOLE} == {logits.data_ptr()}


def test_the_count_would_see_a_copy() -> None:
    seen = allocations_of(
        torch.randn(POSITIONS, VOCABULARY).bfloat16(), lambda logits: logits.float().log_softmax(-1).sum()
    )
    assert seen.of_size(WHOLE, torch.float32) == 2
