"""Windows, token sums and shares are counted by hand here, and what must not be counted is left out."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from breadth.doctor.evidence import rollouts
from breadth.doctor.evidence.record import Evidence
from breadth.doctor.evidence.rollouts import (
    completions_at_ends,
    count_recorded,
    coverage_shift,
    covers_training,
    entropy_threshold,
    evaluation_ends,
    mean_shift,
    missing_rollouts,
    token_logging_hint,
    token_sums,
    training_ends,
    truncated_entropy_ratio,
)
from breadth.runs.reader import Run
from breadth.runs.schema import Header
from breadth.runs.writer import RunWriter


def rows(count: int, **columns: Any) -> dict[str, Any]:
    return {"problem": [f"p{place}" for place in range(count)], "sample": list(range(count)), **columns}


def names(*values: str) -> Any:
    return np.array(values, dtype=object)


def test_terms_are_summed_over_the_tokens_that_count(make: Any) -> None:
    columns = {
        "entropy": [[1.0, 2.0, 4.0], [8.0], [1.0, 1.0], None, [math.nan, 3.0]],
        "logprobs": [[-1.0, -1.0, -2.0], [-3.0], [-1.0], [-1.0], [-1.0, -5.0]],
        "mask": [[True, False, True], None, None, None, None],
    }
    evidence = make(rollouts={1: rows(5, **columns), 2: rows(5, **columns)})
    ends = training_ends(evidence)
    assert ends is not None
    found = token_sums(evidence.run, ends.now, {"gap": "-logprob - entropy", "nats": "entropy"}, ("logprob", "entropy"))
    # p0 counts tokens 1 and 3; p2's lists differ in length; p3 has no entropies; of p4 only the second token is a
    # number.
    sums = dict(
        zip(found.problems.tolist(), zip(found.tokens, found.sums["gap"], found.sums["nats"], strict=True), strict=True)
    )
    assert sums == {"p0": (2, -2.0, 5.0), "p1": (1, -5.0, 8.0), "p4": (1, 2.0, 3.0)}


def test_the_edge_leaves_the_share_above_it_and_counts_lengths(make: Any) -> None:
    entropies = [[place / 100 for place in range(start, start + 50)] for start in (0, 50)]
    evidence = make(rollouts={1: rows(2, entropy=entropies), 2: rows(2, entropy=[[], None])})
    ends = training_ends(evidence)
    assert ends is not None
    edge = entropy_threshold(evidence.run, ends.start, 0.2)
    assert edge.nats == pytest.approx(0.795, abs=0.02)
    assert edge.length == 50
    assert math.isnan(entropy_threshold(evidence.run, ends.now, 0.2).nats)


def test_only_a_bounded_sample_of_rollouts_is_read_the_same_every_time(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    evidence = make(rollouts={step: rows(50, entropy=[[1.0]] * 50, completion=["x" * 100] * 50) for step in (1, 2)})
    ends = training_ends(evidence)
    assert ends is not None
    monkeypatch.setattr(rollouts, "MAX_TOKEN_ROLLOUTS", 7)
    monkeypatch.setattr(rollouts, "MAX_CHARACTERS", 1_050)
    drawn = [token_sums(evidence.run, ends.now, {}).problems.tolist() for _ in range(2)]
    assert len(drawn[0]) == 7
    assert drawn[0] == drawn[1]
    texts = completions_at_ends(evidence)
    assert texts is not None
    assert [len(end) for end in texts] == [10, 10]


def test_texts_come_with_their_problem_and_grade(make: Any) -> None:
    evidence = make(
        rollouts={1: rows(2, completion=["a", "b"], correct=[True, None]), 2: rows(2, completion=["c", None])}
    )
    found = completions_at_ends(evidence)
    assert found is not None
    start = {
        text: (problem, right)
        for text, problem, right in zip(found[0].texts, found[0].problems, found[0].right, strict=True)
    }
    assert start["a"] == ("p0", 1.0)
    assert start["b"][0] == "p1"
    assert math.isnan(start["b"][1])
    assert found[1].texts == ("c",)
    assert completions_at_ends(make(rollouts={1: rows(1, completion=["a"]), 2: rows(1)})) is None


def test_what_was_kept_is_counted_in_the_steps_that_have_lists(make: Any) -> None:
    group = ["a", "a", "b", "b", "c"]
    some = rows(
        5, group=group, problem=group, reward=[1.0, 1.0, 0.0, 1.0, 1.0], logprobs=[[-1.0], [-1.0], [-1.0], None, [-1.0]]
    )
    none = rows(5, group=group, problem=group, reward=[1.0] * 5)
    evidence = make(rollouts={step: some if step > 16 else none for step in range(1, 33)})
    ends = training_ends(evidence)
    assert ends is not None
    # The last eighth is four steps of five rollouts; of the three groups one has a single rollout, and of the other two
    # one is flat.
    found = count_recorded(evidence.run, ends.now, "logprobs")
    assert (found.rollouts, found.with_column, found.groups, found.flat) == (20, 16, 8, 4)
    assert count_recorded(evidence.run, ends.start, "logprobs").rollouts == 0


def test_a_shift_is_the_difference_of_means_over_rows(make: Any) -> None:
    found = mean_shift(
        (names("a", "a", "b"), np.array([0.0, 1.0, 0.0])), (names("a", "b", "b", "c"), np.array([1.0, 1.0, 0.0, 1.0]))
    )
    assert found.start.value == pytest.approx(1 / 3)
    assert found.now.value == pytest.approx(3 / 4)
    assert found.change.value == pytest.approx(3 / 4 - 1 / 3)
    assert found.problems == 2


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from("abcdefghij"), min_size=2, max_size=30), st.integers(0, 9))
def test_the_same_rows_at_both_ends_have_not_changed(owners: list[str], seed: int) -> None:
    values = np.random.default_rng(seed).integers(0, 2, len(owners)).astype(np.float64)
    found = mean_shift((names(*owners), values), (names(*owners), values))
    assert found.change.value == 0
    assert 0.0 in found.change


def test_a_change_of_every_problem_is_sure_though_nothing_spreads() -> None:
    owners = names(*(f"p{place}" for place in range(12)))
    found = mean_shift((owners, np.zeros(12)), (owners, np.ones(12)))
    assert found.change.value == 1
    assert 0 < found.change.low < 1


def test_coverage_is_compared_at_the_size_of_the_smaller_groups(make: Any) -> None:
    def graded(size: int, right: int) -> dict[str, Any]:
        # Twelve problems, each with a group of so many rollouts of which so many are right.
        return {
            "problem": [f"p{place}" for place in range(12) for _ in range(size)],
            "sample": list(range(12 * size)),
            "correct": [place < right for _ in range(12) for place in range(size)],
        }

    found = coverage_shift(training_ends(make(rollouts={1: graded(4, 1), 2: graded(2, 0)})))
    assert found is not None
    # 1 of 4 right: pass@2 = 1 - C(3, 2) / C(4, 2) = 1/2; none right: 0.
    assert found[0] == 2
    assert found[1].start.value == pytest.approx(0.5)
    assert found[1].change.value == pytest.approx(-0.5)
    assert found[1].change.high < 0
    assert coverage_shift(training_ends(make(rollouts={1: rows(3), 2: rows(3)}))) is None
    assert coverage_shift(None) is None


def test_held_out_rollouts_are_asked_first_and_said_so(make: Any) -> None:
    evidence = make(rollouts={1: rows(2), 2: rows(2)}, held_out={5: rows(2), 9: rows(2)})
    trained, asked = training_ends(evidence), evaluation_ends(evidence)
    assert trained is not None
    assert asked is not None
    assert trained.where == "rollouts of step 1 against step 2"
    assert asked.where == "held-out rollouts of step 5 against step 9"
    alone = make(rollouts={1: rows(2), 2: rows(2)}, held_out={5: rows(2)})
    assert evaluation_ends(alone) is training_ends(alone)


def test_what_was_recorded_by_asking_is_no_training_run(tmp_path: Path) -> None:
    writer = RunWriter(
        tmp_path / "asked", Header(name="asked", config={"policy": {"strategy": {"kind": "adaptive-vote"}}})
    )
    for step in (0, 1):
        writer.rollouts(rows(2), step, split="eval")
    evidence = Evidence("asked", Run.open(tmp_path / "asked"))
    assert training_ends(evidence) is None
    assert evaluation_ends(evidence) is None
    assert not covers_training(evidence)


def test_rollouts_of_checkpoints_alone_are_a_training_run(make: Any) -> None:
    assert covers_training(make(held_out={0: rows(2), 50: rows(2)}))
    assert not covers_training(Evidence("nothing"))


def test_what_is_missing_is_named_with_the_setting_that_brings_it(make: Any) -> None:
    bare = missing_rollouts(make(reward=[0.1] * 20), "overconfidence")
    assert bare.missing == "rollouts were not recorded"
    assert bare.switch_on == "GRPOConfig(log_completions=True)"
    assert "only one step" in missing_rollouts(make(rollouts={1: rows(2)}), "overconfidence").missing
    there = missing_rollouts(make(rollouts={1: rows(2), 2: rows(2)}), "overconfidence", "answer", "answer")
    assert there.missing == "rollouts at the start or the end have no answer"
    assert "log_extra('answer'" in there.switch_on


def test_every_trainer_is_told_how_to_record_tokens(make: Any) -> None:
    assert token_logging_hint(make(reward=[0.1], trainer="prime-rl")) == "trainer.enable_token_export = true"
    assert token_logging_hint(make(reward=[0.1], trainer="trl")).startswith("BreadthGRPOTrainer(..., run=")
    assert "logprobs" in token_logging_hint(make(reward=[0.1], trainer="generic"))
    assert token_logging_hint(make(reward=[0.1], trainer="verl")) == ""
    assert token_logging_hint(Evidence("nothing")) == ""


def test_truncated_rollouts_are_compared_per_token_and_only_in_the_last_steps(make: Any) -> None:
    """Truncated: 2 nats at each of 4 tokens; the others: 6 nats over 4 tokens. The ratio is 2 over 1.5."""
    late = {
        "problem": [f"p{place % 12}" for place in range(24)],
        "truncated": [place < 12 for place in range(24)],
        "entropy": [[2.0] * 4 if place < 12 else [1.0, 1.0, 2.0, 2.0] for place in range(24)],
    }
    early = late | {"entropy": [[1.0]] * 24}
    found = truncated_entropy_ratio(make(rollouts={1: early, 2: late}))
    assert found is not None
    assert found.value == pytest.approx(4 / 3)


@pytest.mark.parametrize("cut", [9, 15])
def test_few_rollouts_of_either_kind_are_not_compared(make: Any, cut: int) -> None:
    rows_ = {
        "problem": [f"p{place}" for place in range(24)],
        "truncated": [place < cut for place in range(24)],
        "entropy": [[1.0]] * 24,
    }
    assert truncated_entropy_ratio(make(rollouts={1: rows_, 2: rows_})) is None
    assert truncated_entropy_ratio(make(reward=[0.1] * 9)) is None
