"""Planning credit: the numbers of the spec, the other form worked out by hand, and no flipped sign."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from breadth.base.errors import MechanismError, SettingsError
from breadth.testing.mechanism_samples import sample_rollouts
from breadth.testing.mechanisms import check_edges, check_mechanism
from breadth.training.chain import Chain
from breadth.training.credit.group_advantage import GroupAdvantage
from breadth.training.credit.planning_credit import PlanningCredit, above_quantile
from breadth.training.mechanism import Regime
from breadth.training.objective import Objective
from breadth.training.records import Rollouts, not_none


def rollouts(advantages: list[float], planning: list[list[int]], **more: object) -> Rollouts:
    count = len(advantages)
    given = Rollouts(
        rewards=torch.zeros(count, dtype=torch.float64),
        groups=torch.zeros(count, dtype=torch.int64),
        lengths=torch.full((count,), len(planning[0])),
        advantages=torch.tensor(advantages, dtype=torch.float64),
        mask=torch.ones(count, len(planning[0])),
        planning=torch.tensor(planning),
    )
    return replace(given, **more).clean()  # type: ignore[arg-type]  # fields by name


def credited(mechanism: PlanningCredit, batch: Rollouts) -> torch.Tensor:
    return not_none(mechanism.apply(batch, None, mechanism.survey(batch, None)).after.advantages)


def test_the_numbers_of_the_spec() -> None:
    batch = rollouts([0.8, 0.8, -0.8, -0.8], [[1], [0], [1], [0]])
    assert credited(PlanningCredit(), batch)[:, 0].tolist() == pytest.approx([0.96, 0.8, -0.64, -0.8], abs=1e-12)


def test_within_a_response_only_planning_tokens_gain_and_the_bias_is_logged() -> None:
    batch = rollouts([0.8, -0.8], [[1, 0, 1], [0, 1, 0]], mask=torch.tensor([[1, 1, 0], [1, 1, 1]]))
    effect = PlanningCredit().apply(batch, None, None)
    assert not_none(effect.after.advantages).flatten().tolist() == pytest.approx(
        [0.96, 0.8, 0.8, -0.8, -0.64, -0.8], abs=1e-12
    )
    assert effect.stats["bias"].value == pytest.approx((0.16 + 0.16) / 5)
    assert effect.stats["planning"].value == pytest.approx(2 / 5)


def test_token_advantages_keep_their_own_values() -> None:
    batch = replace(rollouts([0.0], [[1, 1, 0]]), advantages=torch.tensor([[1.0, -2.0, 3.0]]))
    assert credited(PlanningCredit(0.5), batch).tolist() == [[1.5, -1.0, 3.0]]


def test_no_sign_flips_below_one() -> None:
    batch = rollouts([2.0, -2.0, 0.0], [[1, 1]] * 3)
    assert torch.equal(
        credited(PlanningCredit(0.999), batch).sign(),
        torch.tensor([2.0, -2.0, 0.0], dtype=torch.float64).sign()[:, None].expand(3, 2),
    )


@pytest.mark.parametrize("form", ["paper", "code"])
def test_no_alpha_or_no_grams_is_the_plain_group_advantage(form: str) -> None:
    sample = sample_rollouts(0)
    plain, _ = Objective(Chain((GroupAdvantage(),))).credit(sample)
    off, _ = Objective(Chain((GroupAdvantage(), PlanningCredit(0.0, form)))).credit(sample)  # type: ignore[arg-type]  # a literal
    assert torch.equal(not_none(off.advantages), not_none(plain.advantages))
    empty = replace(sample, planning=torch.zeros_like(not_none(sample.planning)))
    none, _ = Objective(Chain((GroupAdvantage(), PlanningCredit()))).credit(empty)
    assert torch.equal(
        not_none(none.advantages), not_none(plain.advantages)[:, None].expand_as(not_none(none.advantages))
    )


def test_the_codes_form_by_hand() -> None:
    # Ten tokens in all with entropies 0 to 9; the 70th percentile lies at 6.3, so 7, 8 and 9 are above it.
    entropy = torch.tensor([[0.0, 7, 9, 1, 8], [2.0, 3, 4, 5, 6]], dtype=torch.float64)
    batch = rollouts(
        [1.0, 1.0],
        [[0, 0, 1, 1, 0], [1, 1, 0, 0, 0]],
        entropy=entropy,
        correct=torch.tensor([1.0, 1.0]),
        lengths=torch.tensor([6, 5]),
    )
    told = credited(PlanningCredit(form="code"), batch)
    assert told[0].tolist() == pytest.approx([1.0, 1.2, 1.2, 1.2, 1.2], abs=1e-12)
    assert told[1].tolist() == [1.0] * 5  # not longer than the mean of 5.5
    wrong = credited(PlanningCredit(form="code"), replace(batch, correct=torch.tensor([0.0, float("nan")])))
    assert torch.equal(wrong, torch.ones_like(wrong))


def test_the_codes_form_on_a_negative_advantage_is_signed_on_strategic_tokens_only() -> None:
    entropy = torch.tensor([[9.0, 9.0, 0.0, 0.0], [0.0] * 4], dtype=torch.float64)
    batch = rollouts(
        [-1.0, 1.0], [[1, 0, 1, 0], [0] * 4], entropy=entropy, correct=torch.ones(2), lengths=torch.tensor([5, 4])
    )
    assert credited(PlanningCredit(form="code"), batch)[0].tolist() == pytest.approx(
        [-0.8, -1.2, -0.8, -1.0], abs=1e-12
    )


def test_flat_entropies_are_above_no_percentile() -> None:
    batch = rollouts(
        [1.0, 1.0], [[0, 0], [0, 0]], entropy=torch.zeros(2, 2), correct=torch.ones(2), lengths=torch.tensor([2, 1])
    )
    assert torch.equal(credited(PlanningCredit(form="code"), batch), torch.ones(2, 2, dtype=torch.float64))


def test_needs_follow_the_form_and_bad_settings_are_refused() -> None:
    assert PlanningCredit().needs == {"planning", "mask"}
    assert PlanningCredit(form="code").needs == {"planning", "mask", "entropy", "correct"}
    for alpha in (-0.1, 1.0, float("nan")):
        with pytest.raises(SettingsError, match="alpha"):
            PlanningCredit(alpha)
    with pytest.raises(MechanismError, match="after"):
        Chain((PlanningCredit(), GroupAdvantage()))


def test_the_codes_form_cannot_act_on_groups_of_one() -> None:
    verdict = PlanningCredit(form="code").no_effect(Regime(group_size=1))
    assert verdict is not None
    assert "longer" in verdict.reason
    assert PlanningCredit(form="code").no_effect(Regime(group_size=2)) is None
    assert PlanningCredit().no_effect(Regime(group_size=1)) is None


@pytest.mark.parametrize("form", ["paper", "code"])
def test_the_contract(form: str) -> None:
    check_mechanism(PlanningCredit(form=form))  # type: ignore[arg-type]  # a parametrized literal
    check_mechanism(PlanningCredit(0.1), before=(GroupAdvantage(), PlanningCredit(form=form)))  # type: ignore[arg-type]  # on token advantages


def test_the_defaults_and_the_edges_of_the_settings() -> None:
    check_edges(
        PlanningCredit,
        {"alpha": 0.2, "form": "paper"},
        accepted=[{"alpha": 0.0}, {"alpha": 0.99}],
        refused=[{"alpha": 1.0}, {"alpha": -0.1}, {"form": "other"}],
    )


def test_above_the_quantile_is_above_the_value_at_its_place() -> None:
    # Of the ten counted values 0 to 9 the one at place 0.7 * 9 = 6.3, rounded down.
    values = torch.arange(12.0)
    mask = torch.tensor([True] * 10 + [False] * 2)
    assert above_quantile(values, mask, 0.7).tolist() == [False] * 7 + [True] * 3 + [False] * 2
    assert above_quantile(values, mask, 1.0).sum() == 0
    assert above_quantile(values, mask, 0.0).sum() == 9
    assert above_quantile(values, torch.zeros_like(mask), 0.7).sum() == 0


def test_the_codes_form_leaves_a_response_of_exactly_the_mean_length_alone() -> None:
    entropy, correct = torch.tensor([[0.0, 9.0]] * 3), torch.ones(3)
    batch = rollouts([1.0] * 3, [[0, 1]] * 3, entropy=entropy, correct=correct, lengths=torch.tensor([4, 5, 6]))
    assert credited(PlanningCredit(form="code"), batch)[:, 1].tolist() == [1.0, 1.0, 1.2]
