"""Kill -9 at random instants of `solve`, `tune`, `import` and a TRL run; resume each time and check what is left.

    python -m tools.kill --instants 200 --seed 7 --out docs/data/kill.json
    python -m tools.kill --job train --instants 10

Each job first runs once without a kill, which gives its duration. Then it is started, killed after a random part of
that time, checked, and started again in the same folder, until it ends by itself; then a new folder begins. An instant
counts only if the process was alive when the signal came. Checked after each kill: every row that was on disk before
is still there, and nothing half-written can be seen. Checked at the end: the result is that of the run without a kill,
nothing was sampled twice, and the ledger is the sum of the journal.

A process is a fork of this one, so that it starts at once; checks run in forks too, because pyarrow starts threads.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import orjson

SHARES = {"solve": 0.3, "tune": 0.25, "import": 0.3, "train": 0.15}
"""Share of the instants for each job; a step of TRL costs a hundred times what a reply of the fake server costs."""
QUESTIONS, VOTES, TOKENS = 12, 4, 20
IMPORT_STEPS, ROLLOUTS_PER_STEP = 40, 256
TRAIN_STEPS, TRAIN_ROLLOUTS = 6, 8


class Job(Protocol):
    """Something that can be killed."""

    def run(self, folder: Path) -> None:
        """Do the work, or resume it."""

    def check_killed(self, folder: Path, before: Any) -> Any:
        """Check what a kill left, given what this method returned after the last kill; AssertionError if it is bad."""

    def check_finished(self, folder: Path) -> None:
        """Check the result; AssertionError if it is not what a run without a kill gives."""


def expect(condition: bool, problem: str) -> None:
    """Raise AssertionError with the problem unless the condition holds."""
    if not condition:
        raise AssertionError(problem)


def call_command(*arguments: str) -> None:
    """Run the command line in this process; any exit status but 0 and 1 (no difference found) is an error."""
    from breadth.cli.main import run

    sys.argv = ["breadth", *arguments]
    try:
        run()
    except SystemExit as end:
        expect(end.code in (0, 1, None), f"{arguments[0]} ended with status {end.code}")


def journal_rows(folder: Path) -> list[dict[str, Any]]:
    """Return the events of a journal; the last line may be cut."""
    path = folder / "replies.jsonl"
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return [row for line in lines if "kind" in (row := orjson.loads(line))]


def check_journal(folder: Path, before: list[Any] | None) -> list[Any]:
    """Check that a folder opens, and that no event is gone that was there after the kill before."""
    from breadth.runs.reader import Run

    events = [[row["task"], row["path"], row["place"], row["kind"]] for row in journal_rows(folder)]
    kept = [event for event in before or [] if event[3] == "arrived"]
    expect(all(event in events for event in kept), "an arrived sample is gone from the journal")
    if (folder / "run.toml").exists():
        expect(Run.open(folder).broken == (), "something half-written can be seen")
    return events


def tokens_charged(folder: Path) -> int:
    """Return the output tokens of all events of a journal."""
    return sum(row.get("spend", {}).get("output_tokens", 0) for row in journal_rows(folder))


@dataclass
class SolveJob:
    """``breadth solve`` on a file of questions."""

    url: str
    """The fake server."""
    tasks: Path
    """The questions."""

    def run(self, folder: Path) -> None:
        """Solve."""
        policy = f"vote,n={VOTES}"
        call_command("solve", "--tasks", str(self.tasks), "--url", self.url, "--policy", policy, "--answer-format",
                     "number", "--out", str(folder / "out"), "--json")  # fmt: skip

    def check_killed(self, folder: Path, before: Any) -> Any:
        """Check the journal and the folder."""
        return check_journal(folder / "out", before)

    def check_finished(self, folder: Path) -> None:
        """Check that each question has its votes once, and that report, rollouts and journal name the same tokens."""
        from breadth.runs.reader import Run

        out = folder / "out"
        arrived = [row for row in journal_rows(out) if row["kind"] == "arrived"]
        expect(len(arrived) == QUESTIONS * VOTES, f"{len(arrived)} samples arrived, not {QUESTIONS * VOTES}")
        answers = orjson.loads((folder / "output").read_bytes())["questions"]
        told = sum(row["cost"]["output_tokens"] for row in answers)
        run = Run.open(out)
        stored = run.query("SELECT count(*) n, sum(tokens) t FROM rollouts").to_pylist()[0]
        logged = sum(run.series("inference/output_tokens", "eval").values.tolist())
        counts = {told, tokens_charged(out), int(stored["t"]), int(logged), QUESTIONS * VOTES * TOKENS}
        expect(len(counts) == 1, f"the ledger is not exact: {sorted(counts)}")
        expect(stored["n"] == len(arrived), f"{stored['n']} rollouts of {len(arrived)} samples")


@dataclass
class TuneJob:
    """``breadth tune`` on a file of questions."""

    url: str
    """The fake server."""
    tasks: Path
    """The questions."""

    def run(self, folder: Path) -> None:
        """Tune."""
        call_command("tune", self.url, "--tasks", str(self.tasks), "--out", str(folder / "out"), "--yes", "--json",
                     "--budgets", "none", "--widths", "1,2,4", "--samples", str(VOTES), "--answer-format",
                     "number")  # fmt: skip

    def check_killed(self, folder: Path, before: Any) -> Any:
        """Check the journal and the folder."""
        return check_journal(folder / "out", before)

    def check_finished(self, folder: Path) -> None:
        """Check that every sample is there once, with the tokens of the journal, and that the policy was written."""
        from breadth.inference.policy import Policy
        from breadth.runs.reader import Run

        out = folder / "out"
        arrived = [row for row in journal_rows(out) if row["kind"] == "arrived"]
        stored = (
            Run.open(out)
            .query("SELECT count(*) n, count(DISTINCT (step, problem, sample)) d, sum(tokens) t FROM rollouts")
            .to_pylist()[0]
        )
        expect(stored["n"] == stored["d"] == len(arrived), f"{stored} of {len(arrived)} samples")
        counts = {tokens_charged(out), int(stored["t"]), len(arrived) * TOKENS}
        expect(len(counts) == 1, f"the ledger is not exact: {sorted(counts)}")
        Policy.parse(str(out / "policy.toml"))


@dataclass
class ImportJob:
    """``breadth import`` of a folder with a log and rollouts."""

    source: Path
    """What is imported."""

    def run(self, folder: Path) -> None:
        """Import."""
        call_command("import", str(self.source), "--to", str(folder / "run"))

    def check_killed(self, folder: Path, before: Any) -> Any:
        """Check that there is a whole run or none."""
        del before
        if (folder / "run").exists():
            self.check_finished(folder)

    def check_finished(self, folder: Path) -> None:
        """Check that every row is there."""
        from breadth.runs.reader import Run

        run = Run.open(folder / "run")
        rows = run.query("SELECT count(*) n FROM rollouts").to_pylist()[0]["n"]
        expect(run.broken == (), "something half-written can be seen")
        expect(rows == IMPORT_STEPS * ROLLOUTS_PER_STEP, f"{rows} rollouts were imported")
        expect(len(run.series("entropy")) == IMPORT_STEPS, "metric rows are missing")


@dataclass
class TrainJob:
    """A real TRL run: GRPO on the lab's smallest reasoner, recorded into a run folder."""

    base: Path
    """The policy it starts from."""
    weights: bytes = field(default=b"", repr=False)
    """Digest of the weights after a run without a kill."""

    def run(self, folder: Path) -> None:
        """Train; each step that TRL reports is acknowledged on disk."""
        from breadth.lab import grpo
        from breadth.training.recipes import RECIPES

        grpo.CHECKPOINT_STEPS = 2
        run = grpo.GrpoRun(RECIPES["thermostat"].chain, steps=TRAIN_STEPS, learning_rate=2e-3, prompts=2, group=4,
                           problems=8, max_completion_length=40)  # fmt: skip
        with (folder / "reported").open("ab", buffering=0) as reported:

            def report(step: int, values: Mapping[str, float]) -> None:
                del values
                reported.write(b"%d\n" % step)

            grpo.train_grpo(run, folder / "out", self.base, report)

    def check_killed(self, folder: Path, before: Any) -> Any:
        """Check that no step is gone or partly there, and that reported steps have their rollouts."""
        from breadth.runs.reader import Run

        if not (folder / "out" / "run" / "run.toml").exists():
            expect(not before, "the run is gone")
            return []
        run = Run.open(folder / "out" / "run")
        expect(run.broken == (), "something half-written can be seen")
        rows = run.query("SELECT step, count(*) n FROM rollouts GROUP BY step").to_pylist() if run.rollout_files else []
        expect(all(row["n"] == TRAIN_ROLLOUTS for row in rows), f"steps are partly there: {rows}")
        steps = sorted(row["step"] for row in rows)
        reported = [int(line) for line in (folder / "reported").read_bytes().split()]
        gone = {*(before or []), *reported} - set(steps)
        expect(not gone, f"steps are gone: {sorted(gone)}")
        return steps

    def check_finished(self, folder: Path) -> None:
        """Check that all steps are there, and that the weights are those of a run without a kill."""
        steps = self.check_killed(folder, [])
        expect(len(steps) == TRAIN_STEPS, f"{len(steps)} steps of {TRAIN_STEPS}")
        digest = self.digest(folder)
        expect(not self.weights or digest == self.weights, "the weights differ from those of a run without a kill")

    def digest(self, folder: Path) -> bytes:
        """Return a digest of the trained weights."""
        from hashlib import sha256

        from breadth.lab.reasoner import load_reasoner

        model = load_reasoner(folder / "out" / "policy").model
        total = sha256()
        for name, tensor in sorted(model.state_dict().items()):
            total.update(name.encode() + tensor.numpy().tobytes())
        return total.digest()


def fork(action: Callable[[], Any], folder: Path) -> int:
    """Start a process that does something, with its output in ``folder``; returns its id."""
    process = os.fork()
    if process:
        return process
    status = 1
    try:
        for descriptor, name in ((1, "output"), (2, "errors")):
            os.dup2(os.open(folder / name, os.O_CREAT | os.O_TRUNC | os.O_WRONLY), descriptor)
        action()
        status = 0
    except BaseException:  # noqa: BLE001 - the process ends here, whatever it was
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status)


def ask(question: Callable[[], Any], folder: Path) -> Any:
    """Answer a question in a process of its own; AssertionError with its errors if it fails."""
    place = folder / "answers"
    place.mkdir(exist_ok=True)
    result = place / "result.json"
    process = fork(lambda: result.write_bytes(orjson.dumps(question())), place)
    status = os.waitpid(process, 0)[1]
    if status:
        raise AssertionError((place / "errors").read_text(encoding="utf-8", errors="replace")[-3000:])
    return orjson.loads(result.read_bytes())


@dataclass
class Outcome:
    """What came of the kills of one job."""

    instants: int = 0
    """Kills of a living process."""
    finished: int = 0
    """Runs that came to their end after kills, and were checked."""
    seconds: float = 0.0
    """Duration of a run without a kill."""
    failures: list[str] = field(default_factory=list)
    """Checks that failed."""


def kill_job(job: Job, instants: int, rng: random.Random, folder: Path, deadline: float) -> Outcome:
    """Kill a job at so many instants, as long as there is time."""
    outcome, number = Outcome(), 0
    whole = folder / "whole"
    whole.mkdir(parents=True)
    started = time.monotonic()
    expect(os.waitpid(fork(lambda: job.run(whole), whole), 0)[1] == 0, (whole / "errors").read_text(errors="replace"))
    outcome.seconds = time.monotonic() - started
    ask(lambda: job.check_finished(whole), whole)
    if isinstance(job, TrainJob):
        job.weights = bytes.fromhex(ask(lambda: job.digest(whole).hex(), whole))
    while outcome.instants < instants and time.monotonic() < deadline:
        place = folder / f"killed-{number}"
        place.mkdir()
        number += 1
        try:
            kill_until_finished(job, place, outcome, instants, rng)
        except AssertionError as error:
            outcome.failures.append(f"{place.name}: {error}")
            print(f"FAILED {place}: {error}", flush=True)
    return outcome


def kill_until_finished(job: Job, place: Path, outcome: Outcome, instants: int, rng: random.Random) -> None:
    """Start a job and kill it, again and again in one folder, until it ends by itself; check each time."""
    before: Any = None
    while True:
        process = fork(lambda: job.run(place), place)
        if outcome.instants < instants:
            wait_or_end(process, rng.uniform(0.0, outcome.seconds))
            os.kill(process, signal.SIGKILL)
        status = os.waitpid(process, 0)[1]
        if os.WIFSIGNALED(status):
            outcome.instants += 1
            before = ask(partial(job.check_killed, place, before), place)
            if isinstance(job, ImportJob) and (place / "run").exists():
                return
            continue
        errors = (place / "errors").read_text(encoding="utf-8", errors="replace")
        expect(status == 0, f"it cannot be resumed: {errors[-2000:]}")
        ask(lambda: job.check_finished(place), place)
        outcome.finished += 1
        return


def wait_or_end(process: int, seconds: float) -> None:
    """Wait so many seconds, or until the process has ended; it is not reaped, so its id stays its own."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        if os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return
        time.sleep(min(left, 0.01))


def write_sources(folder: Path) -> tuple[Path, Path]:
    """Write the questions to solve and the files to import; return both paths."""
    tasks = folder / "tasks.jsonl"
    rows = [{"question": f"What is {number} + 1?", "answer": str(TOKENS - 1)} for number in range(QUESTIONS)]
    tasks.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    source = folder / "source"
    source.mkdir()
    with (source / "rollouts.jsonl").open("w", encoding="utf-8") as file:
        for step in range(IMPORT_STEPS):
            for sample in range(ROLLOUTS_PER_STEP):
                row = {"step": step, "prompt": f"What is {sample // 8} + 1?", "reward": float(sample % 2)}
                file.write(json.dumps(row | {"completion": f"It is {sample}. " * 20, "tokens": 60}) + "\n")
    log = [{"step": step, "entropy": 1.0 / (step + 1), "reward": 0.5} for step in range(IMPORT_STEPS)]
    (source / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in log), encoding="utf-8")
    return tasks, source


def write_base(folder: Path) -> None:
    """Write the smallest reasoner, with random weights."""
    from breadth.lab.reasoner import ReasonerShape, build_reasoner, load_reasoner, save_reasoner

    shape = ReasonerShape(hidden=32, layers=1, heads=2, inner=32)
    save_reasoner(build_reasoner(load_reasoner(None).teacher, shape, seed=1), folder)


def preload(names: set[str]) -> None:
    """Load what the jobs need, so that their processes start at once."""
    import breadth.cli.import_
    import breadth.cli.solve
    import breadth.cli.tune
    import breadth.runs.reader

    if "train" in names:
        import breadth.adapters.trl.trainer
        import breadth.lab.grpo
        import breadth.lab.reasoner  # noqa: F401


def summarise(outcomes: Mapping[str, Outcome], seed: int) -> dict[str, Any]:
    """Return what is written to ``--out``."""
    return {
        "seed": seed,
        "instants": sum(outcome.instants for outcome in outcomes.values()),
        "failures": sum(len(outcome.failures) for outcome in outcomes.values()),
        "jobs": {
            name: {
                "instants": outcome.instants,
                "finished": outcome.finished,
                "seconds_without_a_kill": round(outcome.seconds, 2),
                "failures": [failure[:300] for failure in outcome.failures],
            }
            for name, outcome in outcomes.items()
        },
    }


def main() -> int:
    """Kill as asked; 1 when a check failed."""
    from breadth.testing.fake_server import spawn_server

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--instants", type=int, default=200, help="kills in all")
    parser.add_argument("--seed", type=int, default=0, help="random seed of the instants")
    parser.add_argument("--job", choices=sorted(SHARES), action="append", help="one job only; repeatable")
    parser.add_argument("--minutes", type=float, default=60.0, help="start no new run after so many minutes in all")
    parser.add_argument("--out", type=Path, help="file for the counts")
    options = parser.parse_args()
    names = options.job or list(SHARES)
    total, rng = sum(SHARES[name] for name in names), random.Random(options.seed)  # noqa: S311 - nothing secret
    preload(set(names))
    outcomes: dict[str, Outcome] = {}
    until = time.monotonic() + 60 * options.minutes
    with (
        tempfile.TemporaryDirectory(prefix="breadth-kill-") as folder,
        spawn_server("--tokens", str(TOKENS), "--delay", "0.004") as url,
    ):
        tasks, source = write_sources(Path(folder))
        base = Path(folder) / "base"
        if "train" in names:
            ask(lambda: write_base(base), Path(folder))
        jobs: dict[str, Job] = {
            "solve": SolveJob(url, tasks),
            "tune": TuneJob(url, tasks),
            "import": ImportJob(source),
            "train": TrainJob(base),
        }
        for name in names:
            instants = round(options.instants * SHARES[name] / total)
            outcomes[name] = kill_job(jobs[name], instants, rng, Path(folder) / name, until)
            outcome = outcomes[name]
            print(f"{name}: {outcome.instants} kills, {outcome.finished} runs ended, {len(outcome.failures)} failures")
            if options.out is not None:
                options.out.write_text(json.dumps(summarise(outcomes, options.seed), indent=1) + "\n", encoding="utf-8")
    return int(any(outcome.failures for outcome in outcomes.values()))


if __name__ == "__main__":
    sys.exit(main())
