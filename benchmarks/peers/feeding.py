"""Hand runs to a peer's doctor and write down its verdicts; shared by the scripts that a Python with the peer runs.

python -m peers.NAME_verdicts CASES.json OUT.json      (with benchmarks/ on the path; cases and verdicts: see `answer`)
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

Row = dict[str, float]
Said = tuple[str, str, str]
"""Level (critical, warning or note), the peer's own name of the rule, its words."""
Judge = Callable[[Path | None, list[Row], Path], tuple[Iterable[Said], bool]]
"""Asks a peer about a run: its file where it has one, its rows, an empty folder -> what it says, and whether it took
the file.
"""


class UnreadError(Exception):
    """The peer has judged nothing of this run."""


def answer(peer: str, judge: Judge) -> None:
    """Diagnose the cases of one file (``{"file": path or null, "rows": [...]}``); write verdicts to another."""
    cases = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    verdicts = [_verdict(judge, case) for case in cases]
    Path(sys.argv[2]).write_text(json.dumps({"version": version(peer), "verdicts": verdicts}), encoding="utf-8")


def _verdict(judge: Judge, case: dict[str, Any]) -> dict[str, Any]:
    file = None if case["file"] is None else Path(case["file"])
    try:
        with tempfile.TemporaryDirectory() as folder:
            said, as_is = judge(file, case["rows"], Path(folder))
            return {"said": list(said), "as_is": as_is, "unread": ""}
    except UnreadError as error:
        return {"said": [], "as_is": False, "unread": str(error)}
    except Exception as error:  # noqa: BLE001  # a peer may fail in any way; which one is the result
        print(f"{case['file']}: {error!r}", file=sys.stderr)
        return {"said": [], "as_is": False, "unread": type(error).__name__}
