"""Generated tokens per correct answer on a real server: our adaptive votes beside its_hub's and the plain vote.

The model is SmolLM2-135M-Instruct behind llama.cpp, the questions sums of three digits with a few worked ones before
them, so that the model is right now and then and votes help. Our rule is fitted on other questions first, and its risk
is set to what its_hub's cheaper rule (doubling) risks on those by replay, so that the two are compared at equal
agreement with the full vote. Every token is counted by the server itself (its own counter, tokens of cancelled
completions included), for every arm alike; what the fitting cost is printed beside the ratios.

    python tools/fetch_model.py
    python -m venv peer && peer/bin/pip install its_hub==1.2.0
    python benchmarks/live.py --its-hub peer/bin/python [--questions 80] [--budget 16] [--out docs/data/live.json]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np

from breadth.inference.records import Sampling, Task
from breadth.inference.stopping.risk import Risk
from breadth.inference.stopping.rule import StopRule
from breadth.inference.stopping.shapes import ShapeLibrary
from breadth.inference.stored_replay import replay
from breadth.inference.stored_votes import Paths
from breadth.inference.strategies.adaptive_vote import AdaptiveVote
from breadth.inference.strategies.vote import Vote
from breadth.inference.strategy import Strategy
from breadth.inference.voting import Poll, VoteState
from breadth.measure.paired_tests import paired_difference
from breadth.measure.validate import BoolArray
from breadth.runtime.connect import connect
from breadth.runtime.driver import Driver, SolveResult

ROOT = Path(__file__).parent.parent
MODEL = Path(sys.prefix) / "share" / "breadth" / "SmolLM2-135M-Instruct.Q4_1.gguf"
WORKED = ((3, 4, 2), (7, 5, 6), (2, 9, 4), (8, 6, 1))
SAMPLING = Sampling(temperature=0.7, top_p=1.0, max_tokens=48, stop=("\n",))
WANTED = 0.75
"""At most this many tokens of each peer's, at equal accuracy."""


@dataclass(frozen=True)
class Question:
    """A sum of three digits."""

    numbers: tuple[int, int, int]
    """The digits."""

    @property
    def prompt(self) -> str:
        """Worked sums, then this one."""
        shots = "".join(
            f"Q: What is {a} + {b} + {c}?\nA: {a} + {b} = {a + b}. {a + b} + {c} = {a + b + c}. The answer is"
            f" {a + b + c}.\n\n"
            for a, b, c in WORKED
        )
        a, b, c = self.numbers
        return f"{shots}Q: What is {a} + {b} + {c}?\nA:"

    @property
    def truth(self) -> str:
        """The sum."""
        return str(sum(self.numbers))


@dataclass(frozen=True)
class Arm:
    """What one method did."""

    name: str
    """Which method."""
    correct: tuple[bool, ...]
    """Question by question."""
    tokens: int
    """Tokens the server wrote for it."""

    @property
    def price(self) -> float:
        """Tokens for a correct answer."""
        return self.tokens / max(1, sum(self.correct))


@dataclass(frozen=True)
class Doubling(StopRule):
    """its_hub's AdaptiveSelfConsistency, to be replayed: after 2, 4, 8, ...

    draws, stop if three quarters of them agree.
    """

    def is_decided(self, standing: VoteState) -> bool:
        """Look at the share of the leader."""
        drawn = standing.total + standing.unread
        return drawn > 1 and not drawn & (drawn - 1) and standing.leader >= 0.75 * drawn

    def is_decided_along(self, paths: Paths) -> BoolArray:
        """Do the same after every draw."""
        drawn = np.arange(1, paths.classes.shape[1] + 1)
        looked = (drawn > 1) & (drawn & (drawn - 1) == 0)
        return np.asarray(looked & (paths.leader >= 0.75 * drawn))


def questions(count: int, seed: int) -> list[Question]:
    """Return different sums."""
    every = [(a, b, c) for a in range(2, 10) for b in range(2, 10) for c in range(2, 10) if (a, b, c) not in WORKED]
    return [Question(numbers) for numbers in random.Random(seed).sample(every, count)]  # noqa: S311 - a sample, no secret


@contextmanager
def server() -> Iterator[str]:
    """Run the real server until done."""
    command = [sys.executable, str(ROOT / "tests" / "llama_server.py"), str(MODEL), "--raw", "--threads", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            yield (process.stdout.readline() if process.stdout else "").strip()
        finally:
            process.kill()


def written(url: str) -> int:
    """Return how many tokens the server has written since it started, by its own count."""
    return int(float(counter(url, "tokens_predicted_total")))


def counter(url: str, name: str) -> bytes:
    """Return one of the server's own counters."""
    with urlopen(f"{url}/metrics") as reply:  # noqa: S310 - our own server
        found = re.search(rf"(?m)^llamacpp:{name} (\S+)".encode(), reply.read())
    return found[1] if found else b"nan"


async def settled(url: str) -> None:
    """Wait until the server works on nothing any more, so that cancelled completions are counted where they belong."""
    while float(counter(url, "requests_processing")) > 0:
        await asyncio.sleep(0.05)


async def ours(url: str, strategy: Strategy, asked: list[Question], name: str) -> tuple[Arm, list[SolveResult]]:
    """Answer questions with a strategy of ours, one after the other."""
    before = written(url)
    sampler = await connect([url], model="smollm2")
    driver = Driver(sampler)
    done = []
    for number, question in enumerate(asked):
        task = Task(({"role": "user", "content": question.prompt},), f"{name} {number}", "smollm2", SAMPLING)
        done.append(await driver.solve(strategy, task))
    await sampler.close()
    await settled(url)
    correct = tuple(solved.answer.key == question.truth for solved, question in zip(done, asked, strict=True))
    return Arm(name, correct, written(url) - before), done


async def theirs(url: str, python: str, method: str, asked: list[Question], budget: int) -> Arm:
    """Answer the same questions with its_hub."""
    sampling = {
        "temperature": SAMPLING.temperature,
        "max_completion_tokens": SAMPLING.max_tokens,
        "stop": SAMPLING.stop[0],
    }
    before = written(url)
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / "questions.json", Path(folder) / "answers.json"]
        paths[0].write_text(json.dumps([{"prompt": question.prompt, **sampling} for question in asked]))
        script = ROOT / "benchmarks" / "peers" / "its_hub_votes.py"
        done = await asyncio.create_subprocess_exec(
            python, str(script), method, url, str(paths[0]), str(budget), str(paths[1])
        )
        if await done.wait():
            sys.exit(f"its_hub's {method} failed")
        answers = json.loads(paths[1].read_text())
    await settled(url)
    correct = tuple(answer == question.truth for answer, question in zip(answers, asked, strict=True))
    return Arm(f"its_hub {method}", correct, written(url) - before)


def library(done: list[SolveResult]) -> ShapeLibrary:
    """Fit a library of answer shapes from full votes."""
    counts = []
    for solved in done:
        poll = Poll(solved.task)
        poll.add(solved.arrived)
        counts.append(poll.state.counts)
    return ShapeLibrary.fit([each for each in counts if each])


def equal_risk(done: list[SolveResult], budget: int) -> float:
    """Return how often doubling ends with another answer than the full vote, over random orders."""
    stored = {solved.task.name: solved.arrived for solved in done if solved.answer.votes}
    outcome = replay(stored, {"doubling": AdaptiveVote(budget, 1, Doubling(), budget)}, repeats=200).outcomes[
        "doubling"
    ]
    return min(max(1 - outcome.agreement.value, 0.01), 0.4)


async def compared(chosen: argparse.Namespace) -> dict[str, Any]:
    """Run every arm on the same questions and the same server."""
    asked, other = questions(chosen.questions, 1), questions(chosen.questions // 2, 2)
    other = [question for question in other if question not in asked]
    with server() as url:
        fitting, votes = await ours(url, Vote(chosen.budget), other, "fitting")
        risk = equal_risk(votes, chosen.budget) if chosen.risk is None else chosen.risk
        stop = Risk(risk, library(votes), chosen.budget)
        arms = [(await ours(url, AdaptiveVote(chosen.budget, 8, stop), asked, f"ours, risk {risk:.3f}"))[0]]
        arms.append((await ours(url, Vote(chosen.budget), asked, f"plain vote of {chosen.budget}"))[0])
        arms += [await theirs(url, chosen.its_hub, method, asked, chosen.budget) for method in ("doubling", "beta")]
    rows = [shown(arm, arms[0]) for arm in arms]
    return {
        "questions": len(asked),
        "budget": chosen.budget,
        "fitting_tokens": fitting.tokens,
        "fitting_questions": len(other),
        "arms": rows,
    }


def shown(arm: Arm, best: Arm) -> dict[str, Any]:
    """Return an arm beside ours: accuracy, the paired difference, tokens for a correct answer and the ratio."""
    outcomes, reference = np.array(arm.correct, dtype=float), np.array(best.correct, dtype=float)
    gap = paired_difference(reference, outcomes).difference if arm is not best else None
    return {
        "name": arm.name,
        "accuracy": float(np.mean(arm.correct)),
        "ours minus this": None if gap is None else [gap.value, gap.low, gap.high],
        "tokens": arm.tokens,
        "tokens per correct": arm.price,
        "ratio": best.price / arm.price,
        "correct": "".join(str(int(each)) for each in arm.correct),
    }


def command(chosen: argparse.Namespace) -> str:
    """Return what to type for the same once more."""
    risk = "" if chosen.risk is None else f" --risk {chosen.risk}"
    return f"python benchmarks/live.py --its-hub PYTHON --questions {chosen.questions} --budget {chosen.budget}{risk}"


def main() -> int:
    """Print the table; the exit status says whether the saving is what was promised."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--its-hub", help="a Python that has its_hub 1.2.0 installed")
    arguments.add_argument("--questions", type=int, default=80)
    arguments.add_argument("--budget", type=int, default=16)
    arguments.add_argument(
        "--risk", type=float, help="our stated risk; by default that of its_hub's doubling on the fitting questions"
    )
    arguments.add_argument("--out", type=Path)
    chosen = arguments.parse_args()
    if not chosen.its_hub or not MODEL.is_file():
        print(
            "live: left out: it needs --its-hub PYTHON (a Python with its_hub 1.2.0) and the model (python"
            " tools/fetch_model.py)"
        )
        return 0
    found = asyncio.run(compared(chosen))
    print(f"{found['questions']} questions, at most {found['budget']} draws.")
    print(
        f"The rule was fitted on {found['fitting_questions']} other questions with {found['fitting_tokens']:,}"
        " tokens.\n"
    )
    print(f"{'':24} accuracy   ours minus this         tokens  per correct   ours / this")
    for row in found["arms"]:
        gap = row["ours minus this"]
        said = "" if gap is None else f"{gap[0]:+.3f} ({gap[1]:+.3f} to {gap[2]:+.3f})"
        print(
            f"{row['name']:24} {row['accuracy']:8.3f}   {said:26} {row['tokens']:7,} {row['tokens per correct']:10.1f}"
            f" {row['ratio']:12.2f}"
        )
    peers = [row for row in found["arms"] if not row["name"].startswith("ours")]
    if chosen.out:
        chosen.out.write_text(json.dumps(found | {"command": command(chosen)}, indent=1) + "\n")
    kept = all(row["ratio"] <= WANTED for row in peers)
    print(f"\nat most {WANTED:g} of every peer's tokens per correct answer: {'yes' if kept else 'NO'}")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
