"""Generate the page of strategies, stop rules and allocators from their classes."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from mkdocs.structure.files import File, Files

from breadth.inference.catalogue import ALLOCATORS, STOP_RULES, STRATEGIES

INTRODUCTION = """# Strategies

What a policy may name: `breadth solve QUESTION --policy vote,n=4`, or `[strategy]` with `kind = "vote"` in a policy
file. The page of its class has every setting, the source of the defaults, and when it does harm. **Try it** is a small
example to copy; its settings are no recommendation. **Needs** is what the server has to offer.

"""


def on_files(files: Files, config: Any) -> Files:
    """Add the page."""
    files.append(File.generated(config, "strategies.md", content=page()))
    return files


def page() -> str:
    """Write the page."""
    lines = [INTRODUCTION, "| strategy | what it does | needs | try it |", "|---|---|---|---|"]
    for name, place in STRATEGIES.entries.items():
        kind = STRATEGIES.load(name)
        needs = kind.make_example().needs
        tried = f"`{policy_text(name, kind.example)}`" if in_words(kind.example) else "in a policy file"
        lines.append(f"| {link(name, place)} | {summary(kind)} | {', '.join(sorted(needs))} | {tried} |")
    for heading, catalogue in (("Stop rules", STOP_RULES), ("Allocators", ALLOCATORS)):
        lines += ["", f"## {heading}", "", "| name | what it does |", "|---|---|"]
        lines += [
            f"| {link(name, place)} | {summary(catalogue.load(name))} |" for name, place in catalogue.entries.items()
        ]
    return "\n".join([*lines, ""])


def link(name: str, place: str) -> str:
    """Return a part's name with a link to its class."""
    return f"[`{name}`](reference/{place.partition(':')[0]}.md)"


def summary(kind: type) -> str:
    """Return the first paragraph of a docstring as one line."""
    return " ".join((inspect.getdoc(kind) or "").partition("\n\n")[0].split())


def in_words(settings: Any) -> bool:
    """Say whether settings can be written behind ``--policy``: lists cannot."""
    return all(map(in_words, settings.values())) if isinstance(settings, Mapping) else not isinstance(settings, list)


def policy_text(name: str, settings: Mapping[str, Any]) -> str:
    """Return a strategy and its settings as ``--policy`` takes them."""
    return ",".join([name, *flat_settings(settings)])


def flat_settings(settings: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield settings as ``name=value``, nested ones as ``outer.inner=value``."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from flat_settings(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}={str(value).lower() if isinstance(value, bool) else value}"
