"""its_hub's own votes over a file of questions, for `benchmarks/live.py`: run by a Python that has its_hub.

python its_hub_votes.py METHOD URL QUESTIONS.json BUDGET OUT.json      (METHOD: doubling or beta)
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Any

from its_hub.core.algorithms.adaptive_self_consistency import AdaptiveSelfConsistency
from its_hub.core.algorithms.beta_self_consistency import BetaSelfConsistency
from its_hub.core.lms.openai_lm import OpenAICompatibleLanguageModel

METHODS = {"doubling": AdaptiveSelfConsistency, "beta": BetaSelfConsistency}
STATED = re.compile(r"[Tt]he answer is (-?\d+)")


def read(text: str) -> str:
    """Return the stated answer, what its_hub votes on; without one the text itself."""
    found = STATED.findall(text)
    return found[-1] if found else text


async def main(method: str, url: str, questions: str, budget: str, out: str) -> None:
    """Answer every question, one after the other."""
    asked: list[dict[str, Any]] = json.loads(Path(questions).read_text())
    answers = []
    drawn = {name: asked[0][name] for name in ("temperature", "max_completion_tokens", "stop")}
    lm = OpenAICompatibleLanguageModel(f"{url}/v1", "none", "smollm2", **drawn)
    vote = METHODS[method](consistency_space_projection_func=read)
    for question in asked:
        reply = await vote.ainfer(lm, question["prompt"], int(budget))
        answers.append(read(reply["content"]))
    Path(out).write_text(json.dumps(answers))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
