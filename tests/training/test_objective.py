"""The Objective: GRPO by hand however it is cut, its order of calls, states, metrics, needs and verdicts."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

from breadth.base.errors import MechanismError
from breadth.base.stats import Counts, Max, Mean
from breadth.testing.mechanism_samples import sample_rollouts, sample_step, take_rollouts, take_sequences
from breadth.testing.mechanisms import chain_around
from breadth.training.catalogue import MECHANISMS
from breadth.training.chain import Chain
from breadth.training.credit.group_advantage import GroupAdvantage
from breadth.training.loss.clipped_policy import ClippedPolicy
from breadth.training.loss.fork_thermostat import ForkThermostat
from breadth.training.mechanism import Effect, Mechanism, Regime, Selection, mechanism_name
from breadth.training.objective import Objective
from breadth.training.plan.difficulty import Difficulty, ProblemState
from breadth.training.records import Batch, Plan, Rollouts, not_none
from breadth.training.reduction import Reduction, Totals

NAN = math.nan
OnTwoRanks = Callable[[Callable[[int], Any]], list[Any]]
GRPO = Chain((GroupAdvantage(), ClippedPolicy()))


@dataclass(frozen=True)
class Diary:
    """What a Witness saw."""

    steps: int = 0
    biggest: float = 0.0
    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class Witness(Mechanism[Batch, Diary]):
    """Counts tokens, and writes down every update."""

    name: str = "it"

    def init(self) -> Diary:
        return Diary()

    def apply(self, batch: Batch, state: Diary, selection: Selection | None) -> Effect[Batch]:
        rows = not_none(batch.rows)
        stats = {
            "tokens": Mean(batch.mask.sum(), 1),
            "row": Max(rows.max()),
            "labels": Counts({"rows": rows.sum()}),
            "step": Max(batch.step),
        }
        return Effect(batch, stats=stats)

    def update(self, state: Diary, stats: Mapping[str, Any]) -> Diary:
        told = f"{stats['labels'].value['rows']:g}" if "labels" in stats else "nothing"
        return Diary(state.steps + 1, stats["row"].value if "row" in stats else state.biggest, (*state.words, told))


@dataclass(frozen=True)
class Halver(Mechanism[Batch, None]):
    """Surveys, and halves the weight of every token whose row is even among all."""

    def survey(self, whole: Batch, state: None) -> Selection:
        return Selection({"half": not_none(whole.rows) % 2 == 0})

    def apply(self, batch: Batch, state: None, selection: Selection | None) -> Effect[Batch]:
        assert selection is not None
        return Effect(batch.scale_weights(torch.where(selection.tokens["half"], 0.5, 1.0)[:, None]))


@dataclass(frozen=True)
class Mirror(Mechanism[Batch, None]):
    """Weighs every token with the surrogate that its survey saw."""

    def survey(self, whole: Batch, state: None) -> Selection:
        assert not torch.is_grad_enabled()
        return Selection({"seen": not_none(whole.surrogate)})

    def apply(self, batch: Batch, state: None, selection: Selection | None) -> Effect[Batch]:
        assert selection is not None
        return Effect(batch.scale_weights(selection.tokens["seen"]))


def lengths_one_and_three(dtype: torch.dtype = torch.float64) -> Batch:
    """Two responses of 1 and 3 tokens, advantages +1 and -1, strictly on-policy."""
    mask = torch.tensor([[True, False, False], [True, True, True]])
    logprobs = torch.tensor([[-0.5, NAN, NAN], [-1.0, -2.0, -3.0]], dtype=dtype, requires_grad=True)
    return Batch(logprobs, torch.tensor([1.0, -1.0]), mask, rows=torch.arange(2))


def total(objective: Objective, batch: Batch, cuts: int) -> float:
    objective.begin(batch)
    parts = [objective.loss(take_sequences(batch, places)) for places in torch.arange(len(batch.mask)).chunk(cuts)]
    sum(parts).backward()
    objective.finish()
    return float(sum(parts).detach())


@pytest.mark.parametrize("cuts", [1, 2])
def test_the_token_mean_does_not_depend_on_the_cut(cuts: int) -> None:
    batch = lengths_one_and_three()
    # on-policy each token's loss is -A: (-1 + 3 * 1) / 4 = 0.5; a mean of micro-batch means would give (-1 + 1) / 2 = 0
    # for two
    assert total(Objective(Chain((ClippedPolicy(),))), batch, cuts) == pytest.approx(0.5, abs=1e-12)
    assert batch.logprobs.grad.tolist() == [[-0.25, 0.0, 0.0], [0.25, 0.25, 0.25]]


@pytest.mark.parametrize("cuts", [1, 2])
@pytest.mark.parametrize(
    ("reduction", "loss"), [(Reduction("sequence-mean"), 0.0), (Reduction("fixed-length", 4), 2 / 8)]
)
def test_nor_do_the_others(cuts: int, reduction: Reduction, loss: float) -> None:
    assert total(Objective(Chain((ClippedPolicy(),), reduction)), lengths_one_and_three(), cuts) == pytest.approx(
        loss, abs=1e-12
    )


def test_grpo_from_rewards_to_loss_by_hand() -> None:
    objective = Objective(Chain((GroupAdvantage(scale="population", epsilon=0.0), ClippedPolicy(high=0.28))))
    rewards = torch.tensor([1.0] + [0.0] * 7, dtype=torch.float64)
    credited, metrics = objective.credit(Rollouts(rewards, torch.zeros(8), torch.full((8,), 2)))
    advantages = not_none(credited.advantages)
    assert advantages.tolist() == pytest.approx([2.645751] + [-0.377964] * 7, abs=1e-6)
    assert metrics == {
        "group-advantage/flat": 0.0,
        "group-advantage/size": pytest.approx((2.645751 + 7 * 0.377964) / 8, abs=1e-6),
    }
    # the one success has ratios 1.5 (clipped at 1.28) and 1.2; the failures stay at 1
    ratios = torch.ones(8, 2, dtype=torch.float64)
    ratios[0] = torch.tensor([1.5, 1.2])
    batch = Batch(ratios.log(), advantages, torch.ones(8, 2).bool(), torch.zeros(8, 2, dtype=torch.float64))
    objective.begin(batch)
    expected = (-2.645751 * (1.28 + 1.2) + 14 * 0.377964) / 16
    assert float(objective.loss(batch)) == pytest.approx(expected, abs=1e-6)
    assert objective.finish() == {"clipped-policy/clipped_low": 0.0, "clipped-policy/clipped_high": 1 / 16}


def test_weights_scale_the_surrogate_and_not_the_terms() -> None:
    @dataclass(frozen=True)
    class Toll(Mechanism[Batch, None]):
        """Adds 1 to every token."""

        def apply(self, batch: Batch, state: None, selection: Selection | None) -> Effect[Batch]:
            return Effect(batch, (torch.ones_like(batch.logprobs),))

    objective = Objective(Chain((ClippedPolicy(), Toll(), Toll())))
    batch = Batch(torch.zeros(1, 2), torch.tensor([3.0]), torch.ones(1, 2).bool(), weights=torch.tensor([[0.0, 0.5]]))
    objective.begin(batch)
    assert float(objective.loss(batch)) == pytest.approx((0.0 - 1.5) / 2 + 2.0)


@pytest.mark.parametrize(
    "advantages", [torch.tensor([NAN, -1.0]), torch.tensor([math.inf, -1.0]), torch.tensor([[NAN] * 3, [-1.0] * 3])]
)
def test_an_advantage_that_is_no_number_is_neutral(advantages: torch.Tensor) -> None:
    batch = replace(lengths_one_and_three(), advantages=advantages)
    assert total(Objective(Chain((ClippedPolicy(),))), batch, 1) == pytest.approx(
        3 / 4
    )  # three tokens of -A = 1 among four
    assert batch.logprobs.grad.tolist() == [[0.0, 0.0, 0.0], [0.25, 0.25, 0.25]]


def test_a_completion_of_no_tokens_is_no_response() -> None:
    mask = torch.tensor([[True, False, False], [True, True, True], [False, False, False]])
    for reduction in (Reduction(), Reduction("sequence-mean"), Reduction("fixed-length", 4)):
        chain = Chain((ClippedPolicy(),), reduction)
        longer = replace(
            take_sequences(lengths_one_and_three(), torch.tensor([0, 1, 0])), mask=mask, rows=torch.arange(3)
        )
        assert total(Objective(chain), longer, 3) == total(Objective(chain), lengths_one_and_three(), 1)


def test_equal_rewards_give_no_gradient_at_all() -> None:
    objective = Objective(GRPO)
    credited, metrics = objective.credit(Rollouts(torch.full((4,), 0.1), torch.tensor([0, 0, 1, 1]), torch.ones(4)))
    assert metrics["group-advantage/flat"] == 1.0
    logprobs = torch.full((4, 2), -1.0, requires_grad=True)
    batch = Batch(logprobs, not_none(credited.advantages), torch.ones(4, 2).bool(), torch.full((4, 2), -1.4))
    assert total(objective, batch, 2) == 0.0
    assert not logprobs.grad.any()


def test_one_rollout_per_group_is_neutral_and_said_so_before() -> None:
    objective = Objective(GRPO)
    assert [one.mechanism for one in objective.explain(Regime(group_size=1))] == ["group-advantage"]
    credited, _ = objective.credit(Rollouts(torch.tensor([1.0, 0.0]), torch.tensor([0, 1]), torch.ones(2)))
    assert not_none(credited.advantages).tolist() == [0.0, 0.0]


def test_loss_and_finish_outside_a_step_are_refused() -> None:
    objective, batch = Objective(GRPO), lengths_one_and_three()
    for call in (lambda: objective.loss(batch), objective.finish):
        with pytest.raises(MechanismError, match="outside an optimizer step") as caught:
            call()
        assert "begin()" in caught.value.remedy
    objective.begin(batch)
    objective.loss(batch)
    objective.finish()
    assert objective.step == 1
    with pytest.raises(MechanismError, match="outside an optimizer step"):
        objective.loss(batch)
    with pytest.raises(MechanismError, match="outside an optimizer step"):
        objective.finish()
    assert objective.step == 1


def test_begin_again_forgets_an_unfinished_step() -> None:
    objective, batch = Objective(Chain((ClippedPolicy(), Witness()))), lengths_one_and_three()
    objective.begin(batch)
    objective.loss(batch)
    objective.begin(Totals(8.0, 2.0))
    assert objective.loss(take_sequences(batch, torch.tensor([0]))).item() == pytest.approx(-1 / 8)
    assert objective.finish()["witness/tokens"] == 1.0


def test_totals_are_enough_until_something_surveys() -> None:
    objective, batch = Objective(Chain((ClippedPolicy(),))), lengths_one_and_three()
    assert not objective.surveys
    objective.begin(Totals.from_mask(batch.mask))
    assert objective.loss(batch).item() == pytest.approx(0.5)
    surveying = Objective(Chain((ClippedPolicy(), Halver())))
    assert surveying.surveys
    with pytest.raises(MechanismError, match="halver need the whole batch") as caught:
        surveying.begin(Totals.from_mask(batch.mask))
    assert "Pass the batch" in caught.value.remedy


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 1, 0, 2]])
def test_a_survey_reaches_each_sequence_by_its_row(order: list[int]) -> None:
    mask = torch.ones(4, 1).bool()
    batch = Batch(torch.zeros(4, 1), torch.tensor([1.0, 10.0, 100.0, 1000.0]), mask, rows=torch.tensor([6, 3, 8, 5]))
    objective = Objective(Chain((ClippedPolicy(), Halver())))
    objective.begin(take_sequences(batch, torch.tensor([2, 0, 3, 1])))
    parts = [float(objective.loss(take_sequences(batch, torch.tensor([place])))) for place in order]
    wanted = {0: -0.5, 1: -10.0, 2: -50.0, 3: -1000.0}  # rows 6 and 8 are even
    assert parts == pytest.approx([wanted[place] / 4 for place in order])


def test_a_survey_sees_what_those_before_it_left() -> None:
    shaped = MECHANISMS.load("entropy-advantage")(scale=100.0, cap=2.0)  # A + |A| / 2: 1 becomes 1.5, -1 becomes -0.5
    objective = Objective(Chain((shaped, ClippedPolicy(), Mirror())))
    batch = replace(lengths_one_and_three(), entropy=torch.ones(2, 3))
    # on-policy the surrogate is -A: -1.5 once and 0.5 three times, each weighted with itself
    assert total(objective, batch, 2) == pytest.approx((1.5**2 + 3 * 0.5**2) / 4)


def test_a_narrower_micro_batch_gets_its_part_of_the_selection() -> None:
    objective, batch = (
        Objective(Chain((ClippedPolicy(), MECHANISMS.load("forking-tokens")(share=0.5)))),
        sample_step(0).batch,
    )
    objective.begin(batch)
    short = take_sequences(batch, torch.tensor([int(batch.mask.sum(-1).argmin())]))
    width = int(short.mask.sum())
    trimmed = replace(
        short,
        **{
            name: value[:, :width]
            for name, value in vars(short).items()
            if isinstance(value, torch.Tensor) and value.ndim == 2
        },
    )
    assert objective.loss(trimmed).item() == pytest.approx(objective.loss(short).item(), abs=1e-12)


def test_parts_of_a_surveyed_batch_must_say_which_they_are() -> None:
    objective, batch = Objective(Chain((ClippedPolicy(), Halver()))), replace(lengths_one_and_three(), rows=None)
    objective.begin(batch)
    assert objective.loss(batch).item() == pytest.approx((-0.5 + 3) / 4)  # the whole of it: rows 0 and 1
    with pytest.raises(MechanismError, match="does not name its sequences") as caught:
        objective.loss(take_sequences(batch, torch.tensor([1])))
    assert "rows" in caught.value.remedy


def test_and_so_must_ranks(on_two_ranks: OnTwoRanks) -> None:
    def refused(rank: int) -> None:
        with pytest.raises(MechanismError, match="does not name its sequences"):
            Objective(Chain((ClippedPolicy(), Halver()))).begin(replace(lengths_one_and_three(), rows=None))

    on_two_ranks(refused)


def test_stats_add_up_over_micro_batches_and_update_comes_once() -> None:
    objective, batch = Objective(Chain((ClippedPolicy(), Witness()))), lengths_one_and_three()
    for number in range(2):
        objective.begin(batch)
        for row in range(2):
            objective.loss(take_sequences(batch, torch.tensor([row])))
        metrics = objective.finish()
        assert metrics["witness/tokens"] == 2.0  # 4 tokens in 2 micro-batches
        assert metrics["witness/row"] == 1.0
        assert metrics["witness/step"] == number
        assert metrics["witness/steps"] == number + 1
        assert metrics["witness/biggest"] == 1.0
        assert set(metrics) == {f"witness/{name}" for name in ("tokens", "row", "step", "steps", "biggest")} | {
            "clipped-policy/clipped_low",
            "clipped-policy/clipped_high",
        }
    assert objective.states[1].words == ("1", "1")


def test_evaluation_leaves_stats_and_states_alone() -> None:
    objective, batch = Objective(Chain((ClippedPolicy(), Witness()))), lengths_one_and_three()
    objective.begin(batch)
    assert objective.loss(batch, record=False).item() == pytest.approx(0.5)
    metrics = objective.finish()
    assert "witness/tokens" not in metrics
    assert objective.states[1].words == ("nothing",)


def test_a_second_of_a_kind_gets_its_own_name_and_state() -> None:
    chain = Chain((Witness("a"), ClippedPolicy(), Witness("b"), Witness("c")))
    objective, batch = Objective(chain), lengths_one_and_three()
    assert objective.names == ["witness", "clipped-policy", "witness-2", "witness-3"]
    objective.begin(batch)
    objective.loss(batch)
    assert {"witness/tokens", "witness-2/tokens", "witness-3/tokens"} <= objective.finish().keys()
    assert set(objective.state()["states"]) == {"witness", "witness-2", "witness-3"}


def test_a_checkpoint_goes_on_where_it_stopped() -> None:
    chain = Chain((GroupAdvantage(), ClippedPolicy(), ForkThermostat(settle=1, floor=0.9, ceiling=1.1)))

    def some_steps(objective: Objective, numbers: range) -> list[float]:
        losses = []
        for number in numbers:
            objective.credit(sample_rollouts(number))
            batch = sample_step(number).batch
            losses.append(total(objective, batch, 2))
        return losses

    straight, first = Objective(chain), Objective(chain)
    expected = some_steps(straight, range(4))
    begun = some_steps(first, range(2))
    second = Objective(Chain.loads(chain.dumps()))
    second.restore(json.loads(json.dumps(first.state(), allow_nan=False)))
    assert (second.step, second.generation) == (2, 2)
    assert begun + some_steps(second, range(2, 4)) == expected
    assert second.state() == straight.state()


def test_a_state_with_the_keys_of_earlier_versions_opens() -> None:
    objective = Objective(Chain((Difficulty(), ClippedPolicy(), ForkThermostat())))
    saved = json.loads(json.dumps(objective.state()))
    thermostat = saved["states"]["fork-thermostat"]
    thermostat["mood"] = "raising" if thermostat.pop("mode") else ""
    saved["states"]["difficulty"] = {"problems": {"stage": {"stage": "deferred", "drawn": 3, "failures": 1}}}
    objective.restore(saved)
    difficulty, _, state = objective.states
    assert state.mode == "raising"
    assert difficulty.problems == {"stage": ProblemState("deferred", rollouts=3, failures=1)}


def test_the_state_of_another_chain_is_refused() -> None:
    saved = Objective(Chain((ClippedPolicy(), ForkThermostat()))).state()
    with pytest.raises(MechanismError, match=r"lacks the state of none and has the state of \['fork-thermostat'\]"):
        Objective(Chain((ClippedPolicy(),))).restore(saved)
    with pytest.raises(
        MechanismError, match=r"lacks the state of \['fork-thermostat-2'\] and has the state of none"
    ) as caught:
        Objective(Chain((ClippedPolicy(), ForkThermostat(), ForkThermostat()))).restore(saved)
    assert "Resume with the chain" in caught.value.remedy


def test_attach_refuses_what_nobody_provides() -> None:
    objective = Objective(
        Chain(
            (
                GroupAdvantage(),
                MECHANISMS.load("repeat-penalty")(),
                ClippedPolicy(),
                MECHANISMS.load("forking-tokens")(),
            )
        )
    )
    objective.attach({"credit.outcomes", "loss.entropy", "loss.old_entropy"})
    with pytest.raises(MechanismError) as caught:
        objective.attach({"credit.outcomes"})
    assert "forking-tokens reads loss.entropy" in caught.value.problem
    assert "Provided: credit.outcomes." in caught.value.problem
    assert "provider" in caught.value.remedy
    with pytest.raises(MechanismError, match=r"repeat-penalty reads credit.outcomes.*Provided: none"):
        objective.attach(())


def test_credit_hands_back_its_own_rows_and_counts_generations() -> None:
    objective, rollouts = Objective(GRPO), sample_rollouts(0)
    first, _ = objective.credit(rollouts)
    assert first.groups.tolist() == rollouts.groups.tolist()
    assert (first.step, objective.generation) == (0, 1)
    assert objective.credit(rollouts)[0].step == 1
    assert rollouts.advantages is None


def test_groups_may_straddle_ranks_of_different_size(on_two_ranks: OnTwoRanks) -> None:
    rollouts = sample_rollouts(3)
    alone, metrics = Objective(GRPO).credit(rollouts)
    shares = [list(range(9)), list(range(9, len(rollouts)))]  # the third group of four is cut after its first rollout
    parts = on_two_ranks(lambda rank: Objective(GRPO).credit(take_rollouts(rollouts, shares[rank])))
    assert torch.equal(torch.cat([not_none(part.advantages) for part, _ in parts]), not_none(alone.advantages))
    assert [told for _, told in parts] == [metrics, metrics]


def test_a_rank_without_rollouts_takes_part(on_two_ranks: OnTwoRanks) -> None:
    rollouts = sample_rollouts(3)
    alone, _ = Objective(GRPO).credit(rollouts)
    shares: list[list[int]] = [[], list(range(len(rollouts)))]
    nobody, everybody = (
        part for part, _ in on_two_ranks(lambda rank: Objective(GRPO).credit(take_rollouts(rollouts, shares[rank])))
    )
    assert len(nobody) == 0
    assert torch.equal(not_none(everybody.advantages), not_none(alone.advantages))


def test_token_advantages_come_back_in_the_ranks_own_width(on_two_ranks: OnTwoRanks) -> None:
    chain, rollouts = Chain((GroupAdvantage(), MECHANISMS.load("planning-credit")())), sample_rollouts(1)
    alone, _ = Objective(chain).credit(rollouts)
    widths = [5, not_none(rollouts.mask).shape[1]]

    def own(rank: int) -> torch.Tensor:
        part = take_rollouts(rollouts, list(range(12 * rank, 12 * rank + 12)))
        cut = {
            name: value[:, : widths[rank]]
            for name, value in vars(part).items()
            if isinstance(value, torch.Tensor) and value.ndim == 2
        }
        return not_none(Objective(chain).credit(replace(part, **cut))[0].advantages)

    for rank, found in enumerate(on_two_ranks(own)):
        assert torch.equal(found, not_none(alone.advantages)[12 * rank : 12 * rank + 12, : widths[rank]])


def test_ranks_of_different_size_and_width_share_survey_totals_and_states(on_two_ranks: OnTwoRanks) -> None:
    chain = Chain((ClippedPolicy(), MECHANISMS.load("forking-tokens")(share=0.3), Witness()))
    batch = sample_step(4).batch
    alone = Objective(chain)
    expected = total(alone, batch, 1)

    def own(rank: int) -> tuple[float, Any]:
        part = take_sequences(sample_step(4).batch, torch.arange(5) if rank == 0 else torch.arange(5, 16))
        width = int(part.mask.sum(-1).max())
        narrow = {
            name: value[:, :width]
            for name, value in vars(part).items()
            if isinstance(value, torch.Tensor) and value.ndim == 2
        }
        objective = Objective(chain)
        return total(objective, replace(part, **narrow), 2 + rank), objective.states

    told = on_two_ranks(own)
    assert sum(loss for loss, _ in told) == pytest.approx(expected, abs=1e-9)
    assert told[0][1] == told[1][1]
    assert told[0][1][2].words == alone.states[2].words


def test_the_plan_stage_is_run_once_with_step_and_seed() -> None:
    objective = Objective(Chain((MECHANISMS.load("temperature")(start=1.0, end=0.5, over=4),), seed=9))
    objective.generation = 2
    plan, metrics = objective.plan(Plan(("a",), (8,)))
    assert (plan.temperature, plan.step, plan.seed) == (0.75, 2, 9)
    assert all(name.startswith("temperature/") for name in metrics)


def test_no_rollouts_and_no_tokens() -> None:
    objective = Objective(GRPO)
    nothing, metrics = objective.credit(Rollouts(torch.zeros(0), torch.zeros(0), torch.zeros(0)))
    assert not_none(nothing.advantages).tolist() == []
    assert math.isnan(metrics["group-advantage/size"])
    empty = Batch(torch.zeros(0, 4), torch.zeros(0), torch.zeros(0, 4).bool())
    objective.begin(empty)
    assert float(objective.loss(empty)) == 0.0
    objective.finish()


def every_mechanism() -> list[Mechanism[Any, Any]]:
    """One of each, as it comes; a temperature has no defaults."""
    return [kind(start=1.0, end=1.2, over=10) if name == "temperature" else kind() for name, kind in MECHANISMS]


def listed(regime: Regime, mechanisms: list[Mechanism[Any, Any]]) -> set[str]:
    """The mechanisms that explain() lists, each alone with what it cannot do without, checked for reason and remedy."""
    names = set()
    for one in mechanisms:
        for verdict in Objective(chain_around(one)).explain(regime):
            assert verdict.reason.endswith(".")
            assert len(verdict.reason) > 30
            assert verdict.remedy.endswith(".")
            assert len(verdict.remedy) > 10
            names |= {verdict.mechanism} & {mechanism_name(one)}
    return names


def test_explain_knows_nothing_against_anybody_in_an_unknown_regime() -> None:
    assert listed(Regime(), every_mechanism()) == set()


def test_explain_on_strictly_on_policy_updates() -> None:
    on_policy = Regime(updates_per_generation=1)
    assert listed(on_policy, every_mechanism()) == {"sequence-ratio", "gradient-preserving", "cispo", "kl-cov"}
    on_purpose = [ClippedPolicy(high=0.28), MECHANISMS.load("reference-kl")(estimator="k1")]
    assert listed(on_policy, on_purpose) == {"clipped-policy", "reference-kl"}
    assert listed(Regime(updates_per_generation=4), [*every_mechanism(), *on_purpose]) == set()


def test_explain_with_one_response_per_update() -> None:
    assert listed(Regime(sequences_per_update=1), every_mechanism()) == {"clip-cov", "kl-cov"}
    assert listed(Regime(sequences_per_update=2), every_mechanism()) == set()


def test_explain_with_one_rollout_per_problem() -> None:
    alone = {
        "group-advantage",
        "leave-one-out",
        "maxrl",
        "pass-at-k",
        "repeat-penalty",
        "rare-success-cap",
        "flat-filter",
    }
    assert listed(Regime(group_size=1), every_mechanism()) == alone
    assert listed(Regime(group_size=16), every_mechanism()) == set()


def test_explain_with_too_few_tokens_for_a_quota() -> None:
    # 2 responses of 200 tokens: 0.0002 and 0.002 of 400 tokens are less than one, 0.2 of them are 80
    assert listed(Regime(sequences_per_update=2, tokens_per_response=200.0), every_mechanism()) == {
        "clip-cov",
        "kl-cov",
    }
    assert listed(Regime(sequences_per_update=2, tokens_per_response=2.0), every_mechanism()) == {
        "clip-cov",
        "kl-cov",
        "forking-tokens",
    }
    assert listed(Regime(sequences_per_update=64, tokens_per_response=500.0), every_mechanism()) == set()


def test_explain_lists_all_of_a_chain_in_its_order() -> None:
    chain = Chain((GroupAdvantage(), ClippedPolicy(high=0.28), MECHANISMS.load("kl-cov")(), ForkThermostat()))
    verdicts = Objective(chain).explain(Regime(updates_per_generation=1, group_size=1))
    assert [one.mechanism for one in verdicts] == ["group-advantage", "clipped-policy", "kl-cov"]


def test_a_chain_without_a_loss_says_so() -> None:
    objective = Objective(Chain((GroupAdvantage(),)))
    batch = sample_step(0).batch
    objective.begin(batch)
    with pytest.raises(MechanismError, match="no mechanism of the loss stage"):
        objective.loss(batch)


def test_other_settings_than_the_checkpoints_are_told(caplog: pytest.LogCaptureFixture) -> None:
    before, after = Objective(Chain((ClippedPolicy(),))), Objective(Chain((ClippedPolicy(high=0.28),)))
    before.restore(before.state())
    assert caplog.text == ""
    after.restore(before.state())
    assert "other settings" in caplog.text
