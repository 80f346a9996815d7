"""The answer format in which a response states how sure it is: the instruction for the system prompt, and its reader."""

from __future__ import annotations

import re

INSTRUCTION = """Answer in exactly four parts, in this order, each between its own tags and each exactly once:
<think>Work the problem out.</think>
<answer>Only your final answer.</answer>
<analysis>Say what makes the answer uncertain: steps you did not check, other readings of the question.</analysis>
<confidence>The probability that your answer is right, as one number from 0 to 1, such as 0.75.</confidence>
Write nothing after the last tag. A probability of 0.75 means that three of four such answers are right."""
"""What to put into the system prompt, so that responses come in the format that `stated_confidence` reads."""

_PARTS = ("answer", "analysis", "confidence")
_PROBABILITY = re.compile(r"[01](?:\.[0-9]{0,20})?|\.[0-9]{1,20}")


def stated_confidence(text: str) -> float | None:
    """Return the confidence a response states, or None when it does not keep the format or the number is not in [0, 1].

    The format is the one of RLCR's code (2507.16806): thinking, answer, analysis and confidence, in this order, with nothing but white
    space between and behind. Thinking may lack its opening tag, which chat templates often write themselves. Each of the other tags must
    occur exactly once, so that the answer a checker reads is the answer whose confidence is stated; the answer must not be empty. The
    confidence is a plain decimal: '80%', '4/5' and '1.2' are none. Linear in the text, whatever is in it.
    """
    thinking, closed, rest = text.partition("</think>")
    if not closed or thinking.count("<think>") > 1 or not _opens_with_think(thinking):
        return None
    if any(text.count(tag) != 1 for name in _PARTS for tag in (f"<{name}>", f"</{name}>")):
        return None
    contents = _contents(rest)
    if contents is None or not contents[0].strip() or not _PROBABILITY.fullmatch(contents[2].strip()):
        return None
    confidence = float(contents[2])
    return confidence if confidence <= 1 else None


def _opens_with_think(thinking: str) -> bool:
    return "<think>" not in thinking or thinking.lstrip().startswith("<think>")


def _contents(rest: str) -> list[str] | None:
    """Return what stands between the tags of each part; None when something stands outside or the order is another."""
    contents = []
    for name in _PARTS:
        outside, _, rest = rest.partition(f"<{name}>")
        content, closed, rest = rest.partition(f"</{name}>")
        if outside.strip() or not closed:
            return None
        contents.append(content)
    return None if rest.strip() else contents
