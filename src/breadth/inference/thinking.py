"""Where a model's thinking begins and ends in its reply, and the trace of a reply that is generated piece by piece."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from breadth.base.errors import require
from breadth.inference.records import Answer, Ask, Candidate, Reading, Request, Sampling, Task

ThinkingEnd = Literal["closed", "cut", "reply", "nothing"]
"""How thinking ended: closed, cut at its maximum, with a complete reply, or with nothing left to sample."""


@dataclass(frozen=True)
class Thinking:
    """How a model marks its thinking.

    The default is that of DeepSeek-R1 and Qwen3; `UNMARKED_THINKING` is for models that do not mark it.

    Without a closing mark the thinking is the whole reply: it ends with the reply, a cue behind it extends it, and its
    last answer counts. s1 models use ``<|im_start|>think`` and ``<|im_start|>answer`` (arXiv 2501.19393).
    """

    open: str = "<think>\n"
    """Opening mark at the start of the reply; empty where the chat template writes it, or there is none."""
    close: str = "</think>"
    """Closing mark; empty for a model that does not mark its thinking."""
    cue: str = "Wait"
    """Appended to thinking that ended too early, so it continues (arXiv 2501.19393, 2506.04210)."""
    final: str = "Final Answer:"
    """Appended to thinking that was cut, so the answer follows at once (s1's evaluation)."""

    def __post_init__(self) -> None:
        require(self, "close", bool(self.close) or not self.open, "a closing mark, as there is an opening one")
        require(self, "cue", bool(self.cue), "a word or more")

    def limit_sampling(self, sampling: Sampling, most: int) -> Sampling:
        """Return the sampling parameters for thinking: up to the closing mark, capped by ``most``, not the server."""
        return replace(
            sampling, max_tokens=most, stop=(self.close,) if self.close else sampling.stop, thinking_tokens=None
        )

    def thinking_text(self, candidate: Candidate) -> str:
        """Return the thinking of a candidate, without an answer from a server that did not stop at the mark."""
        text = candidate.reasoning or candidate.text
        return text.partition(self.close)[0] if self.close else text

    def generated_text(self, candidate: Candidate) -> str:
        """Return thinking and answer of a candidate; where the server separates them, with the mark between them."""
        ended = self.close and candidate.reasoning and candidate.text
        return (self.close_thinking(candidate.reasoning) if ended else candidate.reasoning) + candidate.text

    def close_thinking(self, text: str) -> str:
        """Return a reply whose thinking has ended, ready for the answer."""
        return f"{on_new_line(text)}{self.close}\n\n" if self.close else text

    def cut_thinking(self, text: str) -> str:
        """Return a reply whose thinking is ended by force, ready for the answer."""
        return f"{on_new_line(text)}{self.close}\n{self.final}" if self.close else f"{on_new_line(text)}{self.final}"

    def read_answer(self, reading: Reading, candidate: Candidate) -> Candidate:
        """Return a candidate with the answer behind the thinking; answers within the thinking do not count.

        Without a mark, a forced answer is read first, then the whole reply.
        """
        _, mark, behind = candidate.full_text.rpartition(self.close or self.final)
        if not mark or candidate.key is None:
            return candidate
        text = (
            behind.strip().removeprefix(self.final)
            if reading.how == "whole"
            else (behind if self.close else self.final + behind)
        )
        answer, key = reading.read_with_key(text, ended=candidate.finish in ("stop", "tool_calls"))
        return candidate if key is None and not self.close else replace(candidate, answer=answer, key=key)


UNMARKED_THINKING = Thinking(open="", close="", cue="\nWait")
"""For models that do not mark their thinking."""


@dataclass
class ThinkingTrace:
    """One reply generated piece by piece, each continuing the text so far."""

    task: Task
    """Task that the reply answers."""
    thinking: Thinking
    """How the model marks its thinking."""
    text: str = ""
    """The reply so far, given and generated parts."""
    tokens: int = 0
    """Generated tokens; given text is not counted."""
    seen: list[Candidate] = field(default_factory=list)
    """All candidates, trials included."""

    def __post_init__(self) -> None:
        self.text = self.text or self.thinking.open

    def append(self, candidate: Candidate, text: str | None = None) -> Candidate:
        """Append a candidate's text, thinking included, or the given part of it."""
        self.seen.append(candidate)
        self.text += self.thinking.generated_text(candidate) if text is None else text
        self.tokens += candidate.tokens
        return candidate

    def draw_answer(self) -> Generator[Request, Any, bool]:
        """Sample the answer behind the text with the remaining tokens; return whether one arrived."""
        left = max(1, self.task.sampling.max_tokens - self.tokens)
        # Thinking is over: a server with a cap on it would look for it in the answer.
        sampling = replace(self.task.sampling, max_tokens=left, thinking_tokens=None)
        drawn: list[Candidate] = yield Ask(1, prefix=self.text, sampling=sampling)
        for candidate in drawn:
            self.append(candidate)
        return bool(drawn)

    def answer(self, complete: bool, notes: tuple[str, ...] = (), **figures: float) -> Answer:
        """Return the answer of the last piece; if incomplete, of the last readable piece, else of the last one."""
        if complete:
            self.seen[-1] = chosen = self.thinking.read_answer(self.task.reading, self.seen[-1])
            notes += ("No answer could be read in the reply.",) * (chosen.key is None)
            return Answer(chosen, candidates=tuple(self.seen), stopped="answered", notes=notes, figures=figures)
        readable = [candidate for candidate in self.seen if candidate.key is not None]
        best = next(iter([*readable[-1:], *self.seen[-1:]]), None)
        notes = (*notes, "Nothing could be drawn any more before the reply was complete.")
        return Answer(best, candidates=tuple(self.seen), stopped="budget", notes=notes, figures=figures)


def on_new_line(text: str) -> str:
    """Return the text with a line break at its end, unless it has one or is empty."""
    return text if not text or text.endswith("\n") else text + "\n"
