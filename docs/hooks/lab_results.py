"""Generate the page of the lab's results from the data that its experiments left: every table and verdict, nothing typed in by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from breadth.measure.intervals import Interval
from breadth.report.cells import cell_text

DATA = Path(__file__).parents[1] / "data" / "lab"
ORDER = ("gate", "choices", "choices-several", "corners", "confirmation", "smollm2", "remedies", "known-truth")
INTRODUCTION = """# Results of the lab

What the [experiments](how-to/lab.md) found on the base that ships, as they printed it. Each was made by the command above its tables, on
two slow cores; the settings of every trial stand in `docs/data/lab/`. What does not show is said not to.
"""


def on_files(files: Files, config: Any) -> Files:
    """Add the page."""
    files.append(File.generated(config, "lab-results.md", content=page()))
    return files


def page() -> str:
    """Write the page."""
    found = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(DATA.glob("*.json"))}
    names = [*(name for name in ORDER if name in found), *(name for name in found if name not in ORDER)]
    return "\n".join([INTRODUCTION, *(line for name in names for line in _experiment(found[name]))])


def _experiment(found: dict[str, Any]) -> list[str]:
    shown = found.get("page", found)
    command = found.get("command") or next(one["value"] for one in shown["provenance"] if one["name"] == "command")
    lines = [f"## {shown['title']}", "", shown["subtitle"], "", f"`{command}`", ""]
    for section in shown["sections"]:
        if section["kind"] == "verdict":
            lines += [f"**{_safe(section['headline'])}** {_safe(section['body'])}", ""]
            lines += [
                f"- {_safe(one['name'])}: {_cell(one['value'], one.get('unit') or '')}" for one in section["numbers"]
            ]
            lines.append("")
        elif section["kind"] == "table":
            lines += _table(section)
    return lines


def _table(table: dict[str, Any]) -> list[str]:
    heads = [f"{one['name']}{' (nats)' if one.get('unit') == 'nats' else ''}" for one in table["columns"]]
    rows = [
        [_cell(cell, one.get("unit") or "") for cell, one in zip(row, table["columns"], strict=True)]
        for row in table["rows"]
    ]
    body = [f"| {' | '.join(row)} |" for row in ([_safe(head) for head in heads], ["---"] * len(heads), *rows)]
    return [f"### {_safe(table['title'])}", "", *body, "", _safe(table["note"]), ""]


def _cell(cell: Any, unit: str) -> str:
    if isinstance(cell, dict) and "missing" in cell:
        return f"({_safe(cell['missing'])})"
    if isinstance(cell, dict):
        cell = Interval(float(cell["value"]), float(cell["low"]), float(cell["high"]))
    if isinstance(cell, str):
        return _safe(cell)
    return "" if cell is None else cell_text(cell, "%" if unit == "fraction" else "")


def _safe(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")
