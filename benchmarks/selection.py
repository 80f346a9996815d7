"""Surveys that pick tokens out of a whole batch beside a bare torch.topk of the same count over the same tokens.

One thread; the best processor time of several runs, alternating, so that a busy machine slows neither side. The peer
gets the finished scores in one flat tensor without padding and returns no mask; a survey works the scores out, leaves
padding out, breaks ties the same way however the batch is cut, and returns a mask.

Run: python benchmarks/selection.py
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from breadth.training.loss.clip_cov import ClipCov
from breadth.training.loss.clipped_policy import ClippedPolicy
from breadth.training.loss.forking_tokens import ForkingTokens
from breadth.training.loss.kl_cov import KLCov
from breadth.training.loss.token_selection import covariance
from breadth.training.mechanism import Mechanism, Selection
from breadth.training.records import Batch, not_none

SEQUENCES, TOKENS = 512, 2048
"""Shape of the batch: 2^20 positions, and about 3 % more with padding."""
REPEATS = 15
"""Runs of each."""
WANTED_RATIO = 3.0
"""How many times the peer's time a survey may take."""


@dataclass(frozen=True)
class Race:
    """One survey and the peer's view of the same tokens."""

    name: str
    """What is timed."""
    mechanism: Mechanism[Batch, None]
    """Whose survey."""
    batch: Batch
    """The whole batch, as the survey sees it."""
    scores: Tensor
    """(tokens,) what the peer takes the largest of."""


def make_batch(seed: int = 0) -> Batch:
    """Return a batch that looks like reasoning: most tokens nearly certain, a few forks, some drift, padding."""
    dice = torch.Generator().manual_seed(seed)
    sequences, width = SEQUENCES, TOKENS + TOKENS // 32
    entropy = torch.empty(sequences, width).exponential_(4.0, generator=dice) * (
        torch.rand(sequences, width, generator=dice) < 0.6
    )
    logprobs = -entropy * torch.empty(sequences, width).exponential_(1.0, generator=dice)
    old_logprobs = logprobs + 0.05 * torch.randn(sequences, width, generator=dice)
    advantages = torch.randn(sequences, generator=dice)
    lengths = torch.randint(TOKENS - TOKENS // 32, width + 1, (sequences, 1), generator=dice)
    batch = Batch(logprobs, advantages, torch.arange(width) < lengths, old_logprobs, entropy=entropy)
    return ClippedPolicy(high=0.28).apply(batch.clean(), None, None).after


def races() -> list[Race]:
    """Return what is timed."""
    batch = make_batch()
    tied = replace(batch, entropy=not_none(batch.entropy).bfloat16().float())
    certain = replace(batch, entropy=torch.where(not_none(batch.entropy) > 0.4, batch.entropy, torch.zeros(())))
    cost, mask = covariance(batch), batch.mask
    return [
        Race("clip-cov, one token in 120 a candidate", ClipCov(), batch, cost[mask]),
        Race("clip-cov, one token in 20 a candidate", ClipCov(lower=0.3), batch, cost[mask]),
        Race("kl-cov, 2e-4 by covariance", KLCov(share=2e-4), batch, cost[mask]),
        Race("kl-cov, 2e-3 by covariance", KLCov(), batch, cost[mask]),
        Race("forking tokens, 0.2", ForkingTokens(), batch, not_none(batch.entropy)[mask]),
        Race("forking tokens, 0.2, tied by bfloat16", ForkingTokens(), tied, not_none(tied.entropy)[mask]),
        Race("forking tokens, 0.2, most entropies 0", ForkingTokens(), certain, not_none(certain.entropy)[mask]),
    ]


def seconds(*works: Callable[[], Any]) -> list[float]:
    """Return the best processor time of each, run in turn."""
    best = [float("inf")] * len(works)
    for _ in range(REPEATS):
        for place, work in enumerate(works):
            began = time.process_time()
            work()
            best[place] = min(best[place], time.process_time() - began)
    return best


def run(race: Race) -> float:
    """Time one race, print it, and return the ratio."""
    selection = race.mechanism.survey(race.batch, None)
    if not isinstance(selection, Selection):
        raise SystemExit(f"{race.name} surveyed nothing")
    count = int(selection.tokens["picked"].sum())
    ours, peer = seconds(
        lambda: race.mechanism.survey(race.batch, None), lambda: torch.topk(race.scores, count, sorted=False)
    )
    print(f"  {race.name:42} {count:8,} {ours * 1e3:8.1f} ms {peer * 1e3:8.1f} ms {ours / peer:6.2f}x")
    return ours / peer


def main() -> int:
    """Print the table; exit with 1 when a survey takes longer than promised."""
    torch.set_num_threads(1)
    chosen = races()
    print(f"picking out of {len(chosen[0].scores):,} tokens, one thread, best of {REPEATS}")
    print(f"  {'survey':42} {'picked':>8} {'survey':>11} {'topk':>11}   ratio")
    worst = max(map(run, chosen))
    print(f"worst ratio {worst:.2f}x (wanted: under {WANTED_RATIO:g}x)")
    return 0 if worst < WANTED_RATIO else 1


if __name__ == "__main__":
    raise SystemExit(main())
