"""Read what prime-rl writes (metrics, episodes, token exports) and what verifiers' own evaluations save."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from breadth.adapters.parse_values import (
    MIN_UNIX_TIME,
    MetricReader,
    StepMerger,
    as_number,
    as_step,
    metric_rows,
    order_by_prefix,
)
from breadth.adapters.prime_rl.rollouts import read_episodes, read_results, read_token_export
from breadth.runs.importer import first_objects, leading_keys
from breadth.runs.jsonl import read_json_rows
from breadth.runs.schema import EntropyKind, MetricRow, Record, Remark

CLOCK_KEYS = ("step", "time")
PREFERRED_PREFIXES = ("train/agg/effective/", "train/agg/all/", "train/agg/")
"""All environments before single ones, and of those the rollouts trained on: failed ones count as zero reward."""
ORCHESTRATOR_NAMES = frozenset({"time/wait_for_policy", "time/wait_for_ckpt"})
SHARED_NAMES = ("time/step", "time/save_ckpt")
"""Names that trainer and orchestrator both log, for different things."""


def read_metrics(path: Path) -> Iterator[Record]:
    """Yield one row per step (and one for its evaluations), merged from trainer and orchestrator."""
    reader, merger = MetricReader(), StepMerger()
    for block in read_json_rows(path):
        if isinstance(block, Remark):
            yield block
            continue
        for number, row in block:
            for part in rows_of_record(row, reader, number):
                yield from map(order_metrics, merger.add(part))
    yield from map(order_metrics, merger.flush())
    yield from reader.remarks(path)


def rows_of_record(row: Mapping[str, Any], reader: MetricReader, number: int) -> list[MetricRow]:
    """Return the metric rows of one logged row; names that both processes log get the orchestrator's prefix."""
    values = reader.numbers({name: value for name, value in row.items() if name not in CLOCK_KEYS}, number)
    if not ORCHESTRATOR_NAMES.isdisjoint(row):
        values = {f"orchestrator/{name}" if name in SHARED_NAMES else name: value for name, value in values.items()}
    return metric_rows(values, as_step(row.get("step")), as_number(row["time"]) if "time" in row else None)


def order_metrics(row: MetricRow) -> MetricRow:
    """Return a row with the preferred names first."""
    return MetricRow(order_by_prefix(row.values, PREFERRED_PREFIXES), row.step, row.time, row.split)


METRICS_KIND = "metrics"
EPISODES_KIND = "episodes"
RESULTS_KIND = "evaluation results"
TOKENS_KIND = "token export"
EPISODE_KEYS = frozenset({"id", "env", "task", "traces"})
RESULT_KEYS = frozenset({"example_id", "prompt", "completion"})
TOKEN_KEYS = frozenset({"schema_version", "micro_step", "micro_sequence_idx", "token_ids"})
METRIC_PREFIXES = (
    "dispatcher/",
    "entropy/all/",
    "inference/agg/",
    "is_truncated/all/",
    "kl_ent_ratio/",
    "masked_advantage_",
    "mismatch_kl/",
    "off_policy/",
    "perf/mfu",
    "perf/throughput",
    "progress/total_tokens",
    "reward/all/",
    "seq_len/all/",
    "time/forward_backward",
    "time/wait_for_",
    "train/agg/",
)
"""Prefixes of names that only prime-rl logs."""


@dataclass(frozen=True)
class PrimeRlImporter:
    """Reads prime-rl's run folder and verifiers' evaluation results.

    - ``metrics.jsonl``: trainer and orchestrator append to one file, some steps apart; rows of one step are merged.
    - ``rollouts/step_N/{train,eval}/{all,effective}/traces.jsonl``: verifiers episodes; each trace of a trained agent
      is a rollout. The problem is the environment and the task's key. ``effective`` repeats part of ``all``.
    - ``token_exports/step_N/rank_R.jsonl``: per-token columns. An export names no task and has no text, so its problem
      is the environment and a hash of the prompt's tokens: groups stay together, but its rows cannot be matched with
      the episodes of the same step. Import one or the other.
    - ``results.jsonl`` of ``vf-eval``: held-out rollouts with the reference answer.
    """

    trainer = "prime-rl"
    """Name in the catalogue."""
    entropy = EntropyKind("exact", None, "token-mean", "response")
    """Over the whole vocabulary, at each token's sampling temperature, averaged over the tokens that are trained on."""
    switches = MappingProxyType(
        {
            "rollouts": (
                "[monitors.file] in the TOML (on unless --no-monitors.file); in verifiers: vf-eval --save-results"
            ),
            **dict.fromkeys(
                ("token_ids", "logprobs", "old_logprobs", "advantages", "mask"), "trainer.enable_token_export = true"
            ),
        }
    )
    """What to set in the run's TOML."""

    def recognises(self, path: Path, start: bytes) -> str | None:  # noqa: ARG002 - the protocol passes it
        """Recognise the kinds by the keys of the first row, metrics by names that only prime-rl logs."""
        keys = leading_keys(start)
        if keys >= TOKEN_KEYS:
            return TOKENS_KIND
        if keys >= EPISODE_KEYS - (
            {"traces"} if b"\n" not in start else set()
        ):  # a long task may push them out of sight
            return EPISODES_KIND
        if keys >= RESULT_KEYS:
            return RESULTS_KIND
        return METRICS_KIND if any(is_metric_row(row) for row in first_objects(start)) else None

    def current(self, files: Sequence[Path]) -> Sequence[Path]:
        """Drop the effective episodes of a step if all episodes of that step are there."""
        there = set(files)
        return [
            file
            for file in files
            if file.parent.name != "effective" or file.parent.with_name("all") / file.name not in there
        ]

    def read(self, path: Path, kind: str) -> Iterator[Record]:
        """Yield what the file holds, in order."""
        readers = {
            METRICS_KIND: read_metrics,
            EPISODES_KIND: read_episodes,
            RESULTS_KIND: read_results,
            TOKENS_KIND: read_token_export,
        }
        return readers[kind](path)


def is_metric_row(row: Mapping[str, Any]) -> bool:
    """Whether a row has prime-rl's clock and one of its names."""
    clock = as_number(row.get("time"))
    ours = as_step(row.get("step")) is not None and clock is not None and clock > MIN_UNIX_TIME
    return ours and any(name.startswith(METRIC_PREFIXES) for name in row)


IMPORTER = PrimeRlImporter()
"""The importer in the catalogue."""
