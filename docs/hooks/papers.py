"""Write the rows of mechanisms, strategies, stop rules and allocators into the page of papers, from their classes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from breadth.inference.catalogue import ALLOCATORS, STOP_RULES, STRATEGIES
from breadth.training.catalogue import MECHANISMS

MARK = "<!-- the rows of mechanisms and strategies -->"


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Put the rows in the place of the mark."""
    return markdown.replace(MARK, "\n".join(rows())) if page.file.src_uri == "papers.md" else markdown


def rows() -> Iterator[str]:
    """Yield a row for each class that has a paper."""
    for catalogue in (MECHANISMS, STRATEGIES, STOP_RULES, ALLOCATORS):
        for name, place in catalogue.entries.items():
            kind = catalogue.load(name)
            if kind.paper is not None:
                ours = [f"`{place.partition(':')[0].removeprefix('breadth.')}`"]
                ours += [f"recipe `{recipe}`" for recipe in getattr(kind, "recipes", ())]
                yield f"| {kind.paper.source} | {kind.paper.subject} | {'; '.join(ours)} | {kind.paper.differs} |"
