"""Knobs of two sources together: what the user set counts, wherever it stands."""

from __future__ import annotations

from breadth.doctor.knobs import NAMES, Clash, Idle, Knobs, merged


def test_on_policy_is_one_update_or_less_and_not_known_without() -> None:
    assert [Knobs(updates=updates).on_policy for updates in (None, 0.25, 1, 1.5, 4)] == [None, True, True, False, False]


def test_how_the_user_wrote_a_knob() -> None:
    knobs = Knobs(clip_high=0.28, theirs={"clip_high": "epsilon_high=0.28"})
    assert knobs.given("clip_high") == "epsilon_high=0.28"
    assert knobs.given("clip_low") == "clip low left at its default"


def test_what_the_user_set_counts_before_a_default_and_the_first_before_the_second() -> None:
    first = Knobs(group=8, temperature=1.0, top_p=None, kl=0.1, theirs={"kl": "beta=0.1"})
    second = Knobs(group=4, temperature=0.7, top_p=0.9, kl=0.2, theirs={"group": "num_generations=4", "kl": "beta=0.2"})
    both = merged(first, second)
    assert (both.group, both.temperature, both.top_p, both.kl) == (4, 1.0, 0.9, 0.1)
    assert both.theirs == {"group": "num_generations=4", "kl": "beta=0.1"}


def test_remarks_of_both_are_kept_once() -> None:
    idle, clash = Idle("a=1", "off", meant=True), Clash("b=2", "no", "wrong")
    both = merged(Knobs(idle=(idle,), texts={"a": "1e-6"}), Knobs(idle=(idle,), clashes=(clash,), texts={"b": "2e-6"}))
    assert (both.idle, both.clashes, both.texts) == ((idle,), (clash,), {"a": "1e-6", "b": "2e-6"})


def test_every_knob_is_not_known_until_it_is() -> None:
    assert all(getattr(Knobs(), name) is None for name in NAMES)
