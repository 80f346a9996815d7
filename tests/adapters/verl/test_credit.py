"""The credit stage on verl's batches: sessions, groups, the fields of the record, and what is written back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch

pytest.importorskip("verl", reason="verl is not installed")

from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from breadth.adapters.verl.credit import CreditStage, Sessions
from breadth.base.errors import MechanismError
from breadth.runs.writer import problem_id
from breadth.training.chain import Chain
from breadth.training.credit.flat_filter import FlatFilter
from breadth.training.credit.group_advantage import GroupAdvantage
from breadth.training.mechanism import Effect, Mechanism, Selection
from breadth.training.objective import Objective
from breadth.training.records import Rollouts

KEYS = ["a_0_0", "b_0_0", "a_1_0", "b_1_0", "a_2_0", "b_2_0"]
REWARDS = [1.0, 1.0, 0.0, 1.0, 0.0, 1.0]
WORDS = {1: "so", 2: r"\boxed{42}", 3: r"\boxed{7}", 4: "what is it", 5: "and that"}


@dataclass(frozen=True)
class Witness(Mechanism[Rollouts, None]):
    """Keeps the record it was given."""

    seen: list[Rollouts] = field(default_factory=list)
    token_advantages: bool = False
    fields: frozenset[str] = frozenset()

    @property
    def needs(self) -> frozenset[str]:
        return self.fields

    def apply(self, batch: Rollouts, state: None, selection: Selection | None) -> Effect[Rollouts]:
        self.seen.append(batch)
        return Effect(
            replace(batch, advantages=batch.mask.float()) if self.token_advantages and batch.mask is not None else batch
        )


class Reader:
    """Reads word numbers."""

    def decode(self, ids: Any, skip_special_tokens: bool) -> str:
        return " ".join(WORDS[int(one)] for one in ids)


def batch_of(
    keys: Sequence[str] = KEYS, rewards: Sequence[float] = REWARDS, advantages: float = 0.25, **extra: Any
) -> Any:
    rows = []
    for row, reward in enumerate(rewards):
        length = 2 + row % 3
        scores = torch.zeros(length)
        scores[-1] = reward
        mask = torch.ones(length, dtype=torch.int64)
        mask[0] = row % 2
        one = {
            "response_mask": mask,
            "rm_scores": scores,
            "advantages": torch.full((length,), advantages),
            "entropy": torch.full((length,), row + 0.5),
        }
        one |= {
            "responses": torch.tensor([1, 2 + row % 2, 5][:length] + [1] * (length - 3)),
            "prompts": torch.tensor([4, 1 if keys[row][0] == "a" else 5]),
        }
        rows.append(
            one
            | {"extra_fields": {"reward_extra_info": {"acc": reward} if row != 4 else {}}}
            | {name: values[row] for name, values in extra.items()}
        )
    return list_of_dict_to_tensordict(rows)


def stage(*mechanisms: Any, **options: Any) -> CreditStage:
    return CreditStage(Objective(Chain(mechanisms)), **options)


def padded(nested: Any) -> torch.Tensor:
    return nested.to_padded_tensor(0.0)


TAGS: list[dict[str, Any]] = [{} for _ in KEYS]


def test_group_advantages_are_verls_grpo() -> None:
    rewards = [1.0, 0.3, 0.0, 0.9, 0.5, -1.0]
    data = batch_of(rewards=rewards)
    written, metrics = stage(GroupAdvantage()).compute_advantages(data, KEYS, TAGS)
    mask = padded(data["response_mask"])
    theirs, _ = compute_grpo_outcome_advantage(padded(data["rm_scores"]), mask, index=[key[0] for key in KEYS])
    torch.testing.assert_close(padded(written["advantages"]), theirs, atol=1e-6, rtol=1e-6)
    assert metrics["breadth/group-advantage/flat"] == 0.0
    assert written["breadth_row"].tolist() == list(range(6))
    assert set(written) == {"advantages", "breadth_row"}


def test_without_an_estimator_verls_advantages_stay() -> None:
    witness = Witness()
    written, _ = stage(witness).compute_advantages(batch_of(advantages=0.7), KEYS, TAGS)
    assert witness.seen[0].advantages is not None
    assert witness.seen[0].advantages.tolist() == pytest.approx([0.7] * 6)
    for row, values in enumerate(written["advantages"].unbind()):
        assert values.tolist() == pytest.approx([0.7 * (row % 2), *[0.7] * (1 + row % 3)])


def test_only_the_last_output_of_a_session_is_scored_and_filling_gets_nothing() -> None:
    keys = ["a_0_0", "a_0_1", "a_1_0", "pad_0_0", "b_0_1", "b_0_0"]
    tags = [{}, {}, {}, {"is_padding": True}, {}, {}]
    sessions = Sessions.from_keys(keys, tags)
    assert (sessions.finals, sessions.firsts, sessions.groups, sessions.places) == (
        [1, 2, 4],
        [0, 2, 5],
        [0, 0, 1],
        [0, 0, 1, -1, 2, 2],
    )
    written, _ = stage(GroupAdvantage(scale="none")).compute_advantages(
        batch_of(keys, [9.0, 1.0, 0.0, 5.0, 1.0, 9.0]), keys, tags
    )
    rows = [values[-1].item() for values in written["advantages"].unbind()]
    assert rows == pytest.approx([0.5, 0.5, -0.5, 0.0, 0.0, 0.0])


def test_a_uid_may_hold_underscores() -> None:
    assert Sessions.from_keys(["x_y_3_0", "x_y_4_0", "x_z_0_0"], [{}, {}, {}]).groups == [0, 0, 1]


def test_advantages_by_token_need_one_output_a_session() -> None:
    chain = stage(Witness(token_advantages=True))
    written, _ = chain.compute_advantages(batch_of(), KEYS, TAGS)
    assert [values.tolist() for values in written["advantages"].unbind()][:2] == [[0.0, 1.0], [1.0, 1.0, 1.0]]
    with pytest.raises(MechanismError, match="several outputs for one session"):
        chain.compute_advantages(batch_of(["a_0_0", "a_0_1", *KEYS[2:]]), ["a_0_0", "a_0_1", *KEYS[2:]], TAGS)


def test_a_dropped_rollout_leaves_the_loss_and_its_denominator() -> None:
    data = batch_of()
    written, _ = stage(GroupAdvantage(), FlatFilter(on="advantage")).compute_advantages(data, KEYS, TAGS)
    kept = [bool(mask.any()) for mask in written["response_mask"].unbind()]
    assert kept == [True, False, True, False, True, False], "the rewards of group b are all equal"
    assert [mask.tolist() for mask in written["loss_mask"].unbind()] == [
        mask.tolist() for mask in written["response_mask"].unbind()
    ]
    assert written["response_mask"].dtype == data["response_mask"].dtype
    assert [len(mask) for mask in written["response_mask"].unbind()] == [
        len(mask) for mask in data["response_mask"].unbind()
    ]


def test_a_rollout_without_a_reward_gets_no_advantage_and_no_say() -> None:
    rewards = [1.0, 1.0, float("nan"), 0.0, 0.0, 0.5]
    written, _ = stage(GroupAdvantage(scale="none")).compute_advantages(
        batch_of(rewards=rewards, advantages=float("nan")), KEYS, TAGS
    )
    assert [values[-1].item() for values in written["advantages"].unbind()] == pytest.approx(
        [0.5, 0.5, 0.0, -0.5, -0.5, 0.0]
    )


def test_responses_of_one_length_may_come_unnested() -> None:
    rows = [0, 3]
    data = batch_of(["a_0_0"] * 6)
    data = list_of_dict_to_tensordict(
        [{name: data[name].unbind()[row] for name in ("response_mask", "rm_scores", "advantages")} for row in rows]
    )
    assert not data["response_mask"].is_nested
    written, _ = stage(GroupAdvantage(scale="none")).compute_advantages(data, ["a_0_0", "a_1_0"], TAGS[:2])
    assert [values.tolist() for values in written["advantages"].unbind()] == [[0.0, 0.0], [0.0, 0.0]]


def test_rewards_with_verls_kl_penalty_are_used() -> None:
    data = batch_of()
    data["token_level_rewards"] = torch.nested.as_nested_tensor(
        [torch.full((2 + row % 3,), float(row)) for row in range(6)], layout=torch.jagged
    )
    witness = Witness()
    stage(witness).compute_advantages(data, KEYS, TAGS)
    assert witness.seen[0].rewards.tolist() == [0.0, 3.0, 8.0, 6.0, 12.0, 20.0]


def test_only_what_the_chain_needs_is_fetched_and_all_of_it_can_be_told() -> None:
    everything = frozenset({"mask", "entropy", "correct", "problems", "outcomes", "texts", "truncated"})
    witness = Witness(fields=everything)
    chain = stage(witness, tokenizer=Reader(), max_response_length=4)
    assert stage(Witness()).fields == [
        "response_mask",
        "rm_scores",
        "token_level_rewards",
        "advantages",
        "extra_fields",
    ]
    assert set(chain.fields) == {*stage(Witness()).fields, "entropy", "responses", "prompts"}
    chain.compute_advantages(batch_of(), KEYS, TAGS)
    seen = witness.seen[0]
    assert seen.texts is not None
    assert seen.texts[:2] == [r"so \boxed{42}", r"so \boxed{7} and that"]
    assert seen.outcomes == ["42", "7", "42", "7", "42", "7"]
    assert seen.problems == [problem_id(text) for text in ["what is it so", "what is it and that"] * 3]
    assert seen.correct is not None
    assert seen.truncated is not None
    assert seen.entropy is not None
    assert torch.equal(seen.correct.isnan(), torch.tensor([False, False, False, False, True, False]))
    assert seen.truncated.tolist() == [False, False, True, False, False, True]
    assert seen.entropy[:, 0].tolist() == [0.5, 1.5, 2.5, 3.5, 4.5, 5.5]
    assert seen.lengths.tolist() == [1, 3, 3, 2, 2, 4]


def test_the_accuracy_is_told_wherever_it_is_reported() -> None:
    told, untold = Witness(), Witness()
    stage(told).compute_advantages(batch_of(), KEYS, TAGS)
    stage(untold).compute_advantages(batch_of(extra_fields=[{}] * 6), KEYS, TAGS)
    assert told.seen[0].correct is not None
    assert told.seen[0].correct.nan_to_num(-1).tolist() == [1.0, 1.0, 0.0, 1.0, -1.0, 1.0]
    assert untold.seen[0].correct is None


def test_a_reward_function_without_accuracy_is_told_what_to_return() -> None:
    data = batch_of(extra_fields=[{}] * 6)
    with pytest.raises(MechanismError, match="reports no accuracy") as caught:
        stage(Witness(fields=frozenset({"correct"}))).compute_advantages(data, KEYS, TAGS)
    assert "'acc'" in caught.value.remedy
