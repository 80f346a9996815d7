"""What is prescribed fits the settings: nothing that is there already, nothing that cannot act without what lets it."""

from __future__ import annotations

import pytest

from breadth.doctor import remedies
from breadth.doctor.evidence import Evidence
from breadth.doctor.finding import Change
from breadth.doctor.knobs import Knobs


def with_knobs(**knobs: object) -> Evidence:
    return Evidence("x", knobs=Knobs(**knobs))  # type: ignore[arg-type]  # by name


def test_clip_higher_brings_the_updates_it_needs() -> None:
    alone, needing = (remedies.clip_higher(with_knobs(updates=updates, clip_high=0.2)) for updates in (4, 1))
    assert alone is not None
    assert needing is not None
    assert alone.changes == (Change("clip_high", 0.28),)
    assert needing.changes == (Change("clip_high", 0.28), Change("updates", 4))
    assert remedies.clip_higher(with_knobs(clip_high=0.3)) is None


def test_kl_cov_is_inert_on_policy_and_brings_updates_too() -> None:
    assert Change("updates", 4) in remedies.kl_cov(with_knobs(updates=1)).changes
    assert Change("updates", 4) not in remedies.kl_cov(with_knobs(updates=8)).changes


def test_a_target_lies_inside_what_the_run_has_shown() -> None:
    assert remedies.hold_entropy(0.6421).changes == (Change("entropy_adaptive", True), Change("entropy_target", 0.45))


@pytest.mark.parametrize(
    ("remedy", "there"),
    [
        (remedies.anchor, {"kl": 0.01}),
        (remedies.mask_truncated, {"mask_truncated": True}),
        (remedies.draw_anew, {"filter_flat": True}),
        (remedies.correct_mismatch, {"correct_mismatch": True}),
        (remedies.no_bonus, {"entropy_bonus": 0.0}),
        (remedies.lower_clip, {"clip_low": 0.2, "clip_high": 0.2, "updates": 2}),
        (remedies.lower_clip, {"clip_low": 0.2, "clip_high": 0.3, "updates": 1}),
    ],
)
def test_what_is_there_already_or_cannot_act_is_not_prescribed(remedy: object, there: dict[str, object]) -> None:
    assert remedy(with_knobs(**there)) is None  # type: ignore[operator]


def test_numbers_follow_the_settings() -> None:
    assert remedies.smaller_rate(with_knobs(learning_rate=3e-6)).changes == (Change("learning_rate", 1e-6),)
    assert remedies.smaller_rate(with_knobs()).changes == ()
    assert remedies.raise_cap(with_knobs(longest=300)).changes == (Change("longest", 600),)
    larger = remedies.larger_groups(with_knobs(group=2), 0.5)
    assert larger is not None
    assert larger.changes == (Change("group", 8),)
    # 2 * 0.5^2 = 0.5; 2 * 0.5^8 = 0.0078
    assert "50% of groups of 2 would be flat, 1% of 8" in larger.why
    assert remedies.larger_groups(with_knobs(group=16), 0.5) is None
