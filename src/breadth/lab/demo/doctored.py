"""What the doctor says of both arms of a demo, from the run folders that training left."""

from __future__ import annotations

from pathlib import Path

from breadth.doctor.knobs import Knobs
from breadth.lab.demo.plan import ANCHOR, ARMS, ArmName, Plan
from breadth.report.cells import Cell
from breadth.report.sections import Column, Table


def knobs_of(plan: Plan, arm: ArmName) -> Knobs:
    """Return an arm's settings as the doctor knows them."""
    return Knobs(
        group=plan.group,
        prompts=plan.prompts,
        updates=plan.updates,
        learning_rate=plan.rate,
        kl=0.0 if arm == "plain" else ANCHOR,
        entropy_bonus=0.0,
        temperature=1.0,
        top_p=1.0,
        longest=plan.longest,
        engine="hf",
    )


def doctored(folder: Path, plan: Plan) -> Table:
    """Diagnose both arms; the doctor is told the settings and nothing of what was found otherwise."""
    from breadth.doctor.diagnosis import diagnose
    from breadth.doctor.evidence import Evidence
    from breadth.lab.courses.training import RUN
    from breadth.runs.reader import Run

    rows: list[list[Cell]] = []
    for arm in ARMS:
        found = diagnose(Evidence(arm, Run.open(folder / arm / RUN), knobs_of(plan, arm)))
        rows += [[arm, one.severity.value, one.name, one.headline] for one in found.findings]
        if not found.findings:
            rows.append([arm, "nothing", "-", f"Nothing found in {len(found.clear)} checks."])
    columns = [Column(name) for name in ("arm", "severity", "finding", "what it says")]
    note = f"With proof and prescriptions: breadth doctor {folder.name}/plain/{RUN} {folder.name}/protected/{RUN}"
    return Table("What the doctor says of both arms", columns, rows, note)
