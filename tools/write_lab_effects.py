"""Write the table of `breadth.doctor.lab_effects` from docs/data/lab/: no number is typed in by hand.

The anchor was confirmed on other problems and seeds with everything fixed beforehand; its numbers are the confirmed
ones, all others those of the remedies experiment.

python tools/write_lab_effects.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LAB, MODULE = ROOT / "docs" / "data" / "lab", ROOT / "src" / "breadth" / "doctor" / "lab_effects.py"
TABLE = "LAB_EFFECTS: Mapping[str, LabEffect] = MappingProxyType("
CONFIRMED = "anchor"
DECIMALS = 4
SETTINGS = {
    "clip-higher": ("clipped-policy", "high", "at an upper clip of {:g}"),
    "gppo": ("gradient-preserving", "high", "at an upper clip of {:g}"),
    "kl-cov": ("kl-cov", "share", "on {:.1%} of the tokens"),
    "clip-cov": ("clip-cov", "share", "on {:.1%} of the tokens"),
    "entropy-bonus": ("entropy-bonus", "coefficient", "at a coefficient of {:g}"),
    "entropy-target": ("entropy-target", "target_share", "at {:.0%} of the start"),
    "forking": ("forking-tokens", "share", "on {:.0%} of the tokens"),
    "ucb": ("outcome-bonus", "coefficient", "at a coefficient of {:g}"),
    "batch-penalty": ("repeat-penalty", "coefficient", "at a coefficient of {:g}"),
    "anchor": ("reference-kl", "coefficient", "at a coefficient of {:g}"),
    "thermostat": ("fork-thermostat", "floor", "with a floor of {:.0%} of the start"),
}
"""Remedy -> its mechanism, the field that sets its strength, and how to say that."""


def lab_effects() -> dict[str, dict[str, Any]]:
    """Return each remedy's setting and changes, as (value, low, high), from the committed data."""
    remedies = read("remedies")
    rows = {row[0]: row for row in table_rows(remedies, "Against the control, paired by seed")}
    found = {
        name: {"setting": setting_of(remedies, name), "pass_at_1": interval(row[2]), "pass_at_64": interval(row[4])}
        for name, row in rows.items()
        if name in SETTINGS
    }
    claims = {row[0]: row[1] for row in table_rows(read("confirmation"), "What should show")}
    for k in (1, 64):
        found[CONFIRMED][f"pass_at_{k}"] = interval(claims[f"pass@{k} of protected is above plain's"])
    return found


def setting_of(remedies: dict[str, Any], name: str) -> str:
    """Return in words the value a remedy was tried with."""
    kind, field, words = SETTINGS[name]
    trial = next(trial for trial in remedies["trials"] if trial["name"] == f"{name}/seed-0")
    mechanisms = trial["settings"]["grpo_run"]["chain"]["mechanisms"]
    return words.format(next(mechanism[field] for mechanism in mechanisms if mechanism["kind"] == kind))


def read(name: str) -> dict[str, Any]:
    """Read an experiment's data."""
    experiment: dict[str, Any] = json.loads((LAB / f"{name}.json").read_text(encoding="utf-8"))
    return experiment


def table_rows(experiment: dict[str, Any], title: str) -> list[list[Any]]:
    """Return the rows of one table of an experiment's page."""
    rows: list[list[Any]] = next(
        section["rows"] for section in experiment["page"]["sections"] if section.get("title") == title
    )
    return rows


def interval(cell: dict[str, float]) -> tuple[float, float, float]:
    """Return the value and ends of a cell, rounded."""
    value, low, high = (round(cell[key], DECIMALS) for key in ("value", "low", "high"))
    return value, low, high


def render_table(effects: dict[str, dict[str, Any]]) -> str:
    """Return the table as Python."""
    lines = [TABLE, "    {"]
    for name, effect in effects.items():
        lines += [f'        "{name}": LabEffect(', f'            "{effect["setting"]}",']
        lines += [f"            _change{effect[key]}," for key in ("pass_at_1", "pass_at_64")] + ["        ),"]
    return "\n".join([*lines, "    }", ")", '"""Remedy -> what the lab found."""', ""])


if __name__ == "__main__":
    written, _, _ = MODULE.read_text(encoding="utf-8").partition(TABLE)
    MODULE.write_text(written + render_table(lab_effects()), encoding="utf-8")
