"""Every prescription names what to change, in words and where there is one by a knob that TRL and verl have words for."""

from __future__ import annotations

import pytest

from breadth.doctor import rollout_remedies
from breadth.doctor.dialects import DIALECTS
from breadth.doctor.evidence import Evidence
from breadth.doctor.finding import Prescription
from breadth.doctor.knobs import NAMES, Knobs
from breadth.training.recipes import RECIPES

ALL = (
    rollout_remedies.same_temperature(1.0, 0.7),
    rollout_remedies.whole_distribution(Evidence("run", knobs=Knobs(top_p=0.9))),
    rollout_remedies.same_precision(),
    rollout_remedies.fewer_updates(Evidence("run", knobs=Knobs(updates=4))),
    rollout_remedies.hold_forks(),
    rollout_remedies.train_on_forks(),
    rollout_remedies.guard_successes(),
    rollout_remedies.score_confidence(),
    rollout_remedies.pay_for_other_answers(),
    rollout_remedies.train_for_coverage(),
    rollout_remedies.mix_formats("prose"),
)


@pytest.mark.parametrize("one", ALL, ids=lambda one: one.action[:30])
def test_changes_name_knobs_and_recipes_that_exist(one: Prescription) -> None:
    for change in one.changes:
        assert change.knob in NAMES or (change.knob == "chain" and change.value in RECIPES)
    for trainer in ("trl", "verl"):
        assert bool(DIALECTS.load(trainer).patch(one.changes, Knobs(prompts=64))) == bool(one.changes)


def test_what_is_so_already_is_not_prescribed() -> None:
    assert rollout_remedies.whole_distribution(Evidence("run", knobs=Knobs(top_p=1.0))) is None
    for updates in (None, 1):
        assert rollout_remedies.fewer_updates(Evidence("run", knobs=Knobs(updates=updates))) is None


def test_numbers_are_the_users_own() -> None:
    assert rollout_remedies.same_temperature(1.0, 0.7).action.endswith("1 in the place of 0.7")
    unknown = rollout_remedies.whole_distribution(Evidence("run"))
    assert unknown is not None
    assert unknown.action == "Draw rollouts from the whole distribution: top-p 1, no top-k, no min-p"
