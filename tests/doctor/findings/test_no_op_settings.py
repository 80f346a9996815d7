"""One finding lists everything that does nothing; a warning where it is relied on, a note where it is left over."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from breadth.adapters.trl.config import SETTINGS as TRL
from breadth.adapters.verl.config import SETTINGS as VERL
from breadth.doctor.diagnosis import run_check
from breadth.doctor.evidence.record import Evidence
from breadth.doctor.finding import CannotTell, Excluded, Finding
from breadth.doctor.findings.no_op_settings import FINDING, find_no_op_settings
from breadth.doctor.lint import (
    Issue,
)
from breadth.doctor.trainer_config import TrainerConfig, UnusedSetting
from breadth.inference.halting import LowConfidence
from breadth.inference.policy import Policy
from breadth.inference.records import Sampling
from breadth.report.sections import Severity
from breadth.runs.schema import EntropyKind
from breadth.testing.findings import check_finding, check_outcome

NAME = "no-op-settings"


def trl(**settings: Any) -> Evidence:
    return Evidence("config", config=TRL.translate({"num_generations": 8, **settings}), dialect=TRL)


def test_it_keeps_the_contract() -> None:
    check_finding(FINDING, NAME)


def test_clip_higher_on_policy_is_a_warning_with_the_setting_that_lets_it_act() -> None:
    found = FINDING.check(trl(epsilon_high=0.28, gradient_accumulation_steps=8))
    assert isinstance(found, Finding)
    check_outcome(found, NAME)
    assert found.severity is Severity.WARNING
    assert found.confidence == "certain"
    assert found.headline == "1 setting has no effect here: epsilon_high=0.28."
    assert [(fact.name, fact.value) for fact in found.evidence][-1] == ("updates per generation", 1.0)
    assert TRL.patch(found.prescriptions[0].changes, trl(gradient_accumulation_steps=8).config) == (
        "GRPOConfig(steps_per_generation=32)",
    )


def test_the_patch_it_prints_makes_it_go() -> None:
    settings = {"num_generations": 8, "epsilon_high": 0.28, "gradient_accumulation_steps": 8}
    assert isinstance(FINDING.check(Evidence("config", config=TRL.translate(settings))), Finding)
    assert isinstance(
        FINDING.check(Evidence("config", config=TRL.translate({**settings, "steps_per_generation": 32}))), Excluded
    )


def test_a_left_over_is_a_note() -> None:
    actor = "actor_rollout_ref.actor"
    left = VERL.translate({f"{actor}.kl_loss_coef": 0.001, f"{actor}.use_kl_loss": False})
    found = FINDING.check(Evidence("config", config=left, dialect=VERL))
    assert isinstance(found, Finding)
    check_outcome(found, NAME)
    assert found.severity is Severity.NOTE
    assert [one.action for one in found.prescriptions] == ["Remove settings without effect, or turn on what they need"]
    relied = FINDING.check(Evidence("config", config=VERL.translate({f"{actor}.kl_loss_coef": 0.001}), dialect=VERL))
    assert isinstance(relied, Finding)
    assert relied.severity is Severity.WARNING
    assert VERL.patch(relied.prescriptions[0].changes, left) == (
        f"{actor}.use_kl_loss=True",
        f"{actor}.kl_loss_coef=0.001",
    )


def test_several_settings_are_one_finding() -> None:
    found = FINDING.check(trl(epsilon_high=0.28, delta=3.0, entropy_target=0.4, top_entropy_quantile=1.0))
    assert isinstance(found, Finding)
    check_outcome(found, NAME)
    assert found.headline.startswith("4 settings have no effect here: epsilon_high=0.28; entropy_target=0.4; ")
    assert found.headline.endswith(" and 1 more.")
    assert len({one.action for one in found.prescriptions}) == len(found.prescriptions)


def test_what_it_cost_is_told_of_a_run(make: Any) -> None:
    found = FINDING.check(
        make(reward=np.linspace(0, 1, 30), config=TRL.translate({"num_generations": 8, "epsilon_high": 0.28}))
    )
    assert isinstance(found, Finding)
    assert found.cost == "None of them had any effect in the 30 steps so far."


def test_what_was_seen_of_a_server_is_strong_not_certain() -> None:
    evidence = Evidence(
        "serving", server={"top_logprobs": 5, "speculative": "no"}, policy=Policy(sampling=Sampling(top_logprobs=20))
    )
    found = FINDING.check(evidence)
    assert isinstance(found, Finding)
    check_outcome(found, NAME)
    assert found.confidence == "strong"
    assert found.severity is Severity.WARNING


def test_a_configuration_in_which_all_acts_is_clear() -> None:
    assert isinstance(FINDING.check(trl(epsilon_high=0.28, num_iterations=2)), Excluded)
    assert isinstance(FINDING.check(trl()), Excluded)


def test_a_run_without_settings_says_what_is_missing(make: Any) -> None:
    found = run_check(NAME, FINDING, make(reward=np.ones(20)))
    assert isinstance(found, CannotTell)
    check_outcome(found, NAME)
    assert found.switch_on == "the trainer's configuration file, named next to the log"
    assert isinstance(
        run_check(NAME, FINDING, make(reward=np.ones(20), config=TRL.translate({"num_generations": 4}))), Excluded
    )
    assert run_check(NAME, FINDING, make(rollouts={1: {"reward": [1.0], "problem": ["a"]}})) is None
    assert run_check(NAME, FINDING, Evidence("nothing")) is None


def test_clip_higher_without_the_number_of_updates_cannot_be_told() -> None:
    found = FINDING.check(trl(epsilon_high=0.28, gradient_accumulation_steps={"expr": "args.accum"}))
    assert isinstance(found, CannotTell)
    assert (
        found.missing
        == "the number of updates per generation is not known: epsilon_high=0.28 has an effect from two on"
    )
    assert found.switch_on == "now gradient_accumulation_steps=args.accum"
    assert FINDING.check(Evidence("config", config=TrainerConfig(clip_high=0.28))) is None


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
