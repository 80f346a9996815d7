"""A prompt seen before costs what it cost; another is estimated from its length and what was learned."""

from __future__ import annotations

from breadth.runtime.sampler import Draw
from breadth.runtime.samplers.prompt_sizes import MOST, PromptSizes, characters


def test_before_anything_is_learned() -> None:
    assert PromptSizes().estimate(Draw("x" * 40)) == 10
    assert PromptSizes().estimate(Draw("")) == 1


def test_the_same_prompt_costs_the_same() -> None:
    sizes = PromptSizes()
    chat = Draw(({"role": "user", "content": "What is 2 + 2?"},))
    sizes.learn(chat, 41)
    assert sizes.estimate(Draw(({"role": "user", "content": "What is 2 + 2?"},), seed=9)) == 41
    assert sizes.estimate(Draw(({"role": "user", "content": "What is 2 + 2?"},), prefix="It is")) != 41


def test_other_prompts_are_estimated_by_what_was_learned() -> None:
    sizes = PromptSizes()
    sizes.learn(Draw("x" * 100), 50)
    assert sizes.estimate(Draw("y" * 30)) == 15
    sizes.learn(Draw("z" * 100), 0)
    assert sizes.estimate(Draw("y" * 30)) == 15, "a server that says nothing teaches nothing"


def test_characters_of_a_chat() -> None:
    parts = [{"type": "text", "text": "abc"}, {"type": "image_url", "image_url": {"url": "data:..."}}]
    assert characters(Draw(({"role": "system", "content": "ab"}, {"role": "user", "content": parts}), prefix="p")) == 1 + 2 + 3 + 2 * 16


def test_memory_is_bounded() -> None:
    sizes = PromptSizes()
    for number in range(MOST + 10):
        sizes.learn(Draw(f"{number:05}"), 1000)
    assert len(sizes._known) == MOST
    assert sizes.estimate(Draw(f"{MOST + 9:05}")) == 1000
