"""The Brier reward of RLCR: right answers pay, and so does knowing how likely they are right."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Literal

import torch

from breadth.base.checks import require
from breadth.base.errors import MechanismError
from breadth.base.stats import Mean
from breadth.training.mechanism import Effect, Mechanism, Role, Selection
from breadth.training.ops import masked_values
from breadth.training.records import Rollouts, not_none

CONFIDENCE_INSTRUCTION = """Answer in exactly four parts, in this order, each between its own tags and each exactly once:
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

    The format is the one of RLCR's code (2507.16806): thinking, answer, analysis and confidence, in this order, with
    nothing but white space between and behind. Thinking may lack its opening tag, which chat templates often write
    themselves. Each of the other tags must occur exactly once, so that the answer a checker reads is the answer whose
    confidence is stated; the answer must not be empty. The confidence is a plain decimal: '80%', '4/5' and '1.2' are
    none. Linear in the text, whatever is in it.
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


@dataclass(frozen=True)
class BrierReward(Mechanism[Rollouts, None]):
    """Reward a right answer, minus how far the stated confidence was from the truth.

    Replaces the rewards; stands before the estimator.

    With ``c`` = 1 for a right answer, else 0, and ``q`` the stated confidence (RLCR, 2507.16806)::

        paper: R = c - (q - c)^2                             in [-1, 1]
        code:  R = 0.5 + 0.5 * c + 0.5 * (1 - (q - c)^2)     = 0.5 * (paper + 1), and 0.5 for keeping the format

    The expectation is largest at q = p, the true chance of being right, and is then p^2: a likelier answer always pays
    more.

    Responses must keep the format of `breadth.training.credit.brier_reward`, whose INSTRUCTION belongs into the system
    prompt. One that does not, or whose q is outside [0, 1], gets no credit for being right: 0 in the code form, as
    there; -1 in the paper form, which says nothing about it: the least the formula can give (a wrong answer at q = 1),
    so that leaving the confidence out never pays. A rollout whose reward or correctness is unknown stays without a
    reward.

    The authors do not divide by the group's deviation: use ``GroupAdvantage(scale="none")``. Dividing blows up small
    differences of q in groups that are all right or all wrong.

    Harm: where all problems are equally hard, q collapses to one value, which is calibrated and useless. Watch that
    ``confidence_right`` stays above ``confidence_wrong``; mix difficulties, raise the temperature.
    """

    precedes = Role.ESTIMATOR

    form: Literal["paper", "code"] = "paper"
    """The paper's reward, or that of the authors' code. They differ by a scale of 2 and by what the format is worth."""

    def __post_init__(self) -> None:
        require(self, "form", self.form in ("paper", "code"), "'paper' or 'code'")

    @property
    def needs(self) -> frozenset[str]:
        """Whether each answer is right, and the text that states the confidence."""
        return frozenset({"correct", "texts"})

    def apply(self, batch: Rollouts, state: None, selection: Selection | None) -> Effect[Rollouts]:
        """Read each response's confidence and set the rewards."""
        correct = not_none(batch.correct).to(batch.rewards)
        confidence = batch.rewards.new_tensor(_confidences(batch))
        known = torch.isfinite(batch.rewards) & torch.isfinite(correct)
        stated = known & torch.isfinite(confidence)
        error = masked_values(confidence - correct, stated).square()
        rewards = correct - error if self.form == "paper" else 0.5 + 0.5 * correct + 0.5 * (1 - error)
        rewards = torch.where(stated, rewards, -1.0 if self.form == "paper" else 0.0)
        among, right = batch.is_scored & stated, correct > 0.5
        stats = {
            "well_formed": Mean((batch.is_scored & stated).sum(), (batch.is_scored & known).sum()),
            "brier": Mean(masked_values(error, among).sum(), among.sum()),
            "confidence_right": Mean(masked_values(confidence, among & right).sum(), (among & right).sum()),
            "confidence_wrong": Mean(masked_values(confidence, among & ~right).sum(), (among & ~right).sum()),
        }
        return Effect(replace(batch, rewards=torch.where(known, rewards, math.nan)), stats=stats)


def _confidences(batch: Rollouts) -> list[float]:
    """Return each response's confidence; NaN where it states none."""
    texts = batch.texts
    if texts is None or len(texts) != len(batch):
        raise MechanismError(
            f"The Brier reward got {0 if texts is None else len(texts)} response texts for {len(batch)} rollouts.",
            "Provide the text of every response.",
        )
    confidences = (stated_confidence(text) for text in texts)
    return [math.nan if one is None else one for one in confidences]
