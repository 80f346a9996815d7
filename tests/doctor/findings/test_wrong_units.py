"""Numbers in the wrong unit: impossible ones, far ones and text; and all that are none of these."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import yaml

from breadth.adapters.openrlhf import SETTINGS as OPENRLHF
from breadth.adapters.trl.config import SETTINGS as TRL
from breadth.adapters.verl.config import SETTINGS as VERL
from breadth.doctor.evidence.record import Evidence
from breadth.doctor.finding import Change, Excluded, Finding
from breadth.doctor.findings.wrong_units import FINDING
from breadth.report.sections import Severity
from breadth.testing.findings import check_finding, check_outcome

NAME = "wrong-units"
ACTOR = "actor_rollout_ref.actor"


def checked(dialect: Any, settings: dict[str, Any]) -> Any:
    return FINDING.check(Evidence("config", config=dialect.translate(settings), dialect=dialect))


def trl(**settings: Any) -> Any:
    return checked(TRL, {"num_generations": 8, **settings})


def test_it_keeps_the_contract() -> None:
    check_finding(FINDING, NAME)


@pytest.mark.parametrize(
    ("settings", "change"),
    [
        ({"top_p": 95}, Change("top_p", 0.95)),
        ({"min_p": 5}, Change("min_p", 0.05)),
        ({"top_entropy_quantile": 20}, Change("entropy_share", 0.2)),
        ({"epsilon": 20}, Change("clip_low", 0.2)),
        ({"epsilon_high": 28}, Change("clip_high", 0.28)),
        ({"temperature": 70}, Change("temperature", 0.7)),
    ],
    ids=str,
)
def test_percent_where_a_fraction_is_read(settings: dict[str, Any], change: Change) -> None:
    found = trl(**settings)
    assert isinstance(found, Finding)
    check_outcome(found, NAME)
    assert found.severity is Severity.WARNING
    assert found.confidence == "likely"
    assert change in found.prescriptions[0].changes


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {
            "top_p": 1.0,
            "min_p": 0.05,
            "top_entropy_quantile": 0.2,
            "epsilon": 0.2,
            "epsilon_high": 0.28,
            "temperature": 1.2,
        },
        {"epsilon": 1.0, "epsilon_high": 1.0},  # as in the scripts of Clip-Cov
        {"learning_rate": 0.01},  # large, but a rate has no unit to be mistaken for
        {"max_completion_length": 8},
        {"loss_type": "cispo", "epsilon_high": 5.0},
        {"importance_sampling_level": "sequence", "epsilon": 3e-4, "epsilon_high": 4e-4},
        {"use_adaptive_entropy": True, "entropy_target": 2.0},
        {"loss_type": "sapo", "epsilon_high": 28},  # never read
    ],
    ids=str,
)
def test_what_is_no_trap(settings: dict[str, Any]) -> None:
    assert isinstance(trl(**settings), Excluded)


def test_a_share_of_tokens_in_percent_as_the_paper_writes_it() -> None:
    place = f"{ACTOR}.policy_loss"
    found = checked(VERL, {f"{place}.loss_mode": "kl_cov", f"{place}.kl_cov_ratio": 0.02})
    assert isinstance(found, Finding)
    check_outcome(found, NAME)
    assert found.prescriptions[0].changes == (Change("covariance_share", 0.0002),)
    config = VERL.translate({f"{place}.loss_mode": "kl_cov"})
    assert VERL.patch(found.prescriptions[0].changes, config) == (f"{place}.kl_cov_ratio=0.0002",)
    assert isinstance(checked(VERL, {f"{place}.loss_mode": "kl_cov", f"{place}.kl_cov_ratio": 0.002}), Excluded)


@pytest.mark.parametrize("settings", [{"loss_type": "cispo"}, {"loss_type": "cispo", "epsilon_high": 0.28}])
def test_with_cispo_trl_takes_the_bound_for_the_weight_itself(settings: dict[str, Any]) -> None:
    found = trl(**settings)
    assert isinstance(found, Finding)
    check_outcome(found, NAME)
    assert found.severity is Severity.WARNING
    cap = settings.get("epsilon_high", 0.2)
    assert f"cut to {cap:g}" in str(found.evidence[0].value)
    assert TRL.patch(found.prescriptions[0].changes, TRL.translate(settings)) == ("GRPOConfig(epsilon_high=5.0)",)
    assert isinstance(
        checked(VERL, {f"{ACTOR}.policy_loss.loss_mode": "cispo", f"{ACTOR}.clip_ratio_high": 0.28}), Excluded
    )


def test_a_token_s_clip_on_a_response_s_ratio() -> None:
    for dialect, settings in (
        (TRL, {"num_generations": 8, "importance_sampling_level": "sequence"}),
        (VERL, {f"{ACTOR}.policy_loss.loss_mode": "gspo"}),
        (OPENRLHF, {"actor.policy_loss_type": "gspo"}),
    ):
        found = checked(dialect, settings)
        assert isinstance(found, Finding), dialect
        check_outcome(found, NAME)
        assert found.severity is Severity.NOTE


@pytest.mark.parametrize(
    ("settings", "word"),
    [({"max_completion_length": 4}, "4 tokens"), ({"use_adaptive_entropy": True, "entropy_target": 30.0}, "30 nats")],
    ids=str,
)
def test_impossible_sizes(settings: dict[str, Any], word: str) -> None:
    found = trl(**settings)
    assert isinstance(found, Finding)
    check_outcome(found, NAME)
    assert found.severity is Severity.WARNING
    assert word in str(found.evidence[0].value)


@pytest.mark.parametrize("written", ["1e-6", "5e-06", "2E-5", "1.5e3"])
def test_numbers_that_yaml_reads_as_text(tmp_path: Path, written: str) -> None:
    path = tmp_path / "grpo.yaml"
    path.write_text(f"num_generations: 8\nloss_type: grpo\nlearning_rate: {written}\n")
    assert isinstance(yaml.safe_load(path.read_text())["learning_rate"], str)
    found = checked(TRL, dict(TRL.read(path)))
    assert isinstance(found, Finding)
    check_outcome(found, NAME)
    assert found.severity is Severity.NOTE
    assert found.confidence == "certain"
    proposed = str(found.evidence[0].value).rpartition("Write ")[2]
    assert yaml.safe_load(proposed) == float(written)


def test_hydra_reads_the_same_numbers_as_numbers(tmp_path: Path) -> None:
    path = tmp_path / "verl.yaml"
    path.write_text("actor_rollout_ref: {actor: {optim: {lr: 1e-6}}, rollout: {n: 8}}\n")
    assert isinstance(checked(VERL, dict(VERL.read(path))), Excluded)


def test_the_bound_on_entropy_is_that_of_the_largest_vocabulary() -> None:
    assert math.log(262_144) < FINDING.most_nats < math.log(300_000)
    assert math.exp(10 / FINDING.hottest) == pytest.approx(
        2.718, abs=0.001
    )  # 10 nats apart are 1 nat apart: 22,026 times becomes 2.7
