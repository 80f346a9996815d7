"""What a strategy sees and says: tasks, the three requests it may make, candidates, answers."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from breadth.base.checks import require
from breadth.measure.answers import answer_key, stated_answer

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
    r"""Where to look for the answer in a text."""

    how: Literal["stated", "number", "whole"] = "stated"
    r"""stated: a ``\boxed{}``, an answer tag, '####' or 'the answer is'. number: a stated answer, else the last number.
    whole: the reply itself, for prompts that ask for nothing but the answer."""

    def __post_init__(self) -> None:
        require(self, "how", self.how in READING_MODES, "one of " + ", ".join(READING_MODES))

    def read(self, text: str, *, ended: bool = True) -> str | None:
        """Return the answer as written, or None when there is none.

        In a text cut at its cap only a stated answer counts, and not one that stands at the very end: it may be half of
        12.5.
        """
        if self.how == "whole":
            return (text.strip() or None) if ended else None
        found = stated_answer(text)
        if found is not None:
            return found if ended or not text.rstrip(" .,").endswith(found) else None
        numbers = _NUMBER.findall(text) if self.how == "number" and ended else []
        return numbers[-1] if numbers else None

    def read_with_key(self, text: str, *, ended: bool = True) -> tuple[str | None, str | None]:
        """Return the answer as written and its canonical key; both None when there is none."""
        answer = self.read(text, ended=ended)
        key = answer_key(answer)
        return (answer, key) if key is not None else (None, None)


Message: TypeAlias = Mapping[str, Any]
"""One message of a chat, as OpenAI-compatible servers take it: role and content at least."""
Prompt: TypeAlias = str | tuple[Message, ...]
"""A chat, or a text to be continued as it stands (no chat template)."""
Finish = Literal["stop", "length", "halt", "tool_calls", "content_filter"]
"""Why a completion ended: the model stopped, it was cut at its cap, a halt rule ended it, it calls a tool, it was
filtered.
"""


@dataclass(frozen=True)
class Sampling:
    """How to draw: every field is sent explicitly, for servers differ in their silent defaults."""

    temperature: float = 0.7
    """Randomness; 0 is greedy. 0.6 to 0.8 is what self-consistency papers use (arXiv 2203.11171)."""
    top_p: float = 0.95
    """Share of probability kept; 1 keeps all."""
    top_k: int = 0
    """Tokens kept; 0 keeps all."""
    min_p: float = 0.0
    """Tokens kept must have this share of the likeliest one's probability (arXiv 2407.01082); 0 keeps all."""
    repetition_penalty: float = 1.0
    """Divides the logits of tokens seen before; 1 is none."""
    presence_penalty: float = 0.0
    """Taken off the logits of tokens seen before."""
    frequency_penalty: float = 0.0
    """The same for each time seen."""
    max_tokens: int = 4096
    """Most tokens of one completion, thinking included."""
    thinking_tokens: int | None = None
    """Most thinking tokens, enforced by a server that can; None leaves it to the model."""
    stop: tuple[str, ...] = ()
    """Texts that end a completion; they are not part of it."""
    top_logprobs: int = 0
    """Alternatives whose log-probs are asked for at each token; 0 asks for none, confidence methods want 20."""

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
    """One question: what to ask, how to draw, how to read an answer, and the seed of every chance taken for it."""

    prompt: Prompt
    """The chat, or a text to continue."""
    name: str = "task"
    """Id of the question in records."""
    model: str = ""
    """Model asked for; empty for the only one of the server."""
    sampling: Sampling = Sampling()
    """How to draw, unless a request says otherwise."""
    reading: Reading = Reading()
    """How the answer is found in a completion."""
    seed: int = 0
    """Root of every seed and every tie drawn for this task."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the request, passed to the server untouched (tools, response_format, ...)."""
    equivalent: Callable[[str, str], bool] | None = field(default=None, compare=False)
    """A stronger test than equal keys for two answers being one, such as symbolic equivalence."""
    halt: Halt | None = None
    """Rule to run on the stream of every draw whose request brings none of its own."""

    @property
    def question(self) -> str:
        """The last thing the user said, as text."""
        if isinstance(self.prompt, str):
            return self.prompt
        said = next((message for message in reversed(self.prompt) if message.get("role") == "user"), {})
        return text_of(said.get("content"))

    def with_seed(self, seed: int) -> Task:
        """Return the same task with another seed."""
        return replace(self, seed=seed)


@dataclass(frozen=True)
class Candidate:
    """One completion that arrived, with what it cost. Failed draws never become candidates: they are counted apart."""

    text: str
    """What the model wrote as its reply, without its thinking where the server separates the two; what follows
    ``prefix``.
    """
    answer: str | None = None
    """The answer read in it, as written; None when there is none to be read: never a vote, always a cost."""
    key: str | None = None
    """Canonical key of the answer: equal keys are equal answers."""
    finish: Finish = "stop"
    """Why it ended."""
    reasoning: str = ""
    """Thinking, where the server separates it."""
    prefix: str = ""
    """Text of the reply's beginning that was given, not drawn."""
    prompt_tokens: int = 0
    """Tokens read, prefix included."""
    cached_tokens: int = 0
    """Of those, the ones the server had in its cache."""
    tokens: int = 0
    """Tokens written, thinking included."""
    thinking_tokens: int = 0
    """Of those, thinking, where it can be told."""
    logprobs: NDArray[np.float32] | None = field(default=None, compare=False, repr=False)
    """Log-prob of each token written, where asked for and sent."""
    confidences: NDArray[np.float32] | None = field(default=None, compare=False, repr=False)
    """Confidence of each token: minus the mean of its top-k log-probs (arXiv 2508.15260)."""
    score: float | None = None
    """What a judge gave it."""
    feedback: str = ""
    """What a judge said about it."""
    solved: bool | None = None
    """Whether a judge holds it for right."""
    independent: bool = True
    """False when it saw other candidates or shares a drawn prefix with one: no estimator that assumes independence
    takes it.
    """
    model: str = ""
    """Model that wrote it."""
    seed: int = 0
    """Seed it was drawn with."""
    draw_id: str = ""
    """Which draw it was: path of the run, request, place in the request; unique within a task."""
    seconds: float = 0.0
    """From request to last token."""
    tool_calls: tuple[Mapping[str, Any], ...] = ()
    """Tools it calls, passed through."""
    message: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """Further fields of the server's reply worth passing on."""

    @property
    def full_text(self) -> str:
        """The reply from its beginning: what was given and what was drawn."""
        return self.prefix + self.text


@dataclass(frozen=True)
class Ask:
    """Draw n more candidates.

    The run is resumed with a list of candidates once ``wait`` draws that had not been delivered yet have arrived, of
    this request or an earlier one: exactly that many, in order of arrival. None waits for all that are outstanding; 0
    goes on at once with nothing; ``Ask(0, wait=1)`` just waits for the next. Fewer come when draws fail or the budget
    is spent; none at all means that nothing is outstanding and nothing will come: return the best answer so far.
    """

    n: int = 1
    """Draws to start."""
    prompt: Prompt | None = None
    """Another prompt than the task's."""
    prefix: str = ""
    """Beginning of the reply, given; the model continues it."""
    model: str | None = None
    """Another model than the task's."""
    sampling: Sampling | None = None
    """Another way to draw than the task's."""
    halt: Halt | None = None
    """Rule that the sampler runs on the stream, to end a completion early."""
    wait: int | None = None
    """Arrivals to wait for before going on."""
    independent: bool = True
    """Mark the candidates as independent draws of the task; False when the prompt or the prefix tells of other
    candidates.
    """
    purpose: str = "answer"
    """What the draws are for, in records: answer, trial, thinking, revision, ..."""

    def __post_init__(self) -> None:
        require(self, "n", self.n >= 0, "0 or more draws")
        require(self, "wait", self.wait is None or self.wait >= 0, "0 or more arrivals, or None for all")


@dataclass(frozen=True)
class Fork:
    """Run sub-runs side by side; the run is resumed with the list of the answers of the first ``wait`` to end (None: all).

    Those still running when ``wait`` have ended are cancelled. The list is in the order of ``runs``.
    """

    runs: tuple[Run, ...]
    """Generators of strategies, not started."""
    wait: int | None = None
    """Sub-runs to wait for."""

    def __post_init__(self) -> None:
        require(self, "wait", self.wait is None or self.wait >= 0, "0 or more sub-runs, or None for all")


@dataclass(frozen=True)
class Judge:
    """Have candidates judged; the run is resumed with the same candidates, in order, with score, feedback and solved filled in.

    A judge that fails gives a candidate back as it was (score None).
    """

    candidates: tuple[Candidate, ...]
    """What to judge."""
    by: str = "default"
    """Which of the judges the driver was given."""


Request: TypeAlias = Ask | Fork | Judge
"""Anything a strategy may yield."""
Run: TypeAlias = Generator[Request, Any, "Answer"]
"""A strategy at work: it yields requests, is sent lists of candidates or answers, and returns an answer."""


@dataclass(frozen=True)
class Answer:
    """What a strategy decided, what it rests on and how sure it is."""

    chosen: Candidate | None = None
    """The candidate that speaks for the answer; None when nothing could be drawn."""
    confidence: float | None = None
    """Posterior chance that this is the answer the model gives most often (not: that it is right); None where nothing supports one.

    A vote share is not a confidence: 2 of 2 and 40 of 40 are both 100 %.
    """
    basis: str = ""
    """Where the confidence comes from, in words; empty when there is none."""
    votes: Mapping[str, float] = field(default_factory=dict)
    """Answer (its key) -> its votes or weight, heaviest first."""
    tied: tuple[str, ...] = ()
    """Keys that shared the first place; the seed drew one of them. Empty when there was no tie."""
    candidates: tuple[Candidate, ...] = ()
    """Everything seen on the way, in order of arrival, trials and discarded ones included."""
    stopped: str = ""
    """Why no more was drawn: agreed, most, budget, ..."""
    notes: tuple[str, ...] = ()
    """What a reader must know: confidence not trusted and why, draws not independent, ..."""
    figures: Mapping[str, float] = field(default_factory=dict)
    """Further numbers of the strategy: flips, cues, exits, ..."""

    @property
    def text(self) -> str:
        """The whole reply that speaks for the answer; empty when there is none."""
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
        """Candidates without a readable answer."""
        return sum(candidate.key is None for candidate in self.candidates)

    @property
    def independent(self) -> bool:
        """Whether everything it rests on was drawn independently."""
        return all(candidate.independent for candidate in self.candidates)


def text_of(content: Any) -> str:
    """Return a message's content as text: a string as it is, parts joined, anything else empty."""
    if isinstance(content, str):
        return content
    if isinstance(content, (list, tuple)):
        return "".join(
            part.get("text", "") for part in content if isinstance(part, Mapping) and isinstance(part.get("text"), str)
        )
    return ""
