"""Generate the page of training mechanisms: what each does, its papers, and whether its effect was measured."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from breadth.training.catalogue import MECHANISMS

ROOT = Path(__file__).parents[2]
EFFECTS = ROOT / "docs" / "data" / "effects.json"
ARXIV = re.compile(r"\b\d{4}\.\d{5}\b")
STAGES = {
    "credit": "Credit: rewards to advantages, once per generation",
    "loss": "Loss: token weights, one surrogate, extra terms, per micro-batch",
    "plan": "Plan: what to sample, once per generation",
}
INTRODUCTION = """# Mechanisms

Every training mechanism, by the name it has in a chain's TOML. The page of its class has the formula, the source of the
defaults and when it does harm.

**Effect measured**: real GRPO runs of TRL on the tiny reasoner of `tools/measure_effects.py`, three seeds with and
without the mechanism, moved the number it is documented to move, and the 95 % interval excludes zero. This says
nothing about the size of the effect on your model. **Numbers checked**: the formula is held to numbers worked out by
hand and to the contract of mechanisms; no effect was measured, or none was shown. **Off with** are the settings that
switch it off, **recipes** the named chains around it (`objective="dapo"`).

Numbers are means over the last 32 of 160 optimizer steps, without and with the mechanism; the brackets hold the
interval of the difference. `distinct` counts different answers per held-out problem in 8 samples. Settings and every
seed are in `docs/data/effects.json`. The task is so small that Clip-Cov and KL-Cov ran with a share of 0.02, and the
entropy target with larger increments than its defaults.
"""


def on_files(files: Files, config: Any) -> Files:
    """Add the page."""
    files.append(File.generated(config, "mechanisms.md", content=page()))
    return files


def page() -> str:
    """Write the page."""
    effects = json.loads(EFFECTS.read_text(encoding="utf-8"))["effects"] if EFFECTS.exists() else []
    parts = [INTRODUCTION]
    for stage, heading in STAGES.items():
        columns = "| name | what it does | source | off with | recipes | status |"
        parts += [f"## {heading}", "", columns, "|---" * 6 + "|"]
        parts += [row(name, place, effects) for name, place in MECHANISMS.entries.items() if f".{stage}." in place]
        parts.append("")
    return "\n".join(parts)


def render_fields() -> str:
    """Write the table of optional fields by stage, and which trainer provides them; from the adapters' own tables."""
    from breadth.adapters.trl.convert import CREDIT_FIELDS, LOSS_FIELDS
    from breadth.adapters.verl.conflicts import PROVIDED_FIELDS
    from breadth.training.records import Batch, Rollouts

    trl = {"loss": LOSS_FIELDS, "credit": CREDIT_FIELDS}
    lines = ["| field | stage | TRL | verl |", "|---|---|---|---|"]
    for stage, record in (("loss", Batch), ("credit", Rollouts)):
        known = {spec.name for spec in dataclasses.fields(record)}
        provided = trl[stage] | PROVIDED_FIELDS[stage] | ({"old_divergence"} & known)
        strange = {name for name in provided if name.partition(".")[0] not in known}
        if strange:
            raise ValueError(f"{', '.join(strange)}: no field of {record.__name__}")
        for name in sorted(provided):
            in_trl = TRL_CONDITIONS.get(name, "yes") if name in trl[stage] else "no"
            in_verl = VERL_CONDITIONS.get(f"{stage}.{name}", "yes") if name in PROVIDED_FIELDS[stage] else "no"
            lines.append(f"| `{name}` | {stage} | {in_trl} | {in_verl} |")
    return "\n".join(lines)


TRL_CONDITIONS = {
    "planning": "with `grams=`",
    "reference_logprobs": "with `beta`",
    "correct": "by a grading reward",
}
"""Field -> what TRL's trainer needs to provide it."""
VERL_CONDITIONS = {
    "loss.entropy": "with `calculate_entropy`",
    "loss.entropy.gradient": "with `calculate_entropy`",
    "loss.reference_logprobs": "with `use_kl_loss` or `use_kl_in_reward`",
    "credit.correct": "by a reward that reports `acc`",
}
"""Stage and field -> what verl needs to provide it; `breadth.adapters.verl.conflicts` refuses a chain without."""


def row(name: str, place: str, effects: list[dict[str, Any]]) -> str:
    """Write one mechanism's row."""
    kind = MECHANISMS.load(name)
    source = ARXIV.sub(r"[\g<0>](https://arxiv.org/abs/\g<0>)", kind.paper.source if kind.paper else "")
    off = ", ".join(f"`{field}={describe_setting(value)}`" for field, value in (kind.neutral or {}).items())
    recipes = ", ".join(f"`{recipe}`" for recipe in kind.recipes)
    tried = [effect for effect in effects if effect["mechanism"].partition(" ")[0] == name]
    status = "<br>".join(describe(effect) for effect in tried) or "numbers checked, effect not measured"
    link = f"[`{name}`](reference/{place.partition(':')[0]}.md)"
    return f"| {link} | {(inspect.getdoc(kind) or '').splitlines()[0]} | {source} | {off} | {recipes} | {status} |"


def describe_setting(value: Any) -> str:
    """Return a setting as one would write it in Python; of nested settings those that differ from their defaults."""
    if not dataclasses.is_dataclass(value):
        return repr(value)
    kind: Any = type(value)
    usual = kind()
    names = [field.name for field in dataclasses.fields(value)]
    changed = [f"{name}={part!r}" for name in names if (part := getattr(value, name)) != getattr(usual, name)]
    return f"{kind.__name__}({', '.join(changed)})"


def describe(effect: dict[str, Any]) -> str:
    """Return what the runs showed."""
    low, high = effect["interval"]
    which = effect["mechanism"].partition(" ")[2]
    number = effect["number"].replace("_", " ")
    change = f"{number} {effect['control']:.2f} to {effect['with']:.2f} ({low:+.3f} to {high:+.3f})"
    verdict = "**effect measured**" if effect["measured"] else "numbers checked, effect not shown"
    return f"{f'{verdict} {which}'.strip()}: {change}"
