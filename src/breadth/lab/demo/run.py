"""Runs a demo: trains two arms in parallel and evaluates everything into one folder; an interrupted demo resumes.

The work is cut into calls for worker processes; what is already on disk is read, not repeated.
"""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from breadth import __version__
from breadth.base import settings
from breadth.base.errors import BrokenFileError, MissingExtraError
from breadth.base.system import available_cores, write_error
from breadth.lab import records
from breadth.lab.demo.plan import ARMS, ArmName, DemoPlan
from breadth.lab.demo.results import DemoResults, ForcedThinking
from breadth.lab.evaluation.corners import EvaluatedArm, compare_corners
from breadth.lab.evaluation.evaluate import PolicyEval
from breadth.lab.evaluation.extended_vs_parallel import ExtendedVsParallel
from breadth.lab.evaluation.training_log import TrainingLog
from breadth.lab.reasoner import check_files, default_folder, reasoner_digest
from breadth.lab.trials.runner import lock_folder
from breadth.lab.trials.worker_pool import OnEvent, WorkerCall, WorkerPool

if TYPE_CHECKING:
    from breadth.lab.reasoner import Reasoner
    from breadth.lab.task.problems import Problem


SPEC_FILE, DEMO_RESULTS, SECONDS_FILE, LOCK_FILE = "demo.toml", "results.json", "seconds.txt", ".lock"
"""Files in the folder of a demo: its settings, its results, the seconds it took so far, the lock."""
PAGE_FILE, PICTURE_FILE = "report.html", "picture.svg"
"""Files made from the results: the page, and the standalone picture."""
BASE_FOLDER, FORCED_FOLDER = "base", "forced"
"""Folders next to those of the arms: the base, and the plain arm with forced thinking."""
LIBRARIES = ("torch", "transformers", "trl", "numpy")
OnArmEvent = Callable[[str, Any], None]
"""Called with the source (plain, protected, base or forced) and an event."""


@dataclass(frozen=True)
class DemoSpec:
    """What identifies the demo in a folder."""

    version: str
    """Version of breadth."""
    base: str
    """Hash of the base's files."""
    plan: DemoPlan
    """Its sizes."""


def run_demo(plan: DemoPlan, folder: Path, base: Path | None, on_event: OnArmEvent) -> DemoResults:
    """Run a demo, or what is left of it, and return its results; a folder of another demo is refused.

    It uses up to two processes, as cores allow, with one thread each.
    """
    if any(find_spec(name) is None for name in ("torch", "transformers", "trl", "datasets")):
        raise MissingExtraError("The demo, which trains a tiny reasoner,", "train")
    check_files(default_folder() if base is None else base)
    spec = DemoSpec(__version__, reasoner_digest(base), plan)
    with lock_folder(folder):
        open_folder(spec, folder)
        if (folder / DEMO_RESULTS).exists():
            return records.read_record(DemoResults, folder / DEMO_RESULTS)
        with _running_clock(folder / SECONDS_FILE) as seconds, WorkerPool(min(2, available_cores())) as workers:
            arms, measured = train_and_evaluate(workers, plan, folder, base, on_event)
            forced = force_all_budgets(workers, plan, folder, on_event)
            results = collect_results(spec, arms, measured, forced, seconds())
        records.write_record(results, folder / DEMO_RESULTS)
    return results


def open_folder(spec: DemoSpec, folder: Path) -> None:
    """Set up the folder, or check that it holds the same demo."""
    path = folder / SPEC_FILE
    if path.exists():
        there = _read(path)
        if there != spec:
            raise BrokenFileError(
                path,
                f"is of another demo ({describe_difference(there, spec)}).",
                "Name another folder with --out, or move this one away.",
            )
        return
    if any(entry.name != LOCK_FILE for entry in folder.iterdir()):
        raise BrokenFileError(folder, "holds other files and no demo.", "Name a new or an empty folder with --out.")
    settings.dump(spec, path)


def _read(path: Path) -> DemoSpec | None:
    """Return the spec of a folder; None if another version of breadth wrote it in a way this one cannot read."""
    try:
        return settings.load(DemoSpec, path)
    except BrokenFileError:
        return None


def describe_difference(there: DemoSpec | None, spec: DemoSpec) -> str:
    """Name the most telling difference between two demos."""
    if there is None or there.version != spec.version:
        return (
            "of another version of breadth" if there is None else f"of breadth {there.version}, this is {spec.version}"
        )
    if there.base != spec.base:
        return "from another base"
    ours, theirs = settings.to_table(spec.plan), settings.to_table(there.plan)
    name = next(name for name in ours if ours[name] != theirs[name])
    return f"{name} = {theirs[name]}, now {ours[name]}"


def train_and_evaluate(
    workers: WorkerPool, plan: DemoPlan, folder: Path, base: Path | None, on_event: OnArmEvent
) -> tuple[list[TrainedArm], PolicyEval]:
    """Train and evaluate both arms, and evaluate the base, in the worker processes."""
    names = [*ARMS, BASE_FOLDER]
    for name in names:
        _make_folder(folder / name)
    calls = [WorkerCall(train_arm, (plan, name, folder / name, base)) for name in ARMS]
    found = workers.run(
        [*calls, WorkerCall(measure_base, (plan, folder / BASE_FOLDER, base))],
        lambda place, event: on_event(names[place], event),
    )
    return found[:2], found[2]


def force_all_budgets(
    workers: WorkerPool, plan: DemoPlan, folder: Path, on_event: OnArmEvent
) -> tuple[ForcedThinking, ...]:
    """Evaluate the plain arm at every thinking budget, in the worker processes."""
    place = _make_folder(folder / FORCED_FOLDER)
    calls = [
        WorkerCall(force_thinking, (plan, folder / "plain", place / f"{tokens}.json", tokens))
        for tokens in sorted(plan.budgets, reverse=True)  # longest first: none is left to wait for at the end
    ]
    return tuple(workers.run(calls, lambda _, event: on_event(FORCED_FOLDER, event))[::-1])


def _make_folder(folder: Path) -> Path:
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise write_error(folder, error) from error
    return folder


def collect_results(
    spec: DemoSpec, arms: list[TrainedArm], base: PolicyEval, forced: tuple[ForcedThinking, ...], seconds: float
) -> DemoResults:
    """Put everything that was measured into one record."""
    plan, (plain, protected) = spec.plan, arms
    return DemoResults(
        version=spec.version,
        plan=plan,
        base=base,
        plain=plain.arm.policy,
        protected=protected.arm.policy,
        corners=compare_corners([plain.arm], [protected.arm], k=plan.samples, votes=plan.votes),
        forced=forced,
        plain_training=plain.training,
        protected_training=protected.training,
        versions={
            "breadth": spec.version,
            "python": platform.python_version(),
            **{name: version(name) for name in LIBRARIES},
        },
        base_digest=spec.base,
        seconds=round(seconds, 1),
    )


@contextmanager
def _running_clock(path: Path) -> Iterator[Callable[[], float]]:
    """Yield a clock that adds up the seconds of all attempts, failed ones included."""
    began, before = time.monotonic(), 0.0
    with suppress(OSError, ValueError):  # no earlier attempt, or not our file
        before = float(path.read_text(encoding="utf-8"))
    try:
        yield lambda: before + time.monotonic() - began
    finally:
        with suppress(OSError):
            path.write_text(f"{before + time.monotonic() - began:.1f}\n", encoding="utf-8")


POLICY_EVAL_FILE, COMPARISON_FILE, TRAINING_LOG_FILE = "measured.json", "both_ways.json", "training.json"
"""Files in the folder of an arm, next to what training leaves there."""
DONE_STAGE = "done"
"""Name of the final stage."""


@dataclass(frozen=True)
class StepTaken:
    """An arm has taken an optimizer step."""

    step: int
    """Number of the step."""
    reward: float
    """Share of right replies."""
    entropy: float
    """Mean entropy of its tokens, in nats."""


@dataclass(frozen=True)
class StageStarted:
    """A call has started another part of its work."""

    stage: str
    """What it is doing now."""


@dataclass(frozen=True)
class TrainedArm:
    """Result of training and evaluating an arm."""

    arm: EvaluatedArm
    """Its evaluation on held-out problems."""
    training: TrainingLog
    """How its training went."""


def train_arm(on_event: OnEvent, plan: DemoPlan, name: ArmName, folder: Path, base: Path | None) -> TrainedArm:
    """Train an arm, evaluate it, and let it answer by one long thought and by vote."""
    from breadth.lab.evaluation.training_log import read_training_log
    from breadth.lab.grpo import RUN_FOLDER, train_grpo

    use_one_thread()
    on_event(StageStarted("training"))
    reasoner = train_grpo(
        plan.grpo_run(name),
        folder,
        base,
        lambda step, logs: on_event(StepTaken(step, float(logs["reward"]), float(logs.get("entropy", math.nan)))),
    )
    training = records.load_or_make(
        TrainingLog, folder / TRAINING_LOG_FILE, lambda: read_training_log(folder / RUN_FOLDER, grammar=True)
    )
    measured = _load_or_evaluate(on_event, plan, reasoner, folder, plan.steps)
    answers = _load_or_answer(on_event, plan, reasoner, folder / COMPARISON_FILE)
    on_event(StageStarted(DONE_STAGE))
    return TrainedArm(EvaluatedArm(measured, answers), training)


def answer_at_budget(plan: DemoPlan, folder: Path) -> ExtendedVsParallel:
    """Let the arm in a folder answer by long thought and by vote at the plan's budget, and keep that in a file."""
    from breadth.lab.grpo import POLICY_FOLDER
    from breadth.lab.reasoner import load_reasoner

    return _load_or_answer(
        lambda _: None, plan, load_reasoner(folder / POLICY_FOLDER), folder / f"both_ways-{plan.thinking}.json"
    )


def measure_base(on_event: OnEvent, plan: DemoPlan, folder: Path, base: Path | None) -> PolicyEval:
    """Evaluate the base; its replies make a run folder too, the reference of `breadth compare`."""
    from breadth.lab.reasoner import load_reasoner

    use_one_thread()
    found = _load_or_evaluate(on_event, plan, load_reasoner(base), folder, 0)
    on_event(StageStarted(DONE_STAGE))
    return found


def force_thinking(on_event: OnEvent, plan: DemoPlan, folder: Path, path: Path, tokens: int) -> ForcedThinking:
    """Evaluate the arm in a folder with exactly so many thinking tokens, and keep that in a file."""
    if path.exists():
        return records.read_record(ForcedThinking, path)
    from breadth.lab.evaluation.evaluate import PLAIN_SAMPLING, evaluate
    from breadth.lab.grpo import POLICY_FOLDER
    from breadth.lab.reasoner import load_reasoner

    use_one_thread()
    on_event(StageStarted(f"exactly {tokens} tokens of thinking"))
    sampling = replace(PLAIN_SAMPLING, thinking_tokens=tokens, max_tokens=tokens + 16)
    reasoner = load_reasoner(folder / POLICY_FOLDER)
    found = evaluate(
        reasoner,
        plan_problems(plan, reasoner),
        plan.budget_samples,
        seed=plan.seed,
        sampling=sampling,
        min_thinking=tokens,
    )
    forced = ForcedThinking.from_evaluation(tokens, found)
    records.write_record(forced, path)
    return forced


def _load_or_evaluate(on_event: OnEvent, plan: DemoPlan, reasoner: Reasoner, folder: Path, step: int) -> PolicyEval:
    """Evaluate on held-out problems, unless that is done; the replies go to the run folder, at the step trained to."""

    def make() -> PolicyEval:
        from breadth.lab.evaluation.evaluate import evaluate, summarize_evaluation, write_evaluation
        from breadth.lab.grpo import RUN_FOLDER

        on_event(StageStarted(f"{plan.samples} replies to each of {plan.problems} held-out problems"))
        found = evaluate(reasoner, plan_problems(plan, reasoner), plan.samples, seed=plan.seed)
        write_evaluation(found, folder / RUN_FOLDER, step)
        return summarize_evaluation(found, plan.ks)

    return records.load_or_make(PolicyEval, folder / POLICY_EVAL_FILE, make)


def _load_or_answer(on_event: OnEvent, plan: DemoPlan, reasoner: Reasoner, path: Path) -> ExtendedVsParallel:
    def answer() -> ExtendedVsParallel:
        from breadth.lab.evaluation.extended_vs_parallel import answer_extended_and_parallel

        on_event(StageStarted("one long thought, and votes for the same tokens"))
        return answer_extended_and_parallel(
            reasoner, plan_problems(plan, reasoner), thinking=plan.thinking, repeats=plan.repeats, seed=plan.seed
        )

    return records.load_or_make(ExtendedVsParallel, path, answer)


def plan_problems(plan: DemoPlan, reasoner: Reasoner) -> list[Problem]:
    """List the held-out problems of a plan."""
    from breadth.lab.task.problems import draw_tasks

    return draw_tasks(plan.skipped + plan.problems, reasoner.teacher.facts.prime, plan.level)[plan.skipped :]


def use_one_thread() -> None:
    """Keep torch to one thread: the processes share the cores."""
    import torch

    torch.set_num_threads(1)
