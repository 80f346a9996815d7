"""Answers and when two of them are the same: canonical keys, then classes by key and by an optional stronger test.

Finding the answer in a completion is the work of `breadth.measure.answer_extraction`; its two functions are offered
here too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import lru_cache

import numpy as np

from breadth.base.errors import MeasureError
from breadth.measure.answer_extraction import stated_answer
from breadth.measure.validate import IntArray

_MAX_NUMERAL_CHARS = 400
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

    Whole numbers lose plus sign and leading zeros, terminating fractions become decimals, others reduced fractions:
    '3', '-0.5', '1/3'. A currency sign before it and a degree sign after it are dropped, for one question asks in one
    unit; any other unit makes it no number. A comma separates thousands only where it can. A whole number before a
    fraction below 1 is a mixed number: ``1\frac{1}{2}`` and '1 1/2' are 1.5. More than 400 characters are not read.
    """
    if len(text) > _MAX_NUMERAL_CHARS:
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


_MAX_ANSWER_CHARS = 1000
"""Characters beyond which an answer is compared as plain text."""
_DEEPEST = 3
"""Brackets within brackets that are read element by element."""

_NOTHING = frozenset({"nan", "none", "null", "n/a", "[invalid]", "[invalidanswer]"})
"""What programs write for an answer they could not read."""
_WRAPPERS = (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]"), ("**", "**"), ("`", "`"), ('"', '"'), ("“", "”"))
_OPENERS = frozenset(left[0] for left, _ in _WRAPPERS)
_SIGNS = str.maketrans(
    {"\u2212": "-", "\ufe63": "-", "\u00a0": " ", "\u202f": " ", "\uff05": "%"}
    | {chr(0xFF10 + digit): str(digit) for digit in range(10)}  # full-width digits
    | dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff", "")  # of no width
)

_SPACING = re.compile(r"\\(?:left|right|[bB]igg?[lr]?|displaystyle|textstyle)(?![A-Za-z])\.?|\\[,;:!]")
_BLANK = re.compile(r"\\ |~|\\q?quad(?![A-Za-z])|\s+")
_STYLE = re.compile(r"\\(?:text(?:bf|it|rm|sf|tt|normal)?|math(?:bf|it|rm|sf|normal)|mbox|operatorname)\s?\{([^{}]*)\}")
_SHORT_FRACTION = re.compile(r"\\[dtc]?frac\s?(?:\{([^{}]*)\}|(\d))\s?(?:\{([^{}]*)\}|(\d))")
_CHOICE = re.compile(r"\(?([A-Z])[).:]?|\(?([a-j])\)|(?i:option|choice)\s?\(?([A-Za-z])\)?")
_PERCENT = re.compile(r"(.*?)\s?(?:%|percent)")
_ARITHMETIC = re.compile(r"[\s\d.,+\-*/×·÷()=]*\d[\s\d.,+\-*/×·÷()=]*")
_LETTERS = re.compile(r"[^\W\d_]{3}")
_MATHS = re.compile(r"[\\^_={}]")


def answer_key(answer: str | float | None) -> str | None:
    r"""Return a key that equal answers share, or None when there is no answer: an unreadable answer is never a class.

    - Numbers by exact value: '1,000', '1000.0', '1e3' and ``10^3``; '1/2', '0.5', ``\dfrac12``; see `number_key`.
    - A worked sum counts by its result: '6 * 7 = 42' is '42'; an equation with a variable stays one.
    - Percentages stay apart from numbers: '50%' is '50%', not 0.5 and not 50, for answers in percent often omit the
      sign.
    - Multiple choice: 'A', '(A)', 'A.', 'a)', ``\text{(A)}``, 'Option A' are 'A' if nothing else is there. A bare small
      letter stays a variable: 'a' is not 'A'.
    - Intervals and tuples element by element, in order, brackets kept; braces are a set: sorted, without repeats.
    - Words in any case and spacing. Formulas keep their case and lose spacing, ``\left``, ``\right`` and font commands.
    - Math delimiters, bold, quotes, a ``\boxed`` around the answer and punctuation after it are dropped; units are
      kept.
    - Empty text, mere punctuation, 'nan', 'None', 'null', 'n/a', '[invalid]' and a NaN from a data frame are no answer.

    Equal keys mean equal answers; different keys may still be (``\sqrt{8}`` and ``2\sqrt{2}``): see `answer_classes`.
    """
    if isinstance(answer, str):
        return _short_key(answer) if len(answer) <= _MAX_ANSWER_CHARS else _plain_text(answer)
    if answer is None or answer != answer:
        return None
    raise MeasureError(
        f"An answer must be text or None; got {type(answer).__name__} {answer!s:.40}.",
        "Turn it into text with str() first.",
    )


def stated_key(text: str) -> str | None:
    """Return the key of the final answer a text states, None when it states none."""
    return answer_key(stated_answer(text))


def reference_key(reference: str | None) -> str | None:
    """Return the key of a right answer as data sets write it: the answer it states ('#### 42', a box), else all of it."""
    if reference is None:
        return None
    return answer_key(stated_answer(reference)) or answer_key(reference)


def answer_classes(
    answers: Iterable[str | float | None], equivalent: Callable[[str, str], bool] | None = None
) -> IntArray:
    """Give each answer to one problem the number of its class, in order of first appearance; -1 where there is no answer.

    Equal keys make a class. ``equivalent`` (such as `breadth.measure.symbolic.SymbolicEquivalence`) may join classes
    with different keys: the first answer of each new key is compared with the first answer of each class, once. As such
    a test need not be transitive, the order of the answers can then decide.
    """
    by_key: dict[str, int] = {}
    firsts: list[str] = []
    labels: list[int] = []
    for answer in answers:
        key = answer_key(answer)
        if key is None or not isinstance(answer, str):
            labels.append(-1)
            continue
        if key not in by_key:
            by_key[key] = _class_of(answer, firsts, equivalent)
        labels.append(by_key[key])
    return np.array(labels, dtype=np.int64)


def is_prose(answer: str) -> bool:
    """Say whether an answer is words, not mathematics: a formula reader would take 'east' and 'seat' for equal products."""
    text = _tidied(answer)
    return bool(_LETTERS.search(text)) and not any(
        character.isdigit() or character in "\\^_=+*/<>" for character in text
    )


def _class_of(answer: str, firsts: list[str], equivalent: Callable[[str, str], bool] | None) -> int:
    if equivalent is not None:
        for label, first in enumerate(firsts):
            if equivalent(first, answer):
                return label
    firsts.append(answer)
    return len(firsts) - 1


@lru_cache(maxsize=1 << 16)
def _short_key(answer: str) -> str | None:
    text = _tidied(answer)
    if not text.strip(" .,;:!?-_*~'\"`$\\") or text.casefold() in _NOTHING:
        return None
    return (
        number_key(text)
        or _sum_key(text)
        or _choice_key(text)
        or _percent_key(text)
        or _collection_key(text, 0)
        or _text_key(text)
    )


def _sum_key(text: str) -> str | None:
    """Return the key of a worked sum's result: '6 * 7 = 42' states 42, while 'x = 42' stays an equation."""
    sum_, equals, result = text.rpartition("=")
    return number_key(result.strip()) if equals and _ARITHMETIC.fullmatch(sum_) else None


def _tidied(answer: str) -> str:
    """Drop what does not change the meaning: delimiters, sizes, fonts, closing punctuation; spaces become single."""
    text = _unwrapped(answer.translate(_SIGNS))
    if "\\" in text:
        text = stated_answer(text) or "" if text.startswith(("\\boxed", "\\fbox")) else text
        text = _SPACING.sub("", text)
        for _ in range(_DEEPEST):
            text = _STYLE.sub(r"\1", text)
        text = _SHORT_FRACTION.sub(_full_fraction, text)
        text = text.replace("\\%", "%").replace("\\$", "$")
    return _unwrapped(_BLANK.sub(" ", text.replace("{,}", ",")))


def _unwrapped(text: str) -> str:
    for _ in range(2 * _DEEPEST):
        before = text
        text = text.strip()
        if not text.endswith(".."):
            text = text.rstrip(".,;: ")
        if text[:1] in _OPENERS:
            text = _inside_wrapper(text)
        if text == before:
            break
    return text


def _inside_wrapper(text: str) -> str:
    for left, right in _WRAPPERS:
        inside = text[len(left) : -len(right)]
        if inside and text.startswith(left) and text.endswith(right) and left not in inside:
            return inside
    return text


def _full_fraction(found: re.Match[str]) -> str:
    top, digit_top, bottom, digit_bottom = found.groups()
    return f"\\frac{{{(digit_top or top).strip()}}}{{{(digit_bottom or bottom).strip()}}}"


def _choice_key(text: str) -> str | None:
    found = _CHOICE.fullmatch(text)
    return next(letter for letter in found.groups() if letter).upper() if found else None


def _percent_key(text: str) -> str | None:
    found = _PERCENT.fullmatch(text)
    number = number_key(found[1]) if found else None
    return f"{number}%" if number else None


def _collection_key(text: str, depth: int) -> str | None:
    """Key of a tuple, an interval, a set or a bare list of numbers and tuples; None for anything else."""
    if depth == _DEEPEST or ("," not in text and not text.startswith(("\\{", "{"))):
        return None
    for left, right in (("\\{", "\\}"), ("{", "}"), ("(", ")"), ("(", "]"), ("[", ")"), ("[", "]")):
        parts = _elements(text[len(left) : -len(right)]) if text.startswith(left) and text.endswith(right) else None
        if parts is not None and (len(parts) > 1 or right[-1] == "}"):
            keys = [number_key(part) or _collection_key(part, depth + 1) or _text_key(part) for part in parts]
            return f"{{{','.join(sorted(set(keys)))}}}" if right[-1] == "}" else f"{left}{','.join(keys)}{right}"
    parts = _elements(text) or []
    numbers = [number_key(part) or _collection_key(part, depth + 1) for part in parts]
    return ",".join(key for key in numbers if key) if len(parts) > 1 and all(numbers) else None


def _elements(inside: str) -> list[str] | None:
    """Split at the commas outside all brackets; None when the brackets do not match or an element is missing."""
    parts, depth, start = [], 0, 0
    for place, character in enumerate(inside):
        depth += (character in "([{") - (character in ")]}")
        if depth < 0:
            return None
        if character == "," and depth == 0:
            parts.append(inside[start:place].strip())
            start = place + 1
    parts.append(inside[start:].strip())
    return parts if depth == 0 and (all(parts) or parts == [""]) else None


def _text_key(text: str) -> str:
    if not _MATHS.search(text) and (_LETTERS.search(text) or (len(text) > 1 and text.isalpha())):
        return text.casefold()
    return text.replace(" ", "")


def _plain_text(answer: str) -> str | None:
    return " ".join(answer.split()).casefold() or None
