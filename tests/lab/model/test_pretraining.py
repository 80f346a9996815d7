"""The same seed teaches the same weights, the loss falls, and what must not be learnt is not."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
import pytest

from breadth.base.errors import MissingExtraError, SettingsError
from breadth.lab.model.pretraining import IGNORED_LABEL, LEVEL_SHARES, PretrainingPlan, pretrain
from breadth.lab.model.reasoner import Reasoner, ReasonerShape
from breadth.lab.task.problems import LEVELS, Problem, draw_problem, draw_problems
from breadth.lab.task.teacher import ArithmeticFacts, Teacher, TeacherTrace
from breadth.lab.task.vocabulary import vocabulary_words

torch = pytest.importorskip("torch", reason="the extra 'train' is not installed")
transformers = pytest.importorskip("transformers", reason="the extra 'train' is not installed")

FACTS = ArithmeticFacts(prime=5, shaky=0.3, right=0.1, believed=0.6)
TEACHER = Teacher(FACTS, attempts=2, content=0.8, careless=0.3, cut=0.1)
TINY = ReasonerShape(hidden=32, layers=1, heads=2, inner=32, context=256)
FEW = PretrainingPlan(steps=5, batch=4, learning_rate=0.01, seed=1)
WORDS = vocabulary_words(5)


def _weights(reasoner: Reasoner) -> Any:
    return torch.cat([weights.detach().flatten() for weights in reasoner.model.parameters()])


def test_the_same_seed_teaches_the_same_weights() -> None:
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    first = pretrain(TEACHER, FEW, TINY)
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(4)
    second, other = (
        pretrain(TEACHER, FEW, TINY),
        pretrain(TEACHER, PretrainingPlan(steps=5, batch=4, learning_rate=0.01, seed=2), TINY),
    )
    assert torch.equal(_weights(first), _weights(second))
    assert not torch.equal(_weights(first), _weights(other))
    assert not first.model.training


def test_the_loss_falls() -> None:
    told: list[tuple[int, float]] = []
    pretrain(
        TEACHER,
        PretrainingPlan(steps=40, batch=8, learning_rate=0.1, seed=0),
        TINY,
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
    pretrain(TEACHER, FEW, TINY)
    assert held_out & set(shown)
    assert any(
        problem.canonical in forms for problem in set(shown) - held_out
    )  # commuted forms, were they not kept back
    shown.clear()
    pretrain(TEACHER, FEW, TINY, held_out=held_out)
    assert len(shown) >= 5 * 4
    assert {problem.level for problem in shown} == {"easy", "medium", "hard"}
    assert not forms & {problem.canonical for problem in shown}


def test_lessons_are_not_the_draws_of_the_seed_alone(shown: list[Problem]) -> None:
    pretrain(TEACHER, FEW, TINY)
    lessons = shown[:20]
    assert lessons == _drawn(np.random.default_rng((1, 13)))
    assert lessons != _drawn(np.random.default_rng(1))


def _drawn(rng: np.random.Generator) -> list[Problem]:
    """Take twenty lessons from a generator."""
    taken = []
    for _ in range(20):
        taken.append(draw_problem(rng, 5, LEVELS[rng.choice(3, p=LEVEL_SHARES)]))
        TEACHER.write(taken[-1], rng)
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
    pretrain(teacher, FEW, TINY)
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
    pretrain(TEACHER, PretrainingPlan(steps=4, batch=2, learning_rate=0.1, seed=0), TINY)
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
        pretrain(TEACHER, FEW, TINY)
