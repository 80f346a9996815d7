"""Replies drawn together are those the model gives: entropies as of one forward pass, prompts of any length side by side."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from breadth.lab.rung import drawing
from breadth.lab.rung.drawing import Reply, draw_replies, rollouts_of
from breadth.lab.rung.model import Policy
from breadth.lab.rung.sums import held_out

PROMPTS = ["1 + 2 =", held_out(1)[0].prompt, "3 + 8 + 4 ="]


@pytest.fixture(scope="module")
def drawn(policy: Policy) -> list[list[Reply]]:
    return draw_replies(policy, PROMPTS, 4, 12, seed=3)


def test_entropies_are_those_of_one_forward_pass(policy: Policy, drawn: list[list[Reply]]) -> None:
    for prompt, replies in zip(PROMPTS, drawn, strict=True):
        for one in replies:
            ids = policy.tokenizer(prompt)["input_ids"]
            with torch.inference_mode():
                likely = policy.model(input_ids=torch.tensor([ids + one.ids])).logits[0].log_softmax(-1)
            wanted = -(likely.exp() * likely).sum(-1)[len(ids) - 1 : -1]
            assert one.entropies == pytest.approx(wanted.numpy(), abs=1e-4)


def test_a_reply_ends_with_its_line_or_is_cut(policy: Policy, drawn: list[list[Reply]]) -> None:
    replies = [one for row in drawn for one in row]
    assert {one.ended for one in draw_replies(policy, [PROMPTS[1]], 8, 1, seed=0)[0]} == {
        False
    }  # an answer and its end are two
    assert any(one.ended for one in replies)
    for one in replies:
        assert one.ids.count(policy.end) == one.ended
        assert len(one.ids) == len(one.entropies) <= 12
        assert one.ended or (len(one.ids) == 12 and one.answer is None)
        assert "\n" not in one.text


def test_what_it_knows_by_heart_it_says(drawn: list[list[Reply]]) -> None:
    right = int(held_out(1)[0].answer)
    assert {one.answer for one in drawn[1]} <= {str(right), str(right + 1)}


def test_the_same_seed_draws_the_same(policy: Policy, drawn: list[list[Reply]]) -> None:
    again = draw_replies(policy, PROMPTS, 4, 12, seed=3)
    assert [[one.ids for one in row] for row in again] == [[one.ids for one in row] for row in drawn]
    other = draw_replies(policy, PROMPTS, 4, 12, seed=4)
    assert [[one.ids for one in row] for row in other] != [[one.ids for one in row] for row in drawn]


def test_more_prompts_than_fit_at_once(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "ROWS", 4)
    found = draw_replies(policy, [one.prompt for one in held_out(3)], 4, 12, seed=0)
    assert [len(row) for row in found] == [4, 4, 4]
    for problem, row in zip(held_out(3), found, strict=True):
        near = {problem.answer, str(int(problem.answer) + 1)}
        assert np.mean([one.answer in near for one in row]) >= 0.5, "replies stand beside other prompts than their own"


def test_rollouts_for_trl_keep_the_order_of_the_prompts(policy: Policy) -> None:
    first, second = (one.prompt for one in held_out(2))
    torch.manual_seed(0)
    found = rollouts_of(policy, 12)([first, second, first, second], None)
    assert [policy.tokenizer.decode(ids) for ids in found["prompt_ids"]] == [first, second, first, second]
    answers = [policy.said(ids) for ids in found["completion_ids"]]
    for place, problem in enumerate([*held_out(2), *held_out(2)]):
        assert answers[place] in {problem.answer, str(int(problem.answer) + 1)}
    torch.manual_seed(0)
    assert rollouts_of(policy, 12)([first, second, first, second], None) == found
