"""The tiny reasoner, its files and its pretraining."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from breadth.base.errors import BrokenFileError, MissingExtraError, SettingsError, WriteError
from breadth.lab.reasoner import (
    CHECKSUMS_FILE,
    IGNORED_LABEL,
    LEVEL_SHARES,
    REQUIRED_FILES,
    TEACHER_FILE,
    PretrainingPlan,
    Reasoner,
    ReasonerShape,
    build_reasoner,
    check_files,
    load_reasoner,
    pretrain,
    save_reasoner,
)
from breadth.lab.task.problems import LEVELS, Problem, draw_problem, draw_problems
from breadth.lab.task.teacher import ArithmeticFacts, Teacher, TeacherTrace
from breadth.lab.task.vocabulary import vocabulary_words

torch = pytest.importorskip("torch", reason="the extra 'train' is not installed")
transformers = pytest.importorskip("transformers", reason="the extra 'train' is not installed")

TEACHER = Teacher(
    ArithmeticFacts(prime=7, shaky=0.5, right=0.125, believed=0.5, seed=9),
    attempts=2,
    content=0.75,
    careless=0.25,
    cut=0.125,
)
TINY = ReasonerShape(hidden=32, layers=1, heads=2, inner=32, context=64)


@pytest.fixture(scope="module")
def reasoner() -> Reasoner:
    return build_reasoner(TEACHER, TINY, seed=5)


@pytest.fixture(scope="module")
def stored(reasoner: Reasoner, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stored") / "deep" / "reasoner"
    save_reasoner(reasoner, folder)
    return folder


@pytest.fixture
def folder(stored: Path, tmp_path: Path) -> Path:
    """A copy to do harm to."""
    return Path(shutil.copytree(stored, tmp_path / "copy"))


def _logits(reasoner: Reasoner) -> Any:
    ids = reasoner.tokenizer("( 3 + 4 ) * ( 5 + 6 ) = <think> add", return_tensors="pt")["input_ids"]
    with torch.no_grad():
        return reasoner.model(input_ids=ids).logits


def test_what_is_saved_loads_the_same(reasoner: Reasoner, stored: Path) -> None:
    loaded = load_reasoner(stored)
    assert torch.equal(_logits(loaded), _logits(reasoner))
    assert loaded.teacher == TEACHER
    assert loaded.tokenizer.get_vocab() == reasoner.tokenizer.get_vocab()
    assert loaded.tokenizer.padding_side == "left"
    assert not loaded.model.training
    assert loaded.model.dtype == torch.float32


def test_the_shape_is_as_asked(reasoner: Reasoner) -> None:
    # Embedding (tied) 30 words x 32; a block: attention 4 x 32 x 32, feed-forward 3 x 32 x 32, two norms of 32; the
    # last norm 32.
    assert sum(weights.numel() for weights in reasoner.model.parameters()) == 30 * 32 + 7 * 32 * 32 + 3 * 32
    assert reasoner.model.config.eos_token_id == reasoner.tokenizer.eos_token_id
    assert reasoner.model.config.pad_token_id == 0


def test_every_file_is_hashed_and_readable_alike(stored: Path) -> None:
    sums = json.loads((stored / CHECKSUMS_FILE).read_text())
    assert set(sums) == {path.name for path in stored.iterdir()} - {CHECKSUMS_FILE}
    assert set(REQUIRED_FILES) <= set(sums)
    assert len({path.stat().st_mode for path in stored.iterdir()}) == 1
    assert [path.name for path in stored.parent.iterdir()] == [stored.name]


def test_a_changed_byte_in_any_file_is_noticed(folder: Path) -> None:
    for path in [path for path in folder.iterdir() if path.name != CHECKSUMS_FILE]:
        whole = path.read_bytes()
        middle = len(whole) // 2
        for harmed in (whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :], whole[:-1], b""):
            path.write_bytes(harmed)
            with pytest.raises(BrokenFileError, match="does not match its checksum") as caught:
                check_files(folder)
            assert caught.value.path == path
        path.write_bytes(whole)
    check_files(folder)


def test_a_missing_file_is_named(folder: Path) -> None:
    for path in list(folder.iterdir()):
        whole = path.read_bytes()
        path.unlink()
        with pytest.raises(BrokenFileError, match="cannot be read: No such file") as caught:
            check_files(folder)
        assert caught.value.path == path
        path.write_bytes(whole)
    check_files(folder)


@pytest.mark.parametrize(
    "nonsense",
    [
        b"",
        b"hm",
        b"[]",
        b"null",
        b"3",
        b"\xff\xfe",
        b"[" * 100_000,
        b"{}",
        b'{"config.json": "ab"}',
        b'{"../config.json": "ab"}',
    ],
)
def test_checksums_of_nonsense_are_refused(folder: Path, nonsense: bytes) -> None:
    (folder / CHECKSUMS_FILE).write_bytes(nonsense)
    with pytest.raises(BrokenFileError, match="checksum") as caught:
        check_files(folder)
    assert caught.value.path == folder / CHECKSUMS_FILE


@pytest.mark.parametrize("value", [None, 3, ["a"], "ab"])
def test_a_checksum_that_is_none_matches_nothing(folder: Path, value: Any) -> None:
    sums = json.loads((folder / CHECKSUMS_FILE).read_text())
    (folder / CHECKSUMS_FILE).write_text(json.dumps({**sums, TEACHER_FILE: value}))
    with pytest.raises(BrokenFileError, match="does not match") as caught:
        check_files(folder)
    assert caught.value.path == folder / TEACHER_FILE


def test_loading_checks_first(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"cut")
    with pytest.raises(BrokenFileError, match=r"model\.safetensors: does not match"):
        load_reasoner(folder)
    with pytest.raises(BrokenFileError, match="cannot be read"):
        load_reasoner(folder / "nowhere")


def test_a_teacher_of_another_version_is_refused_by_name(reasoner: Reasoner, folder: Path) -> None:
    (folder / TEACHER_FILE).write_text("primes = 7\n")
    sums = json.loads((folder / CHECKSUMS_FILE).read_text())
    (folder / CHECKSUMS_FILE).write_text(
        json.dumps({**sums, TEACHER_FILE: hashlib.sha256(b"primes = 7\n").hexdigest()})
    )
    with pytest.raises(BrokenFileError, match="there is no setting 'primes'") as caught:
        load_reasoner(folder)
    assert caught.value.path == folder / TEACHER_FILE


def test_what_is_there_is_not_overwritten(reasoner: Reasoner, tmp_path: Path) -> None:
    for there in (tmp_path / "folder", tmp_path / "file"):
        there.mkdir() if there.name == "folder" else there.write_text("mine")
        with pytest.raises(WriteError, match="exists already"):
            save_reasoner(reasoner, there)
    assert list((tmp_path / "folder").iterdir()) == []
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize(
    ("failure", "raised"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), WriteError),
        (RuntimeError("hm"), RuntimeError),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ],
)
def test_nothing_is_left_when_saving_fails(
    reasoner: Reasoner,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    failure: BaseException,
    raised: type[BaseException],
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise failure

    monkeypatch.setattr(type(reasoner.tokenizer), "save_pretrained", fail)
    with pytest.raises(raised):
        save_reasoner(reasoner, tmp_path / "reasoner")
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_said(reasoner: Reasoner, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(WriteError, match="could not be written"):
        save_reasoner(reasoner, tmp_path / "file" / "reasoner")


def test_weights_depend_on_the_seed_and_nothing_else(reasoner: Reasoner) -> None:
    torch.manual_seed(77)
    before = torch.random.get_rng_state()
    again, other = build_reasoner(TEACHER, TINY, seed=5), build_reasoner(TEACHER, TINY, seed=6)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(_logits(again), _logits(reasoner))
    assert not torch.equal(_logits(other), _logits(reasoner))
    doubting = replace(TEACHER, content=0.5)
    assert torch.equal(_logits(build_reasoner(doubting, TINY, seed=5)), _logits(reasoner))


@pytest.mark.parametrize(
    "wrong", [{"hidden": 0}, {"layers": 0}, {"heads": 0}, {"inner": -1}, {"context": 0}, {"hidden": 30}, {"heads": 3}]
)
def test_shapes_of_nonsense_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(SettingsError, match=r"Shape got (hidden|layers|heads|inner|context) = "):
        ReasonerShape(**{"hidden": 32, "layers": 1, "heads": 2, "inner": 32, "context": 64, **wrong})


def test_without_the_libraries_it_says_what_to_install(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingExtraError, match="extra 'train'"):
        build_reasoner(TEACHER, TINY)
    with pytest.raises(MissingExtraError, match="extra 'train'"):
        load_reasoner(stored)


FACTS = ArithmeticFacts(prime=5, shaky=0.3, right=0.1, believed=0.6)
TAUGHT = Teacher(FACTS, attempts=2, content=0.8, careless=0.3, cut=0.1)
ROOMY = ReasonerShape(hidden=32, layers=1, heads=2, inner=32, context=256)
FEW = PretrainingPlan(steps=5, batch=4, learning_rate=0.01, seed=1)
WORDS = vocabulary_words(5)


def _weights(reasoner: Reasoner) -> Any:
    return torch.cat([weights.detach().flatten() for weights in reasoner.model.parameters()])


def test_the_same_seed_teaches_the_same_weights() -> None:
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    first = pretrain(TAUGHT, FEW, ROOMY)
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(4)
    second, other = (
        pretrain(TAUGHT, FEW, ROOMY),
        pretrain(TAUGHT, PretrainingPlan(steps=5, batch=4, learning_rate=0.01, seed=2), ROOMY),
    )
    assert torch.equal(_weights(first), _weights(second))
    assert not torch.equal(_weights(first), _weights(other))
    assert not first.model.training


def test_the_loss_falls() -> None:
    told: list[tuple[int, float]] = []
    pretrain(
        TAUGHT,
        PretrainingPlan(steps=40, batch=8, learning_rate=0.1, seed=0),
        ROOMY,
        on_loss=lambda step, loss: told.append((step, loss)),
    )
    losses = [loss for _, loss in told]
    assert [step for step, _ in told] == list(range(1, 41))
    assert abs(losses[0] - math.log(len(WORDS))) < 0.3  # an untrained model finds all words about equally likely
    assert np.mean(losses[-5:]) < 0.8 * losses[0]


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[Problem]:
    """The problems that lessons are made of, as they are taken."""
    taken: list[Problem] = []
    write = Teacher.write

    def spy(self: Teacher, problem: Problem, rng: np.random.Generator) -> TeacherTrace:
        taken.append(problem)
        return write(self, problem, rng)

    monkeypatch.setattr(Teacher, "write", spy)
    return taken


def test_problems_held_out_are_never_shown_in_any_form(shown: list[Problem]) -> None:
    held_out = frozenset(
        [*draw_problems(36, 5, "easy", seed=0), *draw_problems(50, 5, "medium", seed=0)]
    )  # of 40 and of 55
    forms = {problem.canonical for problem in held_out}
    pretrain(TAUGHT, FEW, ROOMY)
    assert held_out & set(shown)
    assert any(
        problem.canonical in forms for problem in set(shown) - held_out
    )  # commuted forms, were they not kept back
    shown.clear()
    pretrain(TAUGHT, FEW, ROOMY, held_out=held_out)
    assert len(shown) >= 5 * 4
    assert {problem.level for problem in shown} == {"easy", "medium", "hard"}
    assert not forms & {problem.canonical for problem in shown}


def test_lessons_are_not_the_draws_of_the_seed_alone(shown: list[Problem]) -> None:
    pretrain(TAUGHT, FEW, ROOMY)
    lessons = shown[:20]
    assert lessons == _drawn(np.random.default_rng((1, 13)))
    assert lessons != _drawn(np.random.default_rng(1))


def _drawn(rng: np.random.Generator) -> list[Problem]:
    """Take twenty lessons from a generator."""
    taken = []
    for _ in range(20):
        taken.append(draw_problem(rng, 5, LEVELS[rng.choice(3, p=LEVEL_SHARES)]))
        TAUGHT.write(taken[-1], rng)
    return taken


@pytest.mark.parametrize("cut", [0.0, 1.0])
def test_labels_are_the_tokens_themselves_but_for_prompt_padding_and_imposed_ends(
    monkeypatch: pytest.MonkeyPatch, cut: float
) -> None:
    batches = _watched(monkeypatch, Teacher(FACTS, attempts=2, content=0.8, careless=0.3, cut=cut))
    assert len(batches) == 5
    for inputs, targets in batches:
        assert inputs.shape == (4, targets.shape[1] + 1)
        for tokens, following in zip(inputs.tolist(), targets.tolist(), strict=True):
            _check([WORDS[token] for token in tokens], [IGNORED_LABEL, *following], imposed=cut == 1.0)


def _watched(monkeypatch: pytest.MonkeyPatch, teacher: Teacher) -> list[tuple[Any, Any]]:
    """Pretrain a few steps and return what the model was given and what it was measured against, shifted by one."""
    inputs: list[Any] = []
    targets: list[Any] = []
    forward, cross_entropy = transformers.LlamaForCausalLM.forward, torch.nn.functional.cross_entropy

    def spied_forward(self: Any, input_ids: Any, **rest: Any) -> Any:
        inputs.append(input_ids)
        return forward(self, input_ids=input_ids, **rest)

    def spied_loss(logits: Any, target: Any, *, ignore_index: int) -> Any:
        assert ignore_index == IGNORED_LABEL
        targets.append(target.reshape(len(inputs[-1]), -1))
        assert len(logits) == len(target)
        return cross_entropy(logits, target, ignore_index=ignore_index)

    monkeypatch.setattr(transformers.LlamaForCausalLM, "forward", spied_forward)
    monkeypatch.setattr(torch.nn.functional, "cross_entropy", spied_loss)
    pretrain(teacher, FEW, ROOMY)
    return list(zip(inputs, targets, strict=True))


def _check(words: list[str], labels: list[int], *, imposed: bool) -> None:
    """Check one row: the label at a place is the token at that place, or nothing where nothing is to be learnt."""
    opened, closed, ended = words.index("<think>"), words.index("</think>"), words.index("<eos>")
    assert words[0] == "<bos>"
    assert words[opened - 1] == "="
    assert set(words[ended + 1 :]) <= {"<pad>"}
    assert len(words) == len(labels)
    for place, (word, label) in enumerate(zip(words, labels, strict=True)):
        learnt = opened <= place <= ended and not (imposed and place == closed)
        assert label == (WORDS.index(word) if learnt else IGNORED_LABEL)


def test_the_rate_rises_and_falls(monkeypatch: pytest.MonkeyPatch) -> None:
    rates: list[float] = []
    step = torch.optim.AdamW.step

    def spy(self: Any, *given: Any, **named: Any) -> Any:
        rates.append(self.param_groups[0]["lr"])
        return step(self, *given, **named)

    monkeypatch.setattr(torch.optim.AdamW, "step", spy)
    pretrain(TAUGHT, PretrainingPlan(steps=4, batch=2, learning_rate=0.1, seed=0), ROOMY)
    # Steps 1 to 4 of the first hundred: 1, 2, 3, 4 % of 0.1, times half of 1 + cos(0, 45, 90, 135 degrees).
    assert np.allclose(rates, [0.001, 0.002 * 0.8535534, 0.003 * 0.5, 0.004 * 0.1464466])


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": 0},
        {"batch": 0},
        {"learning_rate": 0.0},
        {"learning_rate": 1.0},
        {"learning_rate": float("nan")},
        {"seed": -1},
    ],
)
def test_nonsense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=f"PretrainingPlan got {next(iter(wrong))} = "):
        PretrainingPlan(**wrong)


def test_without_torch_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match="extra 'train'"):
        pretrain(TAUGHT, FEW, ROOMY)
