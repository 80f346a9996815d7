"""A trainer's configuration in one language: what the doctor must know of it, whoever trained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal


@dataclass(frozen=True)
class Idle:
    """A setting that its trainer does not read as things are."""

    setting: str
    """As the user's file spells it, with its value."""
    why: str
    """What keeps it from acting, as the end of a sentence."""
    meant: bool
    """Whether the user plainly relies on it: nothing in the file says that it is off."""


@dataclass(frozen=True)
class Clash:
    """Settings that contradict each other, by the trainer's own rules."""

    settings: str
    """As the user's file spells them."""
    why: str
    """What is wrong with them, as a sentence without its end."""
    weight: Literal["refused", "wrong", "slight"]
    """Whether the trainer refuses to start with them, does something else than they say, or only something less."""


@dataclass(frozen=True)
class Knobs:
    """Settings by our names; None is not known."""

    group: int | None = None
    """Rollouts of a prompt that are scored together."""
    prompts: int | None = None
    """Prompts of a generation."""
    mini_batch: int | None = None
    """Prompts of an optimizer step."""
    updates: float | None = None
    """Optimizer steps a generation, or at least so many; 1 is strictly on-policy. None also where rollouts lag in other
    ways.
    """
    micro_batch: int | None = None
    """Responses of a micro-batch on one device."""
    accumulation: int | None = None
    """Micro-batches of an optimizer step on one device."""
    learning_rate: float | None = None
    """Of the optimizer."""
    estimator: str | None = None
    """The trainer's name of what makes advantages of rewards."""
    clip_low: float | None = None
    """How far the ratio may fall below 1."""
    clip_high: float | None = None
    """How far it may rise above 1."""
    clips: bool | None = None
    """Whether the loss reads these two at all."""
    dual_clip: float | None = None
    """Cap on the ratio itself where the advantage is negative."""
    sequence_ratio: bool | None = None
    """Whether there is one ratio a response, the geometric mean of its tokens', in the place of one a token."""
    kl: float | None = None
    """Price of leaving the reference policy; 0 is none."""
    kl_given: float | None = None
    """A price that stands in the file, whether or not its switch is on."""
    entropy_bonus: float | None = None
    """Coefficient of the entropy bonus; 0 is none. With an adaptive one, where it starts."""
    entropy_adaptive: bool | None = None
    """Whether the coefficient follows a target."""
    entropy_target: float | None = None
    """Entropy that an adaptive coefficient holds, in nats a token."""
    entropy_share: float | None = None
    """Share of the tokens, those of most entropy, that the loss is taken on; 1 is all."""
    loss: str | None = None
    """The trainer's name of its policy loss."""
    covariance: Literal["", "clip-cov", "kl-cov"] | None = None
    """Whether the loss selects tokens by covariance, in each micro-batch."""
    covariance_share: float | None = None
    """Share of the tokens it selects."""
    aggregation: str | None = None
    """How tokens become one loss, by the trainer's name."""
    temperature: float | None = None
    """Of the rollouts."""
    top_p: float | None = None
    """Of the rollouts."""
    top_k: int | None = None
    """Of the rollouts; 0 keeps all tokens."""
    min_p: float | None = None
    """Of the rollouts."""
    repetition_penalty: float | None = None
    """Of the rollouts; 1 is none."""
    longest: int | None = None
    """Tokens of a completion at most."""
    longest_prompt: int | None = None
    """Tokens of a prompt at most."""
    context: int | None = None
    """Tokens of prompt and completion together that the sampler has room for."""
    mask_truncated: bool | None = None
    """Whether completions cut at the cap are left out of the loss."""
    length_penalty: bool | None = None
    """Whether the reward falls with length near the cap."""
    filter_flat: bool | None = None
    """Whether groups with equal rewards are drawn anew (dynamic sampling)."""
    filter_metric: str | None = None
    """What must differ in a group for it to be kept, by the trainer's name; ``reward`` is what is trained on."""
    shaped_reward: bool | None = None
    """Whether several rewards are added, or a penalty for length is."""
    correct_mismatch: bool | None = None
    """Whether the difference between trainer and sampler is weighed away."""
    engine: str | None = None
    """Who samples: vllm, sglang, hf."""
    logs_rollouts: bool | None = None
    """Whether rollouts are written to disk."""
    idle: tuple[Idle, ...] = ()
    """Settings of the user's that a switch of the trainer turns off."""
    clashes: tuple[Clash, ...] = ()
    """Settings that contradict each other by the trainer's own rules."""
    texts: Mapping[str, str] = field(default_factory=dict)
    """Settings that are numbers to a reader and text to YAML 1.1: name -> as it stands there."""
    theirs: Mapping[str, str] = field(default_factory=dict)
    """Our name -> the setting as the user's file spells it, with its value; only what the user set."""

    @property
    def on_policy(self) -> bool | None:
        """Whether every update is made with the policy that sampled; None where that is not known."""
        return None if self.updates is None else self.updates <= 1

    def given(self, knob: str) -> str:
        """Return how the user wrote a knob, or that it is a default, for a sentence."""
        return self.theirs.get(knob, f"{knob.replace('_', ' ')} left at its default")


NAMES = frozenset(one.name for one in fields(Knobs)) - {"idle", "clashes", "texts", "theirs"}
"""Every knob."""


def merged(first: Knobs, second: Knobs) -> Knobs:
    """Return what both say together; where the user set a knob in one only, that counts, else the first that knows it."""
    values: dict[str, Any] = {}
    for name in NAMES:
        one, other = (first, second) if name in first.theirs or name not in second.theirs else (second, first)
        known = getattr(one, name)
        values[name] = getattr(other, name) if known is None else known
    return Knobs(
        **values,
        idle=tuple(dict.fromkeys((*first.idle, *second.idle))),
        clashes=tuple(dict.fromkeys((*first.clashes, *second.clashes))),
        texts={**second.texts, **first.texts},
        theirs={**second.theirs, **first.theirs},
    )
