"""Cohen's d on numbers worked out by hand."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from breadth.base.errors import MeasureError
from breadth.measure.response_style import (
    FORMATS,
    ExplorationProfile,
    cohens_d,
    effective_format_count,
    exploration_profile,
    format_history,
    profile_differences,
    surface_format,
)


def test_by_hand() -> None:
    # Means 4 and 2; squared deviations (4 + 0 + 4) and (1 + 0 + 1); pooled variance 10 / 4; d = 2 / sqrt(2.5).
    d = cohens_d([2, 4, 6], [1, 2, 3])
    assert d.value == pytest.approx(2 / math.sqrt(2.5))
    # Variance 6/9 + (4 / 2.5) / 12 = 0.8, so 1.959964 sqrt(0.8) to each side.
    assert d.high - d.value == pytest.approx(1.959964 * math.sqrt(0.8), abs=1e-6)
    assert d.value - d.low == pytest.approx(d.high - d.value)


def test_sign_scale_and_shift() -> None:
    left, right = np.array([1.0, 2.0, 4.0, 7.0]), np.array([0.0, 1.0, 5.0])
    d = cohens_d(left, right).value
    assert cohens_d(right, left).value == pytest.approx(-d)
    assert cohens_d(10 * left + 3, 10 * right + 3).value == pytest.approx(d)


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    held = [0.8 in cohens_d(rng.normal(0.8, 1, 30), rng.normal(0, 1, 40)) for _ in range(1000)]
    assert 0.93 < np.mean(held) < 0.975


def test_without_spread_there_is_no_scale() -> None:
    assert cohens_d([2, 2], [2, 2]).value == 0
    assert cohens_d([3, 3], [2, 2]).value == math.inf
    assert cohens_d([1, 1], [2, 2]).value == -math.inf
    assert math.isnan(cohens_d([3, 3], [2, 2]).low)


def test_one_value_is_refused() -> None:
    with pytest.raises(MeasureError, match="1 and 2 values"):
        cohens_d([1], [1, 2])
    with pytest.raises(MeasureError, match="NaN"):
        cohens_d([1, math.nan], [1, 2])


NOUNS = {"algebra": ("polynomial", "root", "factor"), "biology": ("protein", "membrane", "enzyme")}


def synthetic(branches: int, working: int, domain: str, rng: np.random.Generator) -> str:
    """Return a trace that names a number of approaches at once, then works on the last one."""
    one, two, three = NOUNS[domain]
    options = [f"Option {'ABCDEFGH'[place]} looks at the {one}." for place in range(branches)]
    work = [
        f"The {rng.choice([one, two, three])} gives {rng.integers(2, 99)} and so the {two} is known."
        for _ in range(working)
    ]
    return " ".join([*options, *work])


def corpus(branches: float, domain: str, seed: int, size: int = 60) -> list[ExplorationProfile]:
    """Return profiles of traces with about so many branches each, spread as a Poisson count."""
    rng = np.random.default_rng(seed)
    return [
        exploration_profile(synthetic(min(rng.poisson(branches), 8), int(rng.integers(12, 18)), domain, rng))
        for _ in range(size)
    ]


def test_breadth_first_trace_by_hand() -> None:
    trace = (
        "Option A is factoring. Option B is the formula. Option C is guessing. "  # three approaches, named at once
        "We look at the discriminant first. It is 25. Its root is 5. Option B fits. So x is 3 or -2. "  # back to B
        "Let me check the sum of the roots. It is 1, as it must be. The product is -6, as it must be. All is well with"
        " these roots."
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
        "x squared is 9. So x is 3. Wait, it could be negative. Let me verify. Minus 3 squared is 9.\nBoth hold.\n\nThe"
        " roots are 3 and -3."
    )
    profile = exploration_profile(trace)
    assert (profile.steps, profile.depth) == (7, 7)
    assert (profile.early_approaches, profile.approaches, profile.revisits) == (0, 0, 0)
    assert profile.checks_per_1k == pytest.approx(2000 / profile.tokens)


def test_a_turn_is_new_and_coming_back_is_a_revisit() -> None:
    trace = (
        "We integrate by parts. That gives a longer integral. Alternatively, let's try using a substitution. With u it"
        " is short. But the limits are wrong. Back to the first approach. Now it works. Another way would be a series."
        " It converges."
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


EXAMPLES = {
    "tagged": ["<think>\nTwo and two.\n</think>\n<answer>4</answer>", "  <ANSWER> 4 </ANSWER>"],
    "code": [
        "def simple_math_problem() -> int:\n    eggs = 16\n    return eggs - 3",
        "Let us compute it.\n```python\nprint(6 * 7)\n```",
        "import math\nx = math.sqrt(16)",
        "total = 0\nfor i in range(5):\n    total += i\nprint(total)",
    ],
    "latex": [
        "\\begin{align}\nx &= 6 \\cdot 7\\\\\n&= 42\n\\end{align}\n\\[ x = 42 \\]",
        "We have\n$$ x + 1 = 43 $$\nand so\n$$ x = 42. $$",
    ],
    "numbered": [
        "1. There are 16 eggs.\n2. She eats 3, so 13 are left.\n3. She sells 13 for 2 dollars each: 26.",
        "**Step 1:** count the eggs, 16.\n**Step 2:** take away 3.\nThe answer is 13.",
        "### Step 1: add\nwe add\n### Step 2: divide\nwe divide",
    ],
    "bullets": [
        "- There are 16 eggs.\n- She eats 3.\nSo 13 remain for the market that day.",
        "* first we add\n* then we divide it all by two",
    ],
    "answer only": [
        "The answer is \\boxed{40}",
        "42",
        "So the final answer is $\\frac{1}{2}$.",
        "\\boxed{\\text{40 square metres}}",
        "x = 7",
    ],
    "prose": [
        (
            "Janet has 16 eggs and eats three of them, so she is left with thirteen. She sells them for two dollars"
            " each and earns 26."
        ),
        (
            "Let x be the number of eggs.\nx = 16 - 3\nx = 13\nso the eggs that she can still sell at the market are"
            " thirteen."
        ),
    ],
    "empty": ["", " \n\t "],
}


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in EXAMPLES.items() for text in texts])
def test_examples_of_every_format(name: str, text: str) -> None:
    assert surface_format(text) == name


def test_every_format_has_an_example() -> None:
    assert set(EXAMPLES) == set(FORMATS)


@pytest.mark.parametrize(
    "text",
    [
        "We define x as the number of eggs, and note that the ratio is undefined when no eggs are left in the basket.",
        (
            "define x as the number of eggs that Janet collects in a day, then subtract the ones that she eats for"
            " breakfast."
        ),
        (
            "The deficit is 3, by default; defer the rest until we know how many eggs there are in all of the baskets"
            " together."
        ),
        (
            "For each egg she earns two dollars, so if she sells 13 she returns home with 26. import duties do not"
            " matter here at all."
        ),
        (
            "3.5 eggs cannot be sold.\n2.5 cannot either, so the number of eggs that she sells must be whole, and"
            " therefore it is 13."
        ),
    ],
)
def test_words_in_running_text_do_not_make_a_format(text: str) -> None:
    assert surface_format(text) == "prose"


def test_effective_formats_by_hand() -> None:
    assert effective_format_count([0.40, 0.35, 0.25]) == pytest.approx(2.946234, abs=1e-6)
    assert effective_format_count([0.95, 0.04, 0.01]) == pytest.approx(1.250490, abs=1e-6)
    assert effective_format_count([1.0, 0.0]) == 1
    assert effective_format_count([3, 3, 3]) == pytest.approx(3)


@pytest.mark.parametrize("shares", [[], [0.0, 0.0], [0.5, -0.5], [math.nan, 1.0]])
def test_shares_that_are_none_are_refused(shares: list[float]) -> None:
    with pytest.raises(MeasureError):
        effective_format_count(shares)


def test_history_by_hand_with_own_classifier() -> None:
    # Step 0: a a b b (two of a's right, none of b's); step 10: a x 9 and b x 1; step 20: all a.
    texts = list("aabb") + list("aaaaaaaaab") + list("aa")
    steps = [0] * 4 + [10] * 10 + [20] * 2
    correct = [1, 1, 0, 0] + [1] * 6 + [0] * 3 + [1] + [1, 0]
    history = format_history(steps, texts, correct, classify=str.upper)
    assert history.formats == ("A", "B")
    assert history.steps.tolist() == [0, 10, 20]
    assert history.samples.tolist() == [4, 10, 2]
    assert history.shares.tolist() == [[0.5, 0.5], [0.9, 0.1], [1, 0]]
    assert history.accuracies is not None
    assert history.accuracies.ravel().tolist() == pytest.approx([1, 0, 6 / 9, 1, 0.5, math.nan], nan_ok=True)
    assert history.effective.tolist() == pytest.approx([2, effective_format_count([0.9, 0.1]), 1])
    assert history.takeover() == (10, "A")
    assert history.takeover(0.95) == (20, "A")
    assert format_history(steps[:4], texts[:4], classify=str.upper).takeover() is None
    assert format_history(steps, texts, classify=str.upper).accuracies is None


def test_history_finds_a_takeover_in_real_texts() -> None:
    pools = [EXAMPLES[name][0] for name in ("code", "numbered", "prose")]
    steps, texts = [], []
    for step, share in ((0, 0.4), (8, 0.6), (64, 0.92)):
        of_code = round(100 * share)
        texts += [pools[0]] * of_code + [pools[1 + place % 2] for place in range(100 - of_code)]
        steps += [step] * 100
    history = format_history(steps, texts)
    assert history.takeover() == (64, "code")
    assert history.effective[0] == pytest.approx(effective_format_count([0.4, 0.3, 0.3]))
    assert history.effective[2] == pytest.approx(effective_format_count([0.92, 0.04, 0.04]))


def test_rows_in_any_order() -> None:
    ordered = format_history([0, 0, 1], ["a", "b", "b"], [1, 0, 0], classify=str)
    shuffled = format_history([1, 0, 0], ["b", "b", "a"], [0, 0, 1], classify=str)
    assert ordered.shares.tolist() == shuffled.shares.tolist()
    assert ordered.accuracies is not None
    assert shuffled.accuracies is not None
    assert np.array_equal(ordered.accuracies, shuffled.accuracies, equal_nan=True)


def test_columns_of_unequal_length_are_refused() -> None:
    with pytest.raises(MeasureError, match="Lengths differ"):
        format_history([0, 1], ["a"])
    with pytest.raises(MeasureError, match="Lengths differ"):
        format_history([0], ["a"], [1, 0])


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=200))
def test_any_text_has_a_format(text: str) -> None:
    assert surface_format(text) in FORMATS


@pytest.mark.parametrize("unit", ["a", " ", "\n", "\\", "if =(", "- ", "1. ", "$$", "<", "def ", "\t"])
def test_the_format_of_hostile_text_is_read_in_linear_time(unit: str) -> None:
    text = "if " + unit * (1_000_000 // len(unit))
    started = time.process_time()
    surface_format(text)
    assert time.process_time() - started < 10  # linear work takes milliseconds, anything quadratic minutes
