"""What the columns of a foreign table are: obvious names, mappings, misspellings."""

from __future__ import annotations

import pytest

from breadth.adapters.generic.layout import (
    chart_names,
    check_mapping,
    choose_layout,
    content_of_mapping,
    infer_layout,
)
from breadth.base.errors import SettingsError


def numbers(*names: str) -> dict[str, bool]:
    return dict.fromkeys(names, True)


@pytest.mark.parametrize(
    ("columns", "content", "expected"),
    [
        (("step", "loss"), "metrics", {"step": "step"}),
        (("_step", "_timestamp", "_runtime", "train/reward"), "metrics", {"_step": "step", "_timestamp": "time"}),
        (("_step", "train/global_step", "reward"), "metrics", {"train/global_step": "step"}),
        (("Step", "run - reward"), "metrics", {"Step": "step"}),
        (("iteration", "timestamp", "reward"), "metrics", {"iteration": "step", "timestamp": "time"}),
        (
            ("question_id", "sample_index", "answer", "correct", "n_tokens"),
            "rollouts",
            {
                "question_id": "problem",
                "sample_index": "sample",
                "answer": "answer",
                "correct": "correct",
                "n_tokens": "tokens",
            },
        ),
        (
            ("prompt", "response", "reward", "step"),
            "rollouts",
            {"step": "step", "prompt": "prompt", "response": "completion", "reward": "reward"},
        ),
        (("problem", "predicted_answer", "answer"), "rollouts", {"problem": "prompt", "predicted_answer": "answer"}),
        (
            ("task_id", "completion", "passed"),
            "rollouts",
            {"task_id": "problem", "completion": "completion", "passed": "correct"},
        ),
    ],
)
def test_obvious_names(columns: tuple[str, ...], content: str, expected: dict[str, str]) -> None:
    layout = infer_layout(numbers(*columns))
    assert layout is not None
    assert layout.content == content
    assert layout.columns == expected


@pytest.mark.parametrize(
    "columns",
    [("a", "b"), ("step",), ("step", "time"), ("wait", "accuracy"), ("reward", "loss"), ("completion", "reward")],
)
def test_tables_that_say_nothing(columns: tuple[str, ...]) -> None:
    assert infer_layout(numbers(*columns)) is None


def test_a_step_with_nothing_but_text_is_no_metric() -> None:
    assert infer_layout({"step": True, "spans": False}) is None


def test_answer_beside_a_completion_is_the_reference() -> None:
    layout = choose_layout(["prompt", "completion", "answer"], {}, "rollouts")
    assert layout.columns["answer"] == "reference"
    assert "map answer=answer" in layout.guess
    mapped = choose_layout(["prompt", "completion", "answer"], {"answer": "answer"}, "rollouts")
    assert mapped.columns["answer"] == "answer"
    assert mapped.guess == ""
    known = choose_layout(["prompt", "completion", "answer", "ground_truth"], {}, "rollouts")
    assert (known.columns["answer"], known.columns["ground_truth"]) == ("answer", "reference")


def test_a_mapping_comes_before_obvious_names() -> None:
    layout = choose_layout(
        ["step", "iteration", "reward", "score"], {"step": "iteration", "reward": "score"}, "metrics"
    )
    assert layout.columns == {"iteration": "step", "score": "reward"}
    assert layout.their_name("step") == "iteration"
    assert layout.their_name("time") is None


def test_a_mapping_says_what_it_describes() -> None:
    assert content_of_mapping({"step": "i", "reward": "r"}) == "metrics"
    assert content_of_mapping({"reward": "r", "problem": "q"}) == "rollouts"
    assert content_of_mapping({"completion": "text"}) == "rollouts"


def test_a_column_the_file_has_not() -> None:
    with pytest.raises(SettingsError, match=r"reward=scor, but the file has no column 'scor'") as error:
        choose_layout(["iteration", "score"], {"reward": "scor"}, "metrics")
    assert "Did you mean 'score'?" in error.value.remedy


def test_a_name_that_is_not_ours() -> None:
    with pytest.raises(SettingsError, match="'rewrd'") as error:
        check_mapping({"rewrd": "score"})
    assert "Did you mean 'reward'?" in error.value.remedy
    check_mapping({"reward/format": "f", "time": "t", "zero_variance_groups": "z", "prompt": "p"})


def test_rollouts_need_a_problem() -> None:
    with pytest.raises(SettingsError, match="which problem") as error:
        choose_layout(["text", "score"], {"completion": "text", "reward": "score"}, "rollouts")
    assert "problem=COLUMN" in error.value.remedy


def test_charts() -> None:
    columns = ["lr-3 - train/reward", "lr-3 - train/reward__MIN", "lr-3 - train/reward__MAX"]
    assert chart_names(columns) == {columns[0]: ("lr-3", "train/reward")}
    assert chart_names([*columns, "loss"]) == {}
    assert chart_names([]) == {}


def test_coarse_steps_count_only_beside_a_metric_of_ours() -> None:
    layout = infer_layout({"epoch": True, "avg_reward": True})
    assert layout is not None
    assert layout.their_name("step") == "epoch"
    assert infer_layout({"episode": True, "price": True}) is None
    found = infer_layout({"epoch": True, "system/step": True, "actor/entropy": True})
    assert found is not None
    assert found.their_name("step") == "system/step"


def test_numbers_of_training_without_a_step_are_rows_in_order() -> None:
    found = infer_layout(numbers("reward", "loss", "kl", "x"))
    assert found is not None
    assert found.content == "metrics"
    assert infer_layout({**numbers("reward", "loss", "kl"), "note": False}) is None
    batches = infer_layout(numbers("batch_index", "reward_mean"))
    assert batches is not None
    assert batches.columns == {"batch_index": "step"}
