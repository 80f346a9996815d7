r"""Numbers as people write them, read exactly: 1,000 = 1000.0 = 1e3 and 1/2 = 0.5 = \frac{1}{2}; never through a float."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction

_LONGEST = 400
"""Characters beyond which a number is left as text: exact arithmetic on hostile input must stay cheap."""

_DECIMAL = r"(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?|\.\d+)"
_PLAIN = re.compile(rf"([+-]?)({_DECIMAL})(?:[eE]([+-]?\d{{1,3}}))?", re.ASCII)
_POWER_OF_TEN = re.compile(
    rf"([+-]?)(?:({_DECIMAL})\s*(?:\\times|\\cdot|×|·|\*|x)\s*)?10\^(?:\{{([+-]?\d{{1,3}})\}}|(\d{{1,3}}))", re.ASCII
)
_FRAC = re.compile(rf"([+-]?)\s*(\d*)\s*\\frac\{{([+-]?)({_DECIMAL})\}}\{{({_DECIMAL})\}}", re.ASCII)
_SLASH = re.compile(rf"([+-]?)(?:(\d+)\s+)?()({_DECIMAL})\s*/\s*({_DECIMAL})", re.ASCII)
_CURRENCY = re.compile(r"([+-]?)\s*[$€£¥]\s*")
_DEGREES = re.compile(r"\s*(?:\^\s?(?:\\circ|\{\s?\\circ\s?\})|°|degrees?)$")


def number_key(text: str) -> str | None:
    r"""Return the one way to write this number, or None when the text is not exactly one number.

    Whole numbers lose plus sign and leading zeros, terminating fractions become decimals, others reduced fractions: '3',
    '-0.5', '1/3'. A currency sign before it and a degree sign after it are dropped, for one question asks in one unit;
    any other unit makes it no number. A comma separates thousands only where it can. A whole number before a fraction
    below 1 is a mixed number: ``1\frac{1}{2}`` and '1 1/2' are 1.5. More than 400 characters are not read.
    """
    if len(text) > _LONGEST:
        return None
    currency = _CURRENCY.match(text)
    bare = _DEGREES.sub("", currency[1] + text[currency.end() :] if currency else text)
    for form, reading in _FORMS:
        found = form.fullmatch(bare)
        if found:
            return reading(*found.groups())
    return None


def _plain(sign: str, digits: str, exponent: str | None) -> str:
    if exponent:
        return _written(_signed(sign) * _decimal(digits) * _ten_to(exponent))
    # By far the most frequent form, so without arithmetic: the digits less the zeros that say nothing.
    whole, _, part = digits.replace(",", "").partition(".")
    whole, part = whole.lstrip("0"), part.rstrip("0")
    return ("-" if sign == "-" and (whole or part) else "") + (whole or "0") + (f".{part}" if part else "")


def _power_of_ten(sign: str, digits: str | None, braced: str | None, bare: str | None) -> str:
    return _written(_signed(sign) * (_decimal(digits) if digits else 1) * _ten_to(braced or bare))


def _fraction(sign: str, whole: str | None, inner_sign: str, top: str, bottom: str) -> str | None:
    numerator, denominator = _decimal(top), _decimal(bottom)
    if denominator == 0:
        return None
    if whole and (inner_sign or not top.isdigit() or not bottom.isdigit() or numerator >= denominator):
        # '2 3/2' may be a product or a slip: not one number for certain.
        return None
    return _written(_signed(sign) * (int(whole or 0) + _signed(inner_sign) * numerator / denominator))


_FORMS: tuple[tuple[re.Pattern[str], Callable[..., str | None]], ...] = (
    (_PLAIN, _plain),
    (_FRAC, _fraction),
    (_SLASH, _fraction),
    (_POWER_OF_TEN, _power_of_ten),
)


def _decimal(digits: str) -> Fraction:
    whole, _, part = digits.replace(",", "").partition(".")
    return Fraction(int(f"{whole}{part}" or 0), 10 ** len(part))


def _signed(sign: str) -> int:
    return -1 if sign == "-" else 1


def _ten_to(exponent: str | None) -> Fraction:
    return Fraction(10) ** int(exponent or 0)


def _written(value: Fraction) -> str:
    places = _decimal_places(value.denominator)
    if places is None:
        return f"{value.numerator}/{value.denominator}"
    digits = str(abs(value.numerator) * 10**places // value.denominator).rjust(places + 1, "0")
    sign = "-" if value < 0 else ""
    return sign + (f"{digits[:-places]}.{digits[-places:]}" if places else digits)


def _decimal_places(denominator: int) -> int | None:
    """Return how many decimals write a fraction with this denominator exactly, or None when none do."""
    twos = (denominator & -denominator).bit_length() - 1
    odd, fives = denominator >> twos, 0
    while odd % 5 == 0:
        odd, fives = odd // 5, fives + 1
    return max(twos, fives) if odd == 1 else None
