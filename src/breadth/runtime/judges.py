"""Judges: who scores candidates when a strategy asks for it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from breadth.inference.records import Ask, Candidate, Sampling, Task
from breadth.runtime.solving import Drawing, Verdict

ASKED = """Here is a question and a proposed solution. Judge whether the solution is right.

Question:
{question}

Proposed solution:
{solution}

Say briefly what is wrong, if anything. Then end with one line: Score: N, where N is a whole number from 0 (certainly wrong) \
to 10 (certainly right)."""
_SCORE = re.compile(r"score\W{0,10}(\d{1,2}(?:\.\d+)?)", re.IGNORECASE)
LONGEST = 8000
"""Characters of a solution that a judge is shown, from its end: that is where the answer is."""


@dataclass(frozen=True)
class ModelJudge:
    """Asks a model for a score from 0 to 10, greedily, and charges what that costs to the task.

    Harm: a model judges its own mistakes kindly, a small one judges hardly at all, and a solution may contain words that are meant for
    the judge. Where the answer can be checked by a program, give the driver a judge that does.
    """

    model: str | None = None
    """Model that judges; None for the task's own."""
    max_tokens: int = 256
    """Most tokens of a judgement."""

    async def __call__(self, task: Task, candidate: Candidate, draw: Drawing) -> Verdict:
        """Return the score as a share of 10; no score when none could be read."""
        said = ASKED.format(question=task.question, solution=candidate.whole[-LONGEST:])
        sampling = Sampling(temperature=0.0, top_p=1.0, max_tokens=self.max_tokens)
        prompt = ({"role": "user", "content": said},)
        reply = await draw(Ask(prompt=prompt, model=self.model, sampling=sampling, independent=False, purpose="judgement"))
        if reply is None:
            return Verdict()
        scores = _SCORE.findall(reply.text)
        value = float(scores[-1]) / 10 if scores else None
        return Verdict(value if value is not None and value <= 1 else None, reply.text.strip())
