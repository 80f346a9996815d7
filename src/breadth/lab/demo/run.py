"""Runs a demo: two arms trained side by side, all measured, into one folder; interrupted, it goes on where it was."""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from breadth import __version__
from breadth.base import settings
from breadth.base.atomic import write_error
from breadth.base.cores import available_cores
from breadth.base.errors import BrokenFileError, MissingExtraError
from breadth.lab import records
from breadth.lab.demo.plan import ARMS, ArmName, DemoPlan
from breadth.lab.demo.results import DemoResults, ForcedThinking
from breadth.lab.evaluation.corners import EvaluatedArm, compare_corners
from breadth.lab.evaluation.evaluate import PolicyEval
from breadth.lab.evaluation.extended_vs_parallel import ExtendedVsParallel
from breadth.lab.evaluation.training_log import TrainingLog
from breadth.lab.model.reasoner import check_files, default_folder, reasoner_digest
from breadth.lab.trials.runner import lock_folder
from breadth.lab.trials.worker_pool import OnEvent, WorkerCall, WorkerPool

if TYPE_CHECKING:
    from breadth.lab.model.reasoner import Reasoner
    from breadth.lab.task.problems import Problem


SPEC_FILE, DEMO_RESULTS, SECONDS_FILE, LOCK_FILE = "demo.toml", "results.json", "seconds.txt", ".lock"
"""In the folder of a demo: what was asked for, what was found, the seconds it took so far, and who works in it."""
PAGE_FILE, PICTURE_FILE = "report.html", "picture.svg"
"""What is made of the results: the page, and the picture that stands alone."""
BASE_FOLDER, FORCED_FOLDER = "base", "forced"
"""Folders beside the arms' own: the base measured, and the plain arm with forced thinking."""
LIBRARIES = ("torch", "transformers", "trl", "numpy")
OnArmEvent = Callable[[str, Any], None]
"""Told who says what: plain, protected, base or forced, and an event."""


@dataclass(frozen=True)
class DemoSpec:
    """What a folder is the demo of."""

    version: str
    """Of breadth."""
    base: str
    """Hash of the base's files."""
    plan: DemoPlan
    """The rest."""


def run_demo(plan: DemoPlan, folder: Path, base: Path | None, on_event: OnArmEvent) -> DemoResults:
    """Run a demo, or what is left of it, and return what it found; a folder of another demo is refused.

    As many processes as there are cores for them, two at most, one thread each.
    """
    _check_installed()
    check_files(default_folder() if base is None else base)
    spec = DemoSpec(__version__, reasoner_digest(base), plan)
    with lock_folder(folder):
        open_folder(spec, folder)
        if (folder / DEMO_RESULTS).exists():
            return records.read_record(DemoResults, folder / DEMO_RESULTS)
        results = _run_remaining(spec, folder, base, on_event)
        records.write_record(results, folder / DEMO_RESULTS)
    return results


def _run_remaining(spec: DemoSpec, folder: Path, base: Path | None, on_event: OnArmEvent) -> DemoResults:
    """Do the work that is left."""
    with _running_clock(folder / SECONDS_FILE) as seconds, WorkerPool(min(2, available_cores())) as workers:
        arms, measured = train_and_evaluate(workers, spec.plan, folder, base, on_event)
        forced = force_all_budgets(workers, spec.plan, folder, on_event)
        return collect_results(spec, arms, measured, forced, seconds())


def _check_installed() -> None:
    if any(find_spec(name) is None for name in ("torch", "transformers", "trl", "datasets")):
        raise MissingExtraError("The demo, which trains a tiny reasoner,", "train")


def open_folder(spec: DemoSpec, folder: Path) -> None:
    """Make the folder, or see that it is of the same demo."""
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
    if any(path.name != LOCK_FILE for path in folder.iterdir()):
        raise BrokenFileError(folder, "holds other things, and no demo.", "Name a new or an empty folder with --out.")
    settings.dump(spec, path)


def _read(path: Path) -> DemoSpec | None:
    """Return what a folder was made for; None when another version of breadth wrote it in a way that this one cannot read."""
    try:
        return settings.load(DemoSpec, path)
    except BrokenFileError:
        return None


def describe_difference(there: DemoSpec | None, spec: DemoSpec) -> str:
    """Say in what two demos differ, the most telling first."""
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
    place = _make_folder(folder / FORCED_FOLDER)
    calls = [
        WorkerCall(force_thinking, (plan, folder / "plain", place / f"{tokens}.json", tokens))
        for tokens in sorted(plan.budgets, reverse=True)  # the longest first, so that none is waited for at the end
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
    """Yield a clock that counts the seconds of all attempts; those of this one are kept also when it breaks."""
    began, before = time.monotonic(), 0.0
    with suppress(OSError, ValueError):  # none before, or not ours: then this one counts alone
        before = float(path.read_text(encoding="utf-8"))
    try:
        yield lambda: before + time.monotonic() - began
    finally:
        with suppress(OSError):
            path.write_text(f"{before + time.monotonic() - began:.1f}\n", encoding="utf-8")


POLICY_EVAL_FILE, COMPARISON_FILE, TRAINING_LOG_FILE = "measured.json", "both_ways.json", "training.json"
"""In the folder of an arm, beside what training leaves there."""
DONE_STAGE = "done"
"""The last stage of all."""


@dataclass(frozen=True)
class StepTaken:
    """An arm has taken an optimizer step."""

    step: int
    """Which."""
    reward: float
    """Share of right replies in it."""
    entropy: float
    """Of its tokens, in nats."""


@dataclass(frozen=True)
class StageStarted:
    """A call has come to another part of its work."""

    stage: str
    """What is done now."""


@dataclass(frozen=True)
class TrainedArm:
    """What an arm's call brings home."""

    arm: EvaluatedArm
    """Measured on held-out problems."""
    training: TrainingLog
    """How its training went."""


def train_arm(on_event: OnEvent, plan: DemoPlan, name: ArmName, folder: Path, base: Path | None) -> TrainedArm:
    """Train an arm, measure it as it is, and let it answer both ways."""
    from breadth.lab.evaluation.training_log import read_training_log
    from breadth.lab.grpo import RUN_FOLDER, train_grpo

    use_one_thread()
    on_event(StageStarted("training"))
    reasoner = train_grpo(plan.grpo_run(name), folder, base, lambda step, logs: on_event(_step(step, logs)))
    training = records.load_or_make(
        TrainingLog, folder / TRAINING_LOG_FILE, lambda: read_training_log(folder / RUN_FOLDER, grammar=True)
    )
    measured = _load_or_evaluate(on_event, plan, reasoner, folder / POLICY_EVAL_FILE)
    both_ways = _load_or_answer(on_event, plan, reasoner, folder / COMPARISON_FILE)
    on_event(StageStarted(DONE_STAGE))
    return TrainedArm(EvaluatedArm(measured, both_ways), training)


def answer_at_budget(plan: DemoPlan, folder: Path) -> ExtendedVsParallel:
    """Let the arm trained in a folder answer both ways at a plan's thinking tokens, and keep that in a file."""
    from breadth.lab.grpo import POLICY_FOLDER
    from breadth.lab.model.reasoner import load_reasoner

    return _load_or_answer(
        lambda _: None, plan, load_reasoner(folder / POLICY_FOLDER), folder / f"both_ways-{plan.thinking}.json"
    )


def measure_base(on_event: OnEvent, plan: DemoPlan, folder: Path, base: Path | None) -> PolicyEval:
    """Measure the base as it is."""
    from breadth.lab.model.reasoner import load_reasoner

    use_one_thread()
    found = _load_or_evaluate(on_event, plan, load_reasoner(base), folder / POLICY_EVAL_FILE)
    on_event(StageStarted(DONE_STAGE))
    return found


def force_thinking(on_event: OnEvent, plan: DemoPlan, folder: Path, path: Path, tokens: int) -> ForcedThinking:
    """Measure the reasoner trained in a folder with thinking of exactly so many tokens, and keep that in a file."""
    if path.exists():
        return records.read_record(ForcedThinking, path)
    from breadth.lab.evaluation.evaluate import PLAIN_SAMPLING, evaluate
    from breadth.lab.grpo import POLICY_FOLDER
    from breadth.lab.model.reasoner import load_reasoner

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


def _load_or_evaluate(on_event: OnEvent, plan: DemoPlan, reasoner: Reasoner, path: Path) -> PolicyEval:
    def look() -> PolicyEval:
        from breadth.lab.evaluation.evaluate import evaluate, summarize_evaluation

        on_event(StageStarted(f"{plan.samples} replies to each of {plan.problems} held-out problems"))
        return summarize_evaluation(
            evaluate(reasoner, plan_problems(plan, reasoner), plan.samples, seed=plan.seed), plan.ks
        )

    return records.load_or_make(PolicyEval, path, look)


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


def _step(step: int, logs: Mapping[str, float]) -> StepTaken:
    return StepTaken(step, float(logs["reward"]), float(logs.get("entropy", math.nan)))


def use_one_thread() -> None:
    import torch

    torch.set_num_threads(1)
