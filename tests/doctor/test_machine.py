"""The JSON of a diagnosis: the keys that scripts rely on, strict, with patches in the user's dialect."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from breadth.adapters.verl.config import SETTINGS
from breadth.doctor.diagnosis import diagnose
from breadth.doctor.findings.entropy_collapse import FINDING as COLLAPSE
from breadth.doctor.findings.truncation import FINDING as TRUNCATION
from breadth.doctor.gathering import Gathered
from breadth.doctor.machine import as_table


def test_the_documented_keys(make: Any) -> None:
    case = make(
        entropy=0.8 * 0.03 ** np.linspace(0, 1, 60), knobs=SETTINGS.knobs({"data.train_batch_size": 64}), trainer="verl"
    )
    found = as_table([diagnose(case, {"entropy-collapse": COLLAPSE, "truncation": TRUNCATION})], Gathered(used=("x",)))
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert list(found) == ["schema", "findings", "cannot_tell", "checked", "used", "unused"]
    (finding,) = found["findings"]
    assert {"name", "severity", "confidence", "loop", "evidence", "prescriptions"} <= finding.keys()
    assert finding["evidence"][2]["value"]["high"] < 0.2
    patches = [line for one in finding["prescriptions"] for line in one["patch"]]
    assert "actor_rollout_ref.actor.clip_ratio_high=0.28" in patches
    assert found["cannot_tell"][0].keys() == {"run", "name", "missing", "switch_on"}
    assert found["checked"] == [{"run": "made", "names": ["entropy-collapse"]}]
