"""The loss stage inside a verl worker: a chain as verl's policy loss, and its state in verl's checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import orjson
from torch import Tensor
from verl.utils.device import get_device_name, get_torch_device
from verl.workers.config import PolicyLossConfig
from verl.workers.utils.losses import ppo_loss
from verl.workers.utils.padding import no_padding_2_padding

from breadth.adapters.verl.conflicts import refuse_without_trainer
from breadth.adapters.verl.registration import LOSS_MODE, LOSS_SETTINGS_PATH, register_loss
from breadth.base.errors import BrokenFileError, MechanismError, SettingsError
from breadth.base.system import atomic_file
from breadth.training import reduction
from breadth.training.chain import Chain
from breadth.training.mechanism import Stage
from breadth.training.objective import Objective
from breadth.training.ops import masked_mean
from breadth.training.recipes import RECIPES, resolve_chain
from breadth.training.records import Batch
from breadth.training.reduction import Totals

LOSS_TARGET = "breadth.adapters.verl.loss.BreadthLoss"
"""Value of ``_target_`` in the policy-loss settings."""


@dataclass
class BreadthLoss(PolicyLossConfig):  # type: ignore[misc]  # verl is untyped
    """verl's settings of the policy loss, with the chain to run.

    Constructing it reads the chain and registers the loss, even if verl did not load the plug-in.
    """

    chain: str = ""
    """Name of a recipe, path of a chain's TOML file, or the TOML text itself; every process of the run reads it."""

    def __post_init__(self) -> None:
        load_chain(self.chain)
        if self.loss_mode == LOSS_MODE:
            register_loss()


def chain_from_settings(policy_loss: Any) -> Chain:
    """Return the chain that verl's policy-loss settings name, as a dataclass or as Hydra's table."""
    text = policy_loss.get("chain", None)
    if text is None:
        raise SettingsError(
            f"{LOSS_SETTINGS_PATH} names no chain.",
            f"Add {LOSS_SETTINGS_PATH}._target_={LOSS_TARGET} and"
            f" +{LOSS_SETTINGS_PATH}.chain=<recipe, or path of a chain's TOML file>.",
        )
    return load_chain(str(text))


@lru_cache
def load_chain(text: str) -> Chain:
    """Return the chain of a recipe by name, of a TOML file by path, or of TOML text."""
    if "\n" in text:
        return Chain.loads(text)
    if text not in RECIPES and not (text and Path(text).is_file()):
        raise SettingsError(
            f"{LOSS_SETTINGS_PATH}.chain is '{text}': not a recipe, and not a file that this process can read from"
            f" {Path.cwd()}.",
            f"Give a recipe ({', '.join(RECIPES)}), or the absolute path of a chain's TOML file that every node of the"
            " run sees.",
        )
    return resolve_chain(text)


ROW_FIELD = "breadth_row"
"""Field of verl's batch with the number of each sequence in the generation; our trainer writes it."""
LOSS_FIELDS = {"old_entropy": "entropy", "reference_logprobs": "ref_log_prob", "weights": "rollout_is_weights"}
"""Our optional field -> verl's field of the training batch."""


class LossStage:
    """A chain's loss stage in one worker: its Objective, and the fields that verl does not pass to a policy loss."""

    def __init__(self, chain: Chain, replicas: int = 1) -> None:
        self.objective = Objective(loss_chain(chain))
        """Runs the mechanisms of the loss stage; the same state on every rank."""
        self.replicas = replicas
        """Ranks that hold the same sequences (Ulysses sequence parallelism); 1 for plain data parallelism."""
        self._updates = 0

    def start_generation(self) -> None:
        """Record that a new generation arrived, with log-probs of the current policy."""
        self._updates = 0

    def begin(self, data: Any) -> None:
        """Begin an optimizer step with this rank's mini-batch, as verl's worker holds it.

        A survey sees log-probs and entropies of the policy before the generation's first update: exact in that update,
        stale later.
        """
        names = [
            "response_mask",
            "old_log_probs",
            "advantages",
            *(name for name in LOSS_FIELDS.values() if name in data),
        ]
        held = data.select(*names).to_padded_tensor().to(_device())
        extra = {ours: held[theirs] for ours, theirs in LOSS_FIELDS.items() if theirs in names}
        if ROW_FIELD in data:
            extra["rows"] = data[ROW_FIELD].to(held["response_mask"].device)
        if "old_entropy" in extra:
            extra["entropy"] = extra["old_entropy"]
        window = Batch(
            held["old_log_probs"],
            held["advantages"],
            held["response_mask"].bool(),
            old_logprobs=held["old_log_probs"],
            **extra,
        )
        totals = Totals.from_mask(window.mask)
        self.objective.begin(
            window
            if self.objective.surveys
            else Totals(totals.tokens / self.replicas, totals.sequences / self.replicas)
        )

    def loss(self, batch: Batch) -> Tensor:
        """Return one micro-batch's part of the loss over all ranks."""
        return self.objective.loss(batch)

    def finish(self) -> dict[str, float]:
        """End the optimizer step; return the metrics, named as in verl's log."""
        metrics = {f"breadth/{name}": value for name, value in self.objective.finish().items()}
        if self.objective.surveys:
            metrics["breadth/stale"] = float(self._updates > 0)
        self._updates += 1
        return metrics


_PROVIDED: ContextVar[tuple[LossStage, dict[str, Tensor]] | None] = ContextVar("breadth_fed", default=None)
"""The stage of the running worker, and the fields of its micro-batch that verl does not pass to a policy loss."""


def stage_loss(model_output: Any, data: Any, dp_group: Any = None, *, config: Any, stage: LossStage) -> Any:
    """Run verl's own worker loss with the complete record: entropy with its gradient, rows, reference log-probs."""
    with provide_fields(stage, _extra_fields(model_output, data)):
        return ppo_loss(config, model_output, data, dp_group)


def policy_loss(
    old_log_prob: Tensor,
    log_prob: Tensor,
    advantages: Tensor,
    response_mask: Tensor,
    loss_agg_mode: str = "token-mean",
    config: Any = None,
    rollout_is_weights: Tensor | None = None,
) -> tuple[Tensor, dict[str, Any]]:
    """Return a micro-batch's policy loss times the data-parallel size, because verl averages gradients over it.

    In a worker of our trainer the whole loss stage runs. Elsewhere there are only the fields verl passes, and no step
    boundaries: a chain that needs more is refused, with the remedy.
    """
    provided = _PROVIDED.get()
    info = config.global_batch_info
    batch = Batch(log_prob, advantages, response_mask.bool(), old_logprobs=old_log_prob, weights=rollout_is_weights)
    if provided is None:
        objective = _stateless_objective(config.policy_loss.chain, loss_agg_mode, config.loss_scale_factor)
        objective.begin(_verl_totals(info, batch.mask), over_all_ranks=True)
        part = objective.loss(batch, record=False)
    else:
        part = provided[0].loss(replace(batch, **provided[1]))
    drift = masked_mean((old_log_prob - log_prob).detach(), batch.mask)
    return part * info.get("dp_size", 1), {"actor/ppo_kl": drift}


def loss_chain(chain: Chain) -> Chain:
    """Return the part of a chain that runs in the workers."""
    return replace(chain, mechanisms=chain.mechanisms_of(Stage.LOSS))


def count_replicas(engine: Any) -> int:
    """Return how many ranks hold the same sequences in one of verl's engines."""
    return max(1, reduction.world_size() // int(engine.get_data_parallel_size()))


@lru_cache
def _stateless_objective(text: str, loss_agg_mode: str, loss_scale_factor: int | None) -> Objective:
    chain = load_chain(text)
    chain = replace(chain, reduction=chain.reduction.with_length(loss_scale_factor)) if loss_scale_factor else chain
    refuse_without_trainer(chain, loss_agg_mode, loss_scale_factor)
    return Objective(loss_chain(chain))


def _verl_totals(info: Any, mask: Tensor) -> Totals:
    """Return verl's denominators over all ranks; its sequences include those without a counted token."""
    own = Totals.from_mask(mask)
    tokens, sequences = info.get("batch_num_tokens"), info.get("global_batch_size")
    return Totals(
        own.tokens if tokens is None else float(tokens), own.sequences if sequences is None else float(sequences)
    )


def _extra_fields(model_output: Any, data: Any) -> dict[str, Tensor]:
    given = [theirs for ours, theirs in LOSS_FIELDS.items() if theirs in data and ours != "weights"]
    held = data.select(*given).to_padded_tensor() if given else {}
    extra = {ours: held[theirs] for ours, theirs in LOSS_FIELDS.items() if theirs in given}
    if ROW_FIELD in data:
        extra["rows"] = data[ROW_FIELD]
    if model_output.get("entropy", None) is not None:
        extra["entropy"] = no_padding_2_padding(model_output["entropy"], data)
    return extra


@contextmanager
def provide_fields(stage: LossStage, extra: dict[str, Tensor]) -> Iterator[None]:
    """Provide a stage and more fields to the policy loss inside the block."""
    token = _PROVIDED.set((stage, extra))
    try:
        yield
    finally:
        _PROVIDED.reset(token)


def _device() -> str:
    return str(get_device_name()) if get_torch_device().is_available() else "cpu"


STATES_FILE = "breadth.json"
"""The file's name in ``global_step_<n>``."""


def save_states(folder: Path, states: Mapping[str, Any]) -> None:
    """Write the state of each stage atomically."""
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_file(folder / STATES_FILE) as temporary:
        temporary.write_bytes(orjson.dumps(dict(states), option=orjson.OPT_INDENT_2))


def load_states(folder: Path) -> dict[str, Any]:
    """Read the state of each stage; empty if the checkpoint was written without a chain."""
    path = folder / STATES_FILE
    if not path.exists():
        return {}
    try:
        states = orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError as error:
        raise BrokenFileError(path, f"not JSON: {error}.", "Resume from an earlier checkpoint.") from error
    if not isinstance(states, dict):
        raise BrokenFileError(path, "contains no table of states.", "Resume from an earlier checkpoint.")
    return states


def resume_objective(objective: Objective, state: Mapping[str, Any] | None) -> None:
    """Resume from a stage's saved state; without one, only a chain that keeps no state may resume."""
    if state is not None:
        objective.restore(state)
    elif remembering := [name for name, own in zip(objective.names, objective.states, strict=True) if own is not None]:
        raise MechanismError(
            f"The checkpoint has no {STATES_FILE}, but {', '.join(remembering)} keeps state between steps.",
            f"Copy {STATES_FILE} into the checkpoint's folder, or start a new run from its weights"
            " (trainer.resume_mode=disable).",
        )
