"""Generate the page of all findings from their classes: what each means, and the first thing to do."""

from __future__ import annotations

from typing import Any

from mkdocs.structure.files import File, Files

from breadth.doctor.finding import FINDINGS

LOOPS = {
    "training": "In training",
    "configuration": "In the configuration",
    "inference": "At inference",
    "both": "Both",
}
INTRODUCTION = """# All findings

What the doctor can find, one line each. `breadth doctor --explain NAME` prints how it decides, with every threshold
and its reason. The doctor prints the exact setting for your trainer or server; this table names the first thing to do.
"""


def on_files(files: Files, config: Any) -> Files:
    """Add the page."""
    files.append(File.generated(config, "findings.md", content=page()))
    return files


def page() -> str:
    """Write the page: the findings of each loop, in the order of the catalogue."""
    checks = {name: FINDINGS.load(name) for name in FINDINGS.entries}
    parts = [INTRODUCTION]
    for loop, heading in LOOPS.items():
        parts += [f"## {heading}", "", "| finding | what it means | first thing to do |", "|---|---|---|"]
        found = {name: check for name, check in checks.items() if check.loop == loop}
        parts += [f"| `{name}` | {check.summary} | {check.first_step} |" for name, check in found.items()]
        parts.append("")
    return "\n".join(parts)
