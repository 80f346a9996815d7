"""Read what tinker-cookbook writes: ``metrics.jsonl`` and ``*_rollout_summaries.jsonl``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from breadth.adapters.heads import first_objects, leading_keys
from breadth.adapters.printed import MetricReader, as_number, as_step
from breadth.adapters.scalars import in_order, is_held_out, metric_rows
from breadth.adapters.tinker.summaries import SUMMARY_KEYS, read_summaries
from breadth.runs.lines import json_rows
from breadth.runs.names import match
from breadth.runs.records import MetricRow, Record, Remark, SeenEntropy
from breadth.runs.schema import EntropyKind

METRICS = "metrics"
SUMMARIES = "rollout summaries"
STEPS = ("step", "progress/step", "progress/batch", "training_client/step")
"""Where a row keeps its step, best first."""
TIME = "timestamp"
MARKS = frozenset({*STEPS[1:], "progress/done_frac", "optim/entropy", "optim/kl_sample_train_v1"})
"""Names that only the cookbook's loops (and loops grown from them) log."""
PREFIX = "env/all/"
OWN_ENTROPY = "optim/entropy"
MIXED = "env/all/by_group/frac_mixed"
OPAQUE = ("time", "data", "metrics")
"""Keys of other trainers' rows: prime-rl's clock, and the nested tables of verl and verifiers."""


@dataclass(frozen=True)
class TinkerFiles:
    """Reads tinker-cookbook's log folder (also that of loops grown from it).

    Rows of ``metrics.jsonl`` are flat; what an evaluator logs under ``test/`` or ``eval/`` becomes an eval row. The share
    of groups without mixed rewards (1 - ``by_group/frac_mixed``) is added as ``starved_groups``.

    A rollout summary names no problem. In an evaluation the groups stand in the order of the data set, so ``eval/math/7``
    is the same problem at every step; in training ``train/12/7`` (iteration 12, group 7) is told apart from every other
    group, even where the data set comes round again.
    """

    trainer = "tinker"
    """Name in the catalogue."""
    entropy = EntropyKind("sampled", None, "token-mean", "response")
    """``optim/entropy``: minus the mean log-probability of the sampled action tokens, over the whole batch.

    Loops grown from the cookbook log numbers of their own (``policy/entropy``): those say nothing about their estimator.
    """
    switches = MappingProxyType(
        {
            "rollouts": "tinker_cookbook.rl.train.Config(rollout_json_export=True)",
            "entropy": "train with tinker_cookbook.rl.train.main: it logs optim/entropy at every step",
            "kl_reference": "tinker_cookbook.rl.train.Config(kl_penalty_coef=0.01, kl_reference_config=KLReferenceConfig(...))",
        }
    )
    """What to set in ``tinker_cookbook.rl.train.Config``."""

    def recognises(self, path: Path, start: bytes) -> str | None:  # noqa: ARG002 - the protocol passes it
        """Tell the two kinds apart by the keys of the first rows."""
        if leading_keys(start) >= SUMMARY_KEYS:
            return SUMMARIES
        rows = first_objects(start)
        return METRICS if rows and any(_is_metrics(row) for row in rows) else None

    def current(self, files: Sequence[Path]) -> Sequence[Path]:
        """Keep all: the cookbook appends to one metrics file and writes each iteration's summaries once."""
        return files

    def read(self, path: Path, kind: str) -> Iterator[Record]:
        """Yield what the file holds, in order."""
        return read_summaries(path) if kind == SUMMARIES else _read_metrics(path)


def _is_metrics(row: Mapping[str, Any]) -> bool:
    named = not MARKS.isdisjoint(row) or any(name.startswith(PREFIX) for name in row)
    return named and not any(key in row for key in OPAQUE)


def _read_metrics(path: Path) -> Iterator[Record]:
    reader = MetricReader()
    entropies: set[str] = set()
    for block in json_rows(path):
        if isinstance(block, Remark):
            yield block
            continue
        for number, row in block:
            entropies.update(name for name in row if _is_entropy(name))
            yield from _rows(row, reader, number)
    yield from reader.remarks(path)
    if entropies and OWN_ENTROPY not in entropies:
        yield SeenEntropy(EntropyKind())
        yield _unknown_estimator(path, min(entropies))


def _rows(row: Mapping[str, Any], reader: MetricReader, number: int) -> list[MetricRow]:
    key = next((key for key in STEPS if as_step(row.get(key)) is not None), None)
    values = reader.numbers({name: value for name, value in row.items() if name not in (key, TIME)}, number)
    if MIXED in values:
        values["starved_groups"] = 1 - values[MIXED]
    return metric_rows(in_order(values, (PREFIX,)), as_step(row[key]) if key else None, as_number(row[TIME]) if TIME in row else None)


def _is_entropy(name: str) -> bool:
    """Say whether a name of training (not of an evaluation) would be taken for the policy's entropy."""
    found = match(name)
    return found is not None and found[0] == "entropy" and not is_held_out(name)


def _unknown_estimator(path: Path, name: str) -> Remark:
    return Remark(
        f"the entropy here is {name!r}, a number of the user's own loop (the cookbook logs {OWN_ENTROPY!r}): how it was estimated "
        "and averaged is not recorded, so it can be compared within this run only.",
        str(path),
        None,
        "Say in the loop's code what it is: minus the log-probability of sampled tokens, or exact; per token, or per sequence.",
    )


FILES = TinkerFiles()
"""The importer in the catalogue."""
