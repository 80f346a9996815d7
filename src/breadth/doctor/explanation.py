"""What a finding means and how it is judged, from where it is written down: its docstring and the reasons of its constants."""

from __future__ import annotations

import ast
import inspect
from dataclasses import fields
from itertools import pairwise
from textwrap import dedent
from typing import Any

from breadth.doctor.catalogue import FINDINGS
from breadth.report.sections import Fact, Facts, Page, Section, Text


def explanation(name: str) -> Page:
    """Explain one finding."""
    check = FINDINGS.load(name)
    sections: list[Section] = [Text(_prose(inspect.getdoc(check) or ""))]
    why = reasons(type(check))
    constants = [
        Fact(field.name, _shown(getattr(check, field.name)), note=why.get(field.name, "")) for field in fields(check)
    ]
    if constants:
        sections.append(Facts("Constants, and why", constants))
    if check.causes:
        sections.append(Facts("What may be behind it", [Fact("other findings", ", ".join(check.causes))]))
    return Page(name, sections, subtitle=f"a finding of the doctor, about {_about(check)}")


def listing() -> Page:
    """List every finding with its first sentence."""
    facts = [
        Fact(name, (inspect.getdoc(check) or "").partition("\n")[0], note=_about(check)) for name, check in FINDINGS
    ]
    return Page("What the doctor looks for", [Facts("Findings", facts)])


def _about(check: Any) -> str:
    return {
        "training": "training",
        "inference": "inference",
        "both": "both loops",
        "configuration": "the configuration",
    }[check.loop]


def _shown(value: Any) -> Any:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else value


def _prose(text: str) -> str:
    """Join lines that were only broken to fit the file."""
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def reasons(cls: type) -> dict[str, str]:
    """Return the text under each field: the one place where a constant's reason stands."""
    body = ast.parse(dedent(inspect.getsource(cls))).body[0]
    found: dict[str, str] = {}
    nodes = body.body if isinstance(body, ast.ClassDef) else []
    for before, after in pairwise(nodes):
        if isinstance(before, ast.AnnAssign) and isinstance(before.target, ast.Name) and isinstance(after, ast.Expr):
            value = after.value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                found[before.target.id] = " ".join(value.value.split())
    return found
