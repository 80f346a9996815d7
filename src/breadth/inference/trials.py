"""Trial answers within unfinished thinking, and how sure a trial is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from breadth.base.checks import require
from breadth.inference.halts.closed_brace import ClosedBrace
from breadth.inference.halts.phrase import Phrase
from breadth.inference.records import Ask, Candidate, Task
from breadth.inference.thinking import on_new_line

OPENING = "**Final Answer**\n\\boxed"
"""What a trial continues, on a line of its own (DEER's)."""
MEASURES = ("mean", "geometric", "min")


@dataclass(frozen=True)
class Trial:
    r"""Try the answer in the middle of thinking: '**Final Answer** \boxed' and a few greedy tokens, whose probabilities say how sure it is.

    The first token, the brace, is left out; a trial of one token has no confidence and counts as 0. Settings of arXiv 2504.15895's
    public code, which samples its trials at temperature 1; the paper's are greedy, as here.
    """

    measure: Literal["mean", "geometric", "min"] = "mean"
    """Confidence of a trial: the mean of its token probabilities (the code's avg1); their geometric mean, and then 0 unless the trial
    goes on to close the thinking (avg2, for Qwen3, which is over-confident); or the least of them (min)."""
    tokens: int = 20
    """Tokens at most."""

    def __post_init__(self) -> None:
        require(self, "measure", self.measure in MEASURES, "one of " + ", ".join(MEASURES))
        require(self, "tokens", self.tokens >= 2, "at least two tokens, for the first is the brace")

    def ask(self, task: Task, text: str, close: str) -> Ask:
        """Return the request for a trial behind a reply's text, where ``close`` ends thinking (empty: nothing does)."""
        sampling = replace(task.sampling, temperature=0.0, max_tokens=self.tokens, stop=(), top_logprobs=1, thinking_tokens=None)
        halt = Phrase((close,)) if self._must_close(close) else ClosedBrace()
        return Ask(1, prefix=on_new_line(text) + OPENING, sampling=sampling, halt=halt, independent=False, purpose="trial")

    def confidence(self, trial: Candidate, close: str) -> float | None:
        """Return how sure a trial is, from 0 to 1; None when it came without log-probs."""
        said = trial.reasoning + trial.text
        if trial.logprobs is None:
            return None if said else 0.0  # a model that says nothing has no log-probs to send
        # A server that sets thinking apart keeps the mark to itself: text behind thinking tells that it was there.
        if self._must_close(close) and close not in said and not (trial.reasoning and trial.text):
            return 0.0
        logprobs = np.asarray(trial.logprobs, dtype=float)[1:]
        return summary(logprobs, self.measure) if logprobs.size and not np.isnan(logprobs).any() else 0.0

    def _must_close(self, close: str) -> bool:
        return self.measure == "geometric" and bool(close)


def summary(logprobs: np.ndarray[tuple[int, ...], np.dtype[np.float64]], measure: str) -> float:
    """Return the mean, the geometric mean or the least of the probabilities."""
    if measure == "geometric":
        return float(np.exp(logprobs.mean()))
    return float(np.exp(logprobs.min()) if measure == "min" else np.exp(logprobs).mean())


@dataclass
class Tried:
    """What the trials of one run came to."""

    trials: int = 0
    """Trials made."""
    tokens: int = 0
    """Tokens they cost."""
    useful: bool = True
    """Whether log-probs came with them."""
    exited: bool = False
    """Whether the last was sure."""
    confidence: float = 0.0
    """How sure the last was."""

    def note(self, drawn: list[Candidate], confidence: float | None, *, sure: bool) -> None:
        """Take the last trial in."""
        self.trials += len(drawn)
        self.tokens += sum(trial.tokens for trial in drawn)
        self.useful, self.exited, self.confidence = confidence is not None, sure, confidence or 0.0

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know."""
        return () if self.useful else ("A trial came without log-probs, so nothing told how sure it was: the model thought to its end.",)

    @property
    def figures(self) -> dict[str, float]:
        """The numbers."""
        return {"trials": self.trials, "trial_tokens": self.tokens, "trial_confidence": self.confidence, "exited": float(self.exited)}
