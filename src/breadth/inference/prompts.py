"""Changes to what a strategy asks: further turns, a system line, a suffix to the question, another model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from breadth.inference.records import Answer, Ask, Fork, Message, Prompt, Run


def with_turns(prompt: Prompt, turns: Sequence[tuple[str, str]]) -> Prompt:
    """Return a prompt followed by turns of (reply, user message); a text to continue gets them as text."""
    if isinstance(prompt, str):
        return prompt + "".join(f"{reply}\n\n{message}\n\n" for reply, message in turns)
    added: list[Message] = []
    for reply, message in turns:
        # Servers refuse an empty message.
        added += [{"role": "assistant", "content": reply or "(no reply)"}, {"role": "user", "content": message}]
    return (*prompt, *added)


def with_suffix(prompt: Prompt, suffix: str) -> Prompt:
    """Return a prompt whose last user message ends with the suffix; a text to continue begins with it."""
    if not suffix:
        return prompt
    if isinstance(prompt, str):
        return f"{suffix}\n\n{prompt}"
    last = max((place for place, message in enumerate(prompt) if message.get("role") == "user"), default=None)
    if last is None:
        return (*prompt, {"role": "user", "content": suffix})
    message = {**prompt[last], "content": append_text(prompt[last].get("content"), suffix)}
    return (*prompt[:last], message, *prompt[last + 1 :])


def with_system(prompt: Prompt, system: str) -> Prompt:
    """Return a prompt whose system message ends with, or is, the given line; a text to continue begins with it."""
    if not system:
        return prompt
    if isinstance(prompt, str):
        return f"{system}\n\n{prompt}"
    if prompt and prompt[0].get("role") == "system":
        return ({**prompt[0], "content": append_text(prompt[0].get("content"), system)}, *prompt[1:])
    return ({"role": "system", "content": system}, *prompt)


def append_text(content: Any, text: str) -> Any:
    """Return a message's content, a text or a list of parts, with a text behind it."""
    if isinstance(content, (list, tuple)):
        return [*content, {"type": "text", "text": text}]
    return f"{content}\n\n{text}" if content else text


def rewrite_asks(run: Run, change: Callable[[Ask], Ask]) -> Run:
    """Run a strategy and change every `Ask` of it and of the runs it forks."""
    reply: Any = None
    try:
        while True:
            try:
                request = run.send(reply)
            except StopIteration as end:
                answer: Answer = end.value
                return answer
            if isinstance(request, Ask):
                request = change(request)
            elif isinstance(request, Fork):
                request = replace(request, runs=tuple(rewrite_asks(part, change) for part in request.runs))
            reply = yield request
    finally:
        run.close()


def with_model(run: Run, model: str) -> Run:
    """Run a strategy with another model; requests that name a model keep it, an empty name changes nothing."""
    return rewrite_asks(run, lambda ask: replace(ask, model=model) if ask.model is None else ask) if model else run
