"""The brace halt: nested braces, braces across tokens, stray ones."""

from __future__ import annotations

import pytest

from breadth.inference.halts.closed_brace import ClosedBrace


@pytest.mark.parametrize(
    ("tokens", "place"),
    [
        (["{", "42", "}", "."], 2),
        (["{\\frac", "{1}{2", "}", "}", " so"], 3),
        (["{4}."], 0),
        (["}", " {", "4"], None),
        (["}", " {", "4", "}"], 3),
        (["no", " brace"], None),
    ],
)
def test_it_ends_with_the_first_brace(tokens: list[str], place: int | None) -> None:
    watcher = ClosedBrace().watch()
    assert next((number for number, token in enumerate(tokens) if watcher.push(token, -0.1, 3.0)), None) == place
