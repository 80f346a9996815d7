"""Read YAML as plain values: no tag makes an object, and no anchor unfolds without end."""

from __future__ import annotations

import re
from typing import Any

import yaml

from breadth.adapters.configs import EXPONENT

MOST_NODES = 50_000
"""Values a table may unfold to: an anchor that is used again and again multiplies them."""


class _Plain(yaml.SafeLoader):
    """PyYAML's safe loader: plain values only, no tag makes an object."""


class _Exponents(_Plain):
    """The same with numbers in scientific notation, as Hydra's loader has them."""


_Exponents.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(rf"^(?:{EXPONENT.pattern})$"), list("-+.0123456789")
)


def loaded(text: str, *, exponents: bool = False) -> Any:
    """Return what a YAML text holds; a text that is none, or whose anchors would unfold without end, is a ValueError."""
    try:
        return _value((_Exponents if exponents else _Plain)(text))
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def _value(loader: _Plain) -> Any:
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        if _unfolded(node, {}) > MOST_NODES:
            raise ValueError(f"it unfolds to more than {MOST_NODES:,} values")
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _unfolded(node: yaml.Node, counted: dict[int, int]) -> int:
    """Count the values a node stands for, every use of an anchor anew."""
    known = counted.get(id(node))
    if known is not None:
        if known < 0:
            raise ValueError("an anchor contains itself")
        return known
    counted[id(node)] = -1
    inside: list[yaml.Node] = []
    if isinstance(node, yaml.SequenceNode):
        inside = node.value
    elif isinstance(node, yaml.MappingNode):
        inside = [one for pair in node.value for one in pair]
    total = 1
    for one in inside:
        total = min(total + _unfolded(one, counted), MOST_NODES + 1)
    counted[id(node)] = total
    return total
