"""verl's configuration read and translated: YAML, Hydra overrides and launch scripts; linting and wording stand beside it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from breadth.adapters.configs import Settings, flat, spelled, table_of
from breadth.adapters.scripts import script_arguments
from breadth.adapters.verl.defaults import ACTOR, BASE, BASES, CLIPPED, COVARIANCES, DEFAULTS, FIELDS, LOSS, OVERLONG, ROLLOUT, ROOTS
from breadth.adapters.verl.linting import clashes, idle_settings, manager_of
from breadth.adapters.verl.wording import worded
from breadth.base.errors import BrokenFileError
from breadth.bridge.doctor.finding import Change
from breadth.bridge.doctor.knobs import Knobs


@dataclass(frozen=True)
class VerlSettings:
    """Reads verl's YAML, the ``overrides.yaml`` that Hydra keeps, and launch scripts."""

    trainer = "verl"
    """Name in the catalogue."""

    def recognises(self, path: Path, start: bytes) -> bool:
        """Tell by the table that only verl has; a log that merely prints it is no configuration."""
        return b"actor_rollout_ref" in start and path.suffix in (".yaml", ".yml", ".json", ".sh", ".bash", ".txt")

    def read(self, path: Path) -> Mapping[str, Any]:
        """Return the settings of a file by dotted path, and what they are laid over where it is not verl's own configuration."""
        if path.suffix in (".yaml", ".yml", ".json"):
            return _from_table(path)
        return {name: value for name, value in script_arguments(path).items() if name.startswith(ROOTS) or name == BASE}

    def knobs(self, config: Mapping[str, Any]) -> Knobs:
        """Translate; what is not a value, such as an expression, is not known."""
        everything = dict(flat(config))
        read = Settings(everything, DEFAULTS if _known_base(everything) else {})
        given = Settings(_given(everything), read.defaults)
        mode = read.text(f"{LOSS}.loss_mode")
        penalised = _penalised(read)
        return Knobs(
            group=read.whole(f"{ROLLOUT}.n"),
            prompts=read.whole("data.train_batch_size"),
            mini_batch=read.whole(f"{ACTOR}.ppo_mini_batch_size"),
            updates=_updates(read),
            micro_batch=None if read.switch(f"{ACTOR}.use_dynamic_bsz") else read.whole(f"{ACTOR}.ppo_micro_batch_size_per_gpu"),
            learning_rate=read.number(f"{ACTOR}.optim.lr"),
            estimator=read.text("algorithm.adv_estimator"),
            clip_low=_clip(read, "low"),
            clip_high=_clip(read, "high"),
            clips=CLIPPED.get(mode) if mode is not None else None,
            dual_clip=read.number(f"{ACTOR}.clip_ratio_c"),
            sequence_ratio=None if mode not in CLIPPED else mode == "gspo",
            kl=_kl(read),
            kl_given=given.number(f"{ACTOR}.kl_loss_coef") if f"{ACTOR}.kl_loss_coef" in given.own else None,
            entropy_bonus=read.number(f"{ACTOR}.entropy_coeff"),
            entropy_adaptive=False,
            entropy_share=1.0,
            loss=read.text(f"{LOSS}.chain") if mode == "breadth" else mode,
            covariance=COVARIANCES.get(mode, "") if mode is not None else None,
            covariance_share=read.number(f"{LOSS}.{mode}_ratio") if mode in COVARIANCES else None,
            aggregation=read.text(f"{ACTOR}.loss_agg_mode"),
            temperature=read.number(f"{ROLLOUT}.temperature"),
            top_p=read.number(f"{ROLLOUT}.top_p"),
            top_k=_top_k(read),
            repetition_penalty=read.number(f"{ROLLOUT}.repetition_penalty"),
            longest=read.whole("data.max_response_length"),
            longest_prompt=read.whole("data.max_prompt_length"),
            context=read.whole(f"{ROLLOUT}.max_model_len"),
            mask_truncated=False,
            length_penalty=penalised,
            filter_flat=read.switch("algorithm.filter_groups.enable"),
            filter_metric=read.text("algorithm.filter_groups.metric"),
            shaped_reward=penalised or None,
            correct_mismatch=_corrects(read),
            engine=read.text(f"{ROLLOUT}.name"),
            logs_rollouts=_logs(read),
            idle=tuple(idle_settings(given)),
            clashes=tuple(clashes(given)),
            theirs=_theirs(given.own),
        )

    def patch(self, changes: Sequence[Change], knobs: Knobs) -> tuple[str, ...]:
        """Word changes as Hydra overrides, or by our chain where verl has no setting."""
        return worded(changes, knobs)


def _from_table(path: Path) -> dict[str, Any]:
    """Read a table, or the list of overrides that Hydra keeps."""
    found = table_of(path, exponents=True)
    if isinstance(found, list):
        pairs = (str(one).lstrip("+").partition("=") for one in found)
        return {BASE: "not in this file"} | {name: _plain(value) for name, equals, value in pairs if equals and not name.startswith("~")}
    if not isinstance(found, Mapping):
        raise BrokenFileError(path, "holds neither a table nor a list of overrides.", "Give verl's YAML, or Hydra's overrides.yaml.")
    return dict(flat(found))


def _plain(text: str) -> Any:
    from breadth.adapters.yaml_values import loaded

    try:
        return loaded(text, exponents=True)
    except Exception:  # noqa: BLE001 - whatever a parser dislikes is a text
        return text


def _known_base(own: Mapping[str, Any]) -> bool:
    """Say whether the settings are laid over verl's own configuration: they name no other, or none of their own."""
    if not any(name.startswith("actor_rollout_ref.") for name in own):
        return False
    listed = own.get("defaults")
    named = [own[BASE]] if BASE in own else []
    named += [one for one in listed if isinstance(one, str) and one != "_self_"] if isinstance(listed, list) else []
    return all(isinstance(one, str) and one.rpartition("/")[2] in BASES for one in named)


def _given(own: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what the user set: of a whole configuration, as Hydra saves it, only what is no default."""
    if sum(name in own for name in DEFAULTS) < 0.8 * len(DEFAULTS):
        return own
    return {name: value for name, value in own.items() if DEFAULTS.get(name, BASE) != value}


def _updates(read: Settings) -> float | None:
    """Return optimizer steps a generation; where rollouts lag or old log-probs are the sampler's, the ratio tells another story."""
    sampled = read.switch("algorithm.rollout_correction.bypass_mode") or read.switch(f"{ACTOR}.use_rollout_log_probs")
    if sampled or "async" in (read.text("trainer.v1.trainer_mode") or ""):
        return None
    prompts, mini = read.number("data.train_batch_size"), read.number(f"{ACTOR}.ppo_mini_batch_size")
    epochs = read.number(f"{ACTOR}.ppo_epochs")
    if not prompts or not mini or not epochs:
        return epochs if epochs is not None and epochs > 1 else None
    return math.ceil(prompts / mini) * epochs


def _clip(read: Settings, side: str) -> float | None:
    """Return a bound; verl's losses read clip_ratio only where the bound of the side is null."""
    name = f"{ACTOR}.clip_ratio_{side}"
    absent = name not in read.own and not read.defaults
    return read.number(f"{ACTOR}.clip_ratio") if absent or read.own.get(name, "") is None else read.number(name)


def _kl(read: Settings) -> float | None:
    """Return the price of leaving the reference, in the loss or in the reward; 0 where both switches are off."""
    in_loss, in_reward = read.switch(f"{ACTOR}.use_kl_loss"), read.switch("algorithm.use_kl_in_reward")
    if in_loss:
        return read.number(f"{ACTOR}.kl_loss_coef")
    if in_reward:
        return read.number("algorithm.kl_ctrl.kl_coef")
    return None if in_loss is None or in_reward is None else 0.0


def _penalised(read: Settings) -> bool | None:
    """Say whether a penalty for length acts: switched on, and read by what scores responses."""
    on = [read.switch(place) for place in OVERLONG if place in read.own]
    if not any(on):
        return None
    return None if read.switch(OVERLONG[3]) else manager_of(read) != "naive"


def _top_k(read: Settings) -> int | None:
    found = read.whole(f"{ROLLOUT}.top_k")
    return 0 if found == -1 else found


def _corrects(read: Settings) -> bool | None:
    name = "algorithm.rollout_correction.rollout_is"
    if read.number(f"{ACTOR}.tis_imp_ratio_cap"):
        return True
    return None if name not in read.own and not read.defaults else not read.off(name)


def _logs(read: Settings) -> bool | None:
    name = "trainer.rollout_data_dir"
    return None if name not in read.own and not read.defaults else not read.off(name)


def _theirs(own: Mapping[str, Any]) -> dict[str, str]:
    found = {knob: spelled(name, own[name]) for knob, name in FIELDS.items() if name in own}
    steps = Settings(own).says("data.train_batch_size", f"{ACTOR}.ppo_mini_batch_size", f"{ACTOR}.ppo_epochs")
    return found | ({"updates": steps} if steps else {})


SETTINGS = VerlSettings()
"""The dialect of the catalogue."""
