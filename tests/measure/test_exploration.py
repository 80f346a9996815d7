"""The exploration profile: counted by hand, separating corpora by branches and not by domain."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from breadth.measure.exploration import ExplorationProfile, exploration_profile, profile_differences

NOUNS = {"algebra": ("polynomial", "root", "factor"), "biology": ("protein", "membrane", "enzyme")}


def synthetic(branches: int, working: int, domain: str, rng: np.random.Generator) -> str:
    """Return a trace that names a number of approaches at once, then works on the last one."""
    one, two, three = NOUNS[domain]
    options = [f"Option {'ABCDEFGH'[place]} looks at the {one}." for place in range(branches)]
    work = [f"The {rng.choice([one, two, three])} gives {rng.integers(2, 99)} and so the {two} is known." for _ in range(working)]
    return " ".join([*options, *work])


def corpus(branches: float, domain: str, seed: int, size: int = 60) -> list[ExplorationProfile]:
    """Return profiles of traces with about so many branches each, spread as a Poisson count."""
    rng = np.random.default_rng(seed)
    return [exploration_profile(synthetic(min(rng.poisson(branches), 8), int(rng.integers(12, 18)), domain, rng)) for _ in range(size)]


def test_breadth_first_trace_by_hand() -> None:
    trace = (
        "Option A is factoring. Option B is the formula. Option C is guessing. "  # three approaches, named at once
        "We look at the discriminant first. It is 25. Its root is 5. Option B fits. So x is 3 or -2. "  # back to B
        "Let me check the sum of the roots. It is 1, as it must be. The product is -6, as it must be. All is well with these roots."
    )
    profile = exploration_profile(trace)
    assert profile.steps == 12
    assert profile.early_approaches == 3
    assert profile.approaches == 3
    assert profile.revisits == 1
    # Steps 0, 1, 2 open A, B, C; C lasts steps 2 to 5; B from step 6 to the end at step 11: 6 steps.
    assert profile.depth == 6
    assert profile.checks_per_1k == pytest.approx(1000 / profile.tokens)


def test_depth_first_trace_by_hand() -> None:
    trace = (
        "x squared is 9. So x is 3. Wait, it could be negative. Let me verify. Minus 3 squared is 9.\nBoth hold.\n\nThe roots are 3 and -3."
    )
    profile = exploration_profile(trace)
    assert (profile.steps, profile.depth) == (7, 7)
    assert (profile.early_approaches, profile.approaches, profile.revisits) == (0, 0, 0)
    assert profile.checks_per_1k == pytest.approx(2000 / profile.tokens)


def test_a_turn_is_new_and_coming_back_is_a_revisit() -> None:
    trace = (
        "We integrate by parts. That gives a longer integral. Alternatively, let's try using a substitution. With u it is short. "
        "But the limits are wrong. Back to the first approach. Now it works. Another way would be a series. It converges."
    )
    profile = exploration_profile(trace)
    assert profile.approaches == 3  # the substitution, the first one, the series
    assert profile.revisits == 1
    assert profile.depth == 3


def test_previous_means_the_one_before() -> None:
    trace = "Method 1 is slow. Method 2 is fast. Method 3 is wrong. Return to the previous method. It is fine."
    profile = exploration_profile(trace)
    assert (profile.approaches, profile.revisits) == (3, 1)


@pytest.mark.parametrize(
    "trace",
    [
        "The way a train moves is a method of transport. Options are limited. Every other day it stops.",
        "An option is a contract. The approach taken by sea is slow. Ideas abound and plans change.",
    ],
)
def test_ordinary_words_are_no_approaches(trace: str) -> None:
    assert exploration_profile(trace).approaches == 0


def test_choices_at_line_starts_are_approaches() -> None:
    assert exploration_profile("(A) no\n(B) no\nC. yes\nD) no").approaches == 4
    # A lone letter is how some solutions sign their answer.
    assert exploration_profile("13 eggs are left. They bring 26.\nA: 26").approaches == 0


def test_corpora_with_known_branch_counts_separate() -> None:
    few, many = corpus(1, "algebra", seed=1), corpus(4, "algebra", seed=2)
    d = profile_differences(many, few)["early_approaches"]
    # Poisson counts of 4 and 1: a gap of 3 over sqrt(2.5) is 1.9.
    assert d.value > 1
    assert d.low > 1
    assert d.value == pytest.approx(1.9, abs=0.5)


def test_a_swap_of_domain_alone_does_not_separate() -> None:
    # Equal branch counts in distribution, other nouns, other draws: 400 traces each make an error of 0.07.
    algebra, biology = corpus(3, "algebra", seed=7, size=400), corpus(3, "biology", seed=8, size=400)
    for name, d in profile_differences(algebra, biology).items():
        assert abs(d.value) < 0.2, name


def test_nothing_and_white_space() -> None:
    for text in ("", " \n\n "):
        assert exploration_profile(text) == ExplorationProfile(0, 0, 0, 0, 0, 0.0, 0)


@settings(max_examples=80, deadline=None)
@given(st.text(alphabet="abc .!?\n答", max_size=60), st.sampled_from(["", "Alternatively, ", "Option B ", "wait "]))
def test_bounds_for_any_text(text: str, signal: str) -> None:
    profile = exploration_profile(signal + text)
    assert 0 <= profile.early_approaches <= profile.approaches
    assert 0 <= profile.depth <= profile.steps
    assert profile.revisits >= 0
    assert profile.checks_per_1k >= 0


@pytest.mark.parametrize("unit", ["a", " ", "\n", ". ", "option A ", "another  ", "first ", "let me "])
def test_hostile_text_is_read_in_linear_time(unit: str) -> None:
    text = unit * (1_000_000 // len(unit))
    started = time.process_time()
    exploration_profile(text)
    assert time.process_time() - started < 5
