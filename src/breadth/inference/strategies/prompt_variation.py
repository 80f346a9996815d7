"""Ask the same question in several ways, chosen at random for each trace (prompt variation)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from breadth.base.errors import require
from breadth.inference.records import Answer, Ask, Candidate, Prompt, Request, Run, Task
from breadth.inference.strategies.adaptive_vote import AdaptiveVote
from breadth.inference.strategy import Strategy, with_suffix, with_system


@dataclass(frozen=True)
class Variant:
    """One way to ask; with empty fields, the prompt unchanged."""

    system: str = ""
    """Appended to the system message."""
    suffix: str = ""
    """Appended to the question."""

    def apply(self, prompt: Prompt) -> Prompt:
        """Return the prompt asked this way."""
        return with_system(with_suffix(prompt, self.suffix), self.system)


DEFAULT_VARIANTS = (
    Variant(),
    Variant(suffix="Think about which method fits best before you begin."),
    Variant(suffix="Work backwards from what is asked for."),
    Variant(suffix="Check the result by a second method before you state it."),
)


@dataclass(frozen=True)
class PromptVariation(Strategy):
    """Run an adaptive vote with one of several prompts for each trace, chosen at random.

    The prompt of each trace is drawn uniformly by the task's seed, independently of all others. So the traces are
    independent samples from one mixture, and stop rules and posteriors hold for it; with a fixed rotation they would
    not. It widens what the model tries at hardly any cost in tokens, where its own sampling is narrow. The four
    defaults are neutral phrasings of ours, without published figures: give your own (paraphrases, roles, orders of
    examples, languages) and measure.
    Harm: a bad variant costs its share of the samples, and lowers the leading answer's share, so the vote takes longer.
    """

    example: ClassVar[Mapping[str, Any]] = {"vote": {"kind": "adaptive-vote", "most": 4, "width": 2}}

    variants: tuple[Variant, ...] = DEFAULT_VARIANTS
    """Prompt variants."""
    vote: AdaptiveVote = AdaptiveVote()
    """Vote over the traces."""

    def __post_init__(self) -> None:
        require(self, "variants", len(self.variants) >= 1, "at least one variant")
        require(self, "vote", isinstance(self.vote, AdaptiveVote), "an adaptive vote")

    def __call__(self, task: Task) -> Run:
        """Run the vote, each sample with its own prompt."""
        rng = np.random.default_rng(abs(task.seed))
        asked: Counter[int] = Counter()
        run = self.vote(task)
        reply: list[Candidate] | None = None
        while True:
            try:
                request = run.send(reply)
            except StopIteration as end:
                answer: Answer = end.value
                return replace(
                    answer, figures={f"variant {number}": float(count) for number, count in sorted(asked.items())}
                )
            numbers = rng.integers(len(self.variants), size=request.n).tolist() if isinstance(request, Ask) else []
            asked.update(numbers)
            reply = yield from self.sample_variants(task.prompt, request, numbers)

    def sample_variants(
        self, prompt: Prompt, request: Request, numbers: list[int]
    ) -> Generator[Request, Any, list[Candidate]]:
        """Start each sample of a request separately; wait as the request does after the last."""
        if not isinstance(request, Ask) or not numbers:
            arrived: list[Candidate] = yield request
            return arrived
        asks = [replace(request, n=1, prompt=self.variants[number].apply(prompt), wait=0) for number in numbers]
        for ask in asks[:-1]:
            _ = yield ask
        arrived = yield replace(asks[-1], wait=request.wait)
        return arrived
