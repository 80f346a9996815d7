"""How the answer is found in a completion: stated, the last number, or the whole text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from breadth.base.checks import require
from breadth.measure.answers import answer_key, stated_answer

HOW = ("stated", "number", "whole")
_NUMBER = re.compile(
    r"""
    (?:(?<![\w)\]])[-−])?                          # a sign, not the dash of 3-5
    (?:(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|(?<!\d)\.\d+)
    (?:[eE][-+]?\d+)?(?:/\d+)?%?
    """,
    re.VERBOSE,
)


@dataclass(frozen=True)
class Reading:
    r"""Where to look for the answer in a text."""

    how: Literal["stated", "number", "whole"] = "stated"
    r"""stated: a ``\boxed{}``, an answer tag, '####' or 'the answer is'. number: a stated answer, else the last number.
    whole: the reply itself, for prompts that ask for nothing but the answer."""

    def __post_init__(self) -> None:
        require(self, "how", self.how in HOW, "one of " + ", ".join(HOW))

    def read(self, text: str, *, ended: bool = True) -> str | None:
        """Return the answer as written, or None when there is none.

        In a text cut at its cap only a stated answer counts, and not one that stands at the very end: it may be half of 12.5.
        """
        if self.how == "whole":
            return (text.strip() or None) if ended else None
        found = stated_answer(text)
        if found is not None:
            return found if ended or not text.rstrip(" .,").endswith(found) else None
        numbers = _NUMBER.findall(text) if self.how == "number" and ended else []
        return numbers[-1] if numbers else None

    def read_with_key(self, text: str, *, ended: bool = True) -> tuple[str | None, str | None]:
        """Return the answer as written and its canonical key; both None when there is none."""
        answer = self.read(text, ended=ended)
        key = answer_key(answer)
        return (answer, key) if key is not None else (None, None)
