"""A value that could not be read is neither sound nor absent: the check cannot tell, where the value matters."""

from __future__ import annotations

from typing import Any

import pytest

from breadth.adapters.trl.config import SETTINGS as TRL
from breadth.adapters.verl.config import SETTINGS as VERL
from breadth.doctor.evidence.record import Evidence
from breadth.doctor.finding import CannotTell, Check, Finding
from breadth.doctor.findings import contradictory_settings, no_op_settings, wrong_units
from breadth.doctor.lint import find_contradictions, find_no_op_settings
from breadth.doctor.trainer_config import SETTING_NAMES, ConfigDialect, TrainerConfig, merge_configs
from breadth.doctor.unread import WORST_VALUES, describe_unread, find_undecided

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
    assert find_undecided(evidence, find_no_op_settings) == {"use_kl_loss": "use_kl_loss=$KL"}
    assert find_undecided(evidence, find_contradictions) == {}


def test_what_a_run_recorded_makes_an_expression_known() -> None:
    file = TrainerConfig(
        unread={"temperature": "t=args.t", "top_p": "p=args.p", "sync": "s=args.s"}, user_settings={"kl": "b"}
    )
    run = TrainerConfig(temperature=0.7, user_settings={"temperature": "temperature=0.7"})
    assert merge_configs(file, run).unread == {"top_p": "p=args.p"}
    assert merge_configs(file, TrainerConfig()).unread == file.unread


def test_values_to_try_are_of_settings() -> None:
    assert WORST_VALUES.keys() <= SETTING_NAMES
