"""Records of inference: tasks, the three requests a strategy may make, candidates, answers, budgets and spends."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from breadth.base.errors import require
from breadth.measure.answers import answer_key, bare_answer, stated_answer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from breadth.inference.halting import Halt


READING_MODES = ("stated", "number", "whole")
_NUMBER = re.compile(
    r"""
    (?:(?<![\w)\]])[-−])?                          # a sign, not the dash of 3-5
    (?:(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|(?<!\d)\.\d+)
    (?:[eE][-+]?\d+)?(?:/\d+)?%?
    """,
    re.VERBOSE,
)


@dataclass(frozen=True)
class Reading:
    r"""How to find the answer in a completion."""

    how: Literal["stated", "number", "whole"] = "stated"
    r"""stated: a ``\boxed{}``, an answer tag, '####' or 'the answer is', else a reply that is nothing but a number, a
    letter or a short formula. number: a stated answer, else the last number. whole: the reply itself, for prompts that
    ask for nothing but the answer."""

    def __post_init__(self) -> None:
        require(self, "how", self.how in READING_MODES, "one of " + ", ".join(READING_MODES))

    def read(self, text: str, *, ended: bool = True) -> str | None:
        """Return the answer as written, or None when there is none.

        In a text cut at its cap only a stated answer counts, and not one at the very end: it may be half of 12.5.
        """
        if self.how == "whole":
            return (text.strip() or None) if ended else None
        found = stated_answer(text)
        if found is not None:
            return found if ended or not text.rstrip(" .,").endswith(found) else None
        if self.how == "stated":
            return bare_answer(text) if ended else None
        numbers = _NUMBER.findall(text) if ended else []
        return numbers[-1] if numbers else None

    def read_with_key(self, text: str, *, ended: bool = True) -> tuple[str | None, str | None]:
        """Return the answer as written and its canonical key; both None when there is none."""
        answer = self.read(text, ended=ended)
        key = answer_key(answer)
        return (answer, key) if key is not None else (None, None)


Message: TypeAlias = Mapping[str, Any]
"""One message of a chat in OpenAI's format: role and content at least."""
Prompt: TypeAlias = str | tuple[Message, ...]
"""A chat, or a text to continue as it is (no chat template)."""
Finish = Literal["stop", "length", "halt", "tool_calls", "content_filter"]
"""Why a completion ended: the model stopped, its cap, a halt rule, a tool call, or a content filter."""


@dataclass(frozen=True)
class Sampling:
    """Sampling parameters; every field is sent explicitly, because servers have different defaults."""

    temperature: float = 0.7
    """Sampling temperature; 0 is greedy. Self-consistency papers use 0.6 to 0.8 (arXiv 2203.11171)."""
    top_p: float = 0.95
    """Nucleus: share of probability kept; 1 keeps all."""
    top_k: int = 0
    """Number of likeliest tokens kept; 0 keeps all."""
    min_p: float = 0.0
    """Minimum probability relative to the likeliest token (arXiv 2407.01082); 0 keeps all."""
    repetition_penalty: float = 1.0
    """Divides the logits of tokens seen before; 1 is none."""
    presence_penalty: float = 0.0
    """Subtracted from the logits of tokens seen before."""
    frequency_penalty: float = 0.0
    """Subtracted from the logits once per earlier occurrence."""
    max_tokens: int = 4096
    """Most tokens of one completion, thinking included."""
    thinking_tokens: int | None = None
    """Most thinking tokens, on servers that support a cap; None leaves it to the model."""
    stop: tuple[str, ...] = ()
    """Stop strings; they are not part of the completion."""
    top_logprobs: int = 0
    """Log-probs requested per token; 0 requests none, confidence methods need 20."""

    def __post_init__(self) -> None:
        require(self, "temperature", 0 <= self.temperature <= 100, "a number from 0 up")
        require(self, "top_p", 0 < self.top_p <= 1, "a share above 0 and at most 1")
        require(self, "top_k", self.top_k >= 0, "0 (all) or a number of tokens")
        require(self, "min_p", 0 <= self.min_p <= 1, "a share from 0 to 1")
        require(self, "repetition_penalty", 0 < self.repetition_penalty < math.inf, "a number above 0, 1 for none")
        require(self, "presence_penalty", math.isfinite(self.presence_penalty), "a number, 0 for none")
        require(self, "frequency_penalty", math.isfinite(self.frequency_penalty), "a number, 0 for none")
        require(self, "max_tokens", self.max_tokens >= 1, "at least one token")
        require(self, "thinking_tokens", self.thinking_tokens is None or self.thinking_tokens >= 0, "0 or more")
        require(
            self, "stop", all(self.stop), "texts that are not empty: an empty one would end every completion at once"
        )
        require(self, "top_logprobs", self.top_logprobs >= 0, "0 (none) or a number of tokens")


@dataclass(frozen=True)
class Task:
    """One question: the prompt, how to sample, how to read an answer, and the random seed."""

    prompt: Prompt
    """The chat, or a text to continue."""
    name: str = "task"
    """Id of the question in records."""
    model: str = ""
    """Model to ask; empty for the server's only one."""
    sampling: Sampling = Sampling()
    """Sampling parameters, unless a request overrides them."""
    reading: Reading = Reading()
    """How to find the answer in a completion."""
    seed: int = 0
    """Random seed of every sample and every broken tie."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the request, passed to the server unchanged (tools, response_format, ...)."""
    equivalent: Callable[[str, str], bool] | None = field(default=None, compare=False)
    """A stronger test for equal answers than equal keys, such as symbolic equivalence."""
    halt: Halt | None = None
    """Halt rule for every sample whose request has none."""

    @property
    def question(self) -> str:
        """The last user message, as text."""
        if isinstance(self.prompt, str):
            return self.prompt
        last = next((message for message in reversed(self.prompt) if message.get("role") == "user"), {})
        return text_of(last.get("content"))

    def with_seed(self, seed: int) -> Task:
        """Return the same task with another seed."""
        return replace(self, seed=seed)


@dataclass(frozen=True)
class Candidate:
    """One completion with its cost. Failed samples never become candidates: they are counted separately."""

    text: str
    """Reply of the model behind ``prefix``, without its thinking where the server separates the two."""
    answer: str | None = None
    """Answer read from it, as written; None when none can be read: then it is no vote, but still a cost."""
    key: str | None = None
    """Canonical key of the answer: equal keys are equal answers."""
    finish: Finish = "stop"
    """Why it ended."""
    reasoning: str = ""
    """Thinking, where the server separates it."""
    prefix: str = ""
    """Beginning of the reply that was given, not generated."""
    prompt_tokens: int = 0
    """Input tokens, prefix included."""
    cached_tokens: int = 0
    """Input tokens that the server had in its cache."""
    tokens: int = 0
    """Output tokens, thinking included."""
    thinking_tokens: int = 0
    """Thinking tokens, where the server reports them."""
    logprobs: NDArray[np.float32] | None = field(default=None, compare=False, repr=False)
    """Log-prob of each output token, where requested and sent."""
    confidences: NDArray[np.float32] | None = field(default=None, compare=False, repr=False)
    """Confidence of each token: minus the mean of its top-k log-probs (arXiv 2508.15260)."""
    score: float | None = None
    """Score from a judge."""
    feedback: str = ""
    """Feedback from a judge."""
    solved: bool | None = None
    """Whether a judge accepts it as right."""
    independent: bool = True
    """False when it saw other candidates or shares a sampled prefix: estimators that assume independence skip it."""
    model: str = ""
    """Model that wrote it."""
    seed: int = 0
    """Seed of the sample."""
    draw_id: str = ""
    """Id of the sample, unique within a task: path of the run, number of the request, index within the request."""
    seconds: float = 0.0
    """Seconds from request to last token."""
    tool_calls: tuple[Mapping[str, Any], ...] = ()
    """Tool calls, passed through."""
    message: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """Further fields of the server's reply to pass on."""

    @property
    def full_text(self) -> str:
        """The whole reply: the given prefix and the generated text."""
        return self.prefix + self.text


@dataclass(frozen=True)
class Ask:
    """Sample n more candidates.

    The run resumes with a list of candidates once ``wait`` samples that were not delivered yet have arrived, of this
    request or an earlier one: exactly that many, in order of arrival. None waits for all outstanding ones; 0 resumes at
    once with an empty list; ``Ask(0, wait=1)`` just waits for the next. Fewer arrive when samples fail or the budget is
    spent. An empty list after waiting means that nothing is outstanding: return the best answer so far.
    """

    n: int = 1
    """Samples to start."""
    prompt: Prompt | None = None
    """Prompt instead of the task's."""
    prefix: str = ""
    """Given beginning of the reply, which the model continues."""
    model: str | None = None
    """Model instead of the task's."""
    sampling: Sampling | None = None
    """Sampling parameters instead of the task's."""
    halt: Halt | None = None
    """Rule that the sampler runs on the stream, to end a completion early."""
    wait: int | None = None
    """Arrivals to wait for before resuming."""
    independent: bool = True
    """Whether the candidates are independent samples of the task: not if prompt or prefix shows other candidates."""
    purpose: str = "answer"
    """Purpose of the samples in records: answer, trial, thinking, revision, ..."""

    def __post_init__(self) -> None:
        require(self, "n", self.n >= 0, "0 or more samples")
        require(self, "wait", self.wait is None or self.wait >= 0, "0 or more arrivals, or None for all")


@dataclass(frozen=True)
class Fork:
    """Run sub-runs concurrently; the run resumes with the answers of the first ``wait`` to end (None: all).

    Sub-runs still running then are cancelled. The answers are in the order of ``runs``.
    """

    runs: tuple[Run, ...]
    """Generators of strategies, not started."""
    wait: int | None = None
    """Number of sub-runs to wait for."""

    def __post_init__(self) -> None:
        require(self, "wait", self.wait is None or self.wait >= 0, "0 or more sub-runs, or None for all")


@dataclass(frozen=True)
class Judge:
    """Have a judge score candidates; the run resumes with them, in order, with score, feedback and solved filled in.

    A judge that fails returns a candidate unchanged (score None).
    """

    candidates: tuple[Candidate, ...]
    """Candidates to score."""
    by: str = "default"
    """Name of one of the driver's judges."""


Request: TypeAlias = Ask | Fork | Judge
"""Anything a strategy may yield."""
Run: TypeAlias = Generator[Request, Any, "Answer"]
"""A running strategy: it yields requests, is sent lists of candidates or answers, and returns an answer."""


@dataclass(frozen=True)
class Answer:
    """The answer of a strategy, with its votes, candidates and confidence."""

    chosen: Candidate | None = None
    """Candidate that gives the answer; None when nothing could be sampled."""
    confidence: float | None = None
    """Posterior chance that this is the answer the model gives most often (not: that it is right).

    None without a posterior. A vote share is not a confidence: 2 of 2 and 40 of 40 are both 100 %.
    """
    basis: str = ""
    """Description of the model behind the confidence; empty when there is none."""
    votes: Mapping[str, float] = field(default_factory=dict)
    """Answer (its key) -> its votes or weight, heaviest first."""
    tied: tuple[str, ...] = ()
    """Keys that tied for the first place; the seed picked one of them. Empty without a tie."""
    candidates: tuple[Candidate, ...] = ()
    """All candidates in order of arrival, trials and discarded ones included."""
    stopped: str = ""
    """Why sampling stopped: agreed, most, budget, ..."""
    notes: tuple[str, ...] = ()
    """Caveats for the reader: confidence not trusted and why, samples not independent, ..."""
    figures: Mapping[str, float] = field(default_factory=dict)
    """Further numbers of the strategy: flips, cues, exits, ..."""

    @property
    def text(self) -> str:
        """The whole reply of the chosen candidate; empty when there is none."""
        return self.chosen.full_text if self.chosen else ""

    @property
    def key(self) -> str | None:
        """Canonical key of the answer."""
        return self.chosen.key if self.chosen else None

    @property
    def answer(self) -> str | None:
        """The answer as written."""
        return self.chosen.answer if self.chosen else None

    @property
    def unread(self) -> int:
        """Number of candidates without a readable answer."""
        return sum(candidate.key is None for candidate in self.candidates)

    @property
    def independent(self) -> bool:
        """Whether all candidates were sampled independently."""
        return all(candidate.independent for candidate in self.candidates)


def text_of(content: Any) -> str:
    """Return a message's content as text: a string as it is, parts joined, anything else empty."""
    if isinstance(content, str):
        return content
    if isinstance(content, (list, tuple)):
        parts = (part.get("text") for part in content if isinstance(part, (dict, Mapping)))
        return "".join(text for text in parts if isinstance(text, str))
    return ""


@dataclass(frozen=True)
class Spend:
    """Usage so far; two of them add up."""

    calls: int = 0
    """Requests made, failed ones included."""
    input_tokens: int = 0
    """Input tokens, cached ones included."""
    cached_tokens: int = 0
    """Input tokens that the server had in its cache."""
    output_tokens: int = 0
    """Output tokens, those of aborted samples included."""
    seconds: float = 0.0
    """Seconds of sampling, summed over concurrent samples."""
    money: float = 0.0
    """Cost at the given prices."""

    def __add__(self, other: Spend) -> Spend:
        return Spend(*(getattr(self, spec.name) + getattr(other, spec.name) for spec in fields(Spend)))


@dataclass(frozen=True)
class Prices:
    """Money per million tokens, in any currency; all zero unless given."""

    input: float = 0.0
    """Price of input tokens."""
    cached: float = 0.0
    """Price of input tokens from the server's cache."""
    output: float = 0.0
    """Price of output tokens."""

    def cost_of(self, spend: Spend) -> float:
        """Return the cost of a spend."""
        fresh = spend.input_tokens - spend.cached_tokens
        return (fresh * self.input + spend.cached_tokens * self.cached + spend.output_tokens * self.output) / 1e6


@dataclass(frozen=True)
class Budget:
    """Hard limits; None is no limit."""

    calls: int | None = None
    """Most requests, failed ones included."""
    input_tokens: int | None = None
    """Most input tokens."""
    output_tokens: int | None = None
    """Most output tokens."""
    seconds: float | None = None
    """Most seconds of wall-clock time from the start."""
    money: float | None = None
    """Most money, at the prices of the ledger."""

    def __post_init__(self) -> None:
        for spec in fields(self):
            value = getattr(self, spec.name)
            require(self, spec.name, value is None or value >= 0, "0 or more, or no limit at all")
