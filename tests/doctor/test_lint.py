"""Several points become one finding: the gravest decides, each action is said once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from breadth.doctor.evidence.record import Evidence
from breadth.doctor.finding import Prescription
from breadth.doctor.lint import (
    Issue,
    find_contradictions,
    find_no_op_settings,
    issue_facts,
    issue_headline,
    issue_prescriptions,
    issue_severity,
)
from breadth.doctor.trainer_config import Conflict, TrainerConfig, UnusedSetting, dialect_of
from breadth.inference.halting import LowConfidence
from breadth.inference.policy import Policy
from breadth.inference.records import Sampling
from breadth.report.sections import Severity
from breadth.runs.schema import EntropyKind

ONE, TWO = Prescription("Do one", "Because."), Prescription("Do two", "Because.")
POINTS = [
    Issue("a=1", "idle", False, TWO),
    Issue("b=2", "off", True, ONE),
    Issue("c=3", "off", True, ONE),
    Issue("d=4", "x", False),
]


def test_the_gravest_decides_and_is_named_first() -> None:
    assert issue_severity(POINTS) is Severity.WARNING
    assert issue_severity([POINTS[0]]) is Severity.NOTE
    assert (
        issue_headline(POINTS, "setting", "does nothing", "do nothing")
        == "4 settings do nothing: b=2; c=3; a=1 and 1 more."
    )
    assert issue_headline(POINTS[:1], "setting", "does nothing", "do nothing") == "1 setting does nothing: a=1."


def test_proof_and_remedies() -> None:
    assert [(fact.name, fact.value) for fact in issue_facts(POINTS[:2])] == [("a=1", "idle"), ("b=2", "off")]
    assert issue_prescriptions(POINTS) == (ONE, TWO)


def user_config(**values: Any) -> TrainerConfig:
    """Return a configuration whose settings the user all set."""
    return TrainerConfig(**values, user_settings={name: f"{name}={value}" for name, value in values.items()})


def no_op_points(settings: TrainerConfig, **more: Any) -> list[Issue]:
    return list(find_no_op_settings(Evidence("config", config=settings, **more)))


CLIP = {"clip_low": 0.2, "clip_high": 0.28, "clips": True}


@pytest.mark.parametrize(
    ("settings", "grave"),
    [
        ({"updates": 1, **CLIP}, True),
        ({"updates": 0.25, **CLIP}, True),
        ({"updates": 1, **CLIP, "clips": None}, True),
        ({"updates": 4, **CLIP}, None),
        ({**CLIP}, None),  # how many updates is not known
        ({"updates": 1, "clip_low": 0.2, "clip_high": 0.2}, None),  # a plain clip is no remedy
        ({"updates": 1, **CLIP, "clips": False}, None),  # told by the trainer's own rules
        ({"updates": 1, "covariance": "kl-cov", "loss": "kl_cov"}, True),
        ({"updates": 1, "covariance": "", "loss": "kl_cov"}, True),  # our chain
        ({"updates": 1, "covariance": "clip-cov", "loss": "clip_cov"}, None),  # acts on-policy
        ({"updates": 4, "covariance": "kl-cov", "loss": "kl_cov"}, None),
        ({"updates": 1, "loss": "gppo"}, True),
        ({"updates": 1, "loss": "cispo", "clip_high": 4.0}, False),
        ({"updates": 1, "loss": "ppo", "sequence_ratio": True}, False),
        ({"updates": 2, "loss": "gspo", "sequence_ratio": True}, None),
        ({"updates": 1, "dual_clip": 3.0}, False),
        ({"updates": 1, "loss": "vanilla"}, None),
    ],
    ids=str,
)
def test_what_works_on_the_ratio_needs_several_updates(settings: dict[str, Any], grave: bool | None) -> None:
    found = no_op_points(user_config(**settings))
    assert [one.serious for one in found] == ([] if grave is None else [grave])
    for one in found:
        assert one.prescription is not None
        assert [change.setting for change in one.prescription.changes] == ["updates"]


def test_defaults_of_the_trainer_are_nobody_s_remedy() -> None:
    assert no_op_points(TrainerConfig(updates=1, clip_low=0.2, clip_high=0.28, dual_clip=3.0, loss="cispo")) == []


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"covariance": "clip-cov", "micro_batch": 1, "estimator": "grpo"}, "no token is selected"),
        ({"covariance": "kl-cov", "micro_batch": 1, "estimator": "rloo"}, "rounding decides"),
        ({"covariance": "clip-cov", "micro_batch": 2, "estimator": "grpo"}, None),
        (
            {"covariance": "clip-cov", "micro_batch": 1, "estimator": "gae"},
            None,
        ),  # a critic's advantages differ within a response
        ({"covariance": "clip-cov", "micro_batch": 1}, None),
        ({"covariance": "", "micro_batch": 1, "estimator": "grpo"}, None),
        ({"covariance": "clip-cov", "estimator": "grpo"}, None),
    ],
    ids=str,
)
def test_one_response_alone_has_no_covariance(settings: dict[str, Any], said: str | None) -> None:
    found = no_op_points(user_config(updates=4, **settings))
    assert len(found) == (said is not None)
    assert all(str(said) in one.why for one in found)


def test_one_response_alone_has_no_covariance_in_verl_either() -> None:
    """On verl's own loss: nothing is selected for one response with one advantage, something for two with two."""
    torch = pytest.importorskip("torch")
    algorithms = pytest.importorskip("verl.trainer.ppo.core_algos")
    from verl.workers.config import FSDPActorConfig

    actor = FSDPActorConfig(strategy="fsdp", rollout_n=4, ppo_micro_batch_size_per_gpu=1)
    logprobs = torch.linspace(-3, -0.1, 40).reshape(2, 20)

    def cut(rows: slice) -> float:
        advantages = torch.tensor([[-2.0], [2.0]]).expand(2, 20)[rows]
        mine = logprobs[rows]
        arguments = {
            "old_log_prob": mine,
            "log_prob": mine,
            "advantages": advantages,
            "response_mask": torch.ones_like(mine),
        }
        _, metrics = algorithms.compute_policy_loss_clip_cov(**arguments, loss_agg_mode="token-mean", config=actor)
        return float(metrics["actor/pg_clipfrac"])

    assert cut(slice(0, 1)) == 0
    assert cut(slice(0, 2)) > 0


def test_kl_cov_has_no_gradient_of_its_own_on_policy_in_verl_either() -> None:
    """KL-Cov's gradient is the plain one's where the policy has not moved, and another where it has."""
    torch = pytest.importorskip("torch")
    algorithms = pytest.importorskip("verl.trainer.ppo.core_algos")
    from verl.workers.config import FSDPActorConfig

    actor = FSDPActorConfig(
        strategy="fsdp", rollout_n=4, ppo_micro_batch_size_per_gpu=2, clip_ratio_low=1.0, clip_ratio_high=1e9
    )
    old = torch.linspace(-3, -0.1, 40).reshape(2, 20)

    def gradient(loss: str, drift: float) -> Any:
        mine = (old + drift).requires_grad_()
        advantages = torch.tensor([[-2.0], [2.0]]).expand(2, 20)
        arguments = {
            "old_log_prob": old,
            "log_prob": mine,
            "advantages": advantages,
            "response_mask": torch.ones_like(old),
        }
        value, _ = algorithms.get_policy_loss_fn(loss)(**arguments, loss_agg_mode="token-mean", config=actor)
        return torch.autograd.grad(value, mine)[0]

    assert torch.equal(gradient("kl_cov", 0.0), gradient("gpg", 0.0))
    assert not torch.allclose(gradient("kl_cov", 0.01), gradient("gpg", 0.01) * float(torch.exp(torch.tensor(0.01))))


def test_a_share_of_less_than_one_token() -> None:
    small = {"covariance": "kl-cov", "covariance_share": 0.0002, "micro_batch": 4, "estimator": "grpo", "updates": 4}
    (found,) = no_op_points(user_config(**small, max_completion_length=1000))  # 0.0002 * 4000 = 0.8
    assert "0.0002 of at most 4,000 tokens" in found.why
    assert not found.serious
    assert no_op_points(user_config(**small, max_completion_length=1250)) == []  # 0.0002 * 5000 = 1
    assert no_op_points(user_config(**small)) == []


def made(make: Any, values: Any, target: float, **more: Any) -> list[Issue]:
    settings = user_config(entropy_adaptive=True, entropy_target=target, **more)
    return list(find_no_op_settings(make(entropy=values, config=settings)))


def test_an_entropy_target_outside_of_all_that_was_seen(make: Any) -> None:
    entropy = np.linspace(0.8, 0.3, 40)
    assert made(make, entropy, 0.5) == []
    (below,) = made(make, entropy, 0.2)
    assert not below.serious
    assert "not been below 0.3 nats in 40 steps" in below.why
    (above,) = made(make, entropy, 2.0)
    assert above.serious
    assert "never been above 0.8 nats in 40 steps" in above.why
    assert above.prescription is not None
    assert above.prescription.changes[1].value == 0.56  # 70 % of 0.8


def test_an_entropy_target_is_judged_on_like_and_enough_only(make: Any) -> None:
    entropy = np.linspace(0.8, 0.3, 40)
    assert made(make, entropy[:7], 2.0) == []
    assert made(make, entropy, 2.0, entropy_share=0.2) == []  # the target is for the forking tokens, the log for all
    off = make(entropy=entropy, config=user_config(entropy_adaptive=False, entropy_target=2.0))
    assert list(find_no_op_settings(off)) == []
    summed = make(
        entropy=entropy,
        config=user_config(entropy_adaptive=True, entropy_target=2.0),
        kind=EntropyKind("exact", 1.0, "loss-mode", "response"),
    )
    assert list(find_no_op_settings(summed)) == []
    assert (
        list(find_no_op_settings(make(reward=entropy, config=user_config(entropy_adaptive=True, entropy_target=2.0))))
        == []
    )


def test_what_a_switch_turns_off() -> None:
    price = UnusedSetting("kl=0.01", "use_kl_loss is off unless it is set", intended=True)
    settings = TrainerConfig(kl=0.0, kl_given=0.01, unused=(price,), user_settings={"kl_given": "kl=0.01"})
    (found,) = no_op_points(settings)
    assert found.serious
    assert found.prescription is not None
    assert (found.prescription.changes[0].setting, found.prescription.changes[0].value) == ("kl", 0.01)
    left = TrainerConfig(
        kl_given=0.01,
        unused=(UnusedSetting("kl=0.01", "use_kl_loss is off", intended=False),),
        user_settings={"kl_given": "kl=0.01"},
    )
    (found,) = no_op_points(left)
    assert not found.serious
    assert found.prescription is None
    (found,) = no_op_points(
        TrainerConfig(
            length_penalty=False,
            unused=(UnusedSetting("overlong.enable=True", "naive does not read it", intended=True),),
        )
    )
    assert found.prescription is not None
    assert found.prescription.changes[0].setting == "length_penalty"


@pytest.mark.parametrize(
    ("settings", "count"),
    [
        ({"dynamic_sampling": True, "shaped_reward": True, "filter_metric": "reward"}, 1),
        ({"dynamic_sampling": True, "shaped_reward": True, "filter_metric": "seq_reward"}, 1),
        ({"dynamic_sampling": True, "shaped_reward": True, "filter_metric": "acc"}, 0),
        ({"dynamic_sampling": True, "shaped_reward": True}, 0),
        ({"dynamic_sampling": True, "shaped_reward": None, "filter_metric": "reward"}, 0),
        ({"dynamic_sampling": False, "shaped_reward": True, "filter_metric": "reward"}, 0),
        ({"entropy_share": 1.0}, 1),
        ({"entropy_share": 0.2}, 0),
    ],
    ids=str,
)
def test_filters_that_keep_everything(settings: dict[str, Any], count: int) -> None:
    assert len(no_op_points(user_config(**settings))) == count
    assert no_op_points(TrainerConfig(entropy_share=1.0)) == []


@pytest.mark.parametrize(
    ("server", "count"),
    [
        ({"speculative": "yes", "thinking_cap": "unknown"}, 1),
        ({"speculative": "yes", "thinking_cap": "no"}, 1),
        ({"speculative": "yes", "thinking_cap": "yes"}, 0),  # it was seen to keep to the cap
        ({"speculative": "no", "thinking_cap": "unknown"}, 0),
        ({}, 0),
        (None, 0),
    ],
    ids=str,
)
def test_a_cap_on_thinking_under_speculative_decoding(server: dict[str, Any] | None, count: int) -> None:
    found = no_op_points(TrainerConfig(), server=server, policy=Policy(sampling=Sampling(thinking_tokens=512)))
    assert len(found) == count
    assert no_op_points(TrainerConfig(), server=server, policy=Policy()) == []
    assert no_op_points(TrainerConfig(), server=server) == []


@pytest.mark.parametrize(
    ("most", "wanted", "count"), [(5, 20, 1), (20, 20, 0), (0, 5, 1), (0, 0, 0), (None, 20, 0), ("5", 20, 0)]
)
def test_more_alternatives_than_the_server_sends(most: Any, wanted: int, count: int) -> None:
    found = no_op_points(
        TrainerConfig(), server={"top_logprobs": most}, policy=Policy(sampling=Sampling(top_logprobs=wanted))
    )
    assert len(found) == count
    assert all(one.serious for one in found)


def test_a_halt_rule_s_alternatives_count_too() -> None:
    rule = LowConfidence(threshold=1.0)
    assert rule.top_logprobs > 1
    assert len(no_op_points(TrainerConfig(), server={"top_logprobs": 1}, policy=Policy(halt=rule))) == 1


def conflict_points(**values: Any) -> list[Issue]:
    theirs = {name: f"{name}={value}" for name, value in values.items()}
    return list(find_contradictions(Evidence("config", config=TrainerConfig(**values, user_settings=theirs))))


@pytest.mark.parametrize(
    ("settings", "grave"),
    [
        ({"group": 1, "estimator": "grpo"}, True),
        ({"group": 1, "estimator": "group_norm"}, True),
        ({"group": 1, "estimator": "gae"}, None),
        ({"group": 2, "estimator": "grpo"}, None),
        ({"group": 1}, None),
        ({"clip_low": 0.28, "clip_high": 0.2}, True),
        ({"clip_low": 0.2, "clip_high": 0.2}, None),
        ({"clip_low": 0.2, "clip_high": 0.28}, None),
        ({"clip_low": 0.28, "clip_high": 0.2, "clips": False}, None),
        ({"dual_clip": 1.1, "clip_high": 0.28, "clips": True}, True),
        ({"dual_clip": 1.28, "clip_high": 0.28, "clips": True}, True),
        ({"dual_clip": 3.0, "clip_high": 0.28, "clips": True}, None),
        ({"dual_clip": 1.1, "clip_high": 0.28, "clips": True, "loss": "dppo_tv"}, None),
        ({"dual_clip": 1.1, "clip_high": 0.28, "clips": False}, None),
        ({"temperature": 0.0, "group": 8}, True),
        ({"temperature": 0.7, "group": 8}, None),  # log-probs are taken at the temperature of the rollouts
        ({"max_completion_length": 4096, "max_prompt_length": 1024, "context": 4096}, True),
        ({"max_completion_length": 3072, "max_prompt_length": 1024, "context": 4096}, None),
        ({"max_completion_length": 4096, "context": 4096}, None),  # how long prompts are is not known
        ({"max_completion_length": 4097, "context": 4096}, True),
        ({"mask_truncated": True, "length_penalty": True}, False),
        ({"mask_truncated": True, "length_penalty": None}, None),
        ({"mask_truncated": False, "length_penalty": True}, None),
        ({"top_p": 0.95, "correct_mismatch": False}, False),
        ({"top_p": 0.95, "correct_mismatch": True}, None),
        ({"top_p": 0.95, "engine": "hf"}, False),  # no second engine, and nothing to weigh with
        ({"top_p": 0.95, "engine": "vllm"}, None),  # whether it is corrected is not known
        ({"top_p": 1.0, "top_k": 0, "repetition_penalty": 1.0, "correct_mismatch": False}, None),
        ({"top_p": 95.0, "correct_mismatch": False}, None),  # a matter of units
        ({"top_k": 50, "correct_mismatch": False}, False),
        ({"min_p": 0.05, "correct_mismatch": False}, False),
        ({"repetition_penalty": 1.1, "correct_mismatch": False}, False),
    ],
    ids=str,
)
def test_rules(settings: dict[str, Any], grave: bool | None) -> None:
    found = conflict_points(**settings)
    assert [one.serious for one in found] == ([] if grave is None else [grave])


def test_a_trainer_that_cuts_the_distribution_in_the_loss_too_is_consistent() -> None:
    config = TrainerConfig(top_p=0.9, correct_mismatch=False, user_settings={"top_p": "policy.generation.top_p=0.9"})
    assert list(find_contradictions(Evidence("config", config=config, dialect=dialect_of("nemo-rl")))) == []
    assert len(list(find_contradictions(Evidence("config", config=config, dialect=dialect_of("verl"))))) == 1


def test_defaults_of_the_trainer_contradict_nobody() -> None:
    config = TrainerConfig(
        group=1,
        estimator="grpo",
        clip_low=0.3,
        clip_high=0.2,
        dual_clip=1.1,
        temperature=0.0,
        top_p=0.9,
        correct_mismatch=False,
    )
    assert list(find_contradictions(Evidence("config", config=config))) == []


def test_a_group_left_at_one_beside_an_estimator_that_was_chosen() -> None:
    config = TrainerConfig(group=1, estimator="grpo", user_settings={"estimator": "algorithm.adv_estimator=grpo"})
    (found,) = find_contradictions(Evidence("config", config=config))
    assert found.setting == "algorithm.adv_estimator=grpo; group left at its default"


def test_all_bent_samplings_are_one_point_with_one_remedy() -> None:
    (found,) = conflict_points(top_p=0.9, top_k=50, repetition_penalty=1.1, correct_mismatch=False)
    assert found.prescription is not None
    assert {change.setting: change.value for change in found.prescription.changes} == {
        "top_p": 1.0,
        "top_k": 0,
        "repetition_penalty": 1.0,
    }


@pytest.mark.parametrize(("weight", "grave"), [("refused", True), ("wrong", True), ("slight", False)])
def test_what_the_trainer_s_own_rules_say(weight: Any, grave: bool) -> None:
    (found,) = find_contradictions(
        Evidence("config", config=TrainerConfig(conflicts=(Conflict("a=1, b=2", "they differ", weight),)))
    )
    assert found.serious == grave
    assert ("refuses to start" in found.why) == (weight == "refused")


def test_a_run_that_started_was_not_refused(make: Any) -> None:
    evidence = make(
        reward=np.ones(20), config=TrainerConfig(conflicts=(Conflict("a=1, b=2", "they differ", "refused"),))
    )
    (found,) = find_contradictions(evidence)
    assert not found.serious
    assert found.why == "they differ; the run started anyway"


@pytest.mark.parametrize(
    ("model", "cap", "more", "found"),
    [
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", 1024, {}, True),
        ("Qwen/QwQ-32B", 4096, {}, True),
        ("Qwen/QwQ-32B", 4097, {}, False),
        ("Qwen/Qwen3-4B-Thinking-2507", 2048, {"thinking": False}, True),  # it has no other mode
        ("Qwen/Qwen3-8B", 2048, {}, True),
        ("/models/Qwen3-30B-A3B-FP8/", 2048, {}, True),
        ("unsloth/Qwen3-4B-unsloth-bnb-4bit", 2048, {}, True),
        ("Qwen/Qwen3-8B", 2048, {"thinking": False}, False),
        ("Qwen/Qwen3-8B-Base", 2048, {}, False),
        ("Qwen/Qwen3-4B-Instruct-2507", 2048, {}, False),
        ("Qwen/Qwen3-Coder-30B-A3B-Instruct", 2048, {}, False),
        ("Qwen/Qwen2.5-Math-7B", 2048, {}, False),
        ("meta-llama/Llama-3.1-8B-Instruct", 256, {}, False),
    ],
)
def test_a_short_cap_for_a_model_that_thinks_long(model: str, cap: int, more: dict[str, Any], found: bool) -> None:
    points = conflict_points(model=model, max_completion_length=cap, **more)
    assert [point.serious for point in points] == [False] * found
    for point in points:
        assert point.prescription is not None
        assert [(change.setting, change.value) for change in point.prescription.changes] == [
            ("max_completion_length", 8192)
        ]
    assert (
        list(find_contradictions(Evidence("config", config=TrainerConfig(model=model, max_completion_length=8)))) == []
    )


def test_a_loss_whose_name_means_another_method() -> None:
    (point,) = conflict_points(loss="dro")
    assert not point.serious
    assert "Direct Reward Optimization" in point.why
    assert list(find_contradictions(Evidence("config", config=TrainerConfig(loss="dro")))) == []


def test_a_lower_bound_of_cispo_may_be_as_wide_as_one_likes() -> None:
    assert conflict_points(clip_low=10.0, clip_high=0.2, clips=True, loss="cispo") == []


def test_refusal_names_the_first_version_that_refuses() -> None:
    refused = Conflict("a=1", "a excludes b", consequence="refused", since="TRL 0.18")
    (point,) = find_contradictions(Evidence("config", config=TrainerConfig(conflicts=(refused,))))
    assert point.why == "a excludes b; TRL 0.18 and later refuse to start"
    unknown = Conflict("a=1", "a excludes b", consequence="refused")
    (point,) = find_contradictions(Evidence("config", config=TrainerConfig(conflicts=(unknown,))))
    assert point.why == "a excludes b; the trainer refuses to start"
