"""The model file: known by its hash, refused when it is none, unpacked once, and ending its replies with the line."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from breadth.base.errors import BreadthError, BrokenFileError, MissingExtraError, SettingsError, WriteError
from breadth.lab.evaluation.training_log import read_training_log
from breadth.lab.grpo import CHECKPOINTS_FOLDER, POLICY_FOLDER, RUN_FOLDER
from breadth.lab.smollm2 import policy as module
from breadth.lab.smollm2.experiment import (
    SmolLM2Plan,
    list_held_out_sums,
    training_sums,
)
from breadth.lab.smollm2.policy import (
    SmolLM2Policy,
    SumReply,
    check_libraries,
    load_policy,
    model_fingerprint,
    sample_replies,
    save_policy,
    sums_reward_function,
    sums_rollout_function,
    train_smollm2,
    unpack_model,
)
from breadth.runs.reader import Run


def test_the_fingerprint_of_a_file_is_its_hash(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF and more")
    assert model_fingerprint(file) == hashlib.sha256(b"GGUF and more").hexdigest()


def test_the_fingerprint_of_a_folder_is_of_all_its_files(base: Path, tmp_path: Path) -> None:
    copied = tmp_path / "copy"
    copied.mkdir()
    for path in base.iterdir():
        (copied / path.name).write_bytes(path.read_bytes())
    assert model_fingerprint(copied) == model_fingerprint(base)
    (copied / "config.json").write_bytes((base / "config.json").read_bytes() + b"\n")
    assert model_fingerprint(copied) != model_fingerprint(base)


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"<html>")
    for place in (file, tmp_path / "missing.gguf", tmp_path):
        with pytest.raises(BrokenFileError):
            model_fingerprint(place)


@pytest.mark.parametrize(
    ("missing", "error", "words"),
    [("trl", MissingExtraError, r"breadth\[train\]"), ("gguf", SettingsError, "pip install .gguf")],
)
def test_missing_libraries_are_named(
    missing: str, error: type[BreadthError], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None if name == missing else object())
    with pytest.raises(error, match=words):
        check_libraries(Path("model.gguf"))


def test_a_folder_needs_no_gguf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None if name == "gguf" else object())
    check_libraries(tmp_path)


def test_a_reply_ends_with_its_line(policy: SmolLM2Policy) -> None:
    end = policy.tokenizer("\n")["input_ids"]
    assert [policy.end] == end
    assert policy.model.generation_config.eos_token_id == policy.end
    assert policy.tokenizer.pad_token_id == policy.model.config.pad_token_id != policy.end
    ids = policy.tokenizer("85+25=110\n")["input_ids"]
    assert policy.decode_reply(ids) == policy.decode_reply(ids[:-1]) == "85+25=110"


def test_unpacked_once_and_the_same_again(base: Path, policy: SmolLM2Policy, tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "model"
    unpack_model(base, folder)
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    unpack_model(base, folder)
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before
    again = load_policy(folder)
    assert again.end == policy.end
    assert again.tokenizer("12 + 3 =\n")["input_ids"] == policy.tokenizer("12 + 3 =\n")["input_ids"]
    weights = dict(policy.model.named_parameters())
    assert all(bool((weight == weights[name]).all()) for name, weight in again.model.named_parameters())


def test_nothing_is_written_over(policy: SmolLM2Policy, tmp_path: Path) -> None:
    with pytest.raises(WriteError, match="exists already"):
        save_policy(policy, tmp_path)


PROMPTS = ["1 + 2 =", list_held_out_sums(1)[0].prompt, "3 + 8 + 4 ="]


@pytest.fixture(scope="module")
def drawn(policy: SmolLM2Policy) -> list[list[SumReply]]:
    return sample_replies(policy, PROMPTS, 4, 12, seed=3)


def test_entropies_are_those_of_one_forward_pass(policy: SmolLM2Policy, drawn: list[list[SumReply]]) -> None:
    for prompt, replies in zip(PROMPTS, drawn, strict=True):
        for one in replies:
            ids = policy.tokenizer(prompt)["input_ids"]
            with torch.inference_mode():
                likely = policy.model(input_ids=torch.tensor([ids + one.ids])).logits[0].log_softmax(-1)
            wanted = -(likely.exp() * likely).sum(-1)[len(ids) - 1 : -1]
            assert one.entropies == pytest.approx(wanted.numpy(), abs=1e-4)


def test_a_reply_ends_with_its_line_or_is_cut(policy: SmolLM2Policy, drawn: list[list[SumReply]]) -> None:
    replies = [one for row in drawn for one in row]
    assert {one.ended for one in sample_replies(policy, [PROMPTS[1]], 8, 1, seed=0)[0]} == {
        False
    }  # an answer and its end are two
    assert any(one.ended for one in replies)
    for one in replies:
        assert one.ids.count(policy.end) == one.ended
        assert len(one.ids) == len(one.entropies) <= 12
        assert one.ended or (len(one.ids) == 12 and one.answer is None)
        assert "\n" not in one.text


def test_what_it_knows_by_heart_it_says(drawn: list[list[SumReply]]) -> None:
    right = int(list_held_out_sums(1)[0].answer)
    assert {one.answer for one in drawn[1]} <= {str(right), str(right + 1)}


def test_the_same_seed_draws_the_same(policy: SmolLM2Policy, drawn: list[list[SumReply]]) -> None:
    again = sample_replies(policy, PROMPTS, 4, 12, seed=3)
    assert [[one.ids for one in row] for row in again] == [[one.ids for one in row] for row in drawn]
    other = sample_replies(policy, PROMPTS, 4, 12, seed=4)
    assert [[one.ids for one in row] for row in other] != [[one.ids for one in row] for row in drawn]


def test_more_prompts_than_fit_at_once(policy: SmolLM2Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("breadth.lab.smollm2.policy.MAX_ROWS", 4)
    found = sample_replies(policy, [one.prompt for one in list_held_out_sums(3)], 4, 12, seed=0)
    assert [len(row) for row in found] == [4, 4, 4]
    for problem, row in zip(list_held_out_sums(3), found, strict=True):
        near = {problem.answer, str(int(problem.answer) + 1)}
        assert np.mean([one.answer in near for one in row]) >= 0.5, "replies stand beside other prompts than their own"


def test_rollouts_for_trl_keep_the_order_of_the_prompts(policy: SmolLM2Policy) -> None:
    first, second = (one.prompt for one in list_held_out_sums(2))
    torch.manual_seed(0)
    found = sums_rollout_function(policy, 12)([first, second, first, second], None)
    assert [policy.tokenizer.decode(ids) for ids in found["prompt_ids"]] == [first, second, first, second]
    answers = [policy.decode_reply(ids) for ids in found["completion_ids"]]
    for place, problem in enumerate([*list_held_out_sums(2), *list_held_out_sums(2)]):
        assert answers[place] in {problem.answer, str(int(problem.answer) + 1)}
    torch.manual_seed(0)
    assert sums_rollout_function(policy, 12)([first, second, first, second], None) == found


torch = pytest.importorskip("torch", reason="the extra 'train' is not installed")
pytest.importorskip("trl", reason="the extra 'train' is not installed")


pytestmark = pytest.mark.filterwarnings("ignore")  # those of the libraries


def equal(first: SmolLM2Policy, second: SmolLM2Policy) -> bool:
    weights = dict(second.model.named_parameters())
    return all(torch.equal(weight, weights[name]) for name, weight in first.model.named_parameters())


def test_the_reward_by_hand(policy: SmolLM2Policy) -> None:
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
    found = sums_reward_function(policy)(prompts=["unread"] * len(ids), completion_ids=ids, gold=["110"] * len(ids))
    assert found == list(replies.values())


def test_an_interrupted_run_goes_on_to_the_same_weights(
    plan: SmolLM2Plan, base: Path, policy: SmolLM2Policy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("breadth.lab.smollm2.policy.SMOLLM2_CHECKPOINT_STEPS", 1)
    steps: list[int] = []
    whole = train_smollm2(plan, "protected", tmp_path / "whole", base, steps.append)
    assert steps == [1, 2]
    assert not equal(whole, policy)

    def break_at_two(step: int) -> None:
        if step == 2:
            raise KeyboardInterrupt

    folder = tmp_path / "broken"
    with pytest.raises(KeyboardInterrupt):
        train_smollm2(plan, "protected", folder, base, break_at_two)
    (folder / CHECKPOINTS_FOLDER / "checkpoint-2").mkdir(
        exist_ok=True
    )  # as a process leaves it that is killed while it saves
    again: list[int] = []
    resumed = train_smollm2(plan, "protected", folder, base, again.append)
    assert again == [2]
    assert equal(resumed, whole)
    assert not (folder / CHECKPOINTS_FOLDER).exists()
    assert equal(train_smollm2(plan, "protected", folder, base, again.append), load_policy(folder / POLICY_FOLDER))
    assert again == [2], "what had ended was trained again"


def test_the_run_folder_holds_every_reply_with_its_reward(
    plan: SmolLM2Plan, base: Path, policy: SmolLM2Policy, tmp_path: Path
) -> None:
    train_smollm2(plan, "plain", tmp_path / "arm", base, lambda _: None)
    query = """
        SELECT step, prompt, token_ids, reward, answer, entropy FROM rollouts JOIN problems USING (problem)
        ORDER BY step, sample
    """
    rows = Run.open(tmp_path / "arm" / RUN_FOLDER).query(query).to_pylist()
    assert [row["step"] for row in rows] == [1] * 8 + [2] * 8
    gold = {problem.prompt: problem.answer for problem in training_sums(plan.train_problems)}
    for row in rows:
        assert [row["reward"]] == sums_reward_function(policy)(
            completion_ids=[row["token_ids"]], gold=[gold[row["prompt"]]]
        )
        assert len(row["entropy"]) == len(row["token_ids"])
    rewards = [row["reward"] for row in rows]
    assert 0 < sum(rewards) < len(rewards), "no spread of rewards: nothing was learnt, and this test tests nothing"
    log = read_training_log(tmp_path / "arm" / RUN_FOLDER)
    assert log.steps == (1, 2)
    assert log.reward == (sum(rewards[:8]) / 8, sum(rewards[8:]) / 8)
    tokens = [one for row in rows[:8] for one in row["entropy"]]
    assert log.entropy[0] == pytest.approx(sum(tokens) / len(tokens))
