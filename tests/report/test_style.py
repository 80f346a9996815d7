"""Every pair of colours that meet on the page is legible, and nothing is told by colour alone."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from breadth.report.sections import Outcome, Severity
from breadth.report.style import (
    ASCII_FOR,
    DARK,
    FORCED,
    LIGHT,
    OUTCOMES,
    SEVERITIES,
    SHADES,
    TERMINAL_COLORS,
    line_style,
    line_symbol,
)

SERIES = [f"series-{index}" for index in range(1, 7)]
WORDS = ["ink", "muted", "critical", "warning", "note", "good", "unknown", *SERIES]


def luminance(color: str) -> float:
    """Relative luminance of WCAG 2."""
    parts = [int(color[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """Contrast ratio of WCAG 2."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_contrast_itself() -> None:
    # The two ends WCAG gives, and a grey worked out by hand: 0x77 = 119, ((119/255 + .055)/1.055)**2.4 = 0.1845,
    # 1.05/0.2345 = 4.48.
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("role", WORDS)
def test_words_are_legible_on_paper(theme: Mapping[str, str], role: str) -> None:
    assert contrast(theme[role], theme["paper"]) >= 4.5


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("ground", ["panel", *(f"shade-{step}" for step in range(SHADES + 1))])
def test_ink_is_legible_on_every_ground(theme: Mapping[str, str], ground: str) -> None:
    assert contrast(theme["ink"], theme[ground]) >= 4.5


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_shades_grow_away_from_the_paper(theme: Mapping[str, str]) -> None:
    steps = [contrast(theme["paper"], theme[f"shade-{step}"]) for step in range(SHADES + 1)]
    assert steps == sorted(steps)
    assert len(set(steps)) == SHADES + 1


def test_all_themes_define_the_same_roles() -> None:
    assert set(LIGHT) == set(DARK) == set(FORCED)
    used = {sign.color for sign in (*SEVERITIES.values(), *OUTCOMES.values())} | {
        line_style(i).color for i in range(20)
    }
    assert used <= set(LIGHT)
    assert used <= set(TERMINAL_COLORS)


def test_every_meaning_has_its_own_mark() -> None:
    assert set(SEVERITIES) == set(Severity)
    assert set(OUTCOMES) == set(Outcome)
    for signs in (SEVERITIES.values(), OUTCOMES.values()):
        assert len({sign.symbol for sign in signs}) == len({sign.ascii for sign in signs}) == len(signs)
        assert all(sign.ascii.isascii() for sign in signs)


def test_thirty_lines_are_told_apart_without_colour() -> None:
    assert len({(line_style(i).dash, line_style(i).marker) for i in range(30)}) == 30
    assert len({line_style(i).dash for i in range(6)}) == 6


@pytest.mark.parametrize("ascii_only", [True, False])
@pytest.mark.parametrize("count", [1, 6, 7, 26])
def test_lines_in_the_terminal_have_their_own_symbol(count: int, ascii_only: bool) -> None:
    symbols = {line_symbol(index, count, ascii_only=ascii_only) for index in range(count)}
    assert len(symbols) == count
    assert not ascii_only or all(symbol.isascii() for symbol in symbols)


def test_what_stands_for_a_character_is_ascii() -> None:
    assert all(text.isascii() for text in ASCII_FOR.values())
    assert {OUTCOMES[kind].symbol for kind in Outcome} <= set(ASCII_FOR)
