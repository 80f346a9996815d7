"""Formats told apart by line starts, and the step at which one of them takes over."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from breadth.base.errors import MeasureError
from breadth.measure.formats import FORMATS, effective_formats, format_history, surface_format

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
        "Janet has 16 eggs and eats three of them, so she is left with thirteen. She sells them for two dollars each and earns 26.",
        "Let x be the number of eggs.\nx = 16 - 3\nx = 13\nso the eggs that she can still sell at the market are thirteen.",
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
        "define x as the number of eggs that Janet collects in a day, then subtract the ones that she eats for breakfast.",
        "The deficit is 3, by default; defer the rest until we know how many eggs there are in all of the baskets together.",
        "For each egg she earns two dollars, so if she sells 13 she returns home with 26. import duties do not matter here at all.",
        "3.5 eggs cannot be sold.\n2.5 cannot either, so the number of eggs that she sells must be whole, and therefore it is 13.",
    ],
)
def test_words_in_running_text_do_not_make_a_format(text: str) -> None:
    assert surface_format(text) == "prose"


def test_effective_formats_by_hand() -> None:
    assert effective_formats([0.40, 0.35, 0.25]) == pytest.approx(2.946234, abs=1e-6)
    assert effective_formats([0.95, 0.04, 0.01]) == pytest.approx(1.250490, abs=1e-6)
    assert effective_formats([1.0, 0.0]) == 1
    assert effective_formats([3, 3, 3]) == pytest.approx(3)


@pytest.mark.parametrize("shares", [[], [0.0, 0.0], [0.5, -0.5], [math.nan, 1.0]])
def test_shares_that_are_none_are_refused(shares: list[float]) -> None:
    with pytest.raises(MeasureError):
        effective_formats(shares)


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
    assert history.effective.tolist() == pytest.approx([2, effective_formats([0.9, 0.1]), 1])
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
    assert history.effective[0] == pytest.approx(effective_formats([0.4, 0.3, 0.3]))
    assert history.effective[2] == pytest.approx(effective_formats([0.92, 0.04, 0.04]))


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
def test_hostile_text_is_read_in_linear_time(unit: str) -> None:
    text = "if " + unit * (1_000_000 // len(unit))
    started = time.process_time()
    surface_format(text)
    assert time.process_time() - started < 10  # linear work takes milliseconds, anything quadratic minutes
