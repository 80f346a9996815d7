"""Named chains with their paper: published methods, and ours."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from breadth.base.errors import CatalogueError, suggestion
from breadth.training.chain import Chain
from breadth.training.credit.degenerate_guard import DegenerateGuard
from breadth.training.credit.flat_filter import FlatFilter
from breadth.training.credit.group_advantage import GroupAdvantage
from breadth.training.credit.leave_one_out import LeaveOneOut
from breadth.training.credit.maxrl import MaxRL
from breadth.training.credit.pass_at_k import PassAtK
from breadth.training.credit.rare_success_cap import RareSuccessCap
from breadth.training.loss.cispo import Cispo
from breadth.training.loss.clip_cov import ClipCov
from breadth.training.loss.clipped_policy import ClippedPolicy
from breadth.training.loss.fork_thermostat import ForkThermostat
from breadth.training.loss.forking_tokens import ForkingTokens
from breadth.training.loss.gradient_preserving import GradientPreserving
from breadth.training.loss.kl_cov import KLCov
from breadth.training.loss.sequence_ratio import SequenceRatio
from breadth.training.objective import Objective
from breadth.training.reduction import Reduction


@dataclass(frozen=True)
class Recipe:
    """A published chain, or one of ours."""

    chain: Chain
    """The chain to run."""
    paper: str
    """Where it comes from."""
    note: str
    """What the paper does beyond the chain, or what to know before using it."""


_CLIP_HIGHER = ClippedPolicy(low=0.2, high=0.28)
_UNCLIPPED = ClippedPolicy(low=1.0, high=math.inf)

RECIPES: Mapping[str, Recipe] = MappingProxyType(
    {
        "grpo": Recipe(
            Chain((GroupAdvantage(), ClippedPolicy()), Reduction("sequence-mean")),
            "2402.03300",
            "The paper adds ReferenceKL(coefficient=0.04, estimator='k3'), which most recent work leaves out.",
        ),
        "dr_grpo": Recipe(
            Chain((GroupAdvantage(scale="none"), ClippedPolicy()), Reduction("fixed-length")),
            "2503.20783",
            "The length is the trainer's maximum response length.",
        ),
        "dapo": Recipe(
            Chain((GroupAdvantage(), FlatFilter(), _CLIP_HIGHER)),
            "2503.14476",
            "Flat groups are dropped, not refilled; overlong shaping is a reward function's job.",
        ),
        "gspo": Recipe(
            Chain((GroupAdvantage(), SequenceRatio()), Reduction("sequence-mean")),
            "2507.18071",
            "Needs several updates per generation.",
        ),
        "rloo": Recipe(
            Chain((LeaveOneOut(), _UNCLIPPED), Reduction("fixed-length")),
            "2402.14740",
            "Sums over the tokens of each response. Strictly on-policy and in full precision it was the strongest row"
            " of 2603.11682.",
        ),
        "cispo": Recipe(
            Chain((GroupAdvantage(), Cispo())),
            "2506.13585",
            "The weight is bounded around one; TRL's cap is Cispo(bounds='cap').",
        ),
        "clip_cov": Recipe(
            Chain((GroupAdvantage(), ClippedPolicy(low=1.0, high=1.0), ClipCov())),
            "2505.22617",
            "On top of a clip of [0, 2], as in the paper's scripts, which also drop and refill flat groups.",
        ),
        "kl_cov": Recipe(
            Chain((GroupAdvantage(), _UNCLIPPED, KLCov())),
            "2505.22617",
            "No clip, as in the paper's code; no effect on-policy. The scripts also drop and refill flat groups.",
        ),
        "gppo": Recipe(
            Chain((GroupAdvantage(), GradientPreserving())),
            "2508.07629",
            "The paper adds a language-model loss on right rollouts.",
        ),
        "ce_gppo": Recipe(
            Chain((GroupAdvantage(), GradientPreserving(high=0.2, below=0.75, dual=10.0))),
            "2509.20712",
            "The released 7B settings; below=0.5 for 1.5B. The scripts also drop and refill flat groups.",
        ),
        "forking": Recipe(
            Chain((GroupAdvantage(), FlatFilter(), _CLIP_HIGHER, ForkingTokens())),
            "2506.01939",
            "On top of DAPO; the gain grows with the model.",
        ),
        "passk": Recipe(
            Chain((PassAtK(), _CLIP_HIGHER)),
            "2508.10751",
            "The paper continues with pass@1 training; the clip is DAPO's, we do not know the paper's.",
        ),
        "maxrl": Recipe(
            Chain((MaxRL(), _UNCLIPPED), Reduction("fixed-length")),
            "2602.02710",
            "Sums over the tokens of each response, which the objective's gradient requires; unbiased on strictly"
            " on-policy updates.",
        ),
        "thermostat": Recipe(
            Chain((GroupAdvantage(), _CLIP_HIGHER, ForkThermostat())),
            "ours",
            "Group advantages and clip-higher; the entropy of the forking tokens is held in a band around the run's own"
            " start.",
        ),
        "guarded": Recipe(
            Chain(
                (
                    GroupAdvantage(),
                    DegenerateGuard(),
                    RareSuccessCap(),
                    FlatFilter(on="advantage"),
                    _CLIP_HIGHER,
                    ForkThermostat(),
                )
            ),
            "ours",
            "The thermostat; successes that look accidental are muted or capped first.",
        ),
    }
)
"""Name -> recipe; every number is its mechanism's default or the paper's."""


def resolve_chain(objective: Objective | Chain | Path | str) -> Chain:
    """Return the chain of an objective, a chain itself, a recipe by name, or a TOML file by path."""
    if isinstance(objective, Objective):
        return objective.chain
    if isinstance(objective, Chain):
        return objective
    if isinstance(objective, str) and objective in RECIPES:
        return RECIPES[objective].chain
    path = Path(objective)
    if path.is_file():
        return Chain.load(path)
    raise CatalogueError(
        f"There is no recipe and no file called '{objective}'.", suggestion(str(objective), RECIPES, "recipes")
    )
