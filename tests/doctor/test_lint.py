"""Several issues become one finding: the worst decides; a setting that was not read is neither sound nor absent."""

from __future__ import annotations

from typing import Any

import pytest

from breadth.adapters.trl.config import SETTINGS as TRL
from breadth.adapters.verl.config import SETTINGS as VERL
from breadth.doctor.evidence.record import Evidence
from breadth.doctor.finding import CannotTell, Check, Finding, Prescription
from breadth.doctor.findings import contradictory_settings, no_op_settings, wrong_units
from breadth.doctor.findings.contradictory_settings import find_contradictions
from breadth.doctor.findings.no_op_settings import find_no_op_settings
from breadth.doctor.lint import (
    WORST_VALUES,
    Issue,
    describe_unread,
    find_undecided,
    issue_facts,
    issue_headline,
    issue_prescriptions,
    issue_severity,
)
from breadth.doctor.trainer_config import (
    SETTING_NAMES,
    ConfigDialect,
    TrainerConfig,
    merge_configs,
)
from breadth.report.sections import Severity

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


EXPRESSION = {"expr": "args.x"}
CHECKS: dict[str, Check] = {
    "no-op": no_op_settings.FINDING,
    "contradictory": contradictory_settings.FINDING,
    "units": wrong_units.FINDING,
}


def cannot_tell(dialect: ConfigDialect, settings: dict[str, Any]) -> set[str]:
    """Return the checks that cannot tell."""
    evidence = Evidence("config", config=dialect.translate(settings), dialect=dialect)
    return {name for name, check in CHECKS.items() if isinstance(check.check(evidence), CannotTell)}


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({}, set()),
        ({"learning_rate": EXPRESSION}, set()),  # no rule reads it
        ({"temperature": EXPRESSION}, {"contradictory", "units"}),
        ({"top_p": EXPRESSION}, {"contradictory", "units"}),
        ({"top_p": EXPRESSION, "use_vllm": True}, {"units"}),  # the mismatch is corrected, whatever it is
        ({"loss_type": EXPRESSION}, {"no-op"}),
        ({"num_iterations": EXPRESSION}, set()),  # nothing here acts on the ratio
        ({"num_iterations": EXPRESSION, "epsilon_high": 0.28}, {"no-op"}),
        ({"epsilon_high": EXPRESSION}, {"no-op", "contradictory", "units"}),
        ({"top_k": "$TOP_K"}, {"contradictory"}),
        ({"**": EXPRESSION}, {"no-op", "contradictory", "units"}),
        ({"sync_ref_model": EXPRESSION}, {"no-op"}),
    ],
    ids=lambda value: str(sorted(value) if isinstance(value, set) else value),
)
def test_which_checks_cannot_tell(settings: dict[str, Any], names: set[str]) -> None:
    given = {"num_generations": 8, "epsilon": 0.2, **settings}
    assert cannot_tell(TRL, given) == names


def test_an_expression_is_not_a_default() -> None:
    """Absent, the setting is at verl's default, which is sound; computed, it may be anything."""
    rollout = "actor_rollout_ref.rollout"
    assert cannot_tell(VERL, {f"{rollout}.n": 8}) == set()
    assert cannot_tell(VERL, {f"{rollout}.n": 8, f"{rollout}.temperature": "${T}"}) == {"contradictory", "units"}


def test_it_names_the_values_and_how_to_give_them() -> None:
    config = TRL.translate({"num_generations": 8, "temperature": EXPRESSION, "max_completion_length": EXPRESSION})
    found = wrong_units.FINDING.check(Evidence("config", config=config, dialect=TRL))
    assert isinstance(found, CannotTell)
    assert found.missing == (
        "values are computed when the trainer starts: temperature=args.x; max_completion_length=args.x"
    )
    assert found.switch_on == TRL.known_values
    unknown = wrong_units.FINDING.check(Evidence("config", config=config))
    assert isinstance(unknown, CannotTell)
    assert unknown.switch_on.startswith("write the numbers into the file")


def test_a_finding_names_what_it_could_not_check() -> None:
    config = TRL.translate({"num_generations": 8, "epsilon_high": 0.28, "loss_type": EXPRESSION, "top_p": 0.95})
    evidence = Evidence("config", config=config, dialect=TRL)
    found = no_op_settings.FINDING.check(evidence)
    assert isinstance(found, Finding)
    assert ("not checked", "loss_type=args.x") in [(fact.name, fact.value) for fact in found.evidence]
    assert describe_unread(evidence, find_contradictions) == ()


def test_two_values_that_matter_only_together() -> None:
    config = TrainerConfig(unread={"mask_truncated": "mask=args.m", "length_penalty": "reward_funcs=args.r"})
    assert find_undecided(Evidence("config", config=config), find_contradictions) == config.unread
    alone = TrainerConfig(unread={"mask_truncated": "mask=args.m"})
    assert find_undecided(Evidence("config", config=alone), find_contradictions) == {}


def test_a_switch_that_only_the_trainer_knows_counts_for_settings_without_effect() -> None:
    evidence = Evidence("config", config=TrainerConfig(unread={"use_kl_loss": "use_kl_loss=$KL"}))
    assert find_undecided(evidence, find_no_op_settings, switches=True) == {"use_kl_loss": "use_kl_loss=$KL"}
    assert find_undecided(evidence, find_contradictions) == {}
    found = no_op_settings.FINDING.check(evidence)
    assert isinstance(found, CannotTell)
    assert "use_kl_loss=$KL" in found.missing


def test_what_a_run_recorded_makes_an_expression_known() -> None:
    file = TrainerConfig(
        unread={"temperature": "t=args.t", "top_p": "p=args.p", "sync": "s=args.s"}, user_settings={"kl": "b"}
    )
    run = TrainerConfig(temperature=0.7, user_settings={"temperature": "temperature=0.7"})
    assert merge_configs(file, run).unread == {"top_p": "p=args.p"}
    assert merge_configs(file, TrainerConfig()).unread == file.unread


def test_values_to_try_are_of_settings() -> None:
    assert WORST_VALUES.keys() <= SETTING_NAMES
