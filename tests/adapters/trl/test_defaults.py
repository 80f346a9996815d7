"""What is written down of TRL's defaults and names is TRL's."""

from __future__ import annotations

import pytest

from breadth.adapters.trl.defaults import CHANGED, DEFAULTS, FIELDS, OLDER, SIBLINGS, TELLING

FOREIGN = {"reward_funcs", "max_prompt_length"}
"""Names that stand in files for GRPO and are no fields of GRPOConfig: an argument of TRL's script, and one of earlier versions."""


def test_the_defaults_are_those_of_the_installed_trl() -> None:
    trl = pytest.importorskip("trl")
    fields = trl.GRPOConfig.__dataclass_fields__
    assert {name: fields[name].default for name in DEFAULTS} == dict(DEFAULTS)
    assert set(FIELDS.values()) - FOREIGN <= fields.keys()
    assert fields.keys() >= TELLING | SIBLINGS
    assert not OLDER & fields.keys()


def test_siblings_hold_a_default_s_name_and_are_none() -> None:
    assert DEFAULTS.keys() >= CHANGED
    assert all(any(name in sibling for name in DEFAULTS) and sibling not in DEFAULTS for sibling in SIBLINGS)
