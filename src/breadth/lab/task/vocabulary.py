"""The tokens of Routes and the tokenizer that cuts a text into them: one word, one token."""

from __future__ import annotations

from typing import Any

from breadth.lab.task.facts import SIGNS
from breadth.lab.task.grammar import AGAIN, CLOSE, END, OPEN
from breadth.lab.task.routes import ROUTES

PAD, UNKNOWN, BEGIN = "<pad>", "<unk>", "<bos>"
CHAT = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %} {{ message['content'] }}{% endif"
    " %}{% endfor %}{% if add_generation_prompt %} {% endif %}"
)
"""A chat is the problems its user poses, nothing else: the reasoner knows no roles."""


def words_of(prime: int) -> list[str]:
    """List the tokens, by number; the padding is token 0."""
    numbers = [str(number) for number in range(prime)]
    return [
        PAD,
        UNKNOWN,
        BEGIN,
        END,
        OPEN,
        CLOSE,
        AGAIN,
        *ROUTES,
        "(",
        ")",
        *SIGNS,
        "=",
        *numbers,
        *(f"={number}" for number in numbers),
    ]


def build_tokenizer(prime: int) -> Any:
    """Build the tokenizer; every text begins with the token for the beginning."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    words = {word: number for number, word in enumerate(words_of(prime))}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BEGIN} $A", special_tokens=[(BEGIN, words[BEGIN])]
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        unk_token=UNKNOWN,
        bos_token=BEGIN,
        eos_token=END,
        padding_side="left",
    )
    fast.chat_template = CHAT
    return fast
