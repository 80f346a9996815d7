r"""Find the answers a completion states, and decide when two answers are the same.

Extraction reads boxes, answer tags, '####' lines and 'the answer is' phrases, in linear time. Equality is by canonical
key, optionally joined by a stronger test. Numbers are read exactly, never through a float: 1,000 = 1000.0 = 1e3 and
1/2 = 0.5 = \frac{1}{2}.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from breadth.base.errors import MeasureError
from breadth.measure.validate import IntArray

MAX_PHRASE_CHARS = 100
"""Characters after 'the answer is' beyond which it is talk, not an answer."""
MAX_BARE_CHARS = 60
"""Characters of a reply beyond which it is talk, not a bare answer."""

_BOX = re.compile(r"\\(?:boxed|fbox)\s{0,3}(?:\{|(-?\d[\d.,/]{0,50}))")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_DEPTH = {"{": 1, "}": -1}
_HASHES = re.compile(r"####[ \t]{0,4}([^\n#][^\n]{0,199})")
_HASH_NUMBER = re.compile(r"[-+]?[$€£¥]?\s?-?\d[\d,]*(?:\.\d+)?(?:/\d+)?\s?\\?%?\.?")
_HASH_LAST = re.compile(r"[-+]?[$€£¥\\]|[-+]?\d+(?![.):]\s|\d)|\(?[A-J]\)?\.?$")
_PHRASE = re.compile(
    r"(?<![A-Za-z])[Aa](?:nswer|NSWER)(?:\*\*|__)?\s{0,2}(?::|=|(?:is|IS)\b:?)[\s*_:]{0,8}([^\n]{1,300})"
)
_MATHS_SPAN = re.compile(r"\$\$?(?!\s?-?[\d,.]+(?:[\s.,;!?]|$))([^$]+)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]")
_SENTENCE_END = re.compile(r"[.!?;](?=\s|$)|\*\*|</")
_BARE = re.compile(r"[^\n?<>#]*(?:\d|\\[A-Za-z])[^\n?<>#]*|\(?[A-J][).:]?|\([a-j]\)")
_COMMAND = re.compile(r"\\[A-Za-z]+")
_WORD = re.compile(r"[^\W\d_]{2}")
_NO_ANSWER = re.compile(r"(?:not|correct|incorrect|wrong|right)\b", re.IGNORECASE)


class _Statement(NamedTuple):
    start: int
    end: int
    answer: str


def stated_answer(text: str) -> str | None:
    r"""Return the answer a completion finally states, as written, or None when it states none.

    The last of: a closed ``\boxed{...}`` or ``\fbox{...}`` (braces balanced; the innermost when nested), a closed
    ``<answer>...</answer>``, a ``#### 42`` line. Only when there is none of these, the last phrase of the kind 'the
    (final) answer is ...' or 'Answer: ...', since prose says 'answer' without meaning it. A box or tag that was cut off
    is no statement: half an answer would vote for something else. A ``####`` heading counts only with a number behind
    it.

    Each search runs from the end and stops at the first hit; all work is linear in the text, whatever is in it.
    """
    return _plain_box(text) or search_answer(text)


def search_answer(text: str) -> str | None:
    """Return what `stated_answer` does, without its short cut for the commonest ending."""
    marked = [statement for search in _marks_in(text) if (statement := next(search(text), None))]
    chosen = max(marked) if marked else next(phrase_statements(text), None)
    return chosen.answer if chosen else None


def _plain_box(text: str) -> str | None:
    r"""Read the commonest ending, ``\boxed{42}`` and plain prose, at an eighth of the cost of the searches."""
    start = text.rfind("\\boxed{")
    end = text.find("}", start) if start >= 0 else -1
    if end < 0:
        return None
    content = text[start + 7 : end]
    if "{" in content or any(sign in text[start + 1 :] for sign in "\\<#"):
        return None
    return content.strip() or None


def stated_answers(text: str) -> list[tuple[int, str]]:
    r"""Return every answer the text states, as (position, answer) in reading order; oscillation counts these.

    Marks and phrases both count here. Where one statement holds another ('the answer is \boxed{5}') only the more
    explicit one does. `stated_answer` is the last marked one among these, or the last one when none is marked.
    """
    marked = sorted(statement for search in _marks_in(text) for statement in search(text))
    starts = [statement.start for statement in marked]

    def is_inside_mark(phrase: _Statement) -> bool:
        before = bisect_right(starts, phrase.start) - 1
        return before >= 0 and phrase.start < marked[before].end

    def holds_mark(statement: _Statement) -> bool:
        following = bisect_right(starts, statement.start)
        return following < len(starts) and starts[following] < statement.end

    phrases = [phrase for phrase in phrase_statements(text) if not is_inside_mark(phrase)]
    return [(statement.start, statement.answer) for statement in sorted(marked + phrases) if not holds_mark(statement)]


def _marks_in(text: str) -> list[Callable[[str], Iterator[_Statement]]]:
    """Return the searches worth making: looking for a mark's first character costs a twentieth of its search."""
    return [
        search
        for sign, search in (("\\", box_statements), ("<", tag_statements), ("#", hash_statements))
        if sign in text
    ]


def _find_backwards(text: str, *marks: str) -> Iterator[int]:
    """Yield where the marks begin, last first; each stretch of text is searched once per mark."""
    places = {mark: text.rfind(mark) for mark in marks}
    while True:
        mark = max(places, key=places.__getitem__)
        place = places[mark]
        if place < 0:
            return
        yield place
        places[mark] = text.rfind(mark, 0, place)


def box_statements(text: str) -> Iterator[_Statement]:
    """Yield the answers in boxes, last first."""
    limit = len(text)
    for place in _find_backwards(text, "box"):
        start = place - 1 if text.startswith("boxed", place) else place - 2
        opened = _BOX.match(text, max(start, 0))
        if not opened:
            continue
        end = _find_closing_brace(text, opened.end(), limit) if opened[1] is None else opened.end()
        # Nothing before this box may close behind its start: it would hold this box, or be as unclosed as this one.
        limit = start
        content = text[opened.end() : max(end, 0)] if opened[1] is None else opened[1].rstrip(".,/")
        if content.strip():
            yield _Statement(start, end, content.strip())


def _find_closing_brace(text: str, start: int, limit: int) -> int:
    """Return where the brace opened before ``start`` closes, or -1; escaped braces are text."""
    depth = 1
    for token in _BRACE.finditer(text, start, limit):
        depth += _DEPTH.get(token[0], 0)
        if depth == 0:
            return token.start()
    return -1


def tag_statements(text: str) -> Iterator[_Statement]:
    """Yield the answers in ``<answer>`` tags, last first."""
    limit = len(text)
    for start in _find_backwards(text, "<answer>"):
        inside = start + len("<answer>")
        end = text.find("</answer>", inside, limit)
        limit = start
        content = text[inside : max(end, 0)].strip()
        if content:
            phrase = next(phrase_statements(content), None)
            yield _Statement(start, end, phrase.answer if phrase else content)


def hash_statements(text: str) -> Iterator[_Statement]:
    """Yield the answers behind '####', last first."""
    last = -1
    for start in _find_backwards(text, "####"):
        last = last if last >= 0 else len(text.rstrip())
        line = _HASHES.match(text, start)
        content = line[1].strip() if line else ""
        # '#### 3. Next step' is a heading; what follows the last '####' of all may be '#### 18 dollars'.
        if line and (_HASH_NUMBER.fullmatch(content) or (line.end() >= last and _HASH_LAST.match(content))):
            yield _Statement(start, line.end(), content)


def phrase_statements(text: str) -> Iterator[_Statement]:
    """Yield the answers of phrases such as 'the answer is 42', last first."""
    for place in _find_backwards(text, "nswer", "NSWER"):
        phrase = _PHRASE.match(text, place - 1) if place else None
        if phrase:
            answer, length = _cut_phrase(phrase[1])
            if 0 < len(answer) <= MAX_PHRASE_CHARS and not _NO_ANSWER.match(answer):
                yield _Statement(phrase.start(), phrase.start(1) + length, answer)


def _cut_phrase(content: str) -> tuple[str, int]:
    """Cut the rest of a line down to the answer it begins with; return that and where it ends."""
    maths = _MATHS_SPAN.match(content)
    if maths:
        return next(group for group in maths.groups() if group).strip(), maths.end()
    sentence_end = _SENTENCE_END.search(content)
    end = sentence_end.start() if sentence_end else len(content)
    return content[:end].strip(" \t*_`\"'"), end


def final_answer(reply: str, *, truncated: bool = False) -> str | None:
    """Return the answer of a reply: the one it states, else the reply itself if that is nothing but an answer.

    Of a reply that was cut, only a stated answer counts: '12' may be half of '125'.
    """
    return stated_answer(reply) or (None if truncated else bare_answer(reply))


def bare_answer(reply: str) -> str | None:
    r"""Return what is behind any thinking if it is nothing but an answer: '19', '(B)', 'x = 3', ``\frac{1}{2}``.

    That is one short line without a word of two letters or more (LaTeX commands are no words). 'Hello', '19 apples' and
    'step 1' stay unread.
    """
    start = reply.rfind("</think>") + len("</think>") if "</think>" in reply else 0
    if len(reply) - start > 4 * MAX_BARE_CHARS:
        return None
    answer = reply[start:].strip().rstrip(".,;:! ")
    if len(answer) > MAX_BARE_CHARS or not _BARE.fullmatch(answer) or _WORD.search(_COMMAND.sub("", answer)):
        return None
    is_closed = sum(map(answer.count, "([{")) == sum(map(answer.count, ")]}"))
    return answer if is_closed and "box" not in answer else None


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
    '3', '-0.5', '1/3'. A currency sign before it and a degree sign after it are dropped, since one question asks in
    one unit; any other unit makes it no number. A comma separates thousands only where it can. A whole number before a
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


def _plain_key(sign: str, digits: str, exponent: str | None) -> str:
    if exponent:
        return _write_fraction(_sign(sign) * _read_decimal(digits) * _power_of_ten(exponent))
    # By far the most frequent form, so without arithmetic: the digits without redundant zeros.
    whole, _, part = digits.replace(",", "").partition(".")
    whole, part = whole.lstrip("0"), part.rstrip("0")
    return ("-" if sign == "-" and (whole or part) else "") + (whole or "0") + (f".{part}" if part else "")


def _scientific_key(sign: str, digits: str | None, braced: str | None, bare: str | None) -> str:
    mantissa = _read_decimal(digits) if digits else 1
    return _write_fraction(_sign(sign) * mantissa * _power_of_ten(braced or bare))


def _fraction_key(sign: str, whole: str | None, inner_sign: str, top: str, bottom: str) -> str | None:
    numerator, denominator = _read_decimal(top), _read_decimal(bottom)
    if denominator == 0:
        return None
    if whole and (inner_sign or not top.isdigit() or not bottom.isdigit() or numerator >= denominator):
        # '2 3/2' may be a product or a slip: not one number for certain.
        return None
    return _write_fraction(_sign(sign) * (int(whole or 0) + _sign(inner_sign) * numerator / denominator))


_FORMS: tuple[tuple[re.Pattern[str], Callable[..., str | None]], ...] = (
    (_PLAIN, _plain_key),
    (_FRAC, _fraction_key),
    (_SLASH, _fraction_key),
    (_POWER_OF_TEN, _scientific_key),
)


def _read_decimal(digits: str) -> Fraction:
    whole, _, part = digits.replace(",", "").partition(".")
    return Fraction(int(f"{whole}{part}" or 0), 10 ** len(part))


def _sign(sign: str) -> int:
    return -1 if sign == "-" else 1


def _power_of_ten(exponent: str | None) -> Fraction:
    return Fraction(10) ** int(exponent or 0)


def _write_fraction(value: Fraction) -> str:
    """Write an exact decimal where one exists, else a reduced fraction."""
    twos = (value.denominator & -value.denominator).bit_length() - 1
    odd, fives = value.denominator >> twos, 0
    while odd % 5 == 0:
        odd, fives = odd // 5, fives + 1
    places = max(twos, fives) if odd == 1 else None
    if places is None:
        return f"{value.numerator}/{value.denominator}"
    digits = str(abs(value.numerator) * 10**places // value.denominator).rjust(places + 1, "0")
    sign = "-" if value < 0 else ""
    return sign + (f"{digits[:-places]}.{digits[-places:]}" if places else digits)


_MAX_ANSWER_CHARS = 1000
"""Characters beyond which an answer is compared as plain text."""
_MAX_DEPTH = 3
"""Brackets within brackets that are read element by element."""

_NO_ANSWERS = frozenset({"nan", "none", "null", "n/a", "[invalid]", "[invalidanswer]"})
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
    - Percentages stay apart from numbers: '50%' is '50%', not 0.5 and not 50, since answers in percent often
      omit the sign.
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
        return _short_key(answer) if len(answer) <= _MAX_ANSWER_CHARS else " ".join(answer.split()).casefold() or None
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
    """Return the key of a reference answer: of the answer it states ('#### 42', a box), else of all of it."""
    if reference is None:
        return None
    return answer_key(stated_answer(reference)) or answer_key(reference)


def answer_classes(
    answers: Iterable[str | float | None], equivalent: Callable[[str, str], bool] | None = None
) -> IntArray:
    """Give each answer to one problem its class number, in order of first appearance; -1 where there is no answer.

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
            same = (label for label, first in enumerate(firsts) if equivalent is not None and equivalent(first, answer))
            by_key[key] = next(same, len(firsts))
            if by_key[key] == len(firsts):
                firsts.append(answer)
        labels.append(by_key[key])
    return np.array(labels, dtype=np.int64)


def is_prose(answer: str) -> bool:
    """Say whether an answer is words, not mathematics: a formula parser takes 'east' and 'seat' for equal products."""
    text = tidy_answer(answer)
    return bool(_LETTERS.search(text)) and not any(
        character.isdigit() or character in "\\^_=+*/<>" for character in text
    )


@lru_cache(maxsize=1 << 16)
def _short_key(answer: str) -> str | None:
    text = tidy_answer(answer)
    if not text.strip(" .,;:!?-_*~'\"`$\\") or text.casefold() in _NO_ANSWERS:
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


def tidy_answer(answer: str) -> str:
    """Drop what does not change the meaning: delimiters, sizes, fonts, closing punctuation; spaces become single."""
    text = _unwrap(answer.translate(_SIGNS))
    if "\\" in text:
        text = stated_answer(text) or "" if text.startswith(("\\boxed", "\\fbox")) else text
        text = _SPACING.sub("", text)
        for _ in range(_MAX_DEPTH):
            text = _STYLE.sub(r"\1", text)
        text = _SHORT_FRACTION.sub(_expand_fraction, text)
        text = text.replace("\\%", "%").replace("\\$", "$")
    return _unwrap(_BLANK.sub(" ", text.replace("{,}", ",")))


def _unwrap(text: str) -> str:
    """Drop white space, closing punctuation and delimiters such as ``$...$`` from both ends."""
    for _ in range(2 * _MAX_DEPTH):
        before = text
        text = text.strip()
        if not text.endswith(".."):
            text = text.rstrip(".,;: ")
        for left, right in _WRAPPERS if text[:1] in _OPENERS else ():
            inside = text[len(left) : -len(right)]
            if inside and text.startswith(left) and text.endswith(right) and left not in inside:
                text = inside
                break
        if text == before:
            break
    return text


def _expand_fraction(found: re.Match[str]) -> str:
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
    if depth == _MAX_DEPTH or ("," not in text and not text.startswith(("\\{", "{"))):
        return None
    for left, right in (("\\{", "\\}"), ("{", "}"), ("(", ")"), ("(", "]"), ("[", ")"), ("[", "]")):
        parts = (
            _split_elements(text[len(left) : -len(right)]) if text.startswith(left) and text.endswith(right) else None
        )
        if parts is not None and (len(parts) > 1 or right[-1] == "}"):
            keys = [number_key(part) or _collection_key(part, depth + 1) or _text_key(part) for part in parts]
            return f"{{{','.join(sorted(set(keys)))}}}" if right[-1] == "}" else f"{left}{','.join(keys)}{right}"
    parts = _split_elements(text) or []
    numbers = [number_key(part) or _collection_key(part, depth + 1) for part in parts]
    return ",".join(key for key in numbers if key) if len(parts) > 1 and all(numbers) else None


def _split_elements(inside: str) -> list[str] | None:
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
