"""The tokens of Routes and the tokenizer that cuts a text into them: one word, one token."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from breadth.lab.task.grammar import AGAIN, CLOSE, END, OPEN, ROUTES
from breadth.lab.task.problems import ROUTES_OPERATORS

PAD, UNKNOWN, BEGIN = "<pad>", "<unk>", "<bos>"
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %} {{ message['content'] }}{% endif"
    " %}{% endfor %}{% if add_generation_prompt %} {% endif %}"
)
"""A chat is the problems its user poses, nothing else: the reasoner knows no roles."""


def vocabulary_words(prime: int) -> list[str]:
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
        *ROUTES_OPERATORS,
        "=",
        *numbers,
        *(f"={number}" for number in numbers),
    ]


def build_tokenizer(prime: int) -> Any:
    """Build the tokenizer; every text begins with the token for the beginning."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    words = {word: number for number, word in enumerate(vocabulary_words(prime))}
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
    fast.chat_template = CHAT_TEMPLATE
    return fast


EQUALS = "="
THINKING_CUES = {"Wait": AGAIN}
"""What strategies put behind thinking that ended too early -> the reasoner's own word for it."""
_FORCED = re.compile(r"Final Answer:")
"""What strategies put behind thinking that was cut; the reasoner answers there by itself."""
_WORDS = re.compile(r"</?\w+>|=?\d+|\w+|[^\w\s]")
"""A mark, a number or a result, another word, a sign: whether spaces stand between them or not."""


def words_in_text(text: str) -> list[str]:
    """Cut a text into words, with or without spaces between them: ``(3+4)`` is ``( 3 + 4 )``."""
    return _WORDS.findall(text)


def question_words(texts: Sequence[str]) -> list[str]:
    """Return a chat's user messages as the reasoner was taught to read them: words, and an equals sign at the end."""
    words = [word for text in texts for word in words_in_text(text)]
    return words if not words or words[-1] == EQUALS else [*words, EQUALS]


def prefix_words(text: str) -> list[str]:
    """Return the beginning of a reply in the reasoner's words: cues become ``again``, answer calls are left out."""
    return [THINKING_CUES.get(word, word) for word in words_in_text(_FORCED.sub(" ", text))]


class RoutesTokens:
    """A reasoner's vocabulary, both ways. Words it does not have become its token for the unknown."""

    def __init__(self, tokenizer: Any) -> None:
        self._numbers: dict[str, int] = tokenizer.get_vocab()
        self._words = {number: word for word, number in self._numbers.items()}
        self._unknown = self._numbers[UNKNOWN]
        self._kept = {word: number for word, number in self._numbers.items() if word not in (PAD, BEGIN, END)}
        self.begin, self.end = self._numbers[BEGIN], self._numbers[END]
        """Tokens that begin a text and end a reply."""
        self.open, self.close = self._numbers[OPEN], self._numbers[CLOSE]
        """Tokens that begin and end thinking."""

    @property
    def size(self) -> int:
        """Number of tokens there are."""
        return len(self._numbers)

    def tokens(self, words: Sequence[str]) -> tuple[int, ...]:
        """Return the tokens of a text, its beginning first; padding, beginning and end cannot be written."""
        return (self.begin, *(self._kept.get(word, self._unknown) for word in words))

    def text(self, token: int, before: str) -> str:
        """Return what a token adds to a text that ends in ``before``: its word, with a space where one is needed."""
        return self._words[token] if not before or before[-1].isspace() else f" {self._words[token]}"

    def thinks(self, tokens: Sequence[int]) -> bool:
        """Say whether thinking is open at the end of a text."""
        marks = [token for token in tokens if token in (self.open, self.close)]
        return bool(marks) and marks[-1] == self.open
