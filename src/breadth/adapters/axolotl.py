"""axolotl's GRPO configuration read, translated and patched: its YAML, with TRL's settings under ``trl:``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from breadth.adapters.configs import (
    DUPLICATE_KEYS,
    Settings,
    find_unread_settings,
    read_table,
    render_setting,
    render_yaml,
)
from breadth.adapters.trl.config import AXOLOTL_GRPO, SWITCHES, TRL_FIELDS
from breadth.adapters.trl.config import SETTINGS as TRL_SETTINGS
from breadth.adapters.trl.patch import SAME_VALUE_FIELDS, change_keywords
from breadth.base.errors import BrokenFileError
from breadth.doctor.finding import Change
from breadth.doctor.trainer_config import TrainerConfig, UnusedSetting

TOP_LEVEL: Mapping[str, str] = {
    "learning_rate": "learning_rate",
    "micro_batch_size": "per_device_train_batch_size",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "rl_beta": "beta",
    "base_model": "model_name_or_path",
}
"""Setting at the top of the file -> field of GRPOConfig."""
NOT_PASSED_ON = frozenset(
    {
        "delta",
        "entropy_coef",
        "entropy_coef_delta",
        "entropy_coef_max",
        "entropy_coef_min",
        "entropy_target",
        "steps_per_generation",
        "top_entropy_quantile",
        "use_adaptive_entropy",
        "vllm_importance_sampling_clip_max",
        "vllm_max_model_length",
    }
)
"""Fields of GRPOConfig that axolotl 0.18 has no setting for: it drops them from ``trl:`` without a word."""
SECTION = "trl"


@dataclass(frozen=True)
class AxolotlSettings:
    """Reads axolotl's YAML with ``rl: grpo``."""

    trainer = "axolotl"
    """Name in the catalogue."""

    def recognises(self, path: Path, start: bytes) -> bool:
        """Recognise ``rl: grpo``."""
        return path.suffix in (".yaml", ".yml") and AXOLOTL_GRPO.search(start) is not None

    def read(self, path: Path) -> Mapping[str, Any]:
        """Return the settings of a file."""
        found = read_table(path)
        if not isinstance(found, Mapping):
            raise BrokenFileError(path, "holds no table of settings.", "Give axolotl's YAML.")
        return found

    def translate(self, config: Mapping[str, Any]) -> TrainerConfig:
        """Translate by TRL's dialect, with axolotl's names for what the user set."""
        section = config.get(SECTION)
        inner = {str(name): value for name, value in section.items()} if isinstance(section, Mapping) else {}
        passed = {name: value for name, value in inner.items() if name not in NOT_PASSED_ON and value is not None}
        outer = {field: config[name] for name, field in TOP_LEVEL.items() if config.get(name) is not None}
        own = {**outer, **passed}
        if not own:
            return TrainerConfig()
        found = TRL_SETTINGS.translate(own | {key: config[key] for key in (DUPLICATE_KEYS,) if key in config})
        back = {field: name for name, field in TOP_LEVEL.items() if field in outer and field not in passed}

        def spell(field: str) -> str:
            return back.get(field, f"{SECTION}.{field}" if field in passed else field)

        return replace(
            found,
            unused=(*found.unused, *find_dropped_settings(inner)),
            unread={
                field if field in TRL_FIELDS else spell(field): text
                for field, text in respell_settings(find_unread_settings(own, TRL_FIELDS, SWITCHES), own, spell).items()
            },
            user_settings=respell_settings(found.user_settings, own, spell),
        )

    def patch(self, changes: Sequence[Change], config: TrainerConfig) -> tuple[str, ...]:
        """Render changes as lines of YAML to merge into the file; what axolotl has no setting for is left out."""
        settings: dict[str, Any] = {}
        for change in changes:
            if change.setting in SAME_VALUE_FIELDS or change.setting in ("clip_high", "max_completion_length", "group"):
                keywords, _ = change_keywords(change, config)
                settings |= {place_of(name): value for name, value in keywords.items() if name not in NOT_PASSED_ON}
            elif change.setting == "updates":
                settings[f"{SECTION}.num_iterations"] = int(change.value)
        return render_yaml(settings)


def respell_settings(texts: Mapping[str, str], own: Mapping[str, Any], spell: Any) -> dict[str, str]:
    """Return settings with the names they have in axolotl's file."""
    by_text = {render_setting(name, value): render_setting(spell(name), value) for name, value in own.items()}
    return {field: ", ".join(by_text.get(part, part) for part in text.split(", ")) for field, text in texts.items()}


def place_of(field: str) -> str:
    """Return where axolotl's file has a field of GRPOConfig."""
    tops = {field: name for name, field in TOP_LEVEL.items() if name != "rl_beta"}
    return tops.get(field, f"{SECTION}.{field}")


def find_dropped_settings(section: Mapping[str, Any]) -> Iterator[UnusedSetting]:
    """Yield settings of GRPOConfig that axolotl does not pass on."""
    for name in sorted(NOT_PASSED_ON & section.keys()):
        if section[name] is not None:
            setting = Settings({f"{SECTION}.{name}": section[name]}).describe(f"{SECTION}.{name}")
            yield UnusedSetting(setting, "axolotl (0.18) does not pass it on to TRL", intended=True)


SETTINGS = AxolotlSettings()
"""The dialect of the catalogue."""
