"""Find the answers a completion states: boxes, answer tags, '####' lines and 'the answer is' phrases, in linear time."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import NamedTuple

MAX_PHRASE_CHARS = 100
"""Characters after 'the answer is' beyond which it is talk, not an answer."""

_BOX = re.compile(r"\\(?:boxed|fbox)\s{0,3}(?:\{|(-?\d[\d.,/]{0,50}))")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_DEPTH = {"{": 1, "}": -1}
_HASHES = re.compile(r"####[ \t]{0,4}([^\n#][^\n]{0,199})")
_HASH_NUMBER = re.compile(r"[-+]?[$€£¥]?\s?-?\d[\d,]*(?:\.\d+)?(?:/\d+)?\s?\\?%?\.?")
_HASH_LAST = re.compile(r"[-+]?[$€£¥\\]|[-+]?\d+(?![.):]\s|\d)|\(?[A-J]\)?\.?$")
_PHRASE = re.compile(
    r"(?<![A-Za-z])[Aa](?:nswer|NSWER)(?:\*\*|__)?\s{0,2}(?::|=|(?:is|IS)\b:?)[\s*_:]{0,8}([^\n]{1,300})"
)
_MATHS = re.compile(r"\$\$?(?!\s?-?[\d,.]+(?:[\s.,;!?]|$))([^$]+)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]")
_SENTENCE_END = re.compile(r"[.!?;](?=\s|$)|\*\*|</")
_NO_ANSWER = re.compile(r"(?:not|correct|incorrect|wrong|right)\b", re.IGNORECASE)


class _Statement(NamedTuple):
    start: int
    end: int
    answer: str


def stated_answer(text: str) -> str | None:
    r"""Return the answer a completion finally states, as written, or None when it states none.

    The last of: a closed ``\boxed{...}`` or ``\fbox{...}`` (braces balanced; the innermost when nested), a closed
    ``<answer>...</answer>``, a ``#### 42`` line. Only when there is none of these, the last phrase of the kind 'the
    (final) answer is ...' or 'Answer: ...', for prose says 'answer' without meaning it. A box or tag that was cut off
    is no statement: half an answer would vote for something else. A ``####`` heading counts only with a number behind
    it.

    Each search runs from the end and stops at the first hit; all work is linear in the text, whatever is in it.
    """
    return _plain_box(text) or _last_statement(text)


def _plain_box(text: str) -> str | None:
    r"""Read the commonest ending, ``\boxed{42}`` with plain prose behind it, at an eighth of the cost of the searches."""
    start = text.rfind("\\boxed{")
    end = text.find("}", start) if start >= 0 else -1
    if end < 0:
        return None
    content, rest = text[start + 7 : end], text[end + 1 :]
    if "{" in content or "\\" in content or "\\" in rest or "<" in rest or "#" in rest:
        return None
    return content.strip() or None


def _last_statement(text: str) -> str | None:
    marked = [statement for search in _marks_in(text) if (statement := next(search(text), None))]
    chosen = max(marked) if marked else next(_phrases(text), None)
    return chosen.answer if chosen else None


def stated_answers(text: str) -> list[tuple[int, str]]:
    r"""Return every answer the text states, as (position, answer) in reading order: what oscillation and repetition count.

    Marks and phrases both count here. Where one statement holds another ('the answer is \boxed{5}') only the more
    explicit one does. `stated_answer` is the last marked one among these, or the last one when none is marked.
    """
    marked = sorted(statement for search in _marks_in(text) for statement in search(text))
    starts = [statement.start for statement in marked]
    phrases = [phrase for phrase in _phrases(text) if not _inside_one(phrase, marked, starts)]
    return [
        (statement.start, statement.answer)
        for statement in sorted(marked + phrases)
        if not _holds_one(statement, starts)
    ]


def _marks_in(text: str) -> list[Callable[[str], Iterator[_Statement]]]:
    """Leave out searches whose first character the text lacks: that test costs a twentieth of the search."""
    return [search for sign, search in (("\\", _boxes), ("<", _tags), ("#", _hash_lines)) if sign in text]


def _holds_one(statement: _Statement, starts: list[int]) -> bool:
    following = bisect_right(starts, statement.start)
    return following < len(starts) and starts[following] < statement.end


def _inside_one(phrase: _Statement, marked: list[_Statement], starts: list[int]) -> bool:
    before = bisect_right(starts, phrase.start) - 1
    return before >= 0 and phrase.start < marked[before].end


def _backwards(text: str, *marks: str) -> Iterator[int]:
    """Yield where the marks begin, last first; each stretch of text is searched once per mark."""
    places = {mark: text.rfind(mark) for mark in marks}
    while True:
        mark = max(places, key=places.__getitem__)
        place = places[mark]
        if place < 0:
            return
        yield place
        places[mark] = text.rfind(mark, 0, place)


def _boxes(text: str) -> Iterator[_Statement]:
    limit = len(text)
    for place in _backwards(text, "box"):
        start = place - 1 if text.startswith("boxed", place) else place - 2
        opened = _BOX.match(text, max(start, 0))
        if not opened:
            continue
        end = _closing_brace(text, opened.end(), limit) if opened[1] is None else opened.end()
        # Nothing before this box may close behind its start: it would hold this box, or be as unclosed as this one.
        limit = start
        content = text[opened.end() : max(end, 0)] if opened[1] is None else opened[1].rstrip(".,/")
        if content.strip():
            yield _Statement(start, end, content.strip())


def _closing_brace(text: str, start: int, limit: int) -> int:
    """Return where the brace opened before ``start`` closes, or -1; escaped braces are text."""
    depth = 1
    for token in _BRACE.finditer(text, start, limit):
        depth += _DEPTH.get(token[0], 0)
        if depth == 0:
            return token.start()
    return -1


def _tags(text: str) -> Iterator[_Statement]:
    limit = len(text)
    for start in _backwards(text, "<answer>"):
        inside = start + len("<answer>")
        end = text.find("</answer>", inside, limit)
        limit = start
        content = text[inside : max(end, 0)].strip()
        if content:
            phrase = next(_phrases(content), None)
            yield _Statement(start, end, phrase.answer if phrase else content)


def _hash_lines(text: str) -> Iterator[_Statement]:
    last = -1
    for start in _backwards(text, "####"):
        last = last if last >= 0 else len(text.rstrip())
        line = _HASHES.match(text, start)
        content = line[1].strip() if line else ""
        # '#### 3. Next step' is a heading; what follows the last '####' of all may be '#### 18 dollars'.
        if line and (_HASH_NUMBER.fullmatch(content) or (line.end() >= last and _HASH_LAST.match(content))):
            yield _Statement(start, line.end(), content)


def _phrases(text: str) -> Iterator[_Statement]:
    for place in _backwards(text, "nswer", "NSWER"):
        phrase = _PHRASE.match(text, place - 1) if place else None
        if phrase:
            answer, length = _spoken_answer(phrase[1])
            if 0 < len(answer) <= MAX_PHRASE_CHARS and not _NO_ANSWER.match(answer):
                yield _Statement(phrase.start(), phrase.start(1) + length, answer)


def _spoken_answer(content: str) -> tuple[str, int]:
    """Cut the rest of a line down to the answer at its beginning, and say how far that reaches."""
    maths = _MATHS.match(content)
    if maths:
        return next(group for group in maths.groups() if group).strip(), maths.end()
    sentence_end = _SENTENCE_END.search(content)
    end = sentence_end.start() if sentence_end else len(content)
    return content[:end].strip(" \t*_`\"'"), end
