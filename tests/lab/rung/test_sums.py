"""Sums by hand: lines, prompts, what is read in a reply, and that nothing held out is trained on."""

from __future__ import annotations

import pytest

from breadth.lab.rung.sums import EXAMPLE, LARGEST, MOST, POOL, Sum, held_out, read_answer, trained_on


def test_a_line_by_hand() -> None:
    one = Sum((3, 8, 5))
    # 3 + 8 = 11, and 11 + 5 = 16.
    assert one.text == "3 + 8 + 5 ="
    assert one.worked == "3 + 8 + 5 = 11 + 5 = 16"
    assert one.answer == "16"
    assert Sum((1, 2, 3, 4)).worked == "1 + 2 + 3 + 4 = 3 + 3 + 4 = 6 + 4 = 10"


def test_the_prompt_is_the_example_and_the_question() -> None:
    # 2 + 9 = 11, and 11 + 4 = 15.
    assert Sum((3, 8, 5)).prompt == "2 + 9 + 4 = 11 + 4 = 15\n3 + 8 + 5 ="


@pytest.mark.parametrize(
    ("reply", "ended", "answer"),
    [
        (" 11 + 5 = 16", True, "16"),
        (" 16", True, "16"),  # without steps
        (" 11 + 5 = 16", False, None),  # cut: it may have been 161
        (" 11 + 5 = 17 = 16", True, "16"),  # restated: the last one counts
        (" 11 + 5 = 16 or 17", True, "17"),
        (" 11 + 5 = 16.", True, "16"),
        ("16.0", True, "16"),
        ("1,016", True, "1016"),
        ("", True, None),
        (" no idea", True, None),
    ],
)
def test_what_is_read(reply: str, ended: bool, answer: str | None) -> None:
    assert read_answer(reply, ended=ended) == answer


def test_nothing_held_out_is_trained_on_in_any_order() -> None:
    trained, kept = trained_on(MOST), held_out()
    # 11 choose 3 = 165 ways to take three of nine numbers, of which one is the example's.
    assert len({tuple(sorted(one.numbers)) for one in kept}) == len(kept) == POOL
    assert len(set(trained)) == len(trained) == MOST
    sides = [{tuple(sorted(one.numbers)) for one in side} for side in (trained, kept)]
    assert not sides[0] & sides[1]
    assert len(sides[0]) <= 165 - 1 - POOL
    assert tuple(sorted(EXAMPLE.numbers)) not in sides[0] | sides[1]
    assert {number for one in (*trained, *kept) for number in one.numbers} == set(range(1, LARGEST + 1))


def test_fewer_are_the_first_of_more() -> None:
    assert held_out(5) == held_out()[:5]
    assert trained_on(5) == trained_on(50)[:5]
