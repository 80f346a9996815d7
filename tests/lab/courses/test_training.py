"""Real TRL on a tiny base: rewards by hand, the run folder, resuming to the same weights, folders that are refused."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the extra 'train' is not installed")
pytest.importorskip("trl", reason="the extra 'train' is not installed")

from breadth.base.errors import BrokenFileError, WriteError  # noqa: E402 - only where TRL is
from breadth.lab.courses import training  # noqa: E402
from breadth.lab.courses.course import Course  # noqa: E402
from breadth.lab.courses.training import finished, grader, stated_answer, train  # noqa: E402
from breadth.lab.model.reasoner import Reasoner, Shape, build, load, save  # noqa: E402
from breadth.lab.task.problems import read_problem  # noqa: E402
from breadth.lab.task.vocabulary import words_of  # noqa: E402
from breadth.runs.reader import Run  # noqa: E402
from breadth.training.recipes import RECIPES  # noqa: E402

QUESTION = "( 3 + 4 ) * ( 5 + 6 ) ="
NUMBERS = {word: number for number, word in enumerate(words_of(7))}
COURSE = Course(RECIPES["thermostat"].chain, steps=4, rate=2e-3, prompts=2, group=4, problems=8, longest=40)


def ids(text: str) -> list[int]:
    return [NUMBERS[word] for word in text.split()]


def weights(reasoner: Reasoner) -> dict[str, Any]:
    return {name: tensor.detach().clone() for name, tensor in reasoner.model.named_parameters()}


def equal(first: dict[str, Any], second: dict[str, Any]) -> bool:
    return all(torch.equal(first[name], second[name]) for name in first)


@pytest.fixture(scope="module")
def base(memorised: Reasoner, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("training") / "base"
    save(memorised, folder)
    return folder


@pytest.fixture(scope="module")
def whole(base: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Reasoner, list[int]]:
    """The course run without a break: its folder, what came of it, the steps told."""
    folder, steps = tmp_path_factory.mktemp("whole") / "course", list[int]()
    return folder, train(COURSE, folder, base, lambda step, _: steps.append(step)), steps


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
    assert grader(7)(prompts=[QUESTION], completion_ids=[ids(reply)], gold=[0], completions=["unread"]) == [reward]


@pytest.mark.parametrize(
    ("text", "answer"),
    [("<think> add </think> 12", "12"), ("<think> add", None), ("12", None), ("<think> </think> =3", None), ("", None)],
)
def test_the_answer_for_the_run_folder(text: str, answer: str | None) -> None:
    assert stated_answer(text) == answer


def test_a_run_leaves_its_rollouts_and_a_policy_that_moved(whole: tuple[Path, Reasoner, list[int]], base: Path) -> None:
    folder, trained, steps = whole
    assert steps == [1, 2, 3, 4]
    assert not equal(weights(trained), weights(load(base)))
    rows = Run.open(folder / training.RUN).query(
        "SELECT step, prompt, token_ids, reward, answer, entropy, tokens FROM rollouts JOIN problems USING (problem)"
        " ORDER BY step, sample"
    )
    assert [row.as_py() for row in rows["step"]] == sorted([1, 2, 3, 4] * 8)
    for row in rows.to_pylist():
        gold = read_problem(row["prompt"]).answer(7)
        assert grader(7)(prompts=[row["prompt"]], completion_ids=[row["token_ids"]], gold=[gold]) == [row["reward"]]
        assert row["reward"] == 0 or row["answer"] == str(gold)
        assert len(row["entropy"]) == row["tokens"] == len(row["token_ids"])
    assert 0 < sum(rows["reward"].to_pylist()) < len(rows), (
        "no spread of rewards: nothing was learnt, and this test tests nothing"
    )
    assert not (folder / training.CHECKPOINTS).exists()


def test_what_has_ended_is_loaded(whole: tuple[Path, Reasoner, list[int]], base: Path) -> None:
    folder, trained, _ = whole

    def never(step: int, _: Mapping[str, float]) -> None:
        raise AssertionError(f"step {step} was taken again")

    assert equal(weights(train(COURSE, folder, base, never)), weights(trained))


def test_an_interrupted_run_goes_on_to_the_same_weights(
    whole: tuple[Path, Reasoner, list[int]], base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "SAVED_EVERY", 2)
    folder = tmp_path / "course"

    def break_at_three(step: int, _: Mapping[str, float]) -> None:
        if step == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(COURSE, folder, base, break_at_three)
    assert not finished(COURSE, folder, base)
    (folder / training.CHECKPOINTS / "checkpoint-3").mkdir()  # as a process leaves it that is killed while it saves
    steps: list[int] = []
    resumed = train(COURSE, folder, base, lambda step, _: steps.append(step))
    assert steps == [3, 4]
    assert equal(weights(resumed), weights(whole[1]))


def test_a_folder_of_another_course_or_base_is_refused(
    whole: tuple[Path, Reasoner, list[int]], base: Path, tmp_path: Path
) -> None:
    folder = whole[0]
    with pytest.raises(BrokenFileError, match="another course"):
        train(Course(RECIPES["grpo"].chain, steps=4), folder, base)
    other = tmp_path / "other"
    save(build(load(base).teacher, Shape(hidden=32, layers=1, heads=2, inner=32), seed=1), other)
    with pytest.raises(BrokenFileError, match="another base"):
        train(COURSE, folder, other)


def test_a_place_that_cannot_be_written_to(base: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WriteError):
        train(COURSE, tmp_path / "file" / "course", base)
