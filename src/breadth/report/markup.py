"""Build markup that cannot be broken: every text and attribute is escaped on output, with no way around it.

A tree of ``Element`` is made of known tags and attributes and of text. There is no raw string of markup anywhere: even
the style sheet goes through the same escaping (and is written so that escaping leaves it alone). No tag that loads or
runs anything and no attribute that can hold an address or a script is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from typing import TypeAlias

from breadth.report.plaintext import strip_escapes

TAGS = frozenset(
    {
        *(
            "html",
            "head",
            "meta",
            "title",
            "style",
            "body",
            "main",
            "header",
            "footer",
            "section",
            "h1",
            "h2",
            "p",
            "div",
            "span",
            "sup",
        ),
        *(
            "table",
            "thead",
            "tbody",
            "tr",
            "th",
            "td",
            "dl",
            "dt",
            "dd",
            "ul",
            "li",
            "pre",
            "code",
            "details",
            "summary",
            "input",
            "label",
        ),
        *("svg", "path", "text", "desc"),
    }
)
"""Every element a page may hold."""

ATTRIBUTES = frozenset(
    {
        *(
            "lang",
            "charset",
            "name",
            "content",
            "http-equiv",
            "class",
            "id",
            "title",
            "role",
            "tabindex",
            "type",
            "for",
            "scope",
        ),
        *("aria-label", "aria-labelledby", "aria-hidden"),
        *("viewBox", "width", "height", "x", "y", "d", "text-anchor", "stroke-dasharray"),
    }
)
"""Every attribute an element may have."""

_VOID = frozenset({"meta", "input"})


@dataclass(frozen=True)
class Element:
    """One element with its attributes and what it contains."""

    tag: str
    """Its name, one of ``TAGS``."""
    children: tuple[Node, ...] = ()
    """Elements and text, in order."""
    attributes: Mapping[str, str] = field(default_factory=dict)
    """Name (one of ``ATTRIBUTES``) -> value."""

    def __post_init__(self) -> None:
        unknown = [name for name in self.attributes if name not in ATTRIBUTES]
        if self.tag not in TAGS or unknown:
            raise ValueError(f"<{self.tag} {' '.join(unknown)}> is not allowed on a page")
        if self.tag in _VOID and self.children:
            raise ValueError(f"<{self.tag}> holds nothing")

    def source(self) -> str:
        """Return the element as HTML."""
        inside = "".join(
            escape(strip_escapes(child), quote=False) if isinstance(child, str) else child.source()
            for child in self.children
        )
        attributes = "".join(f' {name}="{escape(strip_escapes(value))}"' for name, value in self.attributes.items())
        return f"<{self.tag}{attributes}>" + ("" if self.tag in _VOID else f"{inside}</{self.tag}>")


Node: TypeAlias = Element | str
"""An element, or text (always text: it can never become an element)."""


def element(tag: str, *children: Node | None, **attributes: str | float | None) -> Element:
    """Make an element; None among children or attributes is left out.

    Underscores in attribute names become hyphens and a last one is dropped, so ``class_`` and ``aria_label`` can be
    written. Floats are shortened to two decimals: nothing on a screen is finer.
    """
    given = {
        name.rstrip("_").replace("_", "-"): value if isinstance(value, str) else format_coordinate(value)
        for name, value in attributes.items()
        if value is not None
    }
    return Element(tag, tuple(child for child in children if child is not None), given)


def format_coordinate(value: float) -> str:
    """Format a coordinate with at most two decimals."""
    return f"{value:.2f}".rstrip("0").rstrip(".")
