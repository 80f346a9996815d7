"""Does `breadth tune` find the best policy of an unknown server? Checked on the lab's server by a wider sweep.

The reasoner that ships (or --base) is served over HTTP. `breadth tune` sees some questions and chooses a policy; then
every option it had, and a vote twice as wide, is measured on other questions with more draws. Printed: what each option
is worth there, where forced thinking is best there and by the blind sweep, and what the blind choice loses to the best
option of the first sweep's cost or less, with an interval paired by question.

Run: python benchmarks/blind_tune.py [--base FOLDER] [--questions 60] [--others 150] [--out docs/data/blind-tune.json]
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from breadth.lab.reasoner import reasoner_prime
from breadth.lab.task.problems import draw_tasks, write_tasks
from breadth.measure.intervals import Interval, mean_interval
from breadth.measure.paired_tests import paired_difference
from breadth.runs.reader import Run
from breadth.tuning.choice import Option
from breadth.tuning.result import TuningResult, analyze_sweep

WIDTHS = (1, 2, 4, 8, 16)
BREADTH = (sys.executable, "-m", "breadth")


@contextmanager
def server(base: Path | None) -> Iterator[str]:
    """Serve the reasoner until done."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [*BREADTH, "lab", "serve", "--port", str(port), *(["--base", str(base)] if base else [])]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        _wait(f"{url}/v1/models", process)
        yield url
    finally:
        process.terminate()
        process.wait()


def _wait(address: str, process: subprocess.Popen[bytes]) -> None:
    for _ in range(600):
        if process.poll() is not None:
            raise SystemExit(f"the server ended with status {process.returncode}")
        try:
            urlopen(address, timeout=5).close()  # noqa: S310 - our own server
        except (URLError, ConnectionError):
            time.sleep(0.2)
        else:
            return
    raise SystemExit("the server did not answer within two minutes")


def sweep(url: str, tasks: Path, out: Path, widths: Sequence[int], *options: str) -> TuningResult:
    """Run the command as a user would, and read what it came to."""
    command = [
        *BREADTH,
        "tune",
        url,
        "--tasks",
        str(tasks),
        "--out",
        str(out),
        "--answer-format",
        "whole",
        "--max-tokens",
        "512",
        "--yes",
    ]
    done = subprocess.run(
        [*command, "--widths", ",".join(map(str, widths)), "--json", *options], capture_output=True, check=False
    )
    if done.returncode not in (0, 1):
        raise SystemExit(done.stderr.decode(errors="replace"))
    return analyze_sweep(Run.open(out))


def row(option: Option) -> dict[str, Any]:
    """Return an option as measured."""
    return {
        "option": option.name,
        "accuracy": _plain(mean_interval(option.scores, bounds=(0.0, 1.0))),
        "tokens": round(option.cost, 1),
    }


def best_budget(found: TuningResult) -> int | None:
    """Return the budget of forced thinking with the highest score."""
    forced = [option for option in found.options if option.budget is not None]
    return max(forced, key=lambda option: option.score).budget if forced else None


def judged(blind: TuningResult, truth: TuningResult) -> dict[str, Any]:
    """Set what was chosen blind beside what was best."""
    by_name = {option.name: option for option in truth.options}
    had = [by_name[option.name] for option in blind.options]
    chosen, best = by_name[blind.choice.option.name], max(had, key=lambda option: option.score)
    lost = None if chosen is best else paired_difference(best.scores, chosen.scores)
    return {
        "chosen": chosen.name,
        "best": best.name,
        "lost": None if lost is None else _plain(lost.difference),
        "gain_over_one_draw": _plain(paired_difference(chosen.scores, by_name["one plain sample"].scores).difference),
        "expected": _plain(blind.choice.score),
        "best_thinking": {"blind": best_budget(blind), "others": best_budget(truth)},
        "falls_past_it": None if truth.hump is None else _plain(truth.hump.fall),
        "options": [row(option) for option in truth.options],
    }


def _plain(interval: Interval) -> dict[str, float]:
    return {"value": round(interval.value, 4), "low": round(interval.low, 4), "high": round(interval.high, 4)}


def report(found: dict[str, Any]) -> None:
    """Print the table and the verdict."""
    print(f"{'option':18} {'accuracy on the others':>24} {'tokens':>8}")
    for one in found["options"]:
        accuracy = one["accuracy"]
        print(
            f"{one['option']:18} {accuracy['value']:10.3f} ({accuracy['low']:.3f} to {accuracy['high']:.3f})"
            f" {one['tokens']:8.1f}"
        )
    lost = found["lost"]
    print(f"chosen blind: {found['chosen']}; best of what it could choose: {found['best']}")
    print(
        "it loses nothing"
        if lost is None
        else f"it loses {lost['value']:.3f} ({lost['low']:.3f} to {lost['high']:.3f})"
    )
    print(
        f"best forced thinking: {found['best_thinking']['blind']} blind, {found['best_thinking']['others']} on the"
        " others"
    )


def main() -> None:
    """Tune blind, measure all, compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", type=Path, help="folder of a reasoner; the one that ships if left out")
    parser.add_argument("--questions", type=int, default=60, help="questions the tuner sees")
    parser.add_argument("--others", type=int, default=150, help="questions its choice is judged by")
    parser.add_argument("--out", type=Path, help="also write everything as JSON")
    asked = parser.parse_args()
    prime = reasoner_prime(asked.base)
    problems = draw_tasks(asked.questions + asked.others, prime, "medium", seed=1)
    with tempfile.TemporaryDirectory() as folder, server(asked.base) as url:
        place = Path(folder)
        write_tasks(place / "seen.jsonl", problems[: asked.questions], prime)
        write_tasks(place / "others.jsonl", problems[asked.questions :], prime)
        blind = sweep(url, place / "seen.jsonl", place / "blind", WIDTHS)
        budgets = ",".join(str(option.budget) for option in blind.options if option.budget is not None) or "none"
        truth = sweep(url, place / "others.jsonl", place / "truth", (*WIDTHS, 2 * WIDTHS[-1]), "--budgets", budgets)
        found = {"questions": asked.questions, "others": asked.others, **judged(blind, truth)}
    report(found)
    if asked.out is not None:
        asked.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
