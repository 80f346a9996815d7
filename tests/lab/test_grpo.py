"""The settings of a course: what is refused, which problems it trains on, and that it goes to TOML and back."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("trl", reason="the extra 'train' is not installed")

from breadth.adapters.trl.history import OBJECTIVE_FILE
from breadth.base import settings
from breadth.base.errors import BrokenFileError, SettingsError, WriteError
from breadth.lab import grpo
from breadth.lab.demo.plan import chain_with_anchor
from breadth.lab.experiments.known_cases import Killed, kill_at
from breadth.lab.grpo import (
    CHECKPOINTS_FOLDER,
    RUN_FOLDER,
    GrpoRun,
    PlanningMarks,
    cpu_grpo_config,
    is_finished,
    last_checkpoint,
    read_stated_answer,
    routes_reward_function,
    routes_rollout_function,
    silence_libraries,
    step_callback,
    train_grpo,
    train_with_checkpoints,
)
from breadth.lab.reasoner import Reasoner, ReasonerShape, build_reasoner, load_reasoner, save_reasoner
from breadth.lab.task.grammar import END
from breadth.lab.task.problems import draw_held_out, read_problem
from breadth.lab.task.vocabulary import vocabulary_words
from breadth.runs.reader import Run
from breadth.training.chain import Chain
from breadth.training.credit.group_advantage import GroupAdvantage
from breadth.training.credit.outcome_bonus import OutcomeBonus
from breadth.training.loss.clipped_policy import ClippedPolicy
from breadth.training.recipes import RECIPES

PLAIN = RECIPES["grpo"].chain


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": 0},
        {"prompts": 0},
        {"group": 1},
        {"learning_rate": 0.0},
        {"learning_rate": 1.0},
        {"updates": 0},
        {"level": "harder"},
        {"seed": -1},
    ],
)
def test_what_cannot_be_run_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=next(iter(wrong))):
        GrpoRun(PLAIN, **wrong)


def test_a_generation_divides_into_its_updates() -> None:
    # 3 problems x 5 replies are 15 rollouts: they go into 3 or 5 updates, not into 2.
    assert GrpoRun(PLAIN, prompts=3, group=5, updates=3).updates == 3
    with pytest.raises(SettingsError, match="divides into the updates"):
        GrpoRun(PLAIN, prompts=3, group=5, updates=2)


def test_the_problems_are_the_same_for_every_seed_and_none_is_held_out() -> None:
    trained = GrpoRun(PLAIN, problems=50, seed=0).training_problems(11)
    assert trained == GrpoRun(PLAIN, problems=50, seed=9).training_problems(11)
    assert len({problem.canonical for problem in trained}) == 50
    assert not {problem.canonical for problem in trained} & {
        problem.canonical for problem in draw_held_out(11, "medium")
    }


def test_problems_beside_are_neither_trained_on_nor_held_out() -> None:
    course = GrpoRun(PLAIN, problems=50)
    beside, taken = course.validation_problems(40, 11), [*course.training_problems(11), *draw_held_out(11, "medium")]
    assert len({problem.canonical for problem in beside}) == 40
    assert not {problem.canonical for problem in beside} & {problem.canonical for problem in taken}


def test_toml_and_back() -> None:
    course = GrpoRun(RECIPES["thermostat"].chain, steps=7, learning_rate=1e-3, level="hard")
    assert settings.loads(GrpoRun, settings.dumps(course)) == course


QUESTION = "( 3 + 4 ) * ( 5 + 6 ) ="
NUMBERS = {word: number for number, word in enumerate(vocabulary_words(7))}
COURSE = GrpoRun(
    RECIPES["thermostat"].chain, steps=4, learning_rate=2e-3, prompts=2, group=4, problems=8, max_completion_length=40
)


def ids(text: str) -> list[int]:
    return [NUMBERS[word] for word in text.split()]


def weights(reasoner: Reasoner) -> dict[str, Any]:
    return {name: tensor.detach().clone() for name, tensor in reasoner.model.named_parameters()}


def equal(first: dict[str, Any], second: dict[str, Any]) -> bool:
    return all(torch.equal(first[name], second[name]) for name in first)


@pytest.fixture(scope="module")
def base(memorised: Reasoner, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("training") / "base"
    save_reasoner(memorised, folder)
    return folder


@pytest.fixture(scope="module")
def whole(base: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Reasoner, list[int]]:
    """The course run without a break: its folder, what came of it, the steps told."""
    folder, steps = tmp_path_factory.mktemp("whole") / "course", list[int]()
    return folder, train_grpo(COURSE, folder, base, lambda step, _: steps.append(step)), steps


@pytest.mark.parametrize(
    ("reply", "reward"),
    [
        ("<think> add 3 + 4 =0 5 + 6 =4 0 * 4 =0 </think> 0 <eos>", 1.0),  # (3 + 4)(5 + 6) = 7 * 11 = 77, 0 modulo 7
        ("<think> add 3 + 4 =0 5 + 6 =4 0 * 4 =0 </think> 4 <eos>", 0.0),  # wrong
        ("<think> add 3 + 4 =0 5 + 6 =4 0 * 4 =0 </think> 0", 0.0),  # cut before its end
        ("<think> add 3 + 4 =0 <pad> 5 + 6 =4 0 * 4 =0 </think> 0 <eos>", 0.0),  # a mark that decoding would leave out
        ("<think> </think> 0 <eos>", 1.0),  # a guess keeps to the grammar
        ("0 <eos>", 0.0),
        ("", 0.0),
    ],
)
def test_the_reward(reply: str, reward: float) -> None:
    assert routes_reward_function(7)(
        prompts=[QUESTION], completion_ids=[ids(reply)], gold=[0], completions=["unread"]
    ) == [reward]


@pytest.mark.parametrize(
    ("text", "answer"),
    [("<think> add </think> 12", "12"), ("<think> add", None), ("12", None), ("<think> </think> =3", None), ("", None)],
)
def test_the_answer_for_the_run_folder(text: str, answer: str | None) -> None:
    assert read_stated_answer(text) == answer


def test_a_run_leaves_its_rollouts_and_a_policy_that_moved(whole: tuple[Path, Reasoner, list[int]], base: Path) -> None:
    folder, trained, steps = whole
    assert steps == [1, 2, 3, 4]
    assert not equal(weights(trained), weights(load_reasoner(base)))
    rows = Run.open(folder / grpo.RUN_FOLDER).query(
        "SELECT step, prompt, token_ids, reward, answer, entropy, tokens FROM rollouts JOIN problems USING (problem)"
        " ORDER BY step, sample"
    )
    assert [row.as_py() for row in rows["step"]] == sorted([1, 2, 3, 4] * 8)
    for row in rows.to_pylist():
        gold = read_problem(row["prompt"]).answer(7)
        assert routes_reward_function(7)(prompts=[row["prompt"]], completion_ids=[row["token_ids"]], gold=[gold]) == [
            row["reward"]
        ]
        assert row["reward"] == 0 or row["answer"] == str(gold)
        assert len(row["entropy"]) == row["tokens"] == len(row["token_ids"])
    assert 0 < sum(rows["reward"].to_pylist()) < len(rows), (
        "no spread of rewards: nothing was learnt, and this test tests nothing"
    )
    assert not (folder / grpo.CHECKPOINTS_FOLDER).exists()


def test_what_has_ended_is_loaded(whole: tuple[Path, Reasoner, list[int]], base: Path) -> None:
    folder, trained, _ = whole

    def never(step: int, _: Mapping[str, float]) -> None:
        raise AssertionError(f"step {step} was taken again")

    assert equal(weights(train_grpo(COURSE, folder, base, never)), weights(trained))


def test_an_interrupted_run_goes_on_to_the_same_weights(
    whole: tuple[Path, Reasoner, list[int]], base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpo, "CHECKPOINT_STEPS", 2)
    folder = tmp_path / "course"

    def break_at_three(step: int, _: Mapping[str, float]) -> None:
        if step == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_grpo(COURSE, folder, base, break_at_three)
    assert not is_finished(COURSE, folder, base)
    (folder / grpo.CHECKPOINTS_FOLDER / "checkpoint-3").mkdir()  # as a process leaves it that is killed while it saves
    steps: list[int] = []
    resumed = train_grpo(COURSE, folder, base, lambda step, _: steps.append(step))
    assert steps == [3, 4]
    assert equal(weights(resumed), weights(whole[1]))


def test_a_run_killed_behind_its_last_step_takes_no_further_one(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, folder = replace(COURSE, steps=3), tmp_path / "course"  # within an epoch: a further step would have its data
    steps: list[int] = []
    trained: list[dict[str, Any]] = []

    def die(reasoner: Reasoner, _: Path) -> None:
        trained.append(weights(reasoner))
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(grpo, "save_reasoner", die)
        train_grpo(run, folder, base)
    resumed = train_grpo(run, folder, base, lambda step, _: steps.append(step))
    assert steps == []
    assert equal(weights(resumed), trained[0])


def test_a_folder_of_another_course_or_base_is_refused(
    whole: tuple[Path, Reasoner, list[int]], base: Path, tmp_path: Path
) -> None:
    folder = whole[0]
    with pytest.raises(BrokenFileError, match="another run"):
        train_grpo(GrpoRun(RECIPES["grpo"].chain, steps=4), folder, base)
    other = tmp_path / "other"
    save_reasoner(
        build_reasoner(load_reasoner(base).teacher, ReasonerShape(hidden=32, layers=1, heads=2, inner=32), seed=1),
        other,
    )
    with pytest.raises(BrokenFileError, match="another base"):
        train_grpo(COURSE, folder, other)


def test_a_place_that_cannot_be_written_to(base: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WriteError):
        train_grpo(COURSE, tmp_path / "file" / "course", base)


COURSE_STAGING = GrpoRun(
    Chain((GroupAdvantage(), OutcomeBonus(), ClippedPolicy())),
    steps=4,
    prompts=2,
    group=4,
    problems=8,
    max_completion_length=40,
    learning_rate=1e-3,
)


def weights_of_staging(folder: Path) -> torch.Tensor:
    return torch.cat([tensor.flatten() for tensor in load_reasoner(folder).model.state_dict().values()])


def test_policies_are_kept_on_the_way_and_a_run_broken_off_comes_to_the_same_end(
    tmp_path: Path, memorised_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("breadth.lab.grpo.CHECKPOINT_STEPS", 2)
    whole = train_with_checkpoints(COURSE_STAGING, tmp_path / "whole", memorised_folder, (2, 4))
    assert whole.keys() == {2, 4}
    base, middle, last = (
        weights_of_staging(memorised_folder),
        weights_of_staging(whole[2]),
        weights_of_staging(whole[4]),
    )
    assert not torch.equal(base, middle)
    assert not torch.equal(middle, last)

    with pytest.raises(Killed):
        train_with_checkpoints(
            COURSE_STAGING, tmp_path / "broken", memorised_folder, (2, 4), prepare=lambda trainer: kill_at(trainer, 3)
        )
    seen: list[int] = []
    again = train_with_checkpoints(
        COURSE_STAGING, tmp_path / "broken", memorised_folder, (2, 4), on_step=lambda step, _: seen.append(step)
    )
    assert seen == [3, 4]
    assert torch.equal(weights_of_staging(again[4]), last)
    assert not (tmp_path / "broken" / CHECKPOINTS_FOLDER).exists()

    bonus = Run.open(tmp_path / "whole" / RUN_FOLDER).series("breadth/outcome-bonus/new").values
    assert len(bonus) == 4
    assert bonus[0] == 1  # every answer is new at first: so answers are read, or the bonus would be of no use

    def forbidden(trainer: Any) -> None:
        raise AssertionError("what has ended is not run again")

    assert (
        train_with_checkpoints(COURSE_STAGING, tmp_path / "whole", memorised_folder, (2, 4), prepare=forbidden) == whole
    )


LONGEST = 40


@pytest.fixture
def chance() -> Iterator[None]:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        yield


def trainer(temperature: float) -> SimpleNamespace:
    return SimpleNamespace(generation_config=SimpleNamespace(temperature=temperature))


@pytest.mark.usefixtures("chance")
def test_one_reply_a_prompt_in_order(memorised: Reasoner) -> None:
    first, second = (problem.text for problem in draw_held_out(memorised.teacher.facts.prime, "medium")[:2])
    found = routes_rollout_function(memorised, LONGEST)([first, first, second], trainer(1.0))
    ids = [memorised.tokenizer(text)["input_ids"] for text in (first, first, second)]
    assert found["prompt_ids"] == ids
    assert found["logprobs"] is None
    end = memorised.tokenizer.convert_tokens_to_ids(END)
    assert len(found["completion_ids"]) == 3
    for reply in found["completion_ids"]:
        assert (reply[-1] == end and end not in reply[:-1]) or len(reply) == LONGEST


def test_the_same_chance_gives_the_same_replies(memorised: Reasoner) -> None:
    prompts = [draw_held_out(memorised.teacher.facts.prime, "medium")[0].text] * 8
    draw = routes_rollout_function(memorised, LONGEST)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        once, twice = (draw(prompts, trainer(1.0))["completion_ids"] for _ in range(2))
        torch.manual_seed(1)
        again = draw(prompts, trainer(1.0))["completion_ids"]
    assert once == again
    assert once != twice


@pytest.mark.usefixtures("chance")
def test_the_temperature_is_the_trainers(memorised: Reasoner) -> None:
    prompts = [draw_held_out(memorised.teacher.facts.prime, "medium")[0].text] * 8
    cold = routes_rollout_function(memorised, LONGEST)(prompts, trainer(0.001))["completion_ids"]
    assert len({tuple(reply) for reply in cold}) == 1
    hot = routes_rollout_function(memorised, LONGEST)(prompts, trainer(3.0))["completion_ids"]
    assert len({tuple(reply) for reply in hot}) > 1


REPLY = " <think> add 3 + 4 =0 + 6 5 =4 0 * 4 =0 again left </think> 0 <eos>"
PLANS = "0 1 111 0 111 0 111 0 1 1 1 0 0"


def offsets(text: str) -> list[tuple[int, int]]:
    """Each token is a word with the blank before it."""
    ends = [0]
    for word in text.split():
        ends.append(ends[-1] + 1 + len(word))
    return list(pairwise(ends))


def test_planning_tokens_by_hand() -> None:
    assert PlanningMarks().mark_tokens(REPLY, offsets(REPLY)) == [mark == "1" for mark in PLANS.replace(" ", "")]


@pytest.mark.parametrize("text", ["", " nonsense", " <think> add 3 + stray =4"])
def test_what_has_no_place_does_not_plan(text: str) -> None:
    found = PlanningMarks().mark_tokens(text, offsets(text))
    assert len(found) == len(text.split())
    assert found == [False, True, True, True, False, False][: len(found)] if "think" in text else not any(found)


def test_the_reference_policy_is_asked_for_by_the_chain_alone(tmp_path: Path) -> None:
    plain, protected = (
        cpu_grpo_config(tmp_path, chain_with_anchor(price), max_steps=3, seed=4) for price in (0.0, 0.15)
    )
    assert (plain.beta, protected.beta) == (0.0, 0.15)
    assert (plain.max_steps, plain.seed, plain.output_dir) == (3, 4, str(tmp_path))
    assert not plain.gradient_checkpointing


def test_only_steps_with_a_reward_are_told() -> None:
    told: list[tuple[int, float]] = []
    heard = step_callback(lambda step, logs: told.append((step, logs["reward"])))
    for step, logs in ((1, {"reward": 0.5}), (2, {"train_runtime": 3.0}), (3, None)):
        heard.on_log(None, SimpleNamespace(global_step=step), None, logs)
    assert told == [(1, 0.5)]


def test_the_newest_whole_checkpoint_is_taken(tmp_path: Path) -> None:
    assert last_checkpoint(tmp_path / "none") is None
    for step, whole in ((9, True), (10, True), (20, False)):
        place = tmp_path / f"checkpoint-{step}"
        place.mkdir()
        if whole:
            (place / OBJECTIVE_FILE).touch()
    assert last_checkpoint(tmp_path) == str(tmp_path / "checkpoint-10")


def test_what_the_user_has_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)
    silence_libraries()
    assert (os.environ["HF_HUB_OFFLINE"], os.environ["TOKENIZERS_PARALLELISM"]) == ("0", "false")
