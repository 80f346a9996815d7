"""What a run folder holds, what it lacks, and the setting of the user's own trainer that would switch it on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from breadth.base.errors import CatalogueError
from breadth.doctor.instruments.metrics import spoken
from breadth.report.cells import Missing
from breadth.report.sections import Fact, Facts, Section, Text
from breadth.runs.importer import IMPORTERS
from breadth.runs.names import meaning
from breadth.runs.outcomes import rightness
from breadth.runs.reader import Run

WANTED = {
    "entropy": "whether the policy is narrowing",
    "reward": "whether it learns at all",
    "starved_groups": "how many rollouts teach nothing",
    "truncated": "whether answers are cut off",
    "length": "whether thinking grows or collapses",
    "kl_reference": "how far it drifts from where it started",
    "clip_fraction": "whether the ratio clip ever acts",
    "mismatch": "whether trainer and sampler disagree",
    "rollouts": "pass@k, votes, distinct answers, degenerate texts",
    "entropy per token": "where the entropy sits: at forks or in mechanical steps",
    "eval": "whether held-out problems follow the training reward",
}
"""What an instrument needs -> what it would show."""


def presence(run: Run) -> Sequence[Section]:
    """Say what is there and what is missing."""
    sections: list[Section] = [Facts("What is here", _there(run)), Facts("What is missing", _missing(run))]
    remarks = [*run.header.remarks, *run.broken]
    if remarks:
        lines = [_sentence(remark.file, remark.row, remark.problem, remark.remedy) for remark in remarks[:12]]
        more = max(0, len(remarks) - 12) + run.header.remarks_left_out
        sections.append(
            Text("\n\n".join([*lines, f"... and {more} more." if more > 0 else ""]).strip(), "Remarks on the input")
        )
    return [section for section in sections if not isinstance(section, Facts) or section.facts]


def switches(run: Run) -> Mapping[str, str]:
    """Return what the run's own trainer can be told to log; empty when the trainer is not known."""
    try:
        found: Mapping[str, str] = IMPORTERS.load(run.header.trainer).switches
    except CatalogueError:
        return {}
    return found


def _there(run: Run) -> list[Fact]:
    steps = sorted({point.step for point in run.points})
    facts = [
        Fact("trainer", run.header.trainer or "not known"),
        Fact(
            "steps",
            f"{steps[0]:,} to {steps[-1]:,}, {len(steps):,} logged" if steps else Missing("no metrics were logged"),
        ),
        Fact("starts", run.attempts, note="the newest attempt of each step counts" if run.attempts > 1 else ""),
        Fact("metrics", len(run.metric_names()) or Missing("no metrics were logged"), note=_known(run)),
    ]
    if run.rollout_files:
        counted = run.query(
            "SELECT count(*) n, count(DISTINCT problem) p, count(DISTINCT step) s FROM rollouts"
        ).to_pylist()[0]
        facts.append(Fact("rollouts", f"{counted['n']:,} of {counted['p']:,} problems at {counted['s']:,} steps"))
        facts.append(Fact("right or wrong", _grading(run)))
    kind = run.header.entropies.get("entropy")
    if kind:
        temperature = f"temperature {kind.temperature:g}" if kind.temperature is not None else "temperature not logged"
        facts.append(
            Fact("entropy is", f"{kind.estimator}, {kind.aggregation}, {kind.token_set} tokens, {temperature}")
        )
    return facts


def _known(run: Run) -> str:
    ours = [name for name in run.metric_names() if meaning(name)]
    return f"known to us: {', '.join(map(spoken, ours))}" if ours else ""


def _grading(run: Run) -> str | Missing:
    if rightness(run) is None:
        return Missing("the reward has more than two values and no grade was logged; log a grade to measure pass@k")
    if run.header.reward_levels:
        low, high = run.header.reward_levels
        return f"a reward of {high:g} is right, {low:g} is wrong"
    return "as graded by the trainer"


def _missing(run: Run) -> list[Fact]:
    known = switches(run)
    absent = [name for name in WANTED if not _has(run, name)]
    return [Fact(spoken(name), f"would show {WANTED[name]}", note=_how(known, name)) for name in absent]


def _how(known: Mapping[str, str], name: str) -> str:
    return f"switch on with {known[name]}" if name in known else ""


def _has(run: Run, name: str) -> bool:
    if name == "rollouts":
        return bool(run.rollout_files)
    if name == "entropy per token":
        return "entropy" in run.columns
    if name == "eval":
        return bool(run.metric_names("eval"))
    return name in run.metric_names()


def _sentence(file: str, row: int | None, problem: str, remedy: str) -> str:
    name = file.rpartition("/")[2]
    where = f"{name}, row {row}: " if name and row else f"{name}: " if name else ""
    return f"{where}{problem} {remedy}".strip()
