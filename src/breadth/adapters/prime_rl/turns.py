"""Text of chat turns as verifiers and OpenAI-compatible servers write them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from breadth.adapters.rows import as_text


def conversation(turns: Iterable[Any]) -> str:
    """Return turns as one text, each under its role."""
    return "\n".join(f"{as_text(turn.get('role') or '')}: {turn_text(turn)}" for turn in turns if isinstance(turn, Mapping))


def spoken(completion: Any) -> str:
    """Return what the policy wrote: its own turns of a conversation, or a plain text as it is."""
    if not isinstance(completion, list) or not all(isinstance(turn, Mapping) for turn in completion):
        return as_text(completion)
    return "\n\n".join(text for turn in completion if turn.get("role", "assistant") == "assistant" and (text := turn_text(turn)))


def turn_text(turn: Mapping[str, Any]) -> str:
    """Return one turn's text: reasoning first where it is kept apart, then the reply, then the tools it calls."""
    calls = turn.get("tool_calls")
    parts = [_content(turn.get("reasoning_content")), _content(turn.get("content"))]
    return "\n\n".join(part for part in (*parts, *map(_call, calls if isinstance(calls, list) else ())) if part)


def _content(content: Any) -> str:
    """Return plain content as it is, of content in parts the texts."""
    if isinstance(content, list):
        return "\n".join(as_text(part["text"]) for part in content if isinstance(part, Mapping) and "text" in part)
    return "" if content is None else as_text(content)


def _call(call: Any) -> str:
    body = call.get("function", call) if isinstance(call, Mapping) else call
    if isinstance(body, Mapping) and "name" in body:
        return f"{as_text(body['name'])}({as_text(body.get('arguments', ''))})"
    return as_text(body)
