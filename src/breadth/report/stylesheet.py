"""The style sheet of the page: one set of roles for colours, redefined for dark screens, paper and forced colours.

It is written without angle brackets and ampersands, because it is escaped like any other text.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from breadth.report.style import DARK, FORCED, LIGHT, SHADES


@cache
def stylesheet() -> str:
    """Return the whole style sheet."""
    return "\n".join([color_rules(), _PAGE, _PROSE, _TABLES, _CHARTS, _PICTURES, token_rules(), _NARROW, _PRINT])


@cache
def chart_styles() -> str:
    """Return the rules of charts alone, for a picture in its own file."""
    return "\n".join([color_rules(), _CHARTS])


def color_rules() -> str:
    """Define the roles for every kind of screen."""
    roles = "\n".join(f".{name} {{ --c: var(--{name}); }}" for name in LIGHT if not name.startswith("shade"))
    themes = [
        role_colors(LIGHT),
        f"@media screen and (prefers-color-scheme: dark) {{ {role_colors(DARK)} }}",
        f"@media (forced-colors: active) {{ {role_colors(FORCED)} }}",
    ]
    return "\n".join([*themes, roles])


def role_colors(colors: Mapping[str, str]) -> str:
    """Return the colours of the roles as custom properties."""
    return ":root { " + " ".join(f"--{name}: {color};" for name, color in colors.items()) + " }"


def token_rules() -> str:
    """Shade each step and underline it more strongly, so steps differ without colour."""
    lines = ("1px dotted", "1px dashed", "1px solid", "2px solid", "3px double")
    weights = (400, 400, 400, 600, 700)
    return "\n".join(
        f".t{step} {{ background: var(--shade-{step}); border-bottom: {line} var(--ink); font-weight: {weight}; }}"
        for step, line, weight in zip(range(1, SHADES + 1), lines, weights, strict=True)
    )


_PAGE = """
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }
body {
  margin: 0 auto; max-width: 49rem; padding: 2.5rem 1.5rem 4rem;
  background: var(--paper); color: var(--ink);
  font: 400 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Noto Sans", Arial, sans-serif;
  overflow-wrap: break-word;
}
header { border-bottom: 1px solid var(--rule); padding-bottom: 1.5rem; }
h1, h2 {
  font-family: Charter, "Bitstream Charter", "Sitka Text", Cambria, "Noto Serif", Georgia, serif; line-height: 1.25;
  text-wrap: balance;
}
h1 { font-size: 2rem; font-weight: 600; margin: 0; letter-spacing: -0.01em; }
h2 { font-size: 1.3rem; font-weight: 600; margin: 0 0 0.75rem; }
p { margin: 0 0 0.75rem; }
ul { list-style: none; margin: 0; padding: 0; }
.brand { margin: 0 0 1.25rem; color: var(--muted); font-size: 0.8125rem; letter-spacing: 0.08em; }
.subtitle { margin: 0.5rem 0 0; color: var(--muted); font-size: 1.0625rem; }
section { margin-top: 3rem; }
footer { margin-top: 4rem; border-top: 1px solid var(--rule); padding-top: 1.5rem; font-size: 0.875rem; }
footer h2 { font-size: 1rem; }
.caption, .footnotes, .events { margin: 0.75rem 0 0; color: var(--muted); font-size: 0.875rem; line-height: 1.5; }
summary, .switch + label {
  display: inline-block; margin-top: 0.75rem; color: var(--note); font-size: 0.875rem; cursor: pointer;
}
summary { list-style-position: inside; display: list-item; }
:focus-visible { outline: 2px solid var(--note); outline-offset: 2px; }
"""

_PROSE = """
.text p { max-width: 40rem; }
.verdict { border-left: 4px solid var(--c); padding: 0.125rem 0 0.125rem 1.25rem; }
.verdict.unknown { border-left-style: dashed; }
.verdict h2 { margin-bottom: 0.5rem; }
.verdict p { max-width: 40rem; }
.severity {
  display: flex; align-items: center; gap: 0.5rem; margin: 0 0 0.5rem;
  color: var(--c); font-size: 0.875rem; font-weight: 600;
}
.severity span::first-letter { text-transform: uppercase; }
.sign { flex: none; }
.sign .outline { fill: var(--c); stroke: var(--c); stroke-width: 1.2; }
.sign .inner { fill: none; stroke: var(--paper); stroke-width: 2.2; stroke-linecap: round; stroke-linejoin: round; }
.sign.broken .outline { fill: none; stroke-width: 1.6; }
.sign.broken .inner { stroke: var(--c); }
dl { margin: 0; }
dd { margin: 0; font-variant-numeric: tabular-nums; }
.aside { display: block; color: var(--muted); font-size: 0.875rem; }
.range { color: var(--muted); white-space: nowrap; }
.absent { color: var(--muted); }
.numbers div, .legend span { min-width: 0; overflow-wrap: anywhere; }
.numbers { display: flex; flex-wrap: wrap; gap: 1rem 2.5rem; margin-top: 1.25rem; }
.numbers dt { color: var(--muted); font-size: 0.875rem; line-height: 1.4; }
.numbers dd { font-size: 1.25rem; line-height: 1.4; }
.numbers .range { font-size: 0.9375rem; }
.listed div {
  display: grid; grid-template-columns: minmax(8rem, 14rem) minmax(0, 1fr); gap: 0 1.5rem;
  padding: 0.5rem 0; border-top: 1px solid var(--grid);
}
.listed div:first-child { border-top: 0; }
.listed dt { color: var(--muted); overflow-wrap: anywhere; }
pre {
  margin: 0; padding: 1rem 1.125rem; white-space: pre-wrap; overflow-wrap: anywhere;
  border: 1px solid var(--rule); border-radius: 4px; background: var(--panel); tab-size: 4;
  font: 0.875rem/1.55 ui-monospace, "SF Mono", "Cascadia Mono", Menlo, Consolas, "Noto Sans Mono", monospace;
}
"""

_TABLES = """
.scroll { overflow-x: auto; }
table {
  border-collapse: collapse; width: 100%; border-bottom: 1px solid var(--ink);
  font-size: 0.9375rem; line-height: 1.45; font-variant-numeric: tabular-nums;
}
thead { border-top: 1px solid var(--ink); border-bottom: 1px solid var(--rule); }
th { font-weight: 600; text-align: left; vertical-align: bottom; }
th, td { padding: 0.4375rem 0 0.4375rem 1.5rem; }
th:first-child, td:first-child { padding-left: 0; }
td { vertical-align: top; min-width: 4rem; max-width: 24rem; overflow-wrap: break-word; }
.right { text-align: right; }
td.right { white-space: nowrap; overflow-wrap: normal; }
tbody tr + tr { border-top: 1px solid var(--grid); }
.rest tr:first-child { border-top: 1px solid var(--grid); }
sup { font-size: 0.6875rem; line-height: 0; color: var(--ink); }
.folding { display: flex; flex-direction: column; position: relative; }
.switch { position: absolute; bottom: 0; opacity: 0; }
.switch + label { order: 2; align-self: start; }
.switch:focus-visible + label { outline: 2px solid var(--note); outline-offset: 2px; }
.switch:not(:checked) ~ .scroll .rest { display: none; }
.switch:checked + label .folded, .switch:not(:checked) + label .unfolded { display: none; }
"""

_CHARTS = """
.legend { display: flex; flex-wrap: wrap; gap: 0.25rem 1.5rem; margin: 0 0 0.75rem; font-size: 0.875rem; }
.legend li { display: flex; align-items: center; gap: 0.5rem; }
.legend svg { flex: none; }
.chart { display: block; width: 100%; height: auto; overflow: visible; font-size: 12.5px; }
.wide { max-width: 720px; }
.narrow { display: none; max-width: 480px; }
.chart text { fill: var(--muted); font-variant-numeric: tabular-nums; }
.chart .axis { fill: var(--ink); }
.chart .name { fill: var(--c); font-weight: 600; }
.chart .flag { fill: var(--ink); font-weight: 600; }
.chart .nothing { font-size: 14px; }
.grid { fill: none; stroke: var(--grid); stroke-width: 1; }
.base { fill: none; stroke: var(--ink); stroke-width: 1; }
.event { fill: none; stroke: var(--muted); stroke-width: 1; stroke-dasharray: 2 3; }
.line { fill: none; stroke: var(--c); stroke-width: 1.8; stroke-linejoin: round; }
.line.dense { stroke-width: 1.1; }
.band { fill: var(--c); fill-opacity: 0.13; stroke: none; }
@media screen and (prefers-color-scheme: dark) { .band { fill-opacity: 0.24; } }
@media (forced-colors: active) { .grid { stroke-opacity: 0.4; } }
.edge { fill: none; stroke: var(--c); stroke-opacity: 0.45; stroke-width: 0.75; }
.bar { fill: none; stroke: var(--c); stroke-width: 1.2; }
.marker { stroke-width: 1.2; }
.marker.full { fill: var(--c); stroke: var(--paper); }
.marker.hollow { fill: var(--paper); stroke: var(--c); stroke-width: 1.6; }
.marker.open { fill: none; stroke: var(--c); stroke-width: 1.8; }
.events li { display: grid; grid-template-columns: 2em minmax(0, 1fr); }
.events .flag { white-space: nowrap; }
.events .flag { color: var(--ink); font-weight: 600; }
"""

_PICTURES = """
.problems li {
  display: grid; grid-template-columns: 11rem minmax(0, max-content) auto; justify-content: start; gap: 0 1.25rem;
  align-items: baseline; padding: 0.1875rem 0;
}
.problem { font-size: 0.9375rem; overflow-wrap: anywhere; }
.marks { display: flex; flex-wrap: wrap; gap: 0.25rem 0.625rem; align-self: center; }
.marks svg { display: block; }
.mark { stroke: var(--c); stroke-width: 1.6; }
.mark.full { fill: var(--c); }
.mark.open { fill: none; }
.count { font-size: 0.9375rem; font-variant-numeric: tabular-nums; text-align: right; min-width: 3.5rem; }
.scale { margin: 0 0 0.5rem; color: var(--muted); font-size: 0.875rem; }
.tokens {
  margin: 0; padding: 1rem 1.125rem; border: 1px solid var(--rule); border-radius: 4px;
  line-height: 1.9; white-space: pre-wrap; overflow-wrap: anywhere;
}
.kind {
  border: 1px solid var(--muted); border-radius: 3px; padding: 0.125rem 0.25rem;
  -webkit-box-decoration-break: clone; box-decoration-break: clone;
}
.kind-name { margin-right: 0.5em; color: var(--muted); font-size: 0.75rem; font-weight: 600; }
.tokens :focus { outline: 2px solid var(--note); }
@media (hover: none) {
  .tokens [title]:focus::after {
    content: attr(title); position: fixed; z-index: 1; left: 1rem; right: 1rem; bottom: 1rem; padding: 0.75rem 1rem;
    border: 1px solid var(--ink); border-radius: 4px; background: var(--paper); color: var(--ink);
    font-weight: 400; line-height: 1.4;
  }
}
"""

_NARROW = """
@media screen and (max-width: 640px) {
  body { padding: 1.5rem 1rem 3rem; }
  h1 { font-size: 1.625rem; }
  h2 { font-size: 1.1875rem; }
  section { margin-top: 2.5rem; }
  .verdict { padding-left: 1rem; }
  .wide { display: none; }
  .narrow { display: block; }
  .listed div { grid-template-columns: minmax(0, 1fr); }
  .problems li { grid-template-columns: minmax(0, 1fr) auto; justify-content: stretch; padding: 0.375rem 0; }
  .marks { grid-row: 2; grid-column: 1 / -1; }
  th, td { padding-left: 1rem; }
  td .range { display: block; font-size: 0.875rem; }
  th:first-child, td:first-child { position: sticky; left: 0; max-width: 40vw; background: var(--paper); }
}
"""

_PRINT = """
@media print {
  @page { margin: 18mm 16mm; }
  body { max-width: none; padding: 0; font-size: 10.5pt; }
  section { margin-top: 2rem; }
  section, .problems li, tr { break-inside: avoid; }
  section.table, section.trace, section.groups, section.listing { break-inside: auto; }
  h2 { break-after: avoid; }
  .scroll { overflow: visible; }
  td.right { white-space: normal; }
}
"""
