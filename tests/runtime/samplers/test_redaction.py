"""The key for a server never leaves it: whatever form it is repeated in, and however it is cut up on the way."""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import quote

import pytest

from breadth.base.errors import ServerError
from breadth.inference.records import Candidate
from breadth.runtime.samplers.redaction import EventRedactor, Redactor


def test_a_key_is_taken_out_and_nothing_else() -> None:
    redactor = Redactor("sk-0123456789abcdef\n")
    assert redactor.clean_text("got sk-0123456789abcdef!") == "got [key]!"
    assert redactor.clean_text("got sk-0123456789...") == "got [key]"
    assert redactor.clean_text("got ...789abcdef!") == "got ...789abcdef!", "less than half tells little"
    assert redactor.clean_text("got ...456789abcdef!") == "got ...[key]!"
    assert redactor.clean_text("got sk-01...ef, sk-other, äöü \ud800") == "got sk-01...ef, sk-other, äöü \ud800"
    error = redactor.clean_error(ServerError("bad sk-0123456789abcdef", "mend it", status=400, fatal=True))
    assert (error.problem, str(error), error.status, error.fatal) == ("bad [key]", "bad [key]\n  -> mend it", 400, True)


@pytest.mark.parametrize(
    "text",
    [
        "s k - 0 1 2 3 4 5 6 7 8 9",
        "sk-0123&#52;56789\\u0061b",
        "SK\u200b-0123456789A%62",
        "sk-01234567\n89ab",
        "...3456789abcde...",
        "sk-0123456789abcdef"[::-1],
        "".join(f"\\{ord(letter):03o}" for letter in "sk-0123456789a"),
        "".join(f"\\U{ord(letter):08x}" for letter in "sk-0123456789a"),
        "".join(f"\\u{{{ord(letter):x}}}" for letter in "sk-0123456789a"),
        " ".join(f"0x{ord(letter):02x}" for letter in "sk-0123456789a"),
        str(list(b"sk-0123456789a")),
    ],
)
def test_an_error_with_the_key_in_disguise_is_left_out(text: str) -> None:
    redactor = Redactor("sk-0123456789abcdef")
    error = redactor.clean_error(ServerError(f"http://up answered with status 400: bad {text}", "mend it", status=400))
    assert error.problem == "The server answered with status 400; its message repeats the key, and is left out."
    kept = redactor.clean_error(ServerError("It has 0123 tokens; sk-012345 is another.", "mend it"))
    assert kept.problem == "It has 0123 tokens; sk-012345 is another."


@pytest.mark.parametrize("key", [None, "", "none", "EMPTY", "secret"])
def test_a_key_that_is_a_word_is_left_in_texts(key: str | None) -> None:
    assert Redactor(key).clean(b"none is EMPTY or secret") == b"none is EMPTY or secret"


@pytest.mark.parametrize("before", ["", "a", "ab", "user:", "Bearer "])
@pytest.mark.parametrize("after", ["", "x", "yz", ":password"])
def test_a_key_is_found_wherever_it_is_in_base64(before: str, after: str) -> None:
    key = "sk-0123456789abcdef"
    text = base64.b64encode(f"{before}{key}{after}".encode())
    assert b"[key]" in Redactor(key).clean(text)


KEY = "sk-Abc/0123456789+def"


@pytest.mark.parametrize(
    "form",
    [
        quote(KEY, safe=""),
        quote(quote(KEY, safe=""), safe=""),
        KEY.replace("/", r"\/"),
        json.dumps(KEY.replace("/", r"\/"))[1:-1],
        KEY.encode().hex(),
        KEY.encode().hex().upper(),
        KEY.encode().hex(":"),
        KEY.encode().hex(" "),
        "".join(f"%{ord(letter):02X}" for letter in KEY),
        "".join(f"\\x{ord(letter):02x}" for letter in KEY),
        "".join(f"\\u{ord(letter):04X}" for letter in KEY),
        json.dumps("".join(f"\\u{ord(letter):04x}" for letter in KEY))[1:-1],
        "".join(f"\\{ord(letter):03o}" for letter in KEY),
        "".join(f"&#{ord(letter)};" for letter in KEY),
        "".join(f"&#x{ord(letter):X};" for letter in KEY),
    ],
)
def test_a_key_is_found_however_it_is_written(form: str) -> None:
    assert Redactor(KEY).clean_text(f"<{form}>") == "<[key]>"


@pytest.mark.parametrize("before", range(0, 60, 7))
@pytest.mark.parametrize("in_json", [False, True])
def test_a_key_in_base64_is_found_over_the_end_of_a_line(before: int, in_json: bool) -> None:
    encoded = base64.encodebytes(b"x" * before + KEY.encode() + b"y" * 9).decode()
    text = json.dumps(encoded) if in_json else encoded
    cleaned = Redactor(KEY).clean_text(text)
    rest = cleaned.replace("\\n", "").replace("\n", "").strip('"')
    assert rest.count("[key]") == 1
    assert len(rest.replace("[key]", "")) <= 4 * (before + 9) / 3 + 8, "no more than what was around it"


def test_numbers_in_an_error_are_no_key() -> None:
    problem = "It got 115 107 45 tokens in 0x1F; \\101 is octal, &#65; an A, \\U0001F600 a face, \\UFFFFFFFF none."
    assert Redactor("sk-0123456789abcdef").clean_error(ServerError(problem, "mend it")).problem == problem


def test_a_completion_is_cleaned_as_a_whole() -> None:
    completion = Redactor(KEY).clean_candidate(Candidate(f"got {KEY}!", reasoning=KEY))
    assert (completion.text, completion.reasoning) == ("got [key]!", "[key]")
    completion = Candidate(KEY)
    assert Redactor().clean_candidate(completion) is completion


def chunk(text: str, *, field: str = "content", index: int = 0) -> dict[str, Any]:
    return {"choices": [{"index": index, "delta": {field: text}, "logprobs": {"content": [{"token": text}]}}]}


def relay(redactor: EventRedactor, chunks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what a client gets, as the bytes say it."""
    released = [event for content in chunks for event in redactor.feed(json.dumps(content).encode(), content)]
    return [json.loads(data) for data, _ in (*released, *redactor.finish())]


def lane(chunks: list[dict[str, Any]], field: str = "content", index: int = 0) -> str:
    choices = [choice for content in chunks for choice in content["choices"] if choice["index"] == index]
    return "".join(choice["delta"].get(field, "") for choice in choices)


@pytest.mark.parametrize(
    "form",
    [
        *(KEY, KEY.upper(), quote(KEY, safe=""), base64.b64encode(KEY.encode()).decode()),
        *("".join(map(escape.format, KEY.encode())) for escape in ("%{:02x}", "\\u{:04x}", "&#{};")),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 13])
@pytest.mark.parametrize("field", ["content", "reasoning_content"])
def test_a_key_that_is_split_over_events_is_found(form: str, size: int, field: str) -> None:
    text = f"it is {form} and so on"
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    got = relay(EventRedactor(Redactor(KEY)), [chunk(piece, field=field) for piece in pieces])
    told = lane(got, field)
    assert told.startswith("it is ")
    assert told.endswith(" and so on")
    assert "[key]" in told
    assert len(told) <= len("it is sk-[key]= and so on")
    assert not any(piece in json.dumps(got) for piece in (form[:6], form[-6:])), "log-probs spell it too"


def test_each_reply_is_followed_by_itself() -> None:
    chunks = [chunk(character, index=index) for character in KEY for index in (0, 1)]
    got = relay(EventRedactor(Redactor(KEY)), chunks)
    assert [lane(got, index=index) for index in (0, 1)] == ["sk-[key]", "sk-[key]"]


def test_what_only_begins_like_the_key_comes_through() -> None:
    texts = ["ask", " sk", "-Ab", "c/01", "is ", "no key", " sk-A", "bc"]
    chunks = [chunk(text) for text in texts]
    redactor = EventRedactor(Redactor(KEY))
    first = redactor.feed(b"1", chunks[0])
    assert [data for data, _ in first] == [b"1"], "at once, and byte for byte"
    got = relay(redactor, chunks[1:])
    assert lane([chunks[0], *got]) == "".join(texts)
    assert all("logprobs" in content["choices"][0] for content in got)


def test_a_key_behind_escapes_is_found() -> None:
    content = chunk(f"it is {KEY}")
    raw = json.dumps(content).replace("A", r"\u0041").replace("/", r"\/").encode()
    ((data, _),) = EventRedactor(Redactor(KEY)).feed(raw, content)
    assert (json.loads(data)["choices"][0]["delta"]["content"], b"[key]" in data) == ("it is [key]", True)
    harmless = json.dumps(chunk("\u4f60/")).encode()
    assert EventRedactor(Redactor(KEY)).feed(harmless, chunk("\u4f60/"))[0][0] is harmless


def test_without_a_key_nothing_is_held() -> None:
    assert EventRedactor(Redactor()).feed(b"raw", chunk("sk-A"))[0][0] == b"raw"
