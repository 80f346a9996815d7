"""The README's table and picture are what the demo found, not what someone remembers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from breadth.measure.intervals import Interval
from breadth.report.cells import interval

ROOT = Path(__file__).parent.parent
DEMO = ROOT / "docs" / "data" / "lab" / "demo.json"
PICTURE = ROOT / "docs" / "images" / "before-and-after.svg"


def corners() -> dict[str, Any]:
    page = json.loads(DEMO.read_text(encoding="utf-8"))
    found: dict[str, Any] = next(
        one for one in page["sections"] if one["kind"] == "table" and "four corners" in one["title"]
    )
    return found


def test_the_table_is_the_demos() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for name, *cells in corners()["rows"]:
        row = next(line for line in readme.splitlines() if line.startswith(f"| {name}"))
        for cell in cells:
            assert interval(Interval(cell["value"], cell["low"], cell["high"]), decimals=2) in row


def test_the_picture_is_a_picture() -> None:
    assert str(PICTURE.relative_to(ROOT)) in (ROOT / "README.md").read_text(encoding="utf-8")
    root = ElementTree.parse(PICTURE).getroot()  # noqa: S314 - our own file
    assert root.tag.endswith("svg")
