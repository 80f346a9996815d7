"""Make a model think at least, at most or exactly a number of tokens (budget forcing)."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from breadth.base.catalogue import Paper
from breadth.base.errors import require
from breadth.inference.records import Ask, Candidate, Request, Run, Task
from breadth.inference.strategy import Strategy
from breadth.inference.thinking import Thinking, ThinkingEnd, ThinkingTrace

ANSWER_TOKENS = 100
"""Tokens of the reply reserved for the answer where no maximum is given (s1's evaluation)."""
MAX_EMPTY_CUES = 3
"""Most cues in a row without a new token before thinking counts as finished."""


@dataclass(frozen=True)
class BudgetForcing(Strategy):
    """Append a cue to thinking that ends too early, cut thinking that is too long, then sample the answer.

    Each time the thinking ends while cues are left or the minimum is not reached, the cue ('Wait') is appended and the
    thinking continues with the rest of the maximum. At the maximum it is closed by force and 'Final Answer:' follows.
    Minimum = maximum = t is 'exactly t tokens', a minimum alone 'at least t' (both with no cues); cues alone are 'wait
    and think more' (arXiv 2501.19393, 2506.04210). Only generated tokens count, not marks and cues. s1's own evaluation
    lets the total exceed its cap and cuts it afterwards; here every continuation gets only what is left. One cue, and
    100 tokens reserved for the answer, are that evaluation's settings. A model that does not mark its thinking
    (`UNMARKED_THINKING`) answers in its last piece; the answer is sampled separately only when it was cut. Harm: past
    an optimum, forced thinking makes answers vary and accuracy fall: for a 1.5B model on GSM8K from 87 % to 70 % (arXiv
    2506.04210), where the same tokens spent on independent traces gain. Measure first; see parallel thinking.
    """

    paper = Paper(
        "arXiv 2501.19393, 2506.04210",
        "budget forcing, exact and minimum thinking",
        "the remainder is enforced at every continuation, so the cap is never exceeded",
    )
    example: ClassVar[Mapping[str, Any]] = {"cues": 2}

    cues: int = 1
    """Number of times that an end of thinking is ignored."""
    minimum: int = 0
    """Fewest thinking tokens."""
    maximum: int | None = None
    """Most thinking tokens; None is the completion's cap less 100, or less half of it when it is short."""
    thinking: Thinking = Thinking()
    """How the model marks its thinking."""

    needs: ClassVar[frozenset[str]] = frozenset({"prefix"})

    def __post_init__(self) -> None:
        require(self, "cues", self.cues >= 0, "0 or more cues")
        require(self, "minimum", self.minimum >= 0, "0 or more tokens")
        require(
            self,
            "maximum",
            self.maximum is None or self.maximum >= max(1, self.minimum),
            "at least one token and the minimum",
        )

    def __call__(self, task: Task) -> Run:
        """Think, then answer."""
        trace = ThinkingTrace(task, self.thinking)
        ending, cues = yield from self.think(trace)
        figures = {"cues": float(cues), "thinking_tokens": float(trace.tokens), "forced": float(ending == "cut")}
        notes = (f"The model thought {trace.tokens} tokens, fewer than the {self.minimum} asked for.",) * (
            trace.tokens < self.minimum
        )
        complete = ending == "reply" or (ending == "closed" and not self.thinking.close)
        if ending in ("closed", "cut") and not complete:
            trace.text = (
                self.thinking.cut_thinking(trace.text) if ending == "cut" else self.thinking.close_thinking(trace.text)
            )
            complete = yield from trace.draw_answer()
        return trace.answer(complete, notes, **figures)

    def think(self, trace: ThinkingTrace) -> Generator[Request, Any, tuple[ThinkingEnd, int]]:
        """Sample thinking up to its cap, with cues; return how it ended and the cues used."""
        cap, cues, idle = self.max_thinking(trace.task), 0, 0
        while trace.tokens < cap:
            sampling = self.thinking.limit_sampling(trace.task.sampling, cap - trace.tokens)
            drawn: list[Candidate] = yield Ask(
                1, prefix=trace.text, sampling=sampling, independent=False, purpose="thinking"
            )
            if not drawn:
                return "nothing", cues
            piece = trace.append(drawn[0], self.thinking.thinking_text(drawn[0]))
            idle = 0 if piece.tokens else idle + 1
            if piece.finish != "stop":
                return ("cut" if piece.finish in ("length", "halt") else "reply"), cues
            enough = cues >= self.cues and trace.tokens >= self.minimum
            if enough or trace.tokens >= cap or idle > MAX_EMPTY_CUES:
                return "closed", cues
            trace.text += self.thinking.cue
            cues += 1
        return "cut", cues

    def max_thinking(self, task: Task) -> int:
        """Return the most thinking tokens of a task."""
        total = task.sampling.max_tokens
        if self.maximum is None:
            return total - min(ANSWER_TOKENS, max(1, total // 2))
        return min(self.maximum, total - 1)
