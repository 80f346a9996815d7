"""A trainer's configuration in one language: what the doctor must know of it, whoever trained."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, Protocol

from breadth.base.catalogue import Catalogue
from breadth.base.errors import CatalogueError
from breadth.doctor.finding import Change


@dataclass(frozen=True)
class UnusedSetting:
    """A setting that its trainer does not read as things are."""

    setting: str
    """As the user's file spells it, with its value."""
    why: str
    """What keeps it from acting, as the end of a sentence."""
    intended: bool
    """Whether the user plainly relies on it: nothing in the file says that it is off."""


@dataclass(frozen=True)
class Conflict:
    """Settings that contradict each other, by the trainer's own rules."""

    settings: str
    """As the user's file spells them."""
    why: str
    """What is wrong with them, as a sentence without its end."""
    consequence: Literal["refused", "wrong", "slight"]
    """Whether the trainer refuses to start with them, does something else than they say, or only something less."""


@dataclass(frozen=True)
class TrainerConfig:
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
    max_completion_length: int | None = None
    """Tokens of a completion at most."""
    max_prompt_length: int | None = None
    """Tokens of a prompt at most."""
    context: int | None = None
    """Tokens of prompt and completion together that the sampler has room for."""
    mask_truncated: bool | None = None
    """Whether completions cut at the cap are left out of the loss."""
    length_penalty: bool | None = None
    """Whether the reward falls with length near the cap."""
    dynamic_sampling: bool | None = None
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
    unused: tuple[UnusedSetting, ...] = ()
    """Settings of the user's that a switch of the trainer turns off."""
    conflicts: tuple[Conflict, ...] = ()
    """Settings that contradict each other by the trainer's own rules."""
    text_numbers: Mapping[str, str] = field(default_factory=dict)
    """Settings that are numbers to a reader and text to YAML 1.1: name -> as it stands there."""
    user_settings: Mapping[str, str] = field(default_factory=dict)
    """Our name -> the setting as the user's file spells it, with its value; only what the user set."""

    @property
    def on_policy(self) -> bool | None:
        """Whether every update is made with the policy that sampled; None where that is not known."""
        return None if self.updates is None else self.updates <= 1

    def describe(self, name: str) -> str:
        """Return how the user wrote a knob, or that it is a default, for a sentence."""
        return self.user_settings.get(name, f"{name.replace('_', ' ')} left at its default")


SETTING_NAMES = frozenset(one.name for one in fields(TrainerConfig)) - {
    "unused",
    "conflicts",
    "text_numbers",
    "user_settings",
}
"""Every knob."""


def merge_configs(first: TrainerConfig, second: TrainerConfig) -> TrainerConfig:
    """Return what both say together; where the user set a knob in one only, that counts, else the first that knows it."""
    values: dict[str, Any] = {}
    for name in SETTING_NAMES:
        preferred, other = (
            (first, second) if name in first.user_settings or name not in second.user_settings else (second, first)
        )
        known = getattr(preferred, name)
        values[name] = getattr(other, name) if known is None else known
    return TrainerConfig(
        **values,
        unused=tuple(dict.fromkeys((*first.unused, *second.unused))),
        conflicts=tuple(dict.fromkeys((*first.conflicts, *second.conflicts))),
        text_numbers={**second.text_numbers, **first.text_numbers},
        user_settings={**second.user_settings, **first.user_settings},
    )


class ConfigDialect(Protocol):
    """Reads the configuration of one trainer and words changes to it. Nothing it reads is executed."""

    @property
    def trainer(self) -> str:
        """Name of the trainer, as in the catalogue of importers, or of the server, as in that of its dialects."""
        ...

    def recognises(self, path: Path, start: bytes) -> bool:
        """Say whether a file is a configuration of this trainer."""
        ...

    def read(self, path: Path) -> Mapping[str, Any]:
        """Return the settings that a file makes, spelled as there."""
        ...

    def translate(self, config: Mapping[str, Any]) -> TrainerConfig:
        """Translate settings, of a file or of a run's header; what is not set has the trainer's default where that is known."""
        ...

    def patch(self, changes: Sequence[Change], config: TrainerConfig) -> tuple[str, ...]:
        """Word changes for this trainer, a line each; a change it has no setting for is left out."""
        ...


class PatchOnly:
    """Reads nothing: the part of a dialect that has no configuration file, only words for changes."""

    def recognises(self, path: Path, start: bytes) -> bool:
        """Recognise nothing."""
        del path, start
        return False

    def read(self, path: Path) -> Mapping[str, Any]:
        """Return nothing."""
        del path
        return {}

    def translate(self, config: Mapping[str, Any]) -> TrainerConfig:
        """Return nothing known."""
        del config
        return TrainerConfig()


DIALECTS = Catalogue(
    "settings",
    {
        "trl": "breadth.adapters.trl.config:SETTINGS",
        "verl": "breadth.adapters.verl.config:SETTINGS",
        "openrlhf": "breadth.adapters.openrlhf.config:SETTINGS",
        "nemo-rl": "breadth.adapters.nemo_rl.config:SETTINGS",
        "vllm": "breadth.adapters.vllm.dialect:SETTINGS",
        "sglang": "breadth.adapters.sglang.dialect:SETTINGS",
        "llama-cpp": "breadth.adapters.llama_cpp.dialect:SETTINGS",
        "policy": "breadth.doctor.trainer_config:POLICY_DIALECT",
    },
)
"""Every dialect by trainer or server; ``policy`` words changes for our own policy.toml."""


def dialect_of(trainer: str) -> ConfigDialect | None:
    """Return a trainer's or server's dialect; None where we do not speak it."""
    try:
        found: ConfigDialect = DIALECTS.load(trainer)
    except CatalogueError:
        return None
    return found


RequestFields = Callable[[Any], Mapping[str, Any]]
"""Value of a change -> fields of the request."""
ServerFlags = Callable[[Any], Sequence[str]]
"""Value of a change -> what the server is started with."""

COMMON_FIELDS = frozenset({"temperature", "top_p", "max_tokens"})
"""Fields that every server has under these names."""


@dataclass(frozen=True)
class ServerPatch(PatchOnly):
    """A server's dialect: it has no configuration file to read, and words what the doctor prescribes for inference.

    That is ``thinking_budget`` (tokens), ``votes``, ``max_tokens``, ``top_logprobs``, ``logprobs_raw`` and
    ``loop_guard``, as far as the server can do them, and what every server has.
    """

    trainer: str
    """Name of the server, as in the catalogue of server dialects."""
    fields: Mapping[str, RequestFields] = field(default_factory=dict)
    """Knob -> fields of the request."""
    flags: Mapping[str, ServerFlags] = field(default_factory=dict)
    """Knob -> flags and variables of the server."""

    def patch(self, changes: Sequence[Change], config: TrainerConfig) -> tuple[str, ...]:
        """Word changes as one ``request:`` line of JSON and one ``server:`` line of flags."""
        del config
        body: dict[str, Any] = {}
        words: list[str] = []
        for change in changes:
            if change.value is not False:
                body |= {change.setting: change.value} if change.setting in COMMON_FIELDS else {}
                body |= self.fields[change.setting](change.value) if change.setting in self.fields else {}
                words += self.flags[change.setting](change.value) if change.setting in self.flags else []
        request = [f"request: {json.dumps(body)}"] if body else []
        return (*request, *([f"server: {' '.join(dict.fromkeys(words))}"] if words else []))


POLICY_KEYS: Mapping[str, tuple[str, str]] = {
    "thinking_budget": ("sampling", "thinking_tokens"),
    "max_tokens": ("sampling", "max_tokens"),
    "top_logprobs": ("sampling", "top_logprobs"),
    "temperature": ("sampling", "temperature"),
    "top_p": ("sampling", "top_p"),
}
"""Knob -> table and key; whether log-probs are raw is the server's business."""


@dataclass(frozen=True)
class PolicyPatch(PatchOnly):
    """Words what the doctor prescribes for inference as tables of a policy."""

    trainer = "policy"
    """Name in the catalogue."""

    def patch(self, changes: Sequence[Change], config: TrainerConfig) -> tuple[str, ...]:
        """Word changes as TOML, each table once: to be merged into the policy, or a policy of its own."""
        del config
        tables: dict[str, dict[str, str]] = {}
        for change in changes:
            for table, key, value in policy_settings(change):
                tables.setdefault(table, {})[key] = value
        return tuple(
            line
            for table, pairs in tables.items()
            for line in (f"[{table}]", *(f"{key} = {pairs[key]}" for key in pairs))
        )


def policy_settings(change: Change) -> list[tuple[str, str, str]]:
    """Return table, key and value of each setting that a change takes."""
    value = change.value
    if change.setting in POLICY_KEYS:
        return [
            (*POLICY_KEYS[change.setting], f"{value:g}" if isinstance(value, float) and value % 1 else str(int(value)))
        ]
    if change.setting == "votes":
        return [("strategy", "kind", '"single"')] if value == 1 else _votes(int(value))
    if change.setting == "vote_confidence" and not value:
        return [("strategy", "kind", '"adaptive-vote"')]
    return [("halt", "kind", '"loop"')] if change.setting == "loop_guard" and value else []


def _votes(most: int) -> list[tuple[str, str, str]]:
    """Draw as many at most, and stop when the vote is decided."""
    return [("strategy", "kind", '"adaptive-vote"'), ("strategy", "most", str(most))]


POLICY_DIALECT = PolicyPatch()
"""The dialect of the catalogue."""
