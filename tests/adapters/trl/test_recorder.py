"""The recorder: a generation is written once all of its tokens were seen, or as it is when the next begins."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from breadth.adapters.trl.convert import ScoredCompletions
from breadth.adapters.trl.recorder import Recorder
from breadth.runs.reader import Run
from breadth.training.chain import Chain
from breadth.training.loss.clipped_policy import ClippedPolicy
from breadth.training.records import Rollouts

ARGUMENTS = SimpleNamespace(temperature=0.8, to_dict=lambda: {"learning_rate": 1e-6, "beta": 0.0, "run_name": None})


def generation(first: int = 0) -> tuple[ScoredCompletions, Rollouts]:
    rewards = torch.tensor([[1.0, 0.5], [float("nan"), 0.0]])
    gathered = torch.cat([torch.zeros(first, 2), rewards])
    scored = ScoredCompletions(["what?", "what?"], ["a", "b"], [[2, 3, 1], [4, 1]], gathered)
    rollouts = Rollouts(
        rewards=torch.tensor([1.5, float("nan")]),
        groups=torch.tensor([0, 0]),
        lengths=torch.tensor([3, 2]),
        advantages=torch.tensor([0.7, 0.0]),
        correct=torch.tensor([1.0, float("nan")]),
        outcomes=["7", None],
        truncated=torch.tensor([False, True]),
    )
    return scored, rollouts


def rows(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = Run.open(folder).query("select * from rollouts order by step, sample").to_pylist()
    return found


def test_a_generation_is_written_when_its_last_token_was_seen(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, ARGUMENTS, Chain((ClippedPolicy(),)), rank=0)
    recorder.open(5, *generation(), ["accuracy", "length"], first=0)
    values = torch.tensor([[0.1, 0.2, 0.3]])
    recorder.tokens(torch.tensor([1]), torch.tensor([[True, False, False]]), -values, values)
    assert not list((tmp_path / "rollouts").iterdir())
    recorder.tokens(torch.tensor([0]), torch.tensor([[True, True, True]]), -2 * values, 2 * values)
    recorder.tokens(
        torch.tensor([0]), torch.tensor([[True, True, True]]), values, 9 * values
    )  # a second pass over the same rollouts
    first, second = rows(tmp_path)
    assert first["step"] == 5
    assert first["entropy"] == pytest.approx([0.2, 0.4, 0.6])
    assert first["logprobs"] == pytest.approx([-0.2, -0.4, -0.6])
    assert first["reward"] == 1.5
    assert first["reward/length"] == 0.5
    assert first["correct"] is True
    assert first["answer"] == "7"
    assert second["entropy"] == pytest.approx([0.1, 0.2])  # two tokens: the third is padding
    assert second["mask"] == [True, False]
    assert second["reward"] is None
    assert second["correct"] is None
    assert second["truncated"] is True
    assert second["token_ids"] == [4, 1]


def test_an_unfinished_generation_is_kept_without_the_tokens_nobody_saw(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, ARGUMENTS, Chain((ClippedPolicy(),)), rank=1)
    recorder.open(1, *generation(first=2), ["accuracy", "length"], first=2)
    recorder.tokens(torch.tensor([3]), torch.ones(1, 3, dtype=torch.bool), torch.zeros(1, 3), torch.ones(1, 3))
    recorder.open(2, *generation(first=2), ["accuracy", "length"], first=2)
    recorder.close()
    recorder.close()
    found = rows(tmp_path)
    assert [(row["step"], row["sample"], row["entropy"]) for row in found] == [
        (1, 2, None),
        (1, 3, [1.0, 1.0]),
        (2, 2, None),
        (2, 3, None),
    ]
    assert [row["reward/length"] for row in found] == [0.5, 0.0, 0.5, 0.0]


def test_the_header_says_which_entropy_and_which_chain(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, ARGUMENTS, Chain((ClippedPolicy(high=0.28),)), rank=0)
    recorder.metrics(3, {"loss": 0.5, "entropy": 0.25, "epoch": "no number"})
    run = Run.open(tmp_path)
    kind = run.header.entropies["entropy"]
    assert (kind.estimator, kind.temperature, kind.aggregation) == ("exact", 0.8, "token-mean")
    assert run.header.config["breadth"]["mechanisms"][0]["high"] == 0.28
    assert run.header.config["trl"]["learning_rate"] == 1e-6
    assert run.metric_names() != ()


def test_an_evaluation_is_written_as_held_out_by_plain_names(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, ARGUMENTS, Chain((ClippedPolicy(),)), rank=0)
    recorder.metrics(3, {"reward": 0.5})
    recorder.metrics(3, {"eval_reward": 0.25, "epoch": 1.0})
    recorder.metrics(
        3, {"train_loss": 0.1}
    )  # TRL's last line, after which the model may still be as the evaluation left it
    run = Run.open(tmp_path)
    assert run.series("reward").values.tolist() == [0.5]
    assert run.series("reward", "eval").values.tolist() == [0.25]
    assert run.series("train_loss").values.tolist() == [0.1]


def test_two_generations_of_one_step_do_not_share_their_groups(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, ARGUMENTS, Chain((ClippedPolicy(),)), rank=0)
    for step in (1, 1, 2):
        recorder.open(step, *generation(), ["accuracy", "length"], first=0)
    recorder.close()
    assert sorted({row["group"] for row in rows(tmp_path)}) == ["1-0", "1.1-0", "2-0"]


def test_a_rollout_without_a_token_that_counts_has_no_entropies(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, ARGUMENTS, Chain((ClippedPolicy(),)), rank=0)
    recorder.open(1, *generation(), ["accuracy", "length"], first=0)
    mask = torch.tensor([[False, False, False], [True, True, False]])
    recorder.tokens(torch.tensor([0, 1]), mask, torch.zeros(2, 3), torch.zeros(2, 3))
    assert [(row["mask"], row["entropy"], row["logprobs"]) for row in rows(tmp_path)] == [
        ([False] * 3, None, None),
        ([True, True], [0.0, 0.0], [0.0, 0.0]),
    ]


def test_a_problem_is_handed_to_the_writer_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder(tmp_path, ARGUMENTS, Chain((ClippedPolicy(),)), rank=0)
    handed: list[dict[str, Any]] = []
    monkeypatch.setattr(recorder.writer, "problems", handed.append)
    for step in (1, 2):
        recorder.open(step, *generation(), ["accuracy", "length"], first=0)
    assert [one["prompt"] for one in handed] == [["what?"]]
