"""Flat results of vf-eval as rollouts."""

from __future__ import annotations

from breadth.adapters.prime_rl.results import result_rows

RECORD = {
    "example_id": 4,
    "prompt": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "2+2?"}],
    "completion": [{"role": "assistant", "content": "4"}],
    "answer": "4",
    "task": "gsm8k",
    "reward": 1.0,
    "is_truncated": False,
    "token_usage": {"input_tokens": 20.0, "output_tokens": 3.0},
    "metrics": {"correct_answer": 1.0},
    "correct_answer": 1.0,
    "timing": {"total_ms": 3},
    "stop_condition": "done",
}


def test_a_result() -> None:
    (row,) = result_rows(RECORD)
    assert row == {
        "metrics": {"correct_answer": 1.0},
        "stop_condition": "done",
        "task": "gsm8k",
        "problem": "gsm8k/4",
        "prompt": "system: be brief\nuser: 2+2?",
        "completion": "4",
        "reference": "4",
        "origin": "gsm8k",
        "reward": 1.0,
        "advantage": None,
        "tokens": 3.0,
        "truncated": False,
        "step": None,
    }


def test_problems_without_environment_or_number() -> None:
    assert result_rows({**RECORD, "task": None})[0]["problem"] == "4"
    nameless = {**RECORD, "example_id": None}
    assert result_rows(nameless)[0]["problem"] == result_rows({**nameless, "completion": "5"})[0]["problem"] != "4"


def test_a_rollout_that_never_began_is_none() -> None:
    assert result_rows({"example_id": 4, "prompt": None, "completion": None, "error": "boom"}) == []
