"""One finding lists everything that does nothing; a warning where it is relied on, a note where it is left over."""

from __future__ import annotations

from typing import Any

import numpy as np

from breadth.adapters.trl.config import SETTINGS as TRL
from breadth.adapters.verl.config import SETTINGS as VERL
from breadth.doctor.evidence.record import Evidence
from breadth.doctor.finding import CannotTell, Excluded, Finding
from breadth.doctor.findings.no_op_settings import FINDING
from breadth.doctor.trainer_config import TrainerConfig
from breadth.inference.policy import Policy
from breadth.inference.records import Sampling
from breadth.report.sections import Severity
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
    found = FINDING.check(make(reward=np.ones(20)))
    assert isinstance(found, CannotTell)
    check_outcome(found, NAME)
    assert found.switch_on == "the trainer's configuration file, named next to the log"
    assert isinstance(FINDING.check(make(reward=np.ones(20), config=TRL.translate({"num_generations": 4}))), Excluded)
    assert FINDING.check(make(rollouts={1: {"reward": [1.0], "problem": ["a"]}})) is None
    assert FINDING.check(Evidence("nothing")) is None


def test_clip_higher_without_the_number_of_updates_cannot_be_told() -> None:
    found = FINDING.check(trl(epsilon_high=0.28, gradient_accumulation_steps={"expr": "args.accum"}))
    assert isinstance(found, CannotTell)
    assert (
        found.missing
        == "the number of updates per generation is not known: epsilon_high=0.28 has an effect from two on"
    )
    assert found.switch_on == "now gradient_accumulation_steps=args.accum"
    assert FINDING.check(Evidence("config", config=TrainerConfig(clip_high=0.28))) is None
