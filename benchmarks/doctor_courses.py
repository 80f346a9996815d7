"""The doctor on courses of runs whose truth is known: what it names, and how often it alarms a healthy run.

A course is a joint story of all metrics of a run: jumps, death and freeze, partial recoveries, restarts, slow rot, and
healthy runs that look odd (`courses/stories.py`). Its label is true by definition on the noise-free curves
(`courses/curves.py`). Noise, wander and spikes have the sizes measured on real logs (`courses/measured.py`), and the
log is written as TRL or verl would, some optional metrics left out (`courses/logs.py`). All parameters are drawn from
the seed, which is a new one at every run unless given.

A failure is named exactly when its label is found at warning or above, and named when the label or another finding
that is right in this story is; saturation alone never names one. A healthy course is alarmed when anything is found at
warning or above. Counted too: failures with an alarm that is not right, and pages whose verdict is GOOD though the
score fell by a quarter of its best or more. The bars, at 100 points and more: at least 95 % of the failures named, at
most 2 % of the healthy alarmed, no such GOOD.

Run: python benchmarks/doctor_courses.py [--seed N] [--each 3] [--python PEER/bin/python] [--out
docs/data/doctor/courses.json]; BREADTH_FIXTURES=... python benchmarks/doctor_courses.py --measure recomputes the
measured sizes. The peer is rldoctor 0.2.0 on the first course of every story, length and interval.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from courses.curves import fall_from_best
from courses.logs import TRL_NAMES, Course, draw_course
from courses.measured import measure_logs
from courses.stories import FAILURES, HEALTHY_STORIES, STORIES
from doctor_peers import theirs
from peers.cases import Case

from breadth.doctor.collect import CollectedEvidence, collect_evidence
from breadth.doctor.diagnosis import RunDiagnosis, diagnose_run
from breadth.doctor.page import doctor_page
from breadth.measure.intervals import wilson
from breadth.report.sections import Severity, Verdict

ALARMS = frozenset({"critical", "warning"})
HEALTHY = "healthy"
LENGTHS, INTERVALS = (20, 50, 100, 500), (1, 5, 10)
MIN_BAR_POINTS = 100
"""Logged points from which on the bars hold."""
MIN_NAMED, MAX_ALARMED = 0.95, 0.02
HEALTHY_WEIGHT = 2
"""Healthy courses drawn for each failing one of a story: a rate of 2 % needs many."""
VAGUE = frozenset({"saturation"})
"""Findings that are true of most failures and name none."""
QUARTER = 0.25
OURS, PEER = "breadth", "rldoctor"
PEER_MEANS = {
    "gradient_pathology": frozenset({"numerical-failure", "no-learning"}),
    "kl_drift": frozenset({"no-learning", "numerical-failure"}),
    "plateau": frozenset({"no-learning", "score-collapse"}),
    "reward_hacking": frozenset({"overfitting"}),
}
"""Rule of the peer -> what it may mean more than `peers/rules.py` lists; the doubt is the peer's."""


@dataclass(frozen=True)
class Judged:
    """What a doctor finds in one course."""

    tool: str
    """Which doctor."""
    story: str
    """Which story."""
    points: int
    """Logged points."""
    interval: int
    """Steps per logged point."""
    number: int
    """Which course of these."""
    trainer: str
    """Whose log it looks like."""
    right: frozenset[str]
    """The label and what else is right to find; empty for a healthy course."""
    alarms: tuple[str, ...]
    """What it finds at warning or above."""
    notes: tuple[str, ...] = ()
    """What it finds below."""
    false_good: bool = False
    """Whether its verdict is GOOD though the score fell by a quarter or more."""
    unread: bool = False
    """Whether it judged nothing."""

    @property
    def label(self) -> str:
        """The finding that is right."""
        return STORIES[self.story].label

    @property
    def is_exact(self) -> bool:
        """Whether the label itself is among the alarms."""
        return self.label in self.alarms

    @property
    def is_named(self) -> bool:
        """Whether a right finding is among the alarms."""
        return not (self.right - VAGUE).isdisjoint(self.alarms)

    @property
    def is_astray(self) -> bool:
        """Whether an alarm is not right in this story."""
        return any(name not in self.right | VAGUE for name in self.alarms)


def draw_courses(seed: int, each: int) -> Iterator[tuple[int, Course]]:
    """Draw every story at every length and interval, healthy ones HEALTHY_WEIGHT times as often."""
    for story in STORIES.values():
        count = each * (HEALTHY_WEIGHT if story.label == HEALTHY else 1)
        for points in LENGTHS:
            for interval in INTERVALS:
                yield from (
                    (number, draw_course(story.name, points, interval, seed, number)) for number in range(count)
                )


def judge(course: Course, number: int) -> Judged:
    """Write a course as its trainer's log and ask the doctor, as `breadth doctor` does."""
    with tempfile.TemporaryDirectory() as folder:
        collected = collect_evidence([course.write(Path(folder))], Path(folder) / "work")
        diagnoses = [diagnose_run(case) for case in collected.cases]
        findings = [finding for diagnosis in diagnoses for finding in diagnosis.findings]
        fell = fall_from_best(course.curves.score) >= QUARTER
        quiet = all(finding.severity.value not in ALARMS for finding in findings)
        false_good = fell and quiet and is_good(diagnoses, collected)
    loud = {finding.name: finding.severity.value in ALARMS for finding in findings}
    return Judged(
        OURS,
        course.story.name,
        course.setting.points,
        course.setting.interval,
        number,
        course.setting.trainer,
        course.right_findings,
        tuple(name for name, is_loud in loud.items() if is_loud),
        tuple(name for name, is_loud in loud.items() if not is_loud),
        false_good,
    )


def is_good(diagnoses: Sequence[RunDiagnosis], collected: CollectedEvidence) -> bool:
    """Say whether the first verdict of the page is GOOD."""
    sections = doctor_page(diagnoses, collected).sections
    verdict = next((section for section in sections if isinstance(section, Verdict)), None)
    return verdict is not None and verdict.severity is Severity.GOOD


def judge_by_peer(python: Path, drawn: Sequence[tuple[int, Course]]) -> Iterator[Judged]:
    """Ask the peer about several courses: on TRL's own file where it is one, else on the same rows."""
    with tempfile.TemporaryDirectory() as folder:
        cases = [peer_case(Path(folder) / str(place), course) for place, (_, course) in enumerate(drawn)]
        _, verdicts = theirs(PEER, python, cases)
    for (number, course), verdict in zip(drawn, verdicts, strict=True):
        setting = course.setting
        alarms = [
            name
            for said in verdict.said
            if said.loud
            for name in (said.labels | PEER_MEANS.get(said.name, frozenset()) or {said.name})
        ]
        yield Judged(
            PEER,
            course.story.name,
            setting.points,
            setting.interval,
            number,
            setting.trainer,
            course.right_findings,
            tuple(dict.fromkeys(alarms)),
            unread=bool(verdict.unread),
        )


def peer_case(folder: Path, course: Course) -> Case:
    """Return a course as the peers are asked about it."""
    folder.mkdir()
    path = course.write(folder)
    label = course.story.label
    file = path if path.suffix == ".json" else None
    return Case("courses", course.story.name, label, frozenset({label}), tuple(course.rows()), TRL_NAMES, file=file)


def count_share(judged: Sequence[Judged], hit: Callable[[Judged], bool]) -> str:
    """Write how many are hits, with Wilson's interval."""
    read = [course for course in judged if not course.unread]
    if not read:
        return "-"
    hits = sum(map(hit, read))
    found = wilson(hits, len(read))
    return f"{hits} of {len(read)} ({found.low:.3f} to {found.high:.3f})"


def tabulate(judged: Sequence[Judged]) -> dict[str, str]:
    """Return the counts of some courses."""
    failing = [course for course in judged if course.label != HEALTHY]
    healthy = [course for course in judged if course.label == HEALTHY]
    return {
        "named exactly": count_share(failing, lambda course: course.is_exact),
        "named": count_share(failing, lambda course: course.is_named),
        "another named": count_share(failing, lambda course: course.is_astray),
        "healthy alarmed": count_share(healthy, lambda course: bool(course.alarms)),
        "false GOOD": str(sum(course.false_good for course in judged)),
        "unread": str(sum(course.unread for course in judged)),
    }


def build_tables(judged: Sequence[Judged]) -> dict[str, dict[str, dict[str, str]]]:
    """Return the counts in all and by length, interval, trainer, label and story."""
    long = [course for course in judged if course.points >= MIN_BAR_POINTS]
    tables = {"in all": {"every length": tabulate(judged), f"{MIN_BAR_POINTS} points and more": tabulate(long)}}
    groupings: dict[str, Callable[[Judged], str]] = {
        "points": lambda course: str(course.points),
        "interval": lambda course: str(course.interval),
        "trainer": lambda course: course.trainer,
        f"label, {MIN_BAR_POINTS} points and more": lambda course: course.label,
        f"story, {MIN_BAR_POINTS} points and more": lambda course: course.story,
    }
    for title, key in groupings.items():
        several = long if "and more" in title else judged
        keys = dict.fromkeys(map(key, several))
        tables[title] = {value: tabulate([course for course in several if key(course) == value]) for value in keys}
    return tables


def show(tool: str, judged: Sequence[Judged]) -> None:
    """Print the tables of one doctor, and what alarms healthy courses and leads astray."""
    for title, table in build_tables(judged).items():
        print(f"\n## {tool}, by {title}")
        for value, counts in table.items():
            cells = [f"{name} {cell}" for name, cell in counts.items() if cell not in ("-", "0")]
            print(f"{value:52} {'; '.join(cells)}")
    healthy = Counter(name for course in judged if course.label == HEALTHY for name in course.alarms)
    missed = Counter(
        course.alarms or ("nothing",) for course in judged if course.label != HEALTHY and not course.is_named
    )
    print(f"\n{tool} alarms healthy courses with: {dict(healthy.most_common())}")
    print(f"{tool} finds in failures that it does not name: {dict(missed.most_common(12))}")


def is_held(judged: Sequence[Judged]) -> bool:
    """Say whether our doctor holds the bars."""
    own = [course for course in judged if course.tool == OURS and course.points >= MIN_BAR_POINTS]
    failing = [course for course in own if course.label != HEALTHY]
    healthy = [course for course in own if course.label == HEALTHY]
    named = sum(course.is_named for course in failing) / len(failing)
    alarmed = sum(bool(course.alarms) for course in healthy) / len(healthy)
    held = named >= MIN_NAMED and alarmed <= MAX_ALARMED and not any(course.false_good for course in own)
    print(
        f"\n{named:.1%} of {len(failing):,} failures named, at least {MIN_NAMED:.0%} wanted; {alarmed:.1%} of"
        f" {len(healthy):,} healthy alarmed, at most {MAX_ALARMED:.0%} wanted: {'held' if held else 'MISSED'}"
    )
    return held


def build_document(judged: Sequence[Judged], seed: int, each: int) -> dict[str, Any]:
    """Return what is kept: the command, the tables, and every course of ours that went wrong."""
    tools = dict.fromkeys(course.tool for course in judged)
    wrong = [
        {name: value for name, value in asdict(course).items() if name != "right" and value not in (False, OURS)}
        for course in judged
        if course.tool == OURS and (bool(course.alarms) if course.label == HEALTHY else not course.is_named)
    ]
    peer = " --python PYTHON" if PEER in tools else ""
    return {
        "command": f"python benchmarks/doctor_courses.py{peer} --seed {seed} --each {each}",
        "bars": {"named": MIN_NAMED, "healthy alarmed": MAX_ALARMED, "from points": MIN_BAR_POINTS},
        "stories": {story.name: [story.label, *sorted(story.also)] for story in (*HEALTHY_STORIES, *FAILURES)},
        **{tool: build_tables([course for course in judged if course.tool == tool]) for tool in tools},
        "wrong": wrong,
    }


def judge_all(seed: int, each: int, python: Path | None, only: str) -> Iterator[Judged]:
    """Ask the doctors about every course."""
    asked: list[tuple[int, Course]] = []
    for number, course in draw_courses(seed, each):
        if only not in course.story.name:
            continue
        yield judge(course, number)
        if number == 0:
            asked.append((number, course))
    if python is not None:
        yield from judge_by_peer(python, asked)


def main() -> int:
    """Judge, print, and say whether the bars are held."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1 << 31), help="what all parameters depend on")
    parser.add_argument("--each", type=int, default=3, help="courses of each failure, length and interval")
    parser.add_argument("--only", default="", help="only stories whose name has this in it")
    parser.add_argument("--python", type=Path, help="a Python that has rldoctor")
    parser.add_argument("--out", type=Path, help="also write the tables and what went wrong as JSON")
    parser.add_argument("--measure", action="store_true", help="measure the real logs instead")
    given = parser.parse_args()
    if given.measure:
        for name, movement in measure_logs(Path(os.environ["BREADTH_FIXTURES"]) / "training_logs").items():
            print(f"{name}: {movement}")
        return 0
    start = time.perf_counter()
    print(f"seed {given.seed}")
    judged = list(judge_all(given.seed, given.each, given.python, given.only))
    for tool in dict.fromkeys(course.tool for course in judged):
        show(tool, [course for course in judged if course.tool == tool])
    held = is_held(judged) if not given.only else True
    print(f"{len(judged):,} courses in {time.perf_counter() - start:.0f} s")
    if given.out is not None:
        document = build_document(judged, given.seed, given.each)
        given.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0 if held else 1


if __name__ == "__main__":
    raise SystemExit(main())
