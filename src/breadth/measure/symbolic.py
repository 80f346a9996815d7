"""Symbolic equivalence of mathematical answers by math-verify, in a worker process with a deadline (extra ``math``).

Why a process of its own: the text is a model's output and must be taken as hostile. Nothing here evaluates it, but
math-verify hands plain arithmetic (digits and operators only, by its regular expression) to sympy's ``parse_expr``,
which is built on ``eval``, and LaTeX to a grammar; and sympy will happily start on ``9^{9^9}``, which ends neither in
our lifetime nor in our memory. math-verify's own time limit is an alarm signal that fails outside the main thread and
cannot interrupt one long step of integer arithmetic. A process can be given a limit on memory and be killed, so it is.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import lru_cache
from importlib.util import find_spec
from threading import Event, Lock, Timer
from types import TracebackType
from typing import IO, Self

from breadth.base.errors import MeasureError, MissingExtraError
from breadth.measure.answers import answer_key, is_prose

_SECONDS_TO_START = 60.0
"""Importing sympy takes a second on an idle machine; a loaded one may take many."""
_MAX_MEMORY = 2 << 30
"""Bytes of address space of the worker, where the system can limit it."""
_MAX_REMEMBERED = 1 << 16
"""Comparisons kept: the same two answers are compared once over many problems."""
_PROBE = "7"
"""An answer any other can be compared with at once: what hangs against it hangs against everything."""


class SymbolicEquivalence:
    r"""Say whether two answers are mathematically equal.

    ``with SymbolicEquivalence() as equal: equal(r"\sqrt{8}", r"2\sqrt{2}")``

    math-verify's test is not symmetric (an inequality equals an interval only in one order, an equation its right-hand
    side only in the other), so two answers are equal if it says so in either order; `grade` keeps the order. Equal keys
    are equal without asking; words are never compared symbolically, nor is text whose braces do not match. It drops
    units and rounds decimals to 6 places: '5 cm' equals '5 m', and 0.3333333 equals 1/3.

    A comparison that exceeds the deadline or kills the worker counts as not equal, and is counted. An answer found to
    hang by itself is not tried again. The worker starts at the first comparison and ends with the ``with`` block;
    threads may share it. Without math-verify: MissingExtraError.
    """

    def __init__(self, seconds: float = 5.0) -> None:
        if not seconds > 0:
            raise MeasureError(
                f"The deadline of a comparison must be above 0 seconds; got {seconds}.", "Leave it at its default of 5."
            )
        if find_spec("math_verify") is None:
            raise MissingExtraError("Symbolic equivalence of answers", "math")
        self.seconds = seconds
        """Deadline of one comparison (both orders); the default is math-verify's own for one step."""
        self.timeouts = 0
        """Comparisons given up at the deadline."""
        self.crashes = 0
        """Comparisons that ended the worker, for lack of memory for example."""
        self._hopeless: set[str] = set()
        self._lock = Lock()
        self._worker: subprocess.Popen[str] | None = None
        self._open = False
        self._remembered = lru_cache(maxsize=_MAX_REMEMBERED)(self._compare)

    def __enter__(self) -> Self:
        self._open = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open = False
        with self._lock:
            self._stop()

    def __call__(self, a: str, b: str) -> bool:
        """Say whether two answers are equal, in either order."""
        left, right = sorted((a, b))
        return self._same(left, right, "either")

    def grade(self, gold: str, answer: str) -> bool:
        """Say whether an answer is right, given the reference: math-verify's test in its own order."""
        return self._same(gold, answer, "gold first")

    def _same(self, left: str, right: str, order: str) -> bool:
        keys = answer_key(left), answer_key(right)
        if None in keys:
            return False
        if keys[0] == keys[1]:
            return True
        if not (is_mathematical(left) and is_mathematical(right)):
            return False
        with self._lock:
            return self._remembered(left, right, order)

    def _compare(self, left: str, right: str, order: str) -> bool:
        if self._hopeless & {left, right}:
            return False
        verdict, late = self._ask(left, right, order)
        if verdict is None:
            self.timeouts += late
            self.crashes += not late
            # One of the two is to blame, more often the longer; the other must not lose its later comparisons for it.
            suspects = sorted({left, right} - {_PROBE}, key=len, reverse=True)
            self._hopeless.update(
                next(([answer] for answer in suspects if self._ask(answer, _PROBE, order)[0] is None), [])
            )
        return bool(verdict)

    def _ask(self, left: str, right: str, order: str) -> tuple[bool | None, bool]:
        """Ask the worker once: its verdict, None when it died first, and whether it was late."""
        reply, late = exchange(self._running_worker(), json.dumps([left, right, order]), self.seconds)
        if reply is None:
            self._stop()
            return None, late
        return bool(json.loads(reply)), late

    def _running_worker(self) -> subprocess.Popen[str]:
        if not self._open:
            raise MeasureError(
                "SymbolicEquivalence was used outside its with block.",
                "Write: with SymbolicEquivalence() as equivalent: ...",
            )
        if self._worker is None:
            self._worker = start_comparison_worker()
            if exchange(self._worker, None, _SECONDS_TO_START)[0] is None:
                self._stop()
                raise MeasureError(
                    "The worker process for symbolic comparison did not start.",
                    "Check that math-verify can be imported.",
                )
        return self._worker

    def _stop(self) -> None:
        worker, self._worker = self._worker, None
        if worker is None:
            return
        worker.kill()
        for pipe in (worker.stdin, worker.stdout):
            _close_pipe(pipe)
        worker.wait()


def is_mathematical(answer: str) -> bool:
    """Words and unmatched braces would be read as something else than they are."""
    depth = 0
    for character in answer:
        depth += (character == "{") - (character == "}")
        if depth < 0:
            return False
    return depth == 0 and not is_prose(answer)


def start_comparison_worker() -> subprocess.Popen[str]:
    # A fresh interpreter on purpose: multiprocessing would import the user's script again, or copy a process with
    # threads.
    # The command is fixed; answers travel through the pipe as JSON.
    """Start the process that compares; answers travel through its pipes as JSON."""
    paths = os.pathsep.join(path for path in sys.path if path)
    return subprocess.Popen(
        [sys.executable, "-P", "-c", "from breadth.measure.symbolic import serve_comparisons; serve_comparisons()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONPATH": paths},
    )


def exchange(worker: subprocess.Popen[str], line: str | None, seconds: float) -> tuple[str | None, bool]:
    """Send a line, read one back; the second value says whether the worker was killed for being late."""
    late = Event()

    def expire() -> None:
        late.set()
        worker.kill()

    timer = Timer(seconds, expire)
    timer.daemon = True
    timer.start()
    try:
        if line is not None and worker.stdin:
            worker.stdin.write(line + "\n")
            worker.stdin.flush()
        reply = worker.stdout.readline() if worker.stdout else ""
    except OSError:
        reply = ""
    finally:
        timer.cancel()
        timer.join()
    return (reply if reply.endswith("\n") and not late.is_set() else None), late.is_set()


def _close_pipe(pipe: IO[str] | None) -> None:
    try:
        if pipe:
            pipe.close()
    except OSError:
        # What was still to be written belonged to a worker that is gone.
        return


def serve_comparisons() -> None:
    """Answer comparisons from standard input until it ends: the worker's whole life."""
    # Whatever a library prints must not pass for a reply.
    replies, sys.stdout = sys.stdout, sys.stderr
    _limit_memory()
    from math_verify import parse, verify

    @lru_cache(maxsize=256)
    def parse_answer(answer: str) -> list[object]:
        # math-verify only reads LaTeX inside a math environment; a box is the one that takes any content.
        return list(parse(f"\\boxed{{{answer}}}", parsing_timeout=None))

    # Much of sympy loads at first use; that must not count against the first comparison's deadline.
    verify(parse_answer("1 < x < 2"), parse_answer("(1, 2)"), timeout_seconds=None)
    replies.write("ready\n")
    replies.flush()
    for line in sys.stdin:
        left, right, order = json.loads(line)
        first, second = parse_answer(left), parse_answer(right)
        same = verify(first, second, timeout_seconds=None) or (
            order == "either" and verify(second, first, timeout_seconds=None)
        )
        replies.write(json.dumps(bool(same)) + "\n")
        replies.flush()


def _limit_memory() -> None:
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY, _MAX_MEMORY))
    except (ImportError, ValueError, OSError):
        # Windows has no such limit and macOS refuses it; the deadline remains.
        return
