"""The key for a server, taken out of everything that the server sends: some repeat it in errors and replies."""

from __future__ import annotations

import base64
import html
import re
import sys
import unicodedata
from collections.abc import Iterator, MutableMapping
from dataclasses import replace
from typing import Any, TypeAlias, TypeVar
from urllib.parse import quote, unquote

import msgspec
import orjson

from breadth.base.errors import BreadthError
from breadth.inference.records import Candidate

MIN_SECRET_CHARACTERS = 8
"""Shorter keys are words such as EMPTY or none: taking them out would spoil replies and protect nothing."""
MIN_PART_CHARACTERS = 12
"""Characters of a part of a key that is taken out: half of the key where that is more."""
REDACTED = b"[key]"
MAX_ESCAPE_LEVELS = 3
"""Escapes inside escapes that are read: a JSON text in a JSON text, in a URL."""
_ESCAPED_CHARACTER = re.compile(
    r"\\+(?:u([0-9A-Fa-f]{4})|x([0-9A-Fa-f]{2})|U([0-9A-Fa-f]{8})|u\{([0-9A-Fa-f]{1,6})\}|[nrt])"
    r"|\b0x([0-9A-Fa-f]{2})\b"
)
_OCTAL_CHARACTER = re.compile(r"\\+([0-3][0-7]{2})")
_CODES = re.compile(r"(?<!\d)\d{2,3}(?!\d)")
_ESCAPES = ("%{:02x}", "\\x{:02x}", "\\u{:04x}", "\\{:03o}", "&#{};", "&#x{:x};")
"""How each letter of a text may be written instead, by its number."""
_LINE_END = rb"(?:\\[rn]|\s)*"
"""Ends of lines that may be in the middle of base64, as they are or in JSON."""
ErrorT = TypeVar("ErrorT", bound=BreadthError)


class Redactor:
    """Takes a key out of what a server sends: plain, escaped, URL-encoded, in base64 or hexadecimal, or half of it."""

    def __init__(self, key: str | None = None) -> None:
        secret = (key or "").strip()
        self.forms: tuple[str, ...] = ()
        """What to look for, in lower case; empty without a key."""
        self._pattern: re.Pattern[bytes] | None = None
        self._letter_forms: tuple[str, ...] = ()
        self._encoded_forms: tuple[bytes, ...] = ()
        self._shortest = 0
        if len(secret) < MIN_SECRET_CHARACTERS:
            return
        part = max(MIN_PART_CHARACTERS, len(secret) // 2)
        parts = secret[:part], secret[-part:]
        begin, end = (re.escape(text.encode()) for text in parts)
        plain = sorted(plain_forms(secret), key=len, reverse=True)
        encoded = base64_forms(secret.encode())
        halves = set().union(*(base64_forms(text.encode()) for text in parts))  # one is whole where a line ends
        broken = (_LINE_END.join(re.escape(form[at : at + 1]) for at in range(len(form))) for form in encoded)
        either = b"|".join([*(re.escape(form.encode()) for form in plain), begin + rb"[^\s\"'\\<>]*", end])
        self._pattern = re.compile(b"(?i:%s)|%s" % (either, b"|".join([*broken, *map(re.escape, halves)])))
        self.forms = tuple(form.lower() for form in (*plain, *(form.decode() for form in (*encoded, *halves)), *parts))
        self._encoded_forms = tuple({form.encode() for form in self.forms})
        self._shortest = min(map(len, self._encoded_forms))
        letters = plain_letters(secret)
        runs = {letters[at : at + MIN_PART_CHARACTERS] for at in range(len(letters) - MIN_PART_CHARACTERS + 1)}
        forms = {form for form in map(plain_letters, self.forms) if len(form) >= MIN_SECRET_CHARACTERS}
        self._letter_forms = tuple(forms | runs)

    def clean(self, data: bytes) -> bytes:
        """Return bytes without the key."""
        if self._pattern is None or len(data) < self._shortest:
            return data
        lowered = data.lower()
        return self._pattern.sub(REDACTED, data) if any(form in lowered for form in self._encoded_forms) else data

    def clean_text(self, text: str) -> str:
        """Return a text without the key."""
        return self.clean(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")

    def clean_error(self, error: ErrorT) -> ErrorT:
        """Take the key out of an error's message; return the same error.

        A message that holds it in another disguise is left out: with blanks in it, backwards, in the escapes of HTML,
        JSON or Python, as the numbers of its letters, or a run of twelve letters of it.
        """
        error.problem = self.clean_text(error.problem)
        letters = plain_letters(error.problem)
        numbers = plain_letters(_CODES.sub(lambda found: chr(int(found[0])), error.problem))
        octal = plain_letters(_OCTAL_CHARACTER.sub(lambda found: chr(int(found[1], 8)), error.problem))
        if any(form in text for form in self._letter_forms for text in (letters, letters[::-1], numbers, octal)):
            status = getattr(error, "status", None)
            answered = "The server failed" if status is None else f"The server answered with status {status}"
            error.problem = f"{answered}; its message repeats the key, and is left out."
        error.args = (error.problem, error.remedy)
        return error

    def clean_candidate(self, candidate: Candidate) -> Candidate:
        """Return a completion without the key: it may have come in pieces, and is cut into other ones later."""
        if not self.forms:
            return candidate
        return replace(candidate, text=self.clean_text(candidate.text), reasoning=self.clean_text(candidate.reasoning))


def unescape_character(found: re.Match[str]) -> str:
    """Return the character that an escape means; a blank for line ends and tabs."""
    code = int(next(filter(None, found.groups()), "20"), 16)
    return chr(code) if code <= sys.maxunicode else " "


def plain_letters(text: str) -> str:
    """Return the letters and digits of a text in lower case, out of the escapes of HTML, JSON, Python and URLs."""
    for _ in range(MAX_ESCAPE_LEVELS):
        text = unquote(html.unescape(_ESCAPED_CHARACTER.sub(unescape_character, text)))
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKC", text))).lower()


def plain_forms(secret: str) -> set[str]:
    """Return the forms in which a key is written out: as it is, escaped, URL-encoded once or twice, hexadecimal.

    Escaped is what must be, or every letter in the same way.
    """
    encoded, code = quote(secret, safe=""), secret.encode()
    forms = {secret, secret.replace("/", r"\/"), encoded, quote(encoded, safe="")}
    forms |= {code.hex(), code.hex(":"), code.hex(" ")}
    forms |= {"".join(map(escape.format, code)) for escape in _ESCAPES}
    return forms | {msgspec.json.encode(form).decode()[1:-1] for form in forms}


def base64_forms(secret: bytes) -> set[bytes]:
    """Return what every base64 text that holds a secret holds: one form for each place in a group of three bytes."""
    forms = set()
    for before in range(3):
        whole = base64.b64encode(b"\0" * before + secret).rstrip(b"=")
        # The first characters depend on what is before, the last one on what follows.
        form = whole[-(-before * 8 // 6) :]
        form = form if (before + len(secret)) % 3 == 0 else form[:-1]
        forms |= {form, form.translate(bytes.maketrans(b"+/", b"-_"))}
    return forms


Event: TypeAlias = dict[str, Any]
"""The content of an event of a stream."""
MIN_HELD_CHARACTERS = 4
"""Characters of a key at the end of an event from which on it is held back: fewer are the beginning of many words."""


class EventRedactor:
    """Takes a key out of the texts of a stream, also where it is split over several events.

    Events that may end inside a key are held back until what follows shows whether they do.
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._forms: dict[str, list[str]] = {}
        for form in redactor.forms:
            self._forms.setdefault(form[:MIN_HELD_CHARACTERS], []).append(form)
        self._tails: dict[tuple[object, ...], str] = {}
        self._sent: dict[tuple[object, ...], str] = {}
        self._held: list[tuple[bytes, Event]] = []

    def feed(self, data: bytes, content: Event) -> list[tuple[bytes, Event]]:
        """Take an event and return those that may be passed on, each as its bytes and its content."""
        if not self._redactor.forms:
            return [(data, content)]
        self._held.append((data, content))
        for place, table, name in find_texts(content):
            self._tails[place] = self._open_end(self._tails.get(place, "") + table[name].lower())
        is_open = any(len(tail) >= MIN_HELD_CHARACTERS for tail in self._tails.values())
        return [] if is_open else self.finish()

    def finish(self) -> list[tuple[bytes, Event]]:
        """Return the events that were held back."""
        held, self._held = self._held, []
        pieces: dict[tuple[object, ...], list[tuple[MutableMapping[str, Any], str]]] = {}
        for _, content in held:
            for place, table, name in find_texts(content):
                pieces.setdefault(place, []).append((table, name))
        is_changed = False
        for place, parts in pieces.items():
            sent = self._sent.get(place, "")
            whole = sent + "".join(table[name] for table, name in parts)
            if (clean := self._redactor.clean_text(whole)) != whole:
                is_changed = True
                for (table, name), text in zip(parts, [clean.removeprefix(sent), *[""] * len(parts)], strict=False):
                    table[name] = text
            self._sent[place] = whole[1 - MIN_HELD_CHARACTERS :]
        if is_changed:
            for _, content in held:
                for choice in content["choices"]:
                    choice.pop("logprobs", None)  # they spell the text
        return [
            (orjson.dumps(content) if is_changed else self._unescape(data, content), content) for data, content in held
        ]

    def _open_end(self, text: str) -> str:
        """Return a text from where it may be the beginning of the key on; its last characters where it is none yet."""
        starts = [len(text)]
        for beginning, forms in self._forms.items():
            start = text.find(beginning)
            while start >= 0 and not any(
                len(form) > len(text) - start and form.startswith(text[start:]) for form in forms
            ):
                start = text.find(beginning, start + 1)
            starts += [start] if start >= 0 else []
        start = min(starts)
        return text[start:] if start < len(text) else text[1 - MIN_HELD_CHARACTERS :]

    def _unescape(self, data: bytes, content: Event) -> bytes:
        r"""Return an event as it came, or without the escapes (\u002d, \/) behind which it hides the key."""
        if b"\\u" not in data and b"\\/" not in data:
            return data
        plain = orjson.dumps(content)
        return data if self._redactor.clean(plain) == plain else plain


def find_texts(content: Event) -> Iterator[tuple[tuple[object, ...], MutableMapping[str, Any], str]]:
    """Yield each text that an event adds to a reply: its place in the reply, and the table and name that hold it."""
    for choice in content["choices"]:
        yield from find_nested_texts((str(choice.get("index")), "delta"), choice.get("delta"))
        if isinstance(choice.get("text"), str):
            yield (str(choice.get("index")), "text"), choice, "text"


def find_nested_texts(
    place: tuple[object, ...], value: Any
) -> Iterator[tuple[tuple[object, ...], MutableMapping[str, Any], str]]:
    """Yield each text inside a value at a place of a reply."""
    for name, inner in value.items() if isinstance(value, dict) else ():
        if isinstance(inner, str) and name != "role":
            yield (*place, name), value, name
        elif isinstance(inner, dict):
            yield from find_nested_texts((*place, name), inner)
        elif isinstance(inner, list):
            for number, item in enumerate(inner):
                index = item.get("index", number) if isinstance(item, dict) else number
                yield from find_nested_texts((*place, name, str(index)), item)
