"""Every finding of the catalogue loads, keeps the contract, and is called what its file is called."""

from __future__ import annotations

from pathlib import Path

import pytest

from breadth.doctor import findings
from breadth.doctor.catalogue import FINDINGS, INFERENCE
from breadth.testing.findings import check_finding

LOOPS = {"training", "inference", "both", "configuration"}


@pytest.mark.parametrize("name", FINDINGS.names())
def test_each_keeps_the_contract(name: str) -> None:
    check = FINDINGS.load(name)
    check_finding(check, name)
    assert check.loop in LOOPS
    assert (check.loop in ("inference", "both")) == (name in INFERENCE)
    assert set(check.causes) <= set(FINDINGS.names()) - {name}


def test_every_file_is_in_the_catalogue() -> None:
    files = {path.stem for path in Path(findings.__file__).parent.glob("*.py")} - {"__init__"}
    assert {name.replace("-", "_") for name in FINDINGS.entries} == files
