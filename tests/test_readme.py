"""Every figure of the README is what the data and the programs give, not what someone remembers."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import breadth
from breadth.lab.demo.plan import ANCHOR
from breadth.measure.intervals import Interval
from breadth.report.cells import format_interval

ROOT = Path(__file__).parent.parent
DEMO = ROOT / "docs" / "data" / "lab" / "demo.json"
README = (ROOT / "README.md").read_text(encoding="utf-8")
PICTURE = ROOT / "docs" / "images" / "before-and-after.svg"


def corners() -> dict[str, Any]:
    page = json.loads(DEMO.read_text(encoding="utf-8"))
    found: dict[str, Any] = next(
        section for section in page["sections"] if section["kind"] == "table" and "four corners" in section["title"]
    )
    return found


def test_the_table_is_the_demos() -> None:
    for name, *cells in corners()["rows"]:
        texts = (format_interval(Interval(cell["value"], cell["low"], cell["high"]), decimals=2) for cell in cells)
        assert f"| {name} | {' | '.join(texts)} |" in README


def test_the_picture_is_a_picture() -> None:
    assert str(PICTURE.relative_to(ROOT)) in README
    root = ElementTree.parse(PICTURE).getroot()  # noqa: S314 - our own file
    assert root.tag.endswith("svg")


def block_after(heading: str) -> str:
    """Return the first code block behind a heading."""
    return README.partition(f"## {heading}")[2].split("```")[1]


def numbers_in(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w.-])\d+(?:\.\d+)?%?", text))


def unwrap(text: str) -> str:
    """Return a text on one line, without the marks of comments."""
    return " ".join(re.sub(r"^\s*#", "", text, flags=re.MULTILINE).split())


def test_the_doctors_page_is_what_it_prints(fixtures: Path) -> None:
    diagnosis = breadth.diagnose(fixtures / "training_logs" / "hs-zz27__incident_commander.log")
    printed = unwrap(repr(diagnosis))
    page = block_after("Which failure do I have?").replace("(the curve of the entropy)", "")
    shown = [unwrap(part) for line in page.splitlines()[2:] for part in line.split("...")]
    assert [part for part in shown if part not in printed] == []
    steps = re.search(r"entropy [\d.]+ nats at 1, [\d.]+ nats at (\d+)", printed)
    assert steps, "the curve's label says how many steps the log has"
    assert f"This is a public {steps[1]}-step TRL log" in README


def test_the_demo_is_described_as_it_is() -> None:
    page = json.loads(DEMO.read_text(encoding="utf-8"))
    assert "100 held-out problems, seed 0" in page["subtitle"]
    assert "100 held-out problems" in README
    assert f"ReferenceKL({ANCHOR:g})" in README
    assert "95% intervals" in str(page)
    assert "One training seed, 100 held-out problems, 95 % intervals over problems." in unwrap(README)


def test_the_python_it_asks_for_is_the_packages() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f"With Python {project['requires-python'].removeprefix('>=')} or newer" in README


def test_no_other_figure_is_in_the_readme() -> None:
    text = README.replace(block_after("Which failure do I have?"), "").replace(block_after("Answer with it"), "")
    rows = "\n".join(line for line in text.splitlines() if line.startswith("|"))
    named = {"3.11", "2.0", "100", "95", "30", f"{ANCHOR:g}"}  # Python, the licence, and what the tests above hold
    rest = numbers_in(re.sub(r"https?://\S+|localhost:\d+|pip install [^\n]+", "", text.replace(rows, "")))
    assert rest - named - numbers_in(rows) == set(), "a figure belongs in docs/results, or in a test here"


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"])
def test_every_link_of_the_pages_outside_the_documentation_leads_somewhere(page: str) -> None:
    text = re.sub(r"```.*?```", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL)
    for address in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" not in address:
            target, _, anchor = address.partition("#")
            assert (ROOT / target).is_file(), address
            headings = re.findall(r"^#+ (.+)$", (ROOT / target).read_text(encoding="utf-8"), re.MULTILINE)
            anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert not anchor or anchor in anchors, address


def test_the_documentation_is_built_so_that_a_broken_link_fails() -> None:
    make = (ROOT / "Makefile").read_text(encoding="utf-8")
    (build,) = re.findall(r"mkdocs build.*", make)
    assert build.split() == ["mkdocs", "build", "--strict"], "with --quiet mkdocs counts no warnings, so strict is off"
    assert "anchors: warn" in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
