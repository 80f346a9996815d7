"""SkyRL's configuration read, translated and patched: its YAML, and launch scripts with overrides in Hydra's form."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from breadth.adapters.configs import (
    Settings,
    check_evaluation,
    count_updates,
    duplicate_conflicts,
    find_unread_settings,
    flatten_table,
    is_expression,
    read_table,
    read_text,
    render_setting,
    resolve_references,
)
from breadth.adapters.scripts import script_arguments
from breadth.base.errors import BrokenFileError
from breadth.doctor.finding import Change
from breadth.doctor.trainer_config import Conflict, TrainerConfig, UnusedSetting

ALGORITHM, SAMPLING = "trainer.algorithm", "generator.sampling_params"
LOSS = f"{ALGORITHM}.policy_loss_type"
PROMPTS, MINI_BATCH = "trainer.train_batch_size", "trainer.policy_mini_batch_size"
GROUP = "generator.n_samples_per_prompt"
UPDATE_SETTINGS = (PROMPTS, MINI_BATCH, "trainer.update_epochs_per_batch")
"""Settings that the updates per generation follow from."""
SKYRL_DEFAULTS: Mapping[str, Any] = {
    GROUP: 5,
    PROMPTS: 1024,
    MINI_BATCH: 256,
    "trainer.update_epochs_per_batch": 1,
    "trainer.micro_train_batch_size_per_gpu": 1,
    "trainer.policy.optimizer_config.lr": 1e-6,
    "trainer.fully_async.enabled": False,
    "trainer.eval_interval": 5,
    "trainer.max_prompt_length": 512,
    "trainer.dump_data_batch": False,
    f"{ALGORITHM}.advantage_estimator": "grpo",
    LOSS: "regular",
    f"{ALGORITHM}.loss_reduction": "token_mean",
    f"{ALGORITHM}.use_kl_loss": True,
    f"{ALGORITHM}.use_kl_in_reward": False,
    f"{ALGORITHM}.kl_loss_coef": 0.001,
    f"{ALGORITHM}.use_entropy_loss": False,
    f"{ALGORITHM}.entropy_loss_coef": 0.01,
    f"{ALGORITHM}.eps_clip_low": 0.2,
    f"{ALGORITHM}.eps_clip_high": 0.2,
    f"{ALGORITHM}.clip_ratio_c": 3.0,
    f"{ALGORITHM}.clip_cov.clip_ratio": 0.0002,
    f"{ALGORITHM}.kl_cov.kl_cov_frac": 0.2,
    f"{ALGORITHM}.dynamic_sampling.type": None,
    f"{ALGORITHM}.off_policy_correction.tis_ratio_type": None,
    f"{ALGORITHM}.use_tis": False,
    "generator.apply_overlong_filtering": False,
    "generator.inference_engine.backend": "vllm",
    f"{SAMPLING}.max_generate_length": 1024,
    f"{SAMPLING}.temperature": 1.0,
    f"{SAMPLING}.top_p": 1.0,
    f"{SAMPLING}.top_k": -1,
    f"{SAMPLING}.min_p": 0.0,
    f"{SAMPLING}.repetition_penalty": 1.0,
}
"""Of SkyRL's source of August 2026; the same in its release 0.4."""
SKYRL_FIELDS: Mapping[str, str] = {
    "group": GROUP,
    "prompts": PROMPTS,
    "mini_batch": MINI_BATCH,
    "micro_batch": "trainer.micro_train_batch_size_per_gpu",
    "learning_rate": "trainer.policy.optimizer_config.lr",
    "estimator": f"{ALGORITHM}.advantage_estimator",
    "clip_low": f"{ALGORITHM}.eps_clip_low",
    "clip_high": f"{ALGORITHM}.eps_clip_high",
    "dual_clip": f"{ALGORITHM}.clip_ratio_c",
    "kl": f"{ALGORITHM}.kl_loss_coef",
    "kl_given": f"{ALGORITHM}.kl_loss_coef",
    "entropy_bonus": f"{ALGORITHM}.entropy_loss_coef",
    "loss": LOSS,
    "covariance": LOSS,
    "aggregation": f"{ALGORITHM}.loss_reduction",
    "temperature": f"{SAMPLING}.temperature",
    "top_p": f"{SAMPLING}.top_p",
    "top_k": f"{SAMPLING}.top_k",
    "min_p": f"{SAMPLING}.min_p",
    "repetition_penalty": f"{SAMPLING}.repetition_penalty",
    "max_completion_length": f"{SAMPLING}.max_generate_length",
    "max_prompt_length": "trainer.max_prompt_length",
    "context": "generator.inference_engine.engine_init_kwargs.max_model_len",
    "mask_truncated": "generator.apply_overlong_filtering",
    "length_penalty": f"{ALGORITHM}.overlong_buffer_len",
    "dynamic_sampling": f"{ALGORITHM}.dynamic_sampling.type",
    "correct_mismatch": f"{ALGORITHM}.off_policy_correction.tis_ratio_type",
    "engine": "generator.inference_engine.backend",
    "logs_rollouts": "trainer.dump_data_batch",
    "model": "trainer.policy.model.path",
    "thinking": "generator.chat_template_kwargs.enable_thinking",
}
"""Field of `TrainerConfig` -> SkyRL's setting."""
FLAT_NAMES: Mapping[str, str] = {
    "generator.backend": "generator.inference_engine.backend",
    "generator.engine_init_kwargs.max_model_len": "generator.inference_engine.engine_init_kwargs.max_model_len",
}
"""Settings up to release 0.4 -> their present names."""
SAME_VALUE_FIELDS = frozenset(SKYRL_FIELDS) - {
    "kl_given",
    "covariance",
    "estimator",
    "length_penalty",
    "dynamic_sampling",
    "correct_mismatch",
    "engine",
    "max_prompt_length",
    "model",
    "thinking",
    "context",
    "repetition_penalty",
    "kl",
    "entropy_bonus",
    "max_completion_length",
}
"""Fields with the same value in SkyRL's setting."""
CLIPPED_LOSSES: Mapping[str, bool] = {
    **dict.fromkeys(("regular", "dual_clip", "gspo", "clip_cov", "rollout_is", "cispo"), True),
    **dict.fromkeys(("kl_cov", "sapo", "dppo", "cross_entropy", "importance_sampling"), False),
}
"""SkyRL's losses -> whether they clip the ratio."""
COVARIANCE_LOSSES: Mapping[str, tuple[Literal["clip-cov", "kl-cov"], str]] = {
    "clip_cov": ("clip-cov", f"{ALGORITHM}.clip_cov.clip_ratio"),
    "kl_cov": ("kl-cov", f"{ALGORITHM}.kl_cov.kl_cov_frac"),
}
"""Losses that select tokens by covariance -> how, and the setting of their share."""
SWITCHES = (
    *(f"{ALGORITHM}.use_{name}" for name in ("kl_loss", "kl_in_reward", "entropy_loss")),
    "trainer.eval_interval",
)
"""Settings that decide whether others have an effect, and that no field of `TrainerConfig` holds."""
MAX_MINI_BATCH = 100_000
"""Largest mini-batch considered, in prompts."""
ASYNC = "asynchronous"
"""Set by `SkyRlSettings.read` for a script that starts an asynchronous trainer."""
OVERRIDE = re.compile(rb"\btrainer\.(algorithm\.\w|policy_mini_batch_size|policy\.optimizer_config)")


@dataclass(frozen=True)
class SkyRlSettings:
    """Reads SkyRL's YAML and the overrides of its launch scripts."""

    trainer = "skyrl"
    """Name in the catalogue."""
    known_values = "SkyRL logs every value as YAML when it starts: save that part of the log and name the file"
    """How to get a file with every value in it."""

    def recognises(self, path: Path, start: bytes) -> bool:
        """Recognise overrides, or two tables' keys, that only SkyRL has."""
        if path.suffix in (".sh", ".bash", ".txt"):
            return OVERRIDE.search(start) is not None
        return (
            path.suffix in (".yaml", ".yml")
            and b"n_samples_per_prompt" in start
            and (b"policy_mini_batch_size" in start or b"policy_loss_type" in start or b"max_generate_length" in start)
        )

    def read(self, path: Path) -> Mapping[str, Any]:
        """Return the settings of a file by dotted path, with references resolved."""
        if path.suffix in (".yaml", ".yml"):
            found = read_table(path, exponents=True)
            if not isinstance(found, Mapping):
                raise BrokenFileError(path, "holds no table of settings.", "Give SkyRL's YAML.")
            return resolve_references(dict(flatten_table(found)))
        own = {
            name: value
            for name, value in script_arguments(path).items()
            if name.startswith(("trainer.", "generator.", "data.", "environment."))
        }
        return own | ({ASYNC: True} if re.search(r"-m\s+\S*async", read_text(path)) else {})

    def translate(self, config: Mapping[str, Any]) -> TrainerConfig:
        """Translate into a TrainerConfig; expressions are unknown."""
        own = {FLAT_NAMES.get(name, name): value for name, value in flatten_table(config)}
        read = Settings(own, SKYRL_DEFAULTS if any(name.startswith(f"{ALGORITHM}.") for name in own) else {})
        loss = read.text(LOSS)
        kind, share = COVARIANCE_LOSSES.get(loss or "", ("", ""))
        cispo = f"{ALGORITHM}.cispo.cispo_eps_clip"
        penalty = read.number(f"{ALGORITHM}.overlong_buffer_len")
        return TrainerConfig(
            group=read.whole(GROUP),
            prompts=read.whole(PROMPTS),
            mini_batch=read.whole(MINI_BATCH),
            updates=skyrl_updates(read),
            micro_batch=read.whole("trainer.micro_train_batch_size_per_gpu"),
            learning_rate=read.number(SKYRL_FIELDS["learning_rate"]),
            estimator=read.text(SKYRL_FIELDS["estimator"]),
            clip_low=read.number(f"{cispo}_low" if loss == "cispo" else SKYRL_FIELDS["clip_low"]),
            clip_high=read.number(f"{cispo}_high" if loss == "cispo" else SKYRL_FIELDS["clip_high"]),
            clips=CLIPPED_LOSSES.get(loss or ""),
            dual_clip=read.number(SKYRL_FIELDS["dual_clip"]) if loss == "dual_clip" else None,
            sequence_ratio=None if loss is None else loss == "gspo",
            kl=skyrl_kl(read),
            kl_given=read.number(SKYRL_FIELDS["kl"]) if SKYRL_FIELDS["kl"] in own else None,
            entropy_bonus=skyrl_entropy_bonus(read),
            entropy_adaptive=False,
            entropy_share=1.0,
            loss=loss,
            covariance=None if loss is None else kind,  # type: ignore[arg-type]  # of the two, or empty
            covariance_share=read.number(share) if share else None,
            aggregation=read.text(SKYRL_FIELDS["aggregation"]),
            **skyrl_sampling(read),
            mask_truncated=read.switch(SKYRL_FIELDS["mask_truncated"]),
            length_penalty=True if penalty else None,
            shaped_reward=True if penalty else None,
            dynamic_sampling=skyrl_dynamic_sampling(read),
            correct_mismatch=skyrl_corrects(read),
            logs_rollouts=read.switch("trainer.dump_data_batch"),
            unused=tuple(skyrl_unused_settings(read)),
            conflicts=(*skyrl_conflicts(read), *duplicate_conflicts(own, "OmegaConf")),
            unread=skyrl_unread_settings(own),
            user_settings=skyrl_spelled_settings(own),
        )

    def patch(self, changes: Sequence[Change], config: TrainerConfig) -> tuple[str, ...]:
        """Render changes as overrides in Hydra's form."""
        return tuple(dict.fromkeys(line for change in changes for line in render_overrides(change, config)))


def skyrl_sampling(read: Settings) -> dict[str, Any]:
    """Return the fields of the sampler and the model."""
    return {
        "temperature": read.number(f"{SAMPLING}.temperature"),
        "top_p": read.number(f"{SAMPLING}.top_p"),
        "top_k": read.top_k(f"{SAMPLING}.top_k"),
        "min_p": read.number(f"{SAMPLING}.min_p"),
        "repetition_penalty": read.number(f"{SAMPLING}.repetition_penalty"),
        "max_completion_length": read.whole(SKYRL_FIELDS["max_completion_length"]),
        "max_prompt_length": read.whole(SKYRL_FIELDS["max_prompt_length"]),
        "context": read.whole(SKYRL_FIELDS["context"]),
        "engine": read.text(SKYRL_FIELDS["engine"]),
        "model": read.text(SKYRL_FIELDS["model"]),
        "thinking": read.switch(SKYRL_FIELDS["thinking"]),
    }


def skyrl_updates(read: Settings) -> float | None:
    """Return optimizer steps per generation; None for an asynchronous trainer, whose rollouts lag by more."""
    prompts, mini, epochs = (read.number(name) for name in UPDATE_SETTINGS)
    lags = ASYNC in read.own or read.switch("trainer.fully_async.enabled") is not False
    return None if lags or not prompts or not mini or not epochs else count_updates(prompts, mini, epochs)


def skyrl_kl(read: Settings) -> float | None:
    """Return the KL coefficient, in the loss or in the reward; 0 if both are off."""
    in_loss, in_reward = read.switch(f"{ALGORITHM}.use_kl_loss"), read.switch(f"{ALGORITHM}.use_kl_in_reward")
    if in_loss or in_reward:
        return read.number(SKYRL_FIELDS["kl"])
    return None if in_loss is None or in_reward is None else 0.0


def skyrl_entropy_bonus(read: Settings) -> float | None:
    """Return the coefficient of the entropy bonus; 0 if it is off."""
    on = read.switch(f"{ALGORITHM}.use_entropy_loss")
    return None if on is None else read.number(SKYRL_FIELDS["entropy_bonus"]) if on else 0.0


def skyrl_dynamic_sampling(read: Settings) -> bool | None:
    """Whether groups of equal reward are resampled or replaced."""
    name = SKYRL_FIELDS["dynamic_sampling"]
    if name not in read.own and not read.defaults:
        return None
    return False if read.is_off(name) else None if read.text(name) is None else True


def skyrl_corrects(read: Settings) -> bool | None:
    """Whether importance weights correct the mismatch between sampler and trainer."""
    name = SKYRL_FIELDS["correct_mismatch"]
    if read.switch(f"{ALGORITHM}.use_tis") or read.text(name):
        return True
    return None if (name not in read.own and not read.defaults) or is_expression(read.own.get(name)) else False


def skyrl_unused_settings(read: Settings) -> Iterator[UnusedSetting]:
    """Yield settings of the user that SkyRL does not read."""
    yield from check_evaluation(read, "data.val_data", "trainer.eval_interval")
    coefficient, bonus = SKYRL_FIELDS["kl"], SKYRL_FIELDS["entropy_bonus"]
    if coefficient in read.own and read.number(coefficient) and skyrl_kl(read) == 0:
        named = f"{ALGORITHM}.use_kl_loss" in read.own
        yield UnusedSetting(read.describe(coefficient), "use_kl_loss and use_kl_in_reward are off", intended=not named)
    if bonus in read.own and read.number(bonus) and skyrl_entropy_bonus(read) == 0:
        named = f"{ALGORITHM}.use_entropy_loss" in read.own
        why = "use_entropy_loss is off" + ("" if named else " unless it is set")
        yield UnusedSetting(read.describe(bonus), why, intended=not named)
    loss = read.text(LOSS)
    if loss is None or loss not in CLIPPED_LOSSES:
        return
    two_sided = CLIPPED_LOSSES[loss] and loss != "cispo"
    unread = {
        SKYRL_FIELDS["clip_low"]: not two_sided,
        SKYRL_FIELDS["clip_high"]: not two_sided,
        SKYRL_FIELDS["dual_clip"]: loss != "dual_clip",
        f"{ALGORITHM}.clip_cov.clip_ratio": loss != "clip_cov",
        f"{ALGORITHM}.kl_cov.kl_cov_frac": loss != "kl_cov",
        f"{ALGORITHM}.kl_cov.ppo_kl_coef": loss != "kl_cov",
    }
    for name, unused in unread.items():
        if unused and name in read.own and read.own[name] != read.defaults.get(name):
            yield UnusedSetting(read.describe(name), f"policy_loss_type={loss} does not read it", LOSS not in read.own)


def skyrl_conflicts(read: Settings) -> Iterator[Conflict]:
    """Yield settings that SkyRL refuses together."""
    since = "SkyRL 0.2"
    in_loss, in_reward = f"{ALGORITHM}.use_kl_loss", f"{ALGORITHM}.use_kl_in_reward"
    if read.switch(in_loss) and read.switch(in_reward):
        spelled = read.describe(in_reward, in_loss) + ("" if in_loss in read.own else f", {in_loss} on by default")
        yield Conflict(spelled, "the KL to the reference is penalised in the loss or in the reward", "refused", since)
    prompts, mini = read.whole(PROMPTS), read.whole(MINI_BATCH)
    if prompts and mini and prompts % mini and (PROMPTS in read.own or MINI_BATCH in read.own):
        given = "" if MINI_BATCH in read.own else ", the default"
        why = f"{prompts} prompts are no whole number of mini-batches of {mini}{given}"
        yield Conflict(read.describe(PROMPTS, MINI_BATCH), why, "refused", since)
    if read.text(LOSS) in COVARIANCE_LOSSES and skyrl_corrects(read):
        why = "the correction of the mismatch does not support clip_cov and kl_cov"
        spelled = read.describe(LOSS, SKYRL_FIELDS["correct_mismatch"], f"{ALGORITHM}.use_tis")
        yield Conflict(spelled, why, "refused", "SkyRL 0.4")


def skyrl_unread_settings(own: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings that are expressions."""
    found = find_unread_settings(own, SKYRL_FIELDS, SWITCHES)
    steps = [name for name in UPDATE_SETTINGS if is_expression(own.get(name))]
    found |= {"updates": Settings(own).describe(*steps)} if steps else {}
    return {name: spelled for name, spelled in found.items() if name not in ("model", "engine", "logs_rollouts")}


def skyrl_spelled_settings(own: Mapping[str, Any]) -> dict[str, str]:
    """Return field of `TrainerConfig` -> the user's own spelling of it."""
    found = {field: render_setting(name, own[name]) for field, name in SKYRL_FIELDS.items() if name in own}
    steps = Settings(own).describe(*UPDATE_SETTINGS)
    return found | ({"updates": steps} if steps else {})


def render_overrides(change: Change, config: TrainerConfig) -> tuple[str, ...]:
    """Return the overrides for one change."""
    value = f"{change.value:g}" if isinstance(change.value, float) else str(change.value)
    special: Mapping[str, Callable[[], tuple[str, ...]]] = {
        "updates": lambda: update_overrides(int(change.value), config),
        "kl": lambda: (f"{ALGORITHM}.use_kl_loss=true", f"{SKYRL_FIELDS['kl']}={value}"),
        "entropy_bonus": lambda: (f"{ALGORITHM}.use_entropy_loss=true", f"{SKYRL_FIELDS['entropy_bonus']}={value}"),
        "dynamic_sampling": lambda: (f"{SKYRL_FIELDS['dynamic_sampling']}={'filter' if change.value else 'null'}",),
        "correct_mismatch": lambda: (f"{SKYRL_FIELDS['correct_mismatch']}={'token' if change.value else 'null'}",),
        "covariance_share": lambda: tuple(
            f"{share}={value}" for loss, (_, share) in COVARIANCE_LOSSES.items() if loss == config.loss
        ),
        "chain": lambda: recipe_overrides(str(change.value)),
        "max_completion_length": lambda: length_overrides(int(change.value), config),
        "top_k": lambda: (f"{SAMPLING}.top_k={change.value or -1}",),
        "sequence_ratio": lambda: (f"{LOSS}={'gspo' if change.value else 'regular'}",),
        "dual_clip": lambda: (f"{LOSS}=dual_clip", f"{SKYRL_FIELDS['dual_clip']}={value}"),
    }
    if change.setting in special:
        return special[change.setting]()
    return (f"{SKYRL_FIELDS[change.setting]}={value}",) if change.setting in SAME_VALUE_FIELDS else ()


def update_overrides(wanted: int, config: TrainerConfig) -> tuple[str, ...]:
    """Split a generation into about as many equal mini-batches."""
    prompts = config.prompts or 0
    sizes = [size for size in range(1, min(prompts // max(wanted, 1), MAX_MINI_BATCH) + 1) if prompts % size == 0]
    return (f"{MINI_BATCH}={sizes[-1]}",) if sizes else (f"trainer.update_epochs_per_batch={wanted}",)


def recipe_overrides(recipe: str) -> tuple[str, ...]:
    """Use SkyRL's own loss with the paper's share of tokens; other chains of ours do not run in SkyRL."""
    if recipe == "kl_cov":
        return (f"{LOSS}=kl_cov", f"{ALGORITHM}.kl_cov.kl_cov_frac=0.002", f"{ALGORITHM}.kl_cov.ppo_kl_coef=1.0")
    return (f"{LOSS}=clip_cov", f"{ALGORITHM}.clip_cov.clip_ratio=0.0002") if recipe == "clip_cov" else ()


def length_overrides(wanted: int, config: TrainerConfig) -> tuple[str, ...]:
    """Set the maximum response length, and the context of the engine if it is too small."""
    room = wanted + (config.max_prompt_length or 0)
    more = (f"{SKYRL_FIELDS['context']}={room}",) if config.context is not None and config.context < room else ()
    return (f"{SKYRL_FIELDS['max_completion_length']}={wanted}", *more)


SETTINGS = SkyRlSettings()
"""The dialect of the catalogue."""
