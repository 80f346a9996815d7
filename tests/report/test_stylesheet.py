"""The style sheet: complete, self-contained, and untouched by escaping."""

from __future__ import annotations

import re

from breadth.report.markup import element
from breadth.report.style import DARK, FORCED, LIGHT, SHADES
from breadth.report.stylesheet import stylesheet


def test_escaping_leaves_it_alone() -> None:
    assert element("style", stylesheet()).source() == f"<style>{stylesheet()}</style>"


def test_it_loads_nothing() -> None:
    assert not re.search(r"url\(|@import|@font-face|http|expression|javascript", stylesheet(), re.IGNORECASE)


def test_it_is_well_formed() -> None:
    assert stylesheet().count("{") == stylesheet().count("}")
    depth = 0
    for character in stylesheet():
        depth += {"{": 1, "}": -1}.get(character, 0)
        assert 0 <= depth <= 3


def test_every_colour_used_is_defined_in_every_theme() -> None:
    used = set(re.findall(r"var\(--([a-z0-9-]+)\)", stylesheet())) - {"c"}
    assert used <= set(LIGHT)
    for theme in (LIGHT, DARK, FORCED):
        for name, color in theme.items():
            assert f"--{name}: {color};" in stylesheet()


def test_colours_stand_in_the_themes_only() -> None:
    assert set(re.findall(r"#[0-9a-f]{6}", stylesheet())) == set(LIGHT.values()) | set(DARK.values())


def test_it_knows_dark_paper_phone_and_forced_colours() -> None:
    for query in (
        "prefers-color-scheme: dark",
        "@media print",
        "max-width: 640px",
        "forced-colors: active",
        "hover: none",
    ):
        assert query in stylesheet()


def test_every_step_has_its_own_underline() -> None:
    lines = re.findall(r"\.t(\d) \{[^}]*border-bottom: ([^;]+) var", stylesheet())
    assert [int(step) for step, _ in lines] == list(range(1, SHADES + 1))
    assert len({line for _, line in lines}) == SHADES


def test_a_patch_wraps_and_never_scrolls_sideways() -> None:
    (rule,) = re.findall(r"^pre \{([^}]*)\}", stylesheet(), re.MULTILINE)
    assert "white-space: pre-wrap" in rule
    assert "overflow-x" not in rule
