"""A request as it is passed on: the client's own, with what the operator's policy says where the client says nothing."""

from __future__ import annotations

from typing import Any

from breadth.runtime.dialect import Dialect
from breadth.runtime.proxy.body import ALIASES, Call
from breadth.runtime.proxy.policies import Chosen


def outgoing(call: Call, chosen: Chosen, model: str, dialect: Dialect, cap: int | None = None) -> dict[str, Any]:
    """Return the body for the upstream; ``cap`` is the most tokens it may write where a budget says so.

    How to draw is filled in from a policy's file only: a policy in words (``single``) leaves it to the upstream's own defaults.
    """
    body = _drawn_as_filed(call, chosen, dialect) | dict(call.fields)
    if model:
        body["model"] = model
    if chosen.policy.system and isinstance(call.prompt, tuple):
        body["messages"] = [{"role": "system", "content": chosen.policy.system}, *call.prompt]
    if call.wishes.seed is not None:
        body["seed"] = call.wishes.seed
    if call.stream:
        body["stream_options"] = {**body.get("stream_options", {}), "include_usage": True}
    if cap is not None:
        body = {name: value for name, value in body.items() if ALIASES.get(name) != "max_tokens"} | {"max_tokens": cap}
    return body | _thinking(call, chosen, dialect)


def _drawn_as_filed(call: Call, chosen: Chosen, dialect: Dialect) -> dict[str, Any]:
    """Return the sampling fields of a policy's file that the client does not set."""
    if not chosen.sampled:
        return {}
    filed = dialect.sampling_fields(chosen.policy.sampling)
    return {name: value for name, value in filed.items() if ALIASES.get(name, name) not in call.chosen}


def _thinking(call: Call, chosen: Chosen, dialect: Dialect) -> dict[str, Any]:
    """Return the fields that cap thinking; raises StrategyError when the upstream has none."""
    wished, filed = call.wishes.thinking_tokens, chosen.policy.sampling.thinking_tokens
    tokens = filed if wished is None else wished
    return {} if tokens is None else dialect.thinking_fields(tokens)
