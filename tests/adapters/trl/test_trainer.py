"""Our trainer inside the real TRL: the same numbers as TRL's own where they must be, and what only ours can do."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from breadth.adapters.trl.trainer import check_length_buckets, forward_by_length
from breadth.base.errors import BreadthError, BrokenFileError, MechanismError, SettingsError
from breadth.base.stats import Mean
from breadth.runs.reader import Run
from breadth.testing.mechanisms import states_agree
from breadth.training.chain import Chain
from breadth.training.credit.flat_filter import FlatFilter
from breadth.training.credit.group_advantage import GroupAdvantage
from breadth.training.credit.outcome_bonus import OutcomeBonus
from breadth.training.credit.planning_credit import PlanningCredit
from breadth.training.credit.strategic_grams import StrategicGrams
from breadth.training.loss.clip_cov import ClipCov
from breadth.training.loss.clipped_policy import ClippedPolicy
from breadth.training.loss.fork_thermostat import ForkThermostat
from breadth.training.loss.forking_tokens import ForkingTokens
from breadth.training.loss.kl_cov import KLCov
from breadth.training.loss.reference_kl import ReferenceKL
from breadth.training.mechanism import Effect, Mechanism, Selection
from breadth.training.objective import Objective
from breadth.training.ops import masked_values
from breadth.training.records import Batch, not_none
from breadth.training.reduction import Reduction

PROMPTS = torch.tensor([[9, 9, 3], [9, 4, 5], [9, 9, 6], [7, 8, 2]])
PROMPT_MASK = torch.tensor([[0, 0, 1], [0, 1, 1], [0, 0, 1], [1, 1, 1]])
REPLIES = torch.tensor([[1, 9, 9, 9], [2, 3, 4, 5], [6, 7, 9, 9], [9, 9, 9, 9]])
REPLY_MASK = torch.tensor([[1, 0, 0, 0], [1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 0, 0]])
TOKENS, ATTENTION = torch.cat([PROMPTS, REPLIES], 1), torch.cat([PROMPT_MASK, REPLY_MASK], 1)


class Reader:
    """A stand-in for a model: the number of a token is ten times all before it that are attended to, and itself."""

    def __init__(self) -> None:
        self.widths: list[tuple[int, int]] = []

    def __call__(self, tokens: Tensor, attention: Tensor, scored: int) -> tuple[Tensor, Tensor, None]:
        self.widths.append(tuple(tokens.shape))
        seen = tokens * attention
        found = (10 * (seen.cumsum(1) - seen) + tokens)[:, -scored:].double()
        return found, -found, None


@pytest.mark.parametrize("parts", [1, 2, 3, 4, 9])
def test_parts_give_what_one_pass_gives(parts: int) -> None:
    whole, mask = Reader()(TOKENS, ATTENTION, 4), REPLY_MASK.bool()
    logprobs, entropies, auxiliary = forward_by_length(Reader(), TOKENS, ATTENTION, 4, parts)
    assert torch.equal(logprobs[mask], whole[0][mask])
    assert entropies is not None
    assert torch.equal(entropies[mask], whole[1][mask])
    assert auxiliary is None
    # by hand: the second reply is 2 3 4 5 after 4 5, so 10 * 9 + 2, 10 * 11 + 3, 10 * 14 + 4, 10 * 18 + 5
    assert logprobs[1].tolist() == [92, 113, 144, 185]


def test_each_part_is_as_wide_as_its_longest() -> None:
    reader = Reader()
    forward_by_length(reader, TOKENS, ATTENTION, 4, 2)
    # the empty reply and that of one token, whose prompts need three places; then those of two and four, whose prompts
    # need two
    assert reader.widths == [(2, 3 + 1), (2, 2 + 4)]


def test_gradients_come_back_to_their_rows() -> None:
    scale = torch.ones(4, requires_grad=True, dtype=torch.float64)

    def forward(tokens: Tensor, attention: Tensor, scored: int) -> tuple[Tensor, None, None]:
        rows = torch.tensor([PROMPTS[:, -1].tolist().index(int(one)) for one in tokens[:, -scored - 1]])
        return scale[rows, None] * tokens[:, -scored:], None, None

    logprobs, entropies, _ = forward_by_length(forward, TOKENS, ATTENTION, 4, 2)
    (logprobs * REPLY_MASK).sum().backward()
    assert entropies is None
    assert scale.grad is not None
    assert scale.grad.tolist() == [1, 2 + 3 + 4 + 5, 6 + 7, 0]


@pytest.mark.parametrize(("parts", "processes"), [(0, 1), (-3, 1), (2, 2)])
def test_what_cannot_be_used_is_refused(parts: int, processes: int) -> None:
    with pytest.raises(SettingsError, match="length_buckets"):
        check_length_buckets(parts, processes)


pytestmark = pytest.mark.filterwarnings(
    "ignore::Warning:(torch|transformers|trl|datasets|accelerate|tokenizers|huggingface_hub)"
)

LIKE_TRL = GroupAdvantage(epsilon=1e-4)
"""TRL's advantage to the last digit."""
DAPO = Chain((LIKE_TRL, ClippedPolicy()))
SURVEYING = Chain(
    (LIKE_TRL, ClippedPolicy(), ClipCov(share=0.2, lower=-math.inf, upper=math.inf), ForkingTokens(share=0.5))
)


def weights(trainer: Any) -> torch.Tensor:
    return torch.cat([one.detach().flatten() for one in trainer.accelerator.unwrap_model(trainer.model).parameters()])


@pytest.mark.parametrize("settings", [{}, {"gradient_accumulation_steps": 2, "num_iterations": 2}], ids=str)
def test_in_parts_it_trains_the_same(tiny: Any, settings: dict[str, Any]) -> None:
    whole, parts = (
        tiny.trainer("whole", DAPO, **settings),
        tiny.trainer("parts", DAPO, options={"length_buckets": 3}, **settings),
    )
    reference, log = tiny.train(whole), tiny.train(parts)
    for name in ("loss", "grad_norm", "entropy", "reward"):
        assert [row[name] for row in log] == pytest.approx([row[name] for row in reference], abs=1e-5), name
    # sums are rounded in another order, and Adam makes steps of the rate also where a gradient is all but zero
    assert float((weights(parts) - weights(whole)).abs().mean()) < 1e-5


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"gradient_accumulation_steps": 2},
        {"num_iterations": 2},
        {"gradient_accumulation_steps": 2, "num_iterations": 2, "mask_truncated_completions": True},
    ],
    ids=str,
)
def test_the_clipped_policy_trains_as_trls_own_dapo_loss(tiny: Any, settings: dict[str, Any]) -> None:
    theirs, ours = tiny.trainer("theirs", **settings), tiny.trainer("ours", DAPO, **settings)
    reference, log = tiny.train(theirs), tiny.train(ours)
    for name in ("loss", "grad_norm", "entropy", "reward"):
        assert [row[name] for row in log] == pytest.approx([row[name] for row in reference], abs=1e-5), name
    assert torch.allclose(weights(ours), weights(theirs), atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "reduction"), [("grpo", Reduction("sequence-mean")), ("dr_grpo", Reduction("fixed-length"))]
)
def test_the_other_reductions_train_as_trls_own(tiny: Any, kind: str, reduction: Reduction) -> None:
    theirs = tiny.trainer("theirs", loss_type=kind, num_iterations=2)
    ours = tiny.trainer("ours", Chain(DAPO.mechanisms, reduction), num_iterations=2)
    reference, log = tiny.train(theirs), tiny.train(ours)
    assert [row["grad_norm"] for row in log] == pytest.approx([row["grad_norm"] for row in reference], abs=1e-5)
    assert torch.allclose(weights(ours), weights(theirs), atol=1e-6)


@pytest.mark.parametrize(
    "chain",
    [DAPO, SURVEYING, DAPO.plus(ForkThermostat(settle=1, floor=1.0, ceiling=1.01))],
    ids=["dapo", "survey", "thermostat"],
)
def test_gradient_accumulation_changes_nothing(tiny: Any, told: Callable[..., Any], chain: Chain) -> None:
    """With plain gradient descent: Adam divides by the gradient's own size, so it makes steps out of rounding."""
    ends = []
    for parts in (1, 2, 4):
        settings = {
            "per_device_train_batch_size": 16 // parts,
            "gradient_accumulation_steps": parts,
            "optim": "sgd",
            "learning_rate": 0.5,
        }
        trainer = tiny.trainer(f"in-{parts}", chain, options={"rollout_func": told()}, **settings)
        tiny.train(trainer)
        ends.append((weights(trainer), trainer.objective.state()["states"]))
    for end, states in ends[1:]:
        assert torch.allclose(end, ends[0][0], atol=1e-6)
        assert states_agree(states, ends[0][1])


def test_several_updates_a_generation_are_averaged_over_their_own_tokens(tiny: Any, told: Callable[..., Any]) -> None:
    """TRL divides each of them by its share of the whole generation's tokens.

    Which is another number when lengths differ.
    """
    settings = {"steps_per_generation": 2, "optim": "sgd", "learning_rate": 0.5, "max_steps": 1}
    trainer = tiny.trainer("ours", DAPO, options={"rollout_func": told()}, **settings)
    totals: list[tuple[float, float]] = []
    begin = trainer.objective.begin

    def watched(window: Any) -> None:
        begin(window)
        counted = trainer.objective._totals
        own = trainer._window()
        totals.append((float(counted.tokens), sum(float(inputs["completion_mask"].sum()) for inputs in own)))
        assert float(counted.tokens) != float(own[0]["num_items_in_batch"]) / 2

    trainer.objective.begin = watched
    tiny.train(trainer)
    assert len(totals) == 1
    assert totals[0][0] == totals[0][1]


def test_trls_own_grpo_loss_depends_on_the_accumulation_and_ours_does_not(tiny: Any, told: Callable[..., Any]) -> None:
    """A per-micro-batch quantile: the reason surveys exist.

    Plain SGD: Adam's first step divides each gradient by its own size, which magnifies rounding. What is left are
    float32 sums in another order: at most one epsilon per summed token, times the largest step of any weight.
    """
    gaps, largest_step, tokens = [], 0.0, 16 * 6
    for objective, changes in ((None, {"top_entropy_quantile": 0.5}), (DAPO.plus(ForkingTokens(share=0.5)), {})):
        ends = []
        for parts in (1, 4):
            settings = {
                "per_device_train_batch_size": 16 // parts,
                "gradient_accumulation_steps": parts,
                "max_steps": 1,
                "optim": "sgd",
                **changes,
            }
            settings |= {"learning_rate": 0.5}
            trainer = tiny.trainer(f"{parts}", objective, options={"rollout_func": told()}, **settings)
            start = weights(trainer)
            tiny.train(trainer)
            ends.append(weights(trainer))
            largest_step = max(largest_step, float((ends[-1] - start).abs().max()))
        gaps.append(float((ends[0] - ends[1]).abs().max()))
    rounding = torch.finfo(torch.float32).eps * max(tokens * largest_step, float(ends[0].abs().max()))
    assert gaps[0] > 1000 * rounding
    assert gaps[1] <= rounding


def test_resuming_at_a_generation_boundary_gives_the_same_trajectory(tiny: Any) -> None:
    chain = Chain((LIKE_TRL, OutcomeBonus(), ClippedPolicy(), ForkThermostat(settle=1, floor=1.0, ceiling=1.01)))
    settings = {"save_strategy": "steps", "save_steps": 3, "max_steps": 6}
    whole = tiny.trainer("whole", chain, **settings)
    log = tiny.train(whole)
    again = tiny.trainer("whole", chain, **settings)
    resumed = tiny.train(again, resume=tiny.folder / "whole" / "checkpoint-3")[-3:]
    for name in ("loss", "reward", "breadth/fork-thermostat/coefficient"):
        assert [row[name] for row in resumed] == pytest.approx([row[name] for row in log[3:]], abs=1e-6), name
    assert again.objective.state() == whole.objective.state()
    assert torch.allclose(weights(again), weights(whole), atol=1e-6)


def test_a_checkpoint_without_our_state_is_refused(tiny: Any) -> None:
    tiny.train(tiny.trainer("theirs", save_strategy="steps", save_steps=2, max_steps=2))
    with pytest.raises(BrokenFileError, match="no state of the chain"):
        tiny.train(tiny.trainer("ours", DAPO, max_steps=4), resume=tiny.folder / "theirs" / "checkpoint-2")


def test_evaluation_leaves_the_states_alone(tiny: Any) -> None:
    chain = DAPO.plus(ForkThermostat(settle=1))
    trainer = tiny.trainer(
        "eval", chain, options={"eval_dataset": tiny.questions().select(range(4))}, per_device_eval_batch_size=4
    )
    tiny.train(trainer)
    before = json.dumps(trainer.objective.state())
    numbers = trainer.evaluate()
    assert json.dumps(trainer.objective.state()) == before
    assert math.isfinite(numbers["eval_loss"])
    assert numbers["eval_entropy"] > 0


def test_credit_alone_keeps_trls_own_loss(tiny: Any) -> None:
    theirs, ours = tiny.trainer("theirs"), tiny.trainer("ours", Chain((LIKE_TRL,)))
    assert [row["loss"] for row in tiny.train(ours)] == pytest.approx(
        [row["loss"] for row in tiny.train(theirs)], abs=1e-6
    )
    assert "clip_ratio/region_mean" in ours.state.log_history[0]
    assert "breadth/group-advantage/flat" in ours.state.log_history[0]


def test_dropped_groups_leave_the_denominator(tiny: Any, told: Callable[..., Any]) -> None:
    trainer = tiny.trainer(
        "dropped", Chain((LIKE_TRL, FlatFilter(), ClippedPolicy())), options={"rollout_func": told(4)}, max_steps=3
    )
    seen: list[tuple[float, float]] = []
    plain = trainer._compute_loss

    def watched(model: Any, inputs: Any) -> Any:
        alive = inputs["completion_mask"].any(1)
        seen.append((float(alive.sum()), float(inputs["num_items_in_batch"])))
        assert float(inputs["num_items_in_batch"]) == float(inputs["completion_mask"].sum())
        return plain(model, inputs)

    trainer._compute_loss = watched
    log = tiny.train(trainer)
    dropped = [row["breadth/flat-filter/dropped"] for row in log]
    assert [alive for alive, _ in seen] == [8 * (1 - share) for share in dropped]
    assert max(dropped) > 0


def test_micro_batches_without_a_token_do_not_lower_the_logged_entropy(tiny: Any, told: Callable[..., Any]) -> None:
    logged = []
    for parts in (1, 16):
        settings = {"per_device_train_batch_size": 16 // parts, "gradient_accumulation_steps": parts, "max_steps": 1}
        trainer = tiny.trainer(
            "dropped", Chain((LIKE_TRL, FlatFilter(), ClippedPolicy())), options={"rollout_func": told(4)}, **settings
        )
        logged.append(tiny.train(trainer)[0])
    assert logged[0]["breadth/flat-filter/dropped"] == 0.5
    assert logged[1]["entropy"] == pytest.approx(logged[0]["entropy"], abs=0.01)  # a mean of means, as TRL's


def test_an_interrupted_training_starts_again_with_a_generation(tiny: Any, told: Callable[..., Any]) -> None:
    settings = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 4, "optim": "sgd", "max_steps": 2}
    whole, broken = (tiny.trainer("broken", SURVEYING, options={"rollout_func": told()}, **settings) for _ in range(2))
    tiny.train(whole)
    plain, seen = broken._compute_loss, []

    def failing(model: Any, inputs: Any) -> Any:
        seen.append(inputs)
        if len(seen) == 3:
            raise KeyboardInterrupt
        return plain(model, inputs)

    broken._compute_loss = failing
    with pytest.raises(KeyboardInterrupt):
        tiny.train(broken)
    assert broken._open
    broken.model.zero_grad()
    tiny.train(broken)
    assert torch.allclose(weights(broken), weights(whole), atol=1e-6)


def test_the_thermostat_holds_what_plain_training_loses(tiny: Any) -> None:
    chains = {
        "plain": DAPO.plus(ForkThermostat(dry_run=True)),
        "held": DAPO.plus(ForkThermostat(floor=0.8, proportional=0.5, integral=0.2, limit=2.0)),
    }
    ends = {}
    for name, chain in chains.items():
        trainer = tiny.trainer(name, chain, max_steps=60, per_device_train_batch_size=16, learning_rate=5e-3)
        log = tiny.train(trainer)
        start = log[-1]["breadth/fork-thermostat/start"]
        ends[name] = sum(row["breadth/fork-thermostat/entropy"] for row in log[-10:]) / 10 / start
        trail = trainer.objective.state()["states"]["fork-thermostat"]["trail"]
        raised = next(one for one in trail if "-> raising" in one["what"])
        assert ("not applied" in raised["what"]) == (name == "plain")
    assert ends["plain"] < 0.5
    assert ends["held"] > 0.7


def test_rollouts_go_to_the_run_folder_as_they_happen(tiny: Any, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    trainer = tiny.trainer("recorded", DAPO, options={"run": folder}, per_device_train_batch_size=16, max_steps=3)
    log = tiny.train(trainer)
    columns = "step, sample, reward, correct, advantage, tokens, entropy, logprobs, mask"
    found = Run.open(folder).query(f"select {columns} from rollouts order by step, sample").to_pylist()  # noqa: S608  # no input in it
    assert len(found) == 3 * 16
    for row in log:
        own = [one for one in found if one["step"] == row["step"]]
        entropies = [value for one in own for value, counts in zip(one["entropy"], one["mask"], strict=True) if counts]
        assert sum(entropies) / len(entropies) == pytest.approx(row["entropy"], abs=1e-5)
        assert sum(one["reward"] for one in own) / 16 == pytest.approx(row["reward"], abs=1e-6)
    assert all(len(one["entropy"]) == one["tokens"] for one in found)
    assert all(one["correct"] == (one["reward"] == 1) for one in found)


def test_a_generation_that_training_ends_in_is_written_too(tiny: Any, tmp_path: Path) -> None:
    trainer = tiny.trainer("ended", DAPO, options={"run": tmp_path / "run"}, steps_per_generation=2, max_steps=3)
    tiny.train(trainer)
    found = Run.open(tmp_path / "run").query(
        "select step, count(*) as n, count(entropy) as seen from rollouts group by 1 order by 1"
    )
    assert found.to_pylist() == [{"step": 1, "n": 16, "seen": 16}, {"step": 3, "n": 16, "seen": 8}]


def test_the_length_is_filled_in_also_in_an_objective(tiny: Any) -> None:
    trainer = tiny.trainer("objective", Objective(Chain(DAPO.mechanisms, Reduction("fixed-length"))), max_steps=1)
    assert trainer.objective.chain.reduction.length == 6
    assert tiny.train(trainer)


def test_planning_tokens_are_found_in_real_completions(tiny: Any, told: Callable[..., Any]) -> None:
    chain = Chain((LIKE_TRL, PlanningCredit(form="code"), ClippedPolicy()))
    options = {"rollout_func": told(), "grams": StrategicGrams(("what", "plus", "is", "so"))}
    sizes = []
    trainer = tiny.trainer(
        "plans", chain, options=options, per_device_train_batch_size=4, gradient_accumulation_steps=4, max_steps=1
    )
    plain = trainer._get_per_token_logps_and_entropies

    def watched(*args: Any, **settings: Any) -> Any:
        sizes.append(settings["batch_size"])
        return plain(*args, **settings)

    trainer._get_per_token_logps_and_entropies = watched
    log = tiny.train(trainer)
    assert log[0]["breadth/planning-credit/planning"] > 0.05
    assert sizes[0] == 4  # the generation's entropies are worked out a micro-batch at a time


def test_what_cannot_act_is_said_before_training(tiny: Any, caplog: pytest.LogCaptureFixture) -> None:
    chain = Chain((LIKE_TRL, ClippedPolicy(low=1.0, high=math.inf), KLCov(share=0.1)))
    with caplog.at_level(logging.WARNING, logger="breadth"):
        trainer = tiny.trainer("inert", chain)
    assert [verdict.mechanism for verdict in trainer.explain()] == ["kl-cov"]
    assert "strictly on-policy" in caplog.text
    assert tiny.trainer("active", chain, num_iterations=2).explain() == ()
    (verdict,) = tiny.trainer("too little", "kl_cov", num_iterations=2).explain()  # 0.002 of 48 tokens at most
    assert verdict.mechanism == "kl-cov"
    assert "strictly on-policy" not in verdict.reason


@pytest.mark.parametrize(
    ("objective", "changes", "told"),
    [
        (DAPO, {"epsilon_high": 0.28}, "ClippedPolicy(high=0.28)"),
        (DAPO, {"loss_type": "grpo"}, "sequence-mean"),
        (DAPO, {"entropy_coef": 0.01}, "EntropyBonus(coefficient=0.01)"),
        (DAPO, {"scale_rewards": "none"}, "GroupAdvantage(scale='none')"),
        (DAPO, {"beta": 0.1}, "Set beta to 0"),
        (DAPO.plus(ReferenceKL(0.04)), {}, "Set beta=0.04"),
        (
            DAPO,
            {"gradient_accumulation_steps": 4, "steps_per_generation": 2},
            "a multiple of gradient_accumulation_steps",
        ),
    ],
    ids=str,
)
def test_conflicting_settings_are_refused_with_the_translation(
    tiny: Any, objective: Any, changes: dict[str, Any], told: str
) -> None:
    with pytest.raises(MechanismError) as caught:
        tiny.trainer("refused", objective, **changes)
    assert told in str(caught.value)


def test_a_grade_that_nobody_gives_is_refused_at_attach(tiny: Any) -> None:
    def length(completions: list[str], **_: Any) -> list[float]:
        return [len(one) / 100 for one in completions]

    rewards = [tiny_reward, length]
    with pytest.raises(MechanismError, match=r"flat-filter reads credit\.correct"):
        tiny.trainer("ungraded", "dapo", rewards=rewards)
    assert tiny.train(tiny.trainer("graded", "dapo", rewards=rewards, options={"correct": "tiny_reward"}, max_steps=1))
    with pytest.raises(MechanismError, match="must be 1 for a correct answer and 0 for a wrong one; length gave"):
        tiny.train(tiny.trainer("misgraded", "dapo", rewards=rewards, options={"correct": "length"}, max_steps=1))


def test_every_reward_none_and_all_rewards_equal_train_nothing(tiny: Any) -> None:
    def unscorable(completions: list[str], **_: Any) -> list[float | None]:
        return [None] * len(completions)

    def flat(completions: list[str], **_: Any) -> list[float]:
        return [1.0] * len(completions)

    for reward in (unscorable, flat):
        trainer = tiny.trainer(reward.__name__, DAPO, rewards=reward, max_steps=2)
        start = weights(trainer).clone()
        tiny.train(trainer)
        assert torch.equal(weights(trainer), start)


def test_the_reference_policy_is_trls(tiny: Any) -> None:
    start = tiny.folder / "start"
    tiny.model().save_pretrained(start)
    tiny.model = lambda: str(start)  # with beta, TRL loads the reference policy from where the model came from
    theirs = tiny.trainer("theirs", beta=0.1, num_iterations=2, use_bias_correction_kl=False)
    ours = tiny.trainer(
        "ours", DAPO.plus(ReferenceKL(0.1, "k3")), beta=0.1, num_iterations=2, use_bias_correction_kl=False
    )
    reference, log = tiny.train(theirs), tiny.train(ours)
    assert [row["breadth/reference-kl/divergence"] for row in log] == pytest.approx(
        [row["kl"] for row in reference], abs=1e-5
    )
    assert torch.allclose(weights(ours), weights(theirs), atol=2e-6)


def test_an_unknown_recipe_or_file_is_refused(tiny: Any) -> None:
    with pytest.raises(BreadthError, match="dapo"):
        tiny.trainer("unknown", "dapoo")


def tiny_reward(completions: list[str], **_: Any) -> list[float]:
    return [1.0 if "2" in completion.split() else 0.0 for completion in completions]


@dataclass(frozen=True)
class EntropyShift(Mechanism[Batch, None]):
    """Measure how far the entropies have moved since the completions were written."""

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"entropy", "old_entropy"})

    def apply(self, batch: Batch, state: None, selection: Selection | None) -> Effect[Batch]:
        moved = (not_none(batch.entropy).detach() - not_none(batch.old_entropy)).abs()
        return Effect(batch, stats={"shift": Mean(masked_values(moved, batch.mask).sum(), batch.mask.sum())})


def test_the_entropies_of_the_old_policy_are_kept_until_the_next_generation(
    tiny: Any, told: Callable[..., Any]
) -> None:
    chain = Chain((LIKE_TRL, EntropyShift(), ClippedPolicy()))
    options = {"rollout_func": told()}
    trainer = tiny.trainer("kept", chain, options=options, num_iterations=2, max_steps=4, learning_rate=0.05)
    tiny.train(trainer)
    rows = trainer.state.log_history
    shifts = [value for row in rows for name, value in row.items() if name.endswith("/shift")]
    assert len(shifts) == 4
    fresh, used = shifts[0::2], shifts[1::2]
    assert max(fresh) < 1e-5, "the policy that trains is the one that wrote"
    assert min(used) > 1e-4, "after one update it is not"
