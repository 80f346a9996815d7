"""Contradictions become one finding, by the words of the user's file."""

from __future__ import annotations

from typing import Any

from breadth.adapters.trl.config import SETTINGS as TRL
from breadth.adapters.verl.config import SETTINGS as VERL
from breadth.doctor.evidence.record import Evidence
from breadth.doctor.finding import Excluded, Finding
from breadth.doctor.findings.contradictory_settings import FINDING
from breadth.report.sections import Severity
from breadth.testing.findings import check_finding, check_outcome

NAME = "contradictory-settings"


def checked(dialect: Any, settings: dict[str, Any]) -> Any:
    return FINDING.check(Evidence("config", config=dialect.translate(settings), dialect=dialect))


def test_it_keeps_the_contract() -> None:
    check_finding(FINDING, NAME)


def test_verl_left_at_one_response_a_prompt() -> None:
    found = checked(VERL, {"algorithm.adv_estimator": "grpo", "actor_rollout_ref.actor.optim.lr": 1e-6})
    assert isinstance(found, Finding)
    check_outcome(found, NAME)
    assert found.severity is Severity.WARNING
    assert found.confidence == "certain"
    assert (
        found.headline == "1 contradiction is in the settings: algorithm.adv_estimator=grpo; group left at its default."
    )
    assert VERL.patch(found.prescriptions[0].changes, VERL.translate({})) == ("actor_rollout_ref.rollout.n=8",)


def test_several_are_listed_the_gravest_first() -> None:
    found = checked(
        TRL, {"num_generations": 8, "loss_type": "dr_grpo", "top_p": 0.9, "epsilon": 0.28, "epsilon_high": 0.2}
    )
    assert isinstance(found, Finding)
    check_outcome(found, NAME)
    assert found.severity is Severity.WARNING
    assert (
        found.headline
        == "3 contradictions are in the settings: epsilon=0.28; epsilon_high=0.2; loss_type='dr_grpo'; top_p=0.9."
    )
    assert [one.action for one in found.prescriptions] == [
        "Swap the two: 0.2 below, 0.28 above",
        "Sample rollouts from the full distribution",
    ]
    patch = TRL.patch(found.prescriptions[0].changes, TRL.translate({}))
    assert patch == ("GRPOConfig(epsilon=0.2, epsilon_high=0.28)",)


def test_what_only_does_less_is_a_note() -> None:
    found = checked(TRL, {"num_generations": 8, "top_p": 0.95})
    assert isinstance(found, Finding)
    assert found.severity is Severity.NOTE


def test_a_sound_configuration_is_clear_and_so_is_none() -> None:
    assert isinstance(checked(TRL, {"num_generations": 8, "temperature": 0.7, "epsilon_high": 0.28}), Excluded)
    assert FINDING.check(Evidence("nothing")) is None
