"""Numbers in all their spellings, exactly; and what is no number for certain."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from breadth.measure.numerals import number_key


@pytest.mark.parametrize(
    ("key", "spellings"),
    [
        (
            "1000",
            ["1000", "1,000", "1000.0", "1000.", "1e3", "1E+3", "+1000", "01000", "$1,000.00", "10^3", "10^{3}", r"1 \times 10^3", "100e1"],
        ),
        ("0.5", ["1/2", "0.5", ".5", "0.50", r"\frac{1}{2}", "2/4", "5e-1", "1 / 2", r"\frac{0.5}{1}", r"5\cdot 10^{-1}"]),
        ("-0.5", ["-1/2", "-0.5", "-.5", r"-\frac{1}{2}", r"\frac{-1}{2}", "-$0.50", "$-0.5"]),
        ("1.5", ["3/2", "1.5", r"1\frac{1}{2}", "1 1/2", r"1 \frac{1}{2}"]),
        ("-1.5", ["-3/2", r"-1\frac{1}{2}", "-1 1/2"]),
        ("1/3", ["1/3", r"\frac{2}{6}", r"\frac{1}{3}"]),
        ("0", ["0", "-0", "0.00", ".0", "0/5", "00"]),
        ("90", ["90", "90°", r"90^\circ", r"90^{\circ}", "90 degrees"]),
        ("1234567.89", ["1,234,567.89", "1234567.89"]),
        ("12345678901234567890.1", ["12345678901234567890.1"]),  # a float would end in ...68.0
        ("0.1000000000000000055511151231257827", ["0.1000000000000000055511151231257827"]),  # a float would call it 0.1
    ],
)
def test_one_key_for_every_spelling(key: str, spellings: list[str]) -> None:
    assert {spelling: number_key(spelling) for spelling in spellings} == dict.fromkeys(spellings, key)


NOT_ONE_NUMBER = ["", "-", ".", "abc", "x", "e3", "1e", "1e9999", "--1", "1.2.3", "1-2", "(5)", "9" * 401, "٣"]
NOT_ONE_NUMBER += ["1,00", "12,34", "1,0000", "1 000", "1/0", "1/2/3", "2 3/2", "5 cm", "5%", "10^x", "2^3"]
NOT_ONE_NUMBER += [r"\frac{1}{0}", r"2\frac{3}{2}", r"1\frac{-1}{2}"]


@pytest.mark.parametrize("text", NOT_ONE_NUMBER)
def test_text_that_is_not_one_number(text: str) -> None:
    assert number_key(text) is None


@given(st.integers(-(10**20), 10**20), st.integers(1, 10**6))
def test_a_fraction_and_its_slash_form_share_one_key_that_reads_back_exactly(top: int, bottom: int) -> None:
    value = Fraction(top, bottom)
    key = number_key(f"{top}/{bottom}")
    assert key is not None
    assert Fraction(key) == value
    assert number_key(key) == key
    assert number_key(rf"\frac{{{top}}}{{{bottom}}}") == key


@given(st.decimals(allow_nan=False, allow_infinity=False, places=6, min_value=-(10**12), max_value=10**12), st.integers(0, 5))
def test_trailing_zeros_separators_and_exponents_change_nothing(number: object, zeros: int) -> None:
    plain = f"{number}"
    key = number_key(plain)
    assert key is not None
    assert Fraction(key) == Fraction(plain)
    assert number_key(f"{number:,}" + "0" * zeros) == key
    assert number_key(f"{number}e0") == key


def test_huge_exponents_are_read_without_harm() -> None:
    key = number_key("1e999")
    assert key == "1" + "0" * 999
    assert number_key("1e-999") == "0." + "0" * 998 + "1"
