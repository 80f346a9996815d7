"""TRL's GRPO configuration read and translated; what it says against itself and how changes are worded stand beside it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from breadth.adapters.calls import LARGEST_NOTEBOOK, REST, call_keywords
from breadth.adapters.configs import EXPONENT, Settings, nearest, spelled, table_of
from breadth.adapters.scripts import script_arguments
from breadth.adapters.trl.defaults import CHANGED, DEFAULTS, FIELDS, OLDER, SIBLINGS, SYNONYMS, TELLING
from breadth.adapters.trl.linting import clashes, idle_settings
from breadth.adapters.trl.wording import worded
from breadth.base.errors import BrokenFileError
from breadth.bridge.doctor.finding import Change
from breadth.bridge.doctor.knobs import Knobs

CALLS = frozenset({"GRPOConfig"})
"""Classes whose keywords are settings."""
CLIPPED: Mapping[str, bool] = {
    **dict.fromkeys(("grpo", "bnpo", "dr_grpo", "dapo", "luspo", "cispo"), True),
    **dict.fromkeys(("sapo", "vespo"), False),
}
"""TRL's losses -> whether they clip the ratio."""
SIGNS = tuple(re.compile(rb"\b" + name.replace("_", "[_-]").encode() + rb"\b[\"']?\s*[:= ]") for name in TELLING)
"""How a file looks that sets one of the settings that tell."""
SCRIPTS = (".sh", ".bash", ".txt")


@dataclass(frozen=True)
class TrlSettings:
    """Reads ``GRPOConfig(...)`` in Python files and notebooks, YAML and JSON tables, and arguments of a launch script."""

    trainer = "trl"
    """Name in the catalogue."""

    def recognises(self, path: Path, start: bytes) -> bool:
        """Tell by a call of GRPOConfig, or by two settings that only GRPO of TRL has."""
        if path.suffix == ".py":
            return b"GRPOConfig(" in start
        if path.suffix == ".ipynb":
            return _anywhere(path, start, b"GRPOConfig(")
        if b"actor_rollout_ref" in start or b'"log_history"' in start:
            return False
        if path.suffix in SCRIPTS and re.search(rb"\btrl\s+grpo\b", start):
            return True
        return sum(sign.search(start) is not None for sign in SIGNS) >= 2

    def read(self, path: Path) -> Mapping[str, Any]:
        """Return the settings of a file; of nested tables those that GRPOConfig knows, wherever they stand."""
        if path.suffix in (".py", ".ipynb"):
            return call_keywords(path, CALLS)
        if path.suffix in SCRIPTS:
            return script_arguments(path)
        found = table_of(path)
        if not isinstance(found, Mapping):
            raise BrokenFileError(path, "holds no table of settings.", "Give what GRPOConfig is made from.")
        return nearest(found)

    def knobs(self, config: Mapping[str, Any]) -> Knobs:
        """Translate; what is computed, or of another type than it should be, is not known."""
        everything = nearest(config)
        read = Settings(everything, _defaults(everything))
        given = Settings(_given(everything), read.defaults)
        loss = read.text("loss_type")
        adaptive = read.switch("use_adaptive_entropy")
        return Knobs(
            group=read.whole("num_generations"),
            prompts=_prompts(read),
            updates=_updates(read),
            micro_batch=read.whole("per_device_train_batch_size"),
            accumulation=read.whole("gradient_accumulation_steps"),
            learning_rate=read.number("learning_rate"),
            estimator="grpo",
            clip_low=None if loss == "cispo" else read.number("epsilon"),
            clip_high=_clip_high(read, loss),
            clips=CLIPPED.get(loss) if loss is not None else None,
            dual_clip=read.number("delta"),
            sequence_ratio=_sequence(read),
            kl=read.number("beta"),
            kl_given=given.number("beta") if "beta" in given.own else None,
            entropy_bonus=read.number("entropy_coef"),
            entropy_adaptive=adaptive,
            entropy_target=read.number("entropy_target") if adaptive or "entropy_target" in given.own else None,
            entropy_share=read.number("top_entropy_quantile"),
            loss=loss,
            covariance="",
            aggregation=loss,
            temperature=read.number("temperature"),
            top_p=read.number("top_p"),
            top_k=read.whole("top_k"),
            min_p=read.number("min_p"),
            repetition_penalty=read.number("repetition_penalty"),
            longest=read.whole("max_completion_length"),
            longest_prompt=read.whole("max_prompt_length"),
            context=read.whole("vllm_max_model_length"),
            mask_truncated=read.switch("mask_truncated_completions"),
            length_penalty=_penalised(read),
            filter_flat=False,
            shaped_reward=_shaped(read),
            correct_mismatch=read.switch("vllm_importance_sampling_correction") if read.switch("use_vllm") else None,
            engine={True: "vllm", False: "hf", None: None}[read.switch("use_vllm")],
            logs_rollouts=read.switch("log_completions"),
            idle=tuple(idle_settings(given)),
            clashes=tuple(clashes(read, given)),
            texts=_texts(given.own),
            theirs=_theirs(given.own),
        )

    def patch(self, changes: Sequence[Change], knobs: Knobs) -> tuple[str, ...]:
        """Word changes as keywords of GRPOConfig, or as our two lines where TRL has no setting."""
        return worded(changes, knobs)


def _anywhere(path: Path, start: bytes, sign: bytes) -> bool:
    """Look through a whole notebook: pictures may stand before the cell in question."""
    if sign in start:
        return True
    try:
        with path.open("rb") as file:
            before = b""
            while file.tell() < LARGEST_NOTEBOOK and (piece := file.read(1 << 20)):
                if sign in before[-len(sign) :] + piece:
                    return True
                before = piece
    except OSError:
        return False
    return False


def _defaults(own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the defaults that hold for what a file leaves out.

    None where it sets nothing of GRPO's, or hands on what cannot be seen; not those that earlier versions had otherwise, where it has
    settings of those; and not those of a setting that it has under a name of its own.
    """
    if REST in own or not TELLING & own.keys():
        return {}
    foreign = [key for key in own if key not in DEFAULTS and key not in SIBLINGS]
    renamed = {name for name in DEFAULTS if any(name in key or key in SYNONYMS.get(name, ()) for key in foreign)}
    unsure = renamed | (CHANGED if OLDER & own.keys() else set())
    return {name: value for name, value in DEFAULTS.items() if name not in unsure}


def _given(own: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what the user set: of the arguments as the trainer saved them, all of them, only what is no default."""
    if sum(name in own for name in DEFAULTS) < 0.8 * len(DEFAULTS):
        return own
    derived = {"generation_batch_size"} | ({"steps_per_generation"} if own.get("steps_per_generation") == _accumulated(own) else set())
    return {name: value for name, value in own.items() if DEFAULTS.get(name, REST) != value and name not in derived}


def _accumulated(own: Mapping[str, Any]) -> Any:
    return own.get("gradient_accumulation_steps", DEFAULTS["gradient_accumulation_steps"])


def _updates(read: Settings) -> float | None:
    """Return optimizer steps a generation: steps_per_generation / gradient_accumulation_steps * num_iterations.

    Where a generation is begun in the midst of an optimizer step, some of its rollouts outlive it: then that is no whole story.
    """
    accumulated, iterations = read.number("gradient_accumulation_steps"), read.number("num_iterations")
    steps = read.number("steps_per_generation")
    if steps is None and read.own.get("steps_per_generation") is None and read.own.get("generation_batch_size") is None:
        steps = accumulated
    if not steps or not accumulated or not iterations:
        return None
    every = steps * iterations
    return None if every < accumulated and accumulated % every else every / accumulated


def _prompts(read: Settings) -> int | None:
    rollouts, group = read.whole("generation_batch_size"), read.whole("num_generations")
    return rollouts // group if rollouts and group and rollouts % group == 0 else None


def _clip_high(read: Settings, loss: str | None) -> float | None:
    """Return how far the ratio may rise; with cispo TRL's epsilon_high is the largest ratio itself."""
    name = "epsilon" if read.own.get("epsilon_high") is None else "epsilon_high"
    bound = read.number(name)
    return bound - 1 if bound is not None and loss == "cispo" else bound


def _sequence(read: Settings) -> bool | None:
    level = read.text("importance_sampling_level")
    return None if level is None else level == "sequence"


def _shaped(read: Settings) -> bool | None:
    """Tell by weights or names of several rewards; reward functions that a script hands over are not seen."""
    weights, names = read.own.get("reward_weights"), read.own.get("reward_funcs")
    if isinstance(weights, list):
        return sum(bool(weight) for weight in weights) > 1
    return True if isinstance(names, list) and len(names) > 1 else None


def _penalised(read: Settings) -> bool | None:
    names = read.own.get("reward_funcs")
    known = [str(name) for name in names] if isinstance(names, list) else []
    penal = [name for name in known if "overlong" in name or ("len" in name and ("penal" in name or "punish" in name))]
    return True if penal else None


def _texts(own: Mapping[str, Any]) -> dict[str, str]:
    named = {name for name in own if name in DEFAULTS or name in FIELDS.values()}
    return {name: own[name] for name in sorted(named) if isinstance(own[name], str) and EXPONENT.fullmatch(own[name])}


def _theirs(own: Mapping[str, Any]) -> dict[str, str]:
    found = {knob: spelled(name, own[name]) for knob, name in FIELDS.items() if name in own}
    steps = Settings(own).says("num_iterations", "steps_per_generation", "gradient_accumulation_steps")
    return found | ({"updates": steps} if steps else {})


SETTINGS = TrlSettings()
"""The dialect of the catalogue."""
