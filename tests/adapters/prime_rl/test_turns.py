"""Text of chat turns."""

from __future__ import annotations

from typing import Any

import pytest

from breadth.adapters.prime_rl.turns import conversation, spoken, turn_text


@pytest.mark.parametrize(
    ("turn", "text"),
    [
        ({"role": "assistant", "content": "4"}, "4"),
        ({"role": "assistant", "reasoning_content": "2+2", "content": "4"}, "2+2\n\n4"),
        (
            {"role": "user", "content": [{"type": "text", "text": "see"}, {"type": "image_url"}, {"type": "text", "text": "this"}]},
            "see\nthis",
        ),
        ({"role": "assistant", "content": None, "tool_calls": [{"id": "1", "name": "add", "arguments": '{"a": 2}'}]}, 'add({"a": 2})'),
        ({"role": "assistant", "content": "so", "tool_calls": [{"function": {"name": "add", "arguments": "{}"}}]}, "so\n\nadd({})"),
        ({"role": "assistant", "tool_calls": ['{"name": "add"}']}, '{"name": "add"}'),
        ({"role": "assistant"}, ""),
    ],
)
def test_turn_text(turn: dict[str, Any], text: str) -> None:
    assert turn_text(turn) == text


def test_a_conversation_names_its_roles() -> None:
    assert (
        conversation([{"role": "system", "content": "be brief"}, {"role": "user", "content": "2+2?"}, "noise"])
        == "system: be brief\nuser: 2+2?"
    )


def test_spoken_is_what_the_policy_wrote() -> None:
    turns = [{"role": "assistant", "content": "look"}, {"role": "tool", "content": "5"}, {"role": "assistant", "content": "five"}]
    assert spoken(turns) == "look\n\nfive"
    assert spoken("plain") == "plain"
    assert spoken([]) == ""
    assert spoken([1]) == "[1]"
