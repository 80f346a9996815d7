"""Real TRL on a tiny model: the reward by hand, a run folder, and an interrupted run that goes on to the same weights."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the extra 'train' is not installed")
pytest.importorskip("trl", reason="the extra 'train' is not installed")

from breadth.lab.rung import training  # noqa: E402 - only where TRL is
from breadth.lab.rung.model import Policy, load  # noqa: E402
from breadth.lab.rung.plan import RungPlan  # noqa: E402
from breadth.lab.rung.sums import trained_on  # noqa: E402
from breadth.lab.rung.training import CHECKPOINTS, RUN, grader, train  # noqa: E402
from breadth.lab.rung.went import went  # noqa: E402
from breadth.runs.reader import Run  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # those of the libraries


def equal(first: Policy, second: Policy) -> bool:
    weights = dict(second.model.named_parameters())
    return all(torch.equal(weight, weights[name]) for name, weight in first.model.named_parameters())


def test_the_reward_by_hand(policy: Policy) -> None:
    replies = {
        "85+25=110\n": 1.0,
        "110\n": 1.0,
        "85+25=110": 0.0,  # cut
        "85+25=111\n": 0.0,
        "110+1=111=110\n": 1.0,  # restated: the last one counts
        "110=111\n": 0.0,
        "\n": 0.0,
    }
    ids = [policy.tokenizer(reply)["input_ids"] for reply in replies]
    found = grader(policy)(prompts=["unread"] * len(ids), completion_ids=ids, gold=["110"] * len(ids))
    assert found == list(replies.values())


def test_an_interrupted_run_goes_on_to_the_same_weights(
    plan: RungPlan, base: Path, policy: Policy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "SAVED_EVERY", 1)
    steps: list[int] = []
    whole = train(plan, "protected", tmp_path / "whole", base, steps.append)
    assert steps == [1, 2]
    assert not equal(whole, policy)

    def break_at_two(step: int) -> None:
        if step == 2:
            raise KeyboardInterrupt

    folder = tmp_path / "broken"
    with pytest.raises(KeyboardInterrupt):
        train(plan, "protected", folder, base, break_at_two)
    (folder / CHECKPOINTS / "checkpoint-2").mkdir(exist_ok=True)  # as a process leaves it that is killed while it saves
    again: list[int] = []
    resumed = train(plan, "protected", folder, base, again.append)
    assert again == [2]
    assert equal(resumed, whole)
    assert not (folder / CHECKPOINTS).exists()
    assert equal(train(plan, "protected", folder, base, again.append), load(folder / training.TRAINED))
    assert again == [2], "what had ended was trained again"


def test_the_run_folder_holds_every_reply_with_its_reward(
    plan: RungPlan, base: Path, policy: Policy, tmp_path: Path
) -> None:
    train(plan, "plain", tmp_path / "arm", base, lambda _: None)
    query = """SELECT step, prompt, token_ids, reward, answer, entropy FROM rollouts JOIN problems USING (problem) ORDER BY step, sample"""
    rows = Run.open(tmp_path / "arm" / RUN).query(query).to_pylist()
    assert [row["step"] for row in rows] == [1] * 8 + [2] * 8
    gold = {problem.prompt: problem.answer for problem in trained_on(plan.trained)}
    for row in rows:
        assert [row["reward"]] == grader(policy)(completion_ids=[row["token_ids"]], gold=[gold[row["prompt"]]])
        assert len(row["entropy"]) == len(row["token_ids"])
    rewards = [row["reward"] for row in rows]
    assert 0 < sum(rewards) < len(rewards), "no spread of rewards: nothing was learnt, and this test tests nothing"
    told = went(tmp_path / "arm" / RUN)
    assert told.steps == (1, 2)
    assert told.reward == (sum(rewards[:8]) / 8, sum(rewards[8:]) / 8)
    tokens = [one for row in rows[:8] for one in row["entropy"]]
    assert told.entropy[0] == pytest.approx(sum(tokens) / len(tokens))
