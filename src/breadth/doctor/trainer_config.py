"""A trainer's configuration by our names, and the dialects that read and patch it.

A `ConfigDialect` belongs to one trainer or server; it is kept in its adapter and loaded when needed. Servers and our
own policy.toml have no configuration to read, only patches: fields of a request, flags of the server, TOML tables.
"""

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
    """A setting that the trainer does not read, given the others."""

    setting: str
    """As the user's file spells it, with its value."""
    why: str
    """Why it has no effect, as the end of a sentence."""
    intended: bool
    """Whether the user relies on it: nothing in the file switches it off."""


@dataclass(frozen=True)
class Conflict:
    """Settings that contradict each other, by the trainer's own rules."""

    settings: str
    """As the user's file spells them."""
    why: str
    """What is wrong with them, as a sentence without a full stop."""
    consequence: Literal["refused", "wrong", "slight"]
    """Whether the trainer refuses to start, does something other than they say, or only does less."""
    since: str = ""
    """First version that refuses, e.g. ``TRL 0.18``; the version of the user's trainer is seldom in the file."""


@dataclass(frozen=True)
class TrainerConfig:
    """A trainer's settings by our names; None: not known."""

    group: int | None = None
    """Rollouts per prompt that are scored together."""
    prompts: int | None = None
    """Prompts per generation."""
    mini_batch: int | None = None
    """Prompts per optimizer step."""
    updates: float | None = None
    """Optimizer steps per generation, at least; 1 is strictly on-policy.

    None also where rollouts lag behind in other ways.
    """
    micro_batch: int | None = None
    """Responses per micro-batch on one device."""
    accumulation: int | None = None
    """Micro-batches per optimizer step on one device."""
    learning_rate: float | None = None
    """Learning rate of the optimizer."""
    estimator: str | None = None
    """The trainer's name of its advantage estimator."""
    clip_low: float | None = None
    """How far the ratio may fall below 1."""
    clip_high: float | None = None
    """How far the ratio may rise above 1."""
    clips: bool | None = None
    """Whether the loss reads these two clips at all."""
    dual_clip: float | None = None
    """Cap on the ratio itself where the advantage is negative."""
    sequence_ratio: bool | None = None
    """Whether there is one ratio per response, the geometric mean of its tokens', instead of one per token."""
    kl: float | None = None
    """KL coefficient to the reference policy; 0 is none."""
    kl_given: float | None = None
    """KL coefficient in the file, whether or not it is switched on."""
    entropy_bonus: float | None = None
    """Coefficient of the entropy bonus; 0 is none. For an adaptive one, its initial value."""
    entropy_adaptive: bool | None = None
    """Whether the entropy coefficient follows a target."""
    entropy_target: float | None = None
    """Entropy that an adaptive coefficient holds, in nats per token."""
    entropy_share: float | None = None
    """Share of tokens with the highest entropy that the loss is taken on; 1 is all."""
    loss: str | None = None
    """The trainer's name of its policy loss."""
    covariance: Literal["", "clip-cov", "kl-cov"] | None = None
    """Whether and how the loss selects tokens by covariance, in each micro-batch."""
    covariance_share: float | None = None
    """Share of tokens selected by covariance."""
    aggregation: str | None = None
    """The trainer's name of how token losses are aggregated."""
    temperature: float | None = None
    """Sampling temperature of the rollouts."""
    top_p: float | None = None
    """top-p of the rollouts."""
    top_k: int | None = None
    """top-k of the rollouts; 0 keeps all tokens."""
    min_p: float | None = None
    """min-p of the rollouts."""
    repetition_penalty: float | None = None
    """Repetition penalty of the rollouts; 1 is none."""
    max_completion_length: int | None = None
    """Largest number of tokens in a completion."""
    max_prompt_length: int | None = None
    """Largest number of tokens in a prompt."""
    context: int | None = None
    """Context length of the sampler, in tokens of prompt and completion together."""
    mask_truncated: bool | None = None
    """Whether truncated completions are masked in the loss."""
    length_penalty: bool | None = None
    """Whether the reward falls with length near the cap."""
    dynamic_sampling: bool | None = None
    """Whether groups with equal rewards are resampled."""
    filter_metric: str | None = None
    """What must differ within a group to keep it, by the trainer's name; ``reward`` is the training reward."""
    shaped_reward: bool | None = None
    """Whether the reward is a sum of several, or has a length penalty."""
    correct_mismatch: bool | None = None
    """Whether the mismatch between trainer and sampler is corrected by importance weights."""
    engine: str | None = None
    """The sampler: vllm, sglang, hf."""
    logs_rollouts: bool | None = None
    """Whether rollouts are written to disk."""
    model: str | None = None
    """Name or path of the model that is trained."""
    thinking: bool | None = None
    """Whether the chat template lets the model think; None where the file does not say."""
    unused: tuple[UnusedSetting, ...] = ()
    """The user's settings that a switch of the trainer turns off."""
    conflicts: tuple[Conflict, ...] = ()
    """Settings that contradict each other by the trainer's own rules."""
    text_numbers: Mapping[str, str] = field(default_factory=dict)
    """Settings that look like numbers but are text to YAML 1.1: name -> as written in the file."""
    unread: Mapping[str, str] = field(default_factory=dict)
    """Settings whose values are expressions: our name, or the trainer's where we have none -> as the file spells it.

    They are set, so neither their value nor the trainer's default is known.
    """
    user_settings: Mapping[str, str] = field(default_factory=dict)
    """Our name -> the setting as the user's file spells it, with its value; only what the user set."""

    @property
    def on_policy(self) -> bool | None:
        """Whether every update uses samples of the current policy; None where that is not known."""
        return None if self.updates is None else self.updates <= 1

    def describe(self, name: str) -> str:
        """Return a setting as the user wrote it, or that it is left at its default."""
        return self.user_settings.get(name, f"{name.replace('_', ' ')} left at its default")


SETTING_NAMES = frozenset(field.name for field in fields(TrainerConfig)) - {
    "unused",
    "conflicts",
    "text_numbers",
    "unread",
    "user_settings",
}
"""Every single setting."""


def merge_configs(first: TrainerConfig, second: TrainerConfig) -> TrainerConfig:
    """Merge two configurations: what the user set in either counts first, else the first that is known."""
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
        unread={
            name: spelled
            for name, spelled in {**second.unread, **first.unread}.items()
            if values.get(name) is None
            and (name in SETTING_NAMES or not (first.user_settings and second.user_settings))
        },
        user_settings={**second.user_settings, **first.user_settings},
    )


class ConfigDialect(Protocol):
    """Reads the configuration of one trainer and renders changes to it; nothing it reads is executed."""

    @property
    def trainer(self) -> str:
        """Name of the trainer in the catalogue of importers, or of the server in that of server dialects."""
        ...

    def recognises(self, path: Path, start: bytes) -> bool:
        """Say whether a file is a configuration of this trainer."""
        ...

    def read(self, path: Path) -> Mapping[str, Any]:
        """Return the settings in a file, spelled as there."""
        ...

    def translate(self, config: Mapping[str, Any]) -> TrainerConfig:
        """Translate the settings of a file or a run's header to our names, with the trainer's known defaults."""
        ...

    def patch(self, changes: Sequence[Change], config: TrainerConfig) -> tuple[str, ...]:
        """Render changes for this trainer, one per line; a change without a setting is left out."""
        ...


class PatchOnly:
    """The part of a dialect that reads nothing: there is no configuration file, only patches."""

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
        "openrlhf": "breadth.adapters.openrlhf:SETTINGS",
        "nemo-rl": "breadth.adapters.nemo_rl:SETTINGS",
        "skyrl": "breadth.adapters.skyrl:SETTINGS",
        "roll": "breadth.adapters.roll:SETTINGS",
        "slime": "breadth.adapters.slime:SETTINGS",
        "axolotl": "breadth.adapters.axolotl:SETTINGS",
        "vllm": "breadth.adapters.vllm:SETTINGS",
        "sglang": "breadth.adapters.sglang:SETTINGS",
        "llama-cpp": "breadth.adapters.llama_cpp:SETTINGS",
        "policy": "breadth.doctor.trainer_config:POLICY_DIALECT",
    },
)
"""Every dialect by trainer or server; ``policy`` is that of our own policy.toml."""


def dialect_of(trainer: str) -> ConfigDialect | None:
    """Return a trainer's or server's dialect; None where there is none."""
    try:
        dialect: ConfigDialect = DIALECTS.load(trainer)
    except CatalogueError:
        return None
    return dialect


RequestFields = Callable[[Any], Mapping[str, Any]]
"""Value of a change -> fields of the request."""
ServerFlags = Callable[[Any], Sequence[str]]
"""Value of a change -> flags the server is started with."""

COMMON_FIELDS = frozenset({"temperature", "top_p", "max_tokens"})
"""Fields that every server has under these names."""


@dataclass(frozen=True)
class ServerPatch(PatchOnly):
    """A server's dialect: renders what the doctor prescribes for inference as request fields and server flags.

    Settings are ``thinking_budget`` (tokens), ``votes``, ``max_tokens``, ``top_logprobs``, ``logprobs_raw`` and
    ``loop_guard``, where the server supports them, and what every server has.
    """

    trainer: str
    """Name of the server, as in the catalogue of server dialects."""
    fields: Mapping[str, RequestFields] = field(default_factory=dict)
    """Setting -> fields of the request."""
    flags: Mapping[str, ServerFlags] = field(default_factory=dict)
    """Setting -> flags and environment variables of the server."""

    def patch(self, changes: Sequence[Change], config: TrainerConfig) -> tuple[str, ...]:
        """Render changes as one ``request:`` line of JSON and one ``server:`` line of flags."""
        del config
        body: dict[str, Any] = {}
        flags: list[str] = []
        for change in changes:
            if change.value is not False:
                body |= {change.setting: change.value} if change.setting in COMMON_FIELDS else {}
                body |= self.fields[change.setting](change.value) if change.setting in self.fields else {}
                flags += self.flags[change.setting](change.value) if change.setting in self.flags else []
        request = [f"request: {json.dumps(body)}"] if body else []
        return (*request, *([f"server: {' '.join(dict.fromkeys(flags))}"] if flags else []))


POLICY_KEYS: Mapping[str, tuple[str, str]] = {
    "thinking_budget": ("sampling", "thinking_tokens"),
    "max_tokens": ("sampling", "max_tokens"),
    "top_logprobs": ("sampling", "top_logprobs"),
    "temperature": ("sampling", "temperature"),
    "top_p": ("sampling", "top_p"),
}
"""Setting -> table and key; whether log-probs are raw is up to the server."""


@dataclass(frozen=True)
class PolicyPatch(PatchOnly):
    """The dialect of policy.toml: renders what the doctor prescribes for inference as its tables."""

    trainer = "policy"
    """Name in the catalogue."""

    def patch(self, changes: Sequence[Change], config: TrainerConfig) -> tuple[str, ...]:
        """Render changes as TOML, each table once: to merge into the policy, or as a policy of its own."""
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
    """Return table, key and value of each setting of a change."""
    value = change.value
    if change.setting in POLICY_KEYS:
        return [
            (*POLICY_KEYS[change.setting], f"{value:g}" if isinstance(value, float) and value % 1 else str(int(value)))
        ]
    if change.setting == "votes":
        if value == 1:
            return [("strategy", "kind", '"single"')]
        return [("strategy", "kind", '"adaptive-vote"'), ("strategy", "most", str(int(value)))]
    if change.setting == "vote_confidence" and not value:
        return [("strategy", "kind", '"adaptive-vote"')]
    return [("halt", "kind", '"loop"')] if change.setting == "loop_guard" and value else []


POLICY_DIALECT = PolicyPatch()
"""The dialect of policy.toml in the catalogue."""
