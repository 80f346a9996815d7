"""What is prescribed fits the settings and can act; a dead run goes back first; its numbers can be read."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from breadth.doctor import prescriptions
from breadth.doctor.collect import CollectedEvidence
from breadth.doctor.diagnosis import diagnose_run
from breadth.doctor.evidence.record import Evidence
from breadth.doctor.finding import Change, Finding, Prescription
from breadth.doctor.findings.entropy_explosion import FINDING as EXPLOSION
from breadth.doctor.findings.no_learning import FINDING as NO_LEARNING
from breadth.doctor.findings.numerical_failure import FINDING as FAILURE
from breadth.doctor.findings.score_collapse import FINDING as SCORE_COLLAPSE
from breadth.doctor.findings.zero_variance_groups import FINDING as ZERO_VARIANCE
from breadth.doctor.page import doctor_page
from breadth.doctor.pictures import metric_curve
from breadth.doctor.trainer_config import DIALECTS, SETTING_NAMES, TrainerConfig
from breadth.report.cells import format_cell
from breadth.report.sections import Curve, Fact, Facts, Verdict
from breadth.training.recipes import RECIPES


def with_config(**settings: object) -> Evidence:
    return Evidence("x", config=TrainerConfig(**settings))  # type: ignore[arg-type]  # by name


def test_clip_higher_brings_the_updates_it_needs() -> None:
    alone, needing = (prescriptions.raise_upper_clip(with_config(updates=updates, clip_high=0.2)) for updates in (4, 1))
    assert alone is not None
    assert needing is not None
    assert alone.changes == (Change("clip_high", 0.28),)
    assert needing.changes == (Change("clip_high", 0.28), Change("updates", 4))
    assert prescriptions.raise_upper_clip(with_config(clip_high=0.3)) is None


def test_kl_cov_is_inert_on_policy_and_brings_updates_too() -> None:
    assert Change("updates", 4) in prescriptions.add_kl_cov(with_config(updates=1)).changes
    assert Change("updates", 4) not in prescriptions.add_kl_cov(with_config(updates=8)).changes


def test_a_target_lies_inside_what_the_run_has_shown() -> None:
    assert prescriptions.hold_entropy(0.6421).changes == (
        Change("entropy_adaptive", True),
        Change("entropy_target", 0.45),
    )


@pytest.mark.parametrize(
    ("remedy", "there"),
    [
        (prescriptions.add_kl_penalty, {"kl": 0.01}),
        (prescriptions.mask_truncated, {"mask_truncated": True}),
        (prescriptions.resample_zero_variance_groups, {"dynamic_sampling": True}),
        (prescriptions.correct_mismatch, {"correct_mismatch": True}),
        (prescriptions.correct_mismatch, {"engine": "hf"}),
        (prescriptions.lower_entropy_bonus, {"entropy_bonus": 0.0}),
        (prescriptions.lower_upper_clip, {"clip_low": 0.2, "clip_high": 0.2, "updates": 2}),
        (prescriptions.lower_upper_clip, {"clip_low": 0.2, "clip_high": 0.3, "updates": 1}),
    ],
)
def test_what_is_there_already_or_cannot_act_is_not_prescribed(remedy: object, there: dict[str, object]) -> None:
    assert remedy(with_config(**there)) is None  # type: ignore[operator]


def test_numbers_follow_the_settings() -> None:
    assert prescriptions.lower_learning_rate(with_config(learning_rate=3e-6)).changes == (
        Change("learning_rate", 1e-6),
    )
    assert prescriptions.lower_learning_rate(with_config()).changes == ()
    assert prescriptions.raise_length_cap(with_config(max_completion_length=300)).changes == (
        Change("max_completion_length", 600),
    )
    larger = prescriptions.enlarge_groups(with_config(group=2), 0.5)
    assert larger is not None
    assert larger.changes == (Change("group", 8),)
    # 2 * 0.5^2 = 0.5; 2 * 0.5^8 = 0.0078
    assert "50% of groups of 2 would have zero variance, against 1% of groups of 8" in larger.why
    assert prescriptions.enlarge_groups(with_config(group=16), 0.5) is None


ALL = (
    prescriptions.match_temperature(1.0, 0.7),
    prescriptions.sample_full_distribution(Evidence("run", config=TrainerConfig(top_p=0.9))),
    prescriptions.match_precision(),
    prescriptions.reduce_updates(Evidence("run", config=TrainerConfig(updates=4))),
    prescriptions.hold_fork_entropy(),
    prescriptions.train_on_forks(),
    prescriptions.drop_degenerate_successes(),
    prescriptions.reward_calibration(),
    prescriptions.add_answer_bonus(),
    prescriptions.train_for_pass_at_k(),
    prescriptions.mix_formats("prose"),
)


@pytest.mark.parametrize("one", ALL, ids=lambda one: one.action[:30])
def test_changes_name_knobs_and_recipes_that_exist(one: Prescription) -> None:
    for change in one.changes:
        assert change.setting in SETTING_NAMES or (change.setting == "chain" and change.value in RECIPES)
    for trainer in ("trl", "verl"):
        assert bool(DIALECTS.load(trainer).patch(one.changes, TrainerConfig(prompts=64))) == bool(one.changes)


def test_what_is_so_already_is_not_prescribed() -> None:
    assert prescriptions.sample_full_distribution(Evidence("run", config=TrainerConfig(top_p=1.0))) is None
    for updates in (None, 1):
        assert prescriptions.reduce_updates(Evidence("run", config=TrainerConfig(updates=updates))) is None


def test_numbers_are_the_users_own() -> None:
    assert prescriptions.match_temperature(1.0, 0.7).action.endswith("1 instead of 0.7")
    unknown = prescriptions.sample_full_distribution(Evidence("run"))
    assert unknown is not None
    assert unknown.action == "Sample rollouts from the full distribution: top-p 1, no top-k, no min-p"


def test_groups_are_resampled_only_where_the_trainer_samples_others() -> None:
    verl, trl = (
        prescriptions.resample_zero_variance_groups(Evidence("run", dialect=DIALECTS.load(name), config=config))
        for name, config in (("verl", TrainerConfig()), ("trl", TrainerConfig(accumulation=4)))
    )
    assert verl is not None
    assert trl is not None
    assert verl.changes == (Change("dynamic_sampling", True),)
    assert trl.action == "Take twice the prompts per update"
    assert DIALECTS.load("trl").patch(trl.changes, TrainerConfig()) == ("GRPOConfig(gradient_accumulation_steps=8)",)


def test_a_generation_of_fixed_size_is_not_patched_by_accumulation() -> None:
    for settings in ({"prompts": "generation_batch_size=64"}, {"updates": "steps_per_generation=4"}):
        config = TrainerConfig(accumulation=4, user_settings=settings)
        assert prescriptions.take_more_prompts(Evidence("run", config=config)).changes == ()


def test_the_kl_penalty_begins_below_the_labs_and_says_so() -> None:
    penalty = prescriptions.add_kl_penalty(Evidence("run"))
    assert penalty is not None
    assert penalty.changes == (Change("kl", 0.01),)
    assert "The lab's coefficient is for a tiny model" in penalty.why


STEPS = 120
HALF = np.arange(STEPS) < STEPS // 2
CONFIG = TrainerConfig(learning_rate=3e-6)


@pytest.fixture
def dead(make: Any, around: Any) -> Evidence:
    """Entropy explodes in the middle, and the score is gone since."""
    case: Evidence = make(
        entropy=around(np.where(HALF, 0.5, 8.0), 0.02),
        reward=around(np.where(HALF, 0.6, 0.02), 0.005),
        config=CONFIG,
    )
    return case


def actions(found: object) -> list[str]:
    assert isinstance(found, Finding)
    return [remedy.action for remedy in found.prescriptions]


def test_a_dead_run_goes_back_first_and_then_removes_the_cause(dead: Evidence) -> None:
    for check in (SCORE_COLLAPSE, EXPLOSION):
        first, *rest = actions(check.check(dead))
        assert re.match(r"Go back to the last checkpoint up to step \d+$", first)
        assert int(first.rpartition(" ")[2]) <= STEPS // 2 + 1
        assert any("Lower the learning rate" in action for action in rest)
        assert not any("with one of the changes above" in action for action in rest)


def test_a_score_that_fell_after_truncation_names_the_cap(make: Any, around: Any) -> None:
    config = TrainerConfig(max_completion_length=512)
    case = make(
        truncated=np.where(HALF, 0.0, 0.9),
        reward=around(np.where(HALF, 0.6, 0.05), 0.005),
        config=config,
        levels=(0, 1),
    )
    assert "Allow longer completions: 1,024 tokens instead of 512" in actions(SCORE_COLLAPSE.check(case))


def test_a_rate_of_zero_is_told_to_set_one_and_a_late_death_to_go_back(make: Any, around: Any) -> None:
    still = make(learning_rate=np.zeros(STEPS), reward=around(np.full(STEPS, 0.3), 0.01))
    assert actions(NO_LEARNING.check(still))[0].startswith("Give the optimizer a learning rate")
    late = make(grad_norm=np.where(HALF, 1.0, 0.0), reward=around(np.full(STEPS, 0.3), 0.01))
    assert actions(NO_LEARNING.check(late))[0].startswith("Go back to the last checkpoint")


def test_a_numerical_failure_goes_back_and_its_number_is_written_out(make: Any, around: Any) -> None:
    loss = around(np.full(STEPS, 0.1), 0.01)
    loss[80:90] = 123_456_789.0
    found = FAILURE.check(make(loss=loss, reward=around(np.full(STEPS, 0.3), 0.01)))
    assert actions(found)[0] == "Go back to the last checkpoint up to step 80"
    assert isinstance(found, Finding)
    assert "reached 123,456,789, first above" in found.headline


def test_no_page_of_a_dead_run_shows_a_number_nobody_can_read(dead: Evidence) -> None:
    page = doctor_page([diagnose_run(dead)], CollectedEvidence())
    texts = [section.headline + section.body for section in page.sections if isinstance(section, Verdict)]
    facts: list[Fact] = [fact for section in page.sections if isinstance(section, Facts) for fact in section.facts]
    texts += [f"{format_cell(fact.value, fact.unit)} {fact.note}" for fact in facts]
    for text in texts:
        assert not re.search(r"\de[+-]?\d|\d{7,}|-0(?:\.0+)?%|\binf|kl_reference|zero_variance_groups", text), text


def test_waste_beyond_counting_is_not_counted(make: Any, around: Any) -> None:
    case = make(zero_variance_groups=np.ones(STEPS), reward=around(np.full(STEPS, 0.3), 0.01), config=CONFIG)
    found = ZERO_VARIANCE.check(case)
    assert isinstance(found, Finding)
    assert found.cost.endswith("were wasted: more than 99 for each that taught something.")


def test_metrics_go_by_the_trainers_name_or_by_plain_words(make: Any, around: Any) -> None:
    case = make(kl_reference=around(np.linspace(0.01, 0.1, STEPS), 0.001))
    assert case.logged_name("kl_reference") == "kl_reference"
    assert case.logged_name("zero_variance_groups") == "the share of zero-variance groups"
    assert case.missing_metric("x", "mismatch").missing == "the trainer-sampler mismatch is not logged"
    case.run.header.names["kl_reference"] = "kl"
    curve = metric_curve(case.run, "kl_reference")
    assert isinstance(curve, Curve)
    assert (curve.title, curve.y.label) == ("KL to the reference", "kl")
