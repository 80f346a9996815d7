"""The Brier reward of RLCR: rewards correct answers and calibrated confidence."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Literal

import torch

from breadth.base.catalogue import Paper
from breadth.base.errors import MechanismError, require
from breadth.base.stats import Mean
from breadth.training.mechanism import Effect, Mechanism, Role, Selection
from breadth.training.ops import masked_values
from breadth.training.records import Rollouts, not_none

CONFIDENCE_INSTRUCTION = """\
Answer in exactly four parts, in this order, each between its own tags and each exactly once:
<think>Work the problem out.</think>
<answer>Only your final answer.</answer>
<analysis>Say what makes the answer uncertain: steps you did not check, other readings of the question.</analysis>
<confidence>The probability that your answer is right, as one number from 0 to 1, such as 0.75.</confidence>
Write nothing after the last tag. A probability of 0.75 means that three of four such answers are right."""
"""System prompt that asks for the format that `stated_confidence` reads."""

_PARTS = ("answer", "analysis", "confidence")
_PROBABILITY = re.compile(r"[01](?:\.[0-9]{0,20})?|\.[0-9]{1,20}")


def stated_confidence(text: str) -> float | None:
    """Return the confidence a response states; None if it breaks the format or the number is not in [0, 1].

    The format is that of RLCR's code (2507.16806): thinking, answer, analysis and confidence, in this order, with only
    white space between and after. The opening tag of the thinking may be missing, since chat templates often write it.
    Each of the other tags must occur exactly once, so that the checker reads the answer whose confidence is stated. The
    answer must not be empty. The confidence is a plain decimal: '80%', '4/5' and '1.2' are invalid. The time is linear
    in the text.
    """
    thinking, closed, rest = text.partition("</think>")
    opens = "<think>" not in thinking or thinking.lstrip().startswith("<think>")
    if not closed or thinking.count("<think>") > 1 or not opens:
        return None
    if any(text.count(tag) != 1 for name in _PARTS for tag in (f"<{name}>", f"</{name}>")):
        return None
    contents = tag_contents(rest)
    if contents is None or not contents[0].strip() or not _PROBABILITY.fullmatch(contents[2].strip()):
        return None
    confidence = float(contents[2])
    return confidence if confidence <= 1 else None


def tag_contents(rest: str) -> list[str] | None:
    """Return the text inside the tags of each part; None if there is text outside or the order differs."""
    contents = []
    for name in _PARTS:
        outside, _, rest = rest.partition(f"<{name}>")
        content, closed, rest = rest.partition(f"</{name}>")
        if outside.strip() or not closed:
            return None
        contents.append(content)
    return None if rest.strip() else contents


@dataclass(frozen=True)
class BrierReward(Mechanism[Rollouts, None]):
    """Reward a correct answer, minus the squared error of the stated confidence.

    It replaces the rewards and comes before the estimator.

    With ``c`` = 1 for a correct answer, else 0, and ``q`` the stated confidence (RLCR, 2507.16806)::

        paper: R = c - (q - c)^2                             in [-1, 1]
        code:  R = 0.5 + 0.5 * c + 0.5 * (1 - (q - c)^2)     = 0.5 * (paper + 1), and 0.5 for keeping the format

    The expectation is largest at q = p, the true probability of being correct, and is then p^2: a likelier answer
    always pays more.

    Responses must keep the format of CONFIDENCE_INSTRUCTION, which belongs into the system prompt. One that does not,
    or whose q is outside [0, 1], gets no credit for a correct answer. The code form gives it 0, as the authors do. The
    paper does not say; the paper form gives -1, the minimum of the formula (a wrong answer at q = 1), so omitting the
    confidence never pays. A rollout of unknown reward or correctness stays without a reward.

    The authors do not divide by the group's deviation: use ``GroupAdvantage(scale="none")``. Dividing amplifies
    small differences of q in groups that are all correct or all wrong.

    Harm: if all problems are equally hard, q collapses to one value, which is calibrated and useless. Check that
    ``confidence_right`` stays above ``confidence_wrong``; mix difficulties or raise the temperature.
    """

    paper = Paper("arXiv 2507.16806", "RLCR", "a malformed response gets the lowest reward the formula can give")

    precedes = Role.ESTIMATOR

    form: Literal["paper", "code"] = "paper"
    """The paper's reward, or that of the authors' code. They differ by a factor of 2 and the reward for the format."""

    def __post_init__(self) -> None:
        require(self, "form", self.form in ("paper", "code"), "'paper' or 'code'")

    @property
    def needs(self) -> frozenset[str]:
        """Whether each answer is correct, and the text that states the confidence."""
        return frozenset({"correct", "texts"})

    def apply(self, batch: Rollouts, state: None, selection: Selection | None) -> Effect[Rollouts]:
        """Read each response's confidence and set the rewards."""
        correct = not_none(batch.correct).to(batch.rewards)
        confidence = batch.rewards.new_tensor(read_confidences(batch))
        known = torch.isfinite(batch.rewards) & torch.isfinite(correct)
        stated = known & torch.isfinite(confidence)
        error = masked_values(confidence - correct, stated).square()
        rewards = correct - error if self.form == "paper" else 0.5 + 0.5 * correct + 0.5 * (1 - error)
        rewards = torch.where(stated, rewards, -1.0 if self.form == "paper" else 0.0)
        counted, right = batch.is_scored & stated, correct > 0.5
        stats = {
            "well_formed": Mean((batch.is_scored & stated).sum(), (batch.is_scored & known).sum()),
            "brier": Mean(masked_values(error, counted).sum(), counted.sum()),
            "confidence_right": Mean(masked_values(confidence, counted & right).sum(), (counted & right).sum()),
            "confidence_wrong": Mean(masked_values(confidence, counted & ~right).sum(), (counted & ~right).sum()),
        }
        return Effect(replace(batch, rewards=torch.where(known, rewards, math.nan)), stats=stats)


def read_confidences(batch: Rollouts) -> list[float]:
    """Return each response's confidence; NaN if it states none."""
    texts = batch.texts
    if texts is None or len(texts) != len(batch):
        raise MechanismError(
            f"The Brier reward got {0 if texts is None else len(texts)} response texts for {len(batch)} rollouts.",
            "Provide the text of every response.",
        )
    confidences = (stated_confidence(text) for text in texts)
    return [math.nan if confidence is None else confidence for confidence in confidences]
