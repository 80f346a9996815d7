"""The prime-rl importer as a whole: the contract, whole run folders, what it claims, bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from breadth.adapters.prime_rl.importer import (
    EPISODES_KIND,
    IMPORTER,
    METRICS_KIND,
    RESULTS_KIND,
    TOKENS_KIND,
    read_metrics,
)
from breadth.base.errors import BreadthError, BrokenFileError
from breadth.runs.importer import all_importers, recognise
from breadth.runs.importing import import_files
from breadth.runs.reader import Run
from breadth.runs.schema import MetricRow
from breadth.testing.importers import check_importer, check_records

TIME = 1.7e9


def write(folder: Path, rows: list[dict[str, Any]]) -> Path:
    path = folder / "metrics.jsonl"
    path.write_text(
        "".join(json.dumps({"time": TIME + place, **row}) + "\n" for place, row in enumerate(rows)), encoding="utf-8"
    )
    return path


def imported(folder: Path, rows: list[dict[str, Any]]) -> Run:
    import_files([write(folder, rows)], folder / "run")
    return Run.open(folder / "run")


def trainer(step: int) -> list[dict[str, Any]]:
    return [
        {"step": step, "perf/mfu": 40.0},
        {"step": step, "optim/lr": 1e-6, "optim/grad_norm": 0.5},
        {
            "step": step,
            "entropy/all/mean": 1.0 / step,
            "entropy/sums/mean": 9.0,
            "mismatch_kl/all/mean": 0.001,
            "loss/mean": -0.1,
        },
        {"step": step, "time/step": 30.0, "time/forward_backward": 20.0},
    ]


def orchestrator(step: int) -> list[dict[str, Any]]:
    row = {
        "step": float(step),
        "train/sums/all/agent/reward/mean": 9.0,
        "train/agg/all/agent/reward/mean": 0.1 * step,
        "train/agg/effective/agent/reward/mean": 0.2 * step,
        "train/agg/effective/num_output_tokens/mean": 100.0 + step,
        "train/agg/effective/agent/is_truncated/mean": 0.25,
        "time/step": 7.0,
        "time/wait_for_policy": 1.0,
    }
    return [row]


def test_trainer_and_orchestrator_are_joined_by_step(tmp_path: Path) -> None:
    rows = orchestrator(1) + orchestrator(2)
    for step in range(1, 5):
        rows += trainer(step) + orchestrator(step + 2)
    run = imported(tmp_path, rows)
    assert run.attempts == 1
    assert [point.step for point in run.points] == [1, 2, 3, 4, 5, 6]
    assert run.series("entropy").values.tolist() == [1.0, 1 / 2, 1 / 3, 1 / 4]
    assert run.series("reward").steps.tolist() == [1, 2, 3, 4, 5, 6]
    # The orchestrator is ahead at the end, so two steps have its clock only.
    assert [remark.problem for remark in run.header.remarks] == [
        "seconds_per_step is time/step in some rows and orchestrator/time/step in others."
    ]


def test_todays_names_become_ours(tmp_path: Path) -> None:
    run = imported(tmp_path, orchestrator(1) + trainer(1))
    values = {
        name: run.series(name).values.tolist()[0]
        for name in ("reward", "length", "truncated", "entropy", "mismatch", "grad_norm", "loss")
    }
    assert values == {
        "reward": 0.2,
        "length": 101.0,
        "truncated": 0.25,
        "entropy": 1.0,
        "mismatch": 0.001,
        "grad_norm": 0.5,
        "loss": -0.1,
    }
    assert run.series("seconds_per_step").values.tolist() == [
        30.0
    ]  # the trainer's, though the orchestrator logs its own


def test_older_names_become_ours(tmp_path: Path) -> None:
    row = {
        "step": 5,
        "reward/all/mean": 0.5,
        "seq_len/all/mean": 80.0,
        "is_truncated/all/mean": 0.1,
        "entropy/all/mean": 0.3,
    }
    run = imported(tmp_path, [row])
    values = {name: run.series(name).values.tolist() for name in ("reward", "length", "truncated", "entropy")}
    assert values == {"reward": [0.5], "length": [80.0], "truncated": [0.1], "entropy": [0.3]}


def test_evaluations_of_one_step_are_one_eval_row(tmp_path: Path) -> None:
    rows = [
        *trainer(1),
        {"step": 1, "eval/aime/effective/agent/reward/mean": 0.5, "eval/aime/effective/agent/pass@8": 0.75},
        {"step": 1, "eval/sums/effective/agent/reward/mean": 0.9},
    ]
    found = [row for row in read_metrics(write(tmp_path, rows)) if isinstance(row, MetricRow) and row.split == "eval"]
    assert [(row.step, dict(row.values)) for row in found] == [
        (
            1,
            {
                "aime/effective/agent/reward/mean": 0.5,
                "aime/effective/agent/pass@8": 0.75,
                "sums/effective/agent/reward/mean": 0.9,
            },
        )
    ]
    assert imported(tmp_path, rows).attempts == 1


def test_a_restart_is_seen_and_the_newer_values_count(tmp_path: Path) -> None:
    rows = [row for step in (1, 2, 3) for row in trainer(step)]
    again = [
        {**row, **({"entropy/all/mean": 7.0} if "entropy/all/mean" in row else {})}
        for step in (2, 3)
        for row in trainer(step)
    ]
    run = imported(tmp_path, rows + again)
    assert run.attempts == 2
    assert run.series("entropy").values.tolist() == [1.0, 7.0, 7.0]


def test_gauges_logged_many_times_a_step_are_no_restart(tmp_path: Path) -> None:
    rows = [{"step": 1, "dispatcher/inflight/train": float(place)} for place in range(5)] + trainer(1)
    run = imported(tmp_path, rows)
    assert run.attempts == 1
    assert run.series("dispatcher/inflight/train").values.tolist() == [4.0]


NODES = [
    {"parent": None, "message": {"role": "user", "content": "2+2?"}, "token_ids": [1], "mask": [False]},
    {
        "parent": 0,
        "message": {"role": "assistant", "content": r"\boxed{4}"},
        "sampled": True,
        "token_ids": [2, 3],
        "mask": [True, True],
        "logprobs": [-0.5, -0.1],
    },
]
TRACE = {
    "id": "t",
    "agent": {"name": "agent", "trainable": True},
    "nodes": NODES,
    "calls": [{"node": 1, "finish_reason": "stop", "usage": {"prompt_tokens": 1, "completion_tokens": 2}}],
    "rewards": {"right": {"score": 1.0, "weight": 1.0}},
    "metrics": {"turns": 1.0},
    "info": {},
    "stop_condition": "agent_completed",
}
EPISODE = {
    "id": "e",
    "env": {"id": "sums-v1", "name": "sums"},
    "task": {"type": "Sum", "data": {"idx": 1, "prompt": "2+2?", "answer": "4"}, "key": "k1"},
    "group": {"id": "g"},
    "run": {"type": "train", "id": "r", "work": {"type": "train", "step": 1}},
    "ok": True,
    "errors": [],
    "traces": [TRACE],
}
METRIC = {
    "step": 1,
    "time": 1.7e9,
    "entropy/all/mean": 0.5,
    "reward/all/mean": 0.25,
    "seq_len/all/mean": 80.0,
    "mismatch_kl/all/mean": 0.01,
}
RESULT = {
    "example_id": 1,
    "prompt": "2+2?",
    "completion": r"\boxed{4}",
    "answer": "4",
    "reward": 1.0,
    "task": "sums",
    "metrics": {"right": 1.0},
}
EXPORT = {
    "schema_version": 1,
    "step": 1,
    "rank": 0,
    "micro_step": 0,
    "micro_sequence_idx": 0,
    "env_name": "sums",
    "token_ids": [1, 2, 3],
    "loss_mask": [False, True, True],
    "advantages": [0.0, 0.5, 0.5],
    "inference_logprobs": [0.0, -0.5, -0.1],
    "trainer_logprobs": [0.0, -0.5, -0.2],
    "entropy": [0.0, 0.7, 0.3],
}
SAMPLES: dict[str, tuple[str, dict[str, Any]]] = {
    METRICS_KIND: ("metrics.jsonl", METRIC),
    EPISODES_KIND: ("rollouts/step_1/train/all/traces.jsonl", EPISODE),
    TOKENS_KIND: ("token_exports/step_1/rank_0.jsonl", EXPORT),
    RESULTS_KIND: ("results.jsonl", RESULT),
}


def write_file(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_contract(tmp_path: Path) -> None:
    check_importer(IMPORTER, [write_file(tmp_path / name, [row, row]) for name, row in SAMPLES.values()])


@pytest.mark.parametrize("kind", SAMPLES)
def test_each_kind_is_recognised_among_all_importers(tmp_path: Path, kind: str) -> None:
    name, row = SAMPLES[kind]
    found = recognise(write_file(tmp_path / name, [row]), all_importers())
    assert (found.importer, found.kind) == (IMPORTER, kind)


def test_rows_longer_than_what_is_seen_are_recognised() -> None:
    long = json.dumps({**EPISODE, "task": {"data": {"prompt": "x" * 70_000}}}).encode()[: 1 << 16]
    assert IMPORTER.recognises(Path("traces.jsonl"), long) == EPISODES_KIND
    export = json.dumps({**EXPORT, "token_ids": list(range(20_000))}).encode()[: 1 << 16]
    assert IMPORTER.recognises(Path("rank_0.jsonl"), export) == TOKENS_KIND


@pytest.mark.parametrize(
    "foreign",
    [
        b'{"step": 1, "time": 1700000000.0, "train/loss": 0.5}\n',
        b'{"step": 1, "time": 12.5, "entropy/all/mean": 0.5}\n',
        b'{"id": 1, "env": "x", "task": "y"}\n{"id": 2}\n',
        b'{"prompt": "a", "completion": "b", "reward": 1.0}\n',
        b'{"schema_version": 1, "split": "train", "iteration": 0, "group_idx": 0, "traj_idx": 0}\n',
    ],
)
def test_other_files_are_not_claimed(foreign: bytes) -> None:
    assert IMPORTER.recognises(Path("metrics.jsonl"), foreign) is None


def test_effective_episodes_give_way_to_all_of_their_step() -> None:
    names = ["1/train/all", "1/train/effective", "1/eval/effective", "2/train/effective"]
    files = [Path(f"rollouts/step_{name}/traces.jsonl") for name in names]
    assert IMPORTER.current(files) == [files[0], files[2], files[3]]


def test_a_whole_run_folder(tmp_path: Path) -> None:
    folder = tmp_path / "outputs"
    write_file(folder / "metrics.jsonl", [{**METRIC, "step": step} for step in (1, 2)])
    for step in (1, 2):
        wrong = {**TRACE, "rewards": {"right": {"score": 0.0, "weight": 1.0}}}
        both = [EPISODE, {**EPISODE, "traces": [wrong]}]
        write_file(folder / f"rollouts/step_{step}/train/all/traces.jsonl", both)
        write_file(folder / f"rollouts/step_{step}/train/effective/traces.jsonl", both[:1])
    imported = import_files([folder], tmp_path / "run")
    assert (imported.metric_rows, imported.rollouts, imported.problems) == (2, 4, 1)
    run = Run.open(tmp_path / "run")
    assert run.header.trainer == "prime-rl"
    assert run.header.reward_levels == (0.0, 1.0)
    found = run.query(
        'SELECT step, problem, "group", answer, reward, tokens, truncated FROM rollouts ORDER BY step, reward'
    ).to_pylist()
    expected = {
        "step": 1,
        "problem": "sums/k1",
        "group": "g",
        "answer": "4",
        "reward": 0.0,
        "tokens": 2,
        "truncated": False,
    }
    assert found[0] == expected
    assert found[3] == {**expected, "step": 2, "reward": 1.0}
    assert run.query("SELECT prompt, reference, origin FROM problems").to_pylist() == [
        {"prompt": "user: 2+2?", "reference": "4", "origin": "sums"}
    ]


@pytest.mark.parametrize("kind", SAMPLES)
def test_a_folder_in_place_of_a_file_is_a_clear_error(tmp_path: Path, kind: str) -> None:
    with pytest.raises(BrokenFileError, match="is a folder"):
        list(IMPORTER.read(tmp_path, kind))


@settings(max_examples=100, deadline=None)
@given(kind=st.sampled_from(sorted(SAMPLES)), junk=st.binary(max_size=60), place=st.integers(0, 1500))
def test_any_bytes_give_records_or_our_errors(
    tmp_path_factory: pytest.TempPathFactory, kind: str, junk: bytes, place: int
) -> None:
    name, row = SAMPLES[kind]
    path = write_file(tmp_path_factory.mktemp("fuzz") / name, [row, row])
    whole = path.read_bytes()
    path.write_bytes(whole[:place] + junk + whole[place + len(junk) // 2 :])
    IMPORTER.recognises(path, path.read_bytes())
    try:
        check_records(IMPORTER.read(path, kind))
    except BreadthError:
        return


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """List every place of a nested value that may be changed."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [(*path,), *(place for key, part in inside for place in _places(part, (*path, key)))][0 if path else 1 :]


def _changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = _changed(copy[path[0]], path[1:], new)
    return copy


DEEP = ["[" * depth + "]" * depth for depth in (990, 1020)]


@pytest.mark.parametrize("kind", SAMPLES)
@pytest.mark.parametrize(
    "value", ["null", "[]", "{}", "[null]", '[{"a": []}]', '{"a": 1}', '"x"', "-1.5", "true", "NaN", '"\\ud800"', *DEEP]
)
def test_each_place_may_hold_anything(tmp_path: Path, kind: str, value: str) -> None:
    name, row = SAMPLES[kind]
    path = write_file(tmp_path / name, [])
    path.write_text(
        "\n".join(json.dumps(_changed(row, place, "HERE")).replace('"HERE"', value) for place in _places(row)),
        encoding="utf-8",
    )
    check_records(IMPORTER.read(path, kind))
