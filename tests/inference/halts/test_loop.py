"""Ending a completion that goes round in circles, and only that."""

from __future__ import annotations

import math
import pickle
import random

import pytest

from breadth.base.errors import SettingsError
from breadth.base.settings import dumps, loads
from breadth.inference.halts.loop import Loop


def ended_after(rule: Loop, pieces: list[str]) -> int | None:
    watcher = rule.watch()
    return next((count for count, piece in enumerate(pieces, 1) if watcher.push(piece, math.nan, math.nan)), None)


def prose(words: int, seed: int = 0) -> list[str]:
    rng = random.Random(seed)
    return [f" {rng.choice(VOCABULARY)}" for _ in range(words)]


VOCABULARY = [f"{head}{tail}" for head in "bcdfghjk" for tail in ("ace", "ide", "one", "ut", "est", "ing", "all", "or")]


def test_a_sentence_over_and_over_is_ended_soon_after_it_is_long_enough() -> None:
    # Each turn is six rough tokens, for "again" is two: let me see agai n .
    turn = [" let", " me", " see", " again", "."]
    ended = ended_after(Loop(), prose(100) + turn * 200)
    # 200 rough tokens are 33.3 turns, 167 to 170 pieces; a look comes every 32.
    assert ended is not None
    assert 267 <= ended <= 270 + 32


def test_it_does_not_matter_how_the_server_cuts_its_pieces() -> None:
    text = "".join(prose(60)) + " so we go back to the start and try once more" * 100
    by_letters = ended_after(Loop(every=1), list(text))
    by_sevens = ended_after(Loop(every=1), [text[start : start + 7] for start in range(0, len(text), 7)])
    assert by_letters is not None
    assert by_sevens is not None
    assert abs(7 * by_sevens - by_letters) <= 7


def test_a_paragraph_of_150_tokens_must_come_four_times() -> None:
    paragraph = prose(150, seed=1)
    assert ended_after(Loop(), prose(50) + paragraph * 3) is None
    assert ended_after(Loop(), prose(50) + paragraph * 8) is not None


@pytest.mark.parametrize("seed", range(5))
def test_honest_text_is_left_alone(seed: int) -> None:
    assert ended_after(Loop(), prose(5000, seed)) is None


def test_a_row_of_marks_and_a_table_are_left_alone() -> None:
    table = [piece for row in range(60) for piece in ("|", f" {row}", " |", f" {row * row}", " |", "\n")]
    assert ended_after(Loop(), prose(40) + ["-"] * 120 + prose(40, 1) + table + [" ="] * 150) is None


def test_white_space_without_end_is_ended() -> None:
    assert ended_after(Loop(), [*prose(10), *["\n"] * 3000]) == 832  # looks at 32, 64, ...: the first with 800 or more
    assert ended_after(Loop(), [*prose(10), *["\n"] * 700]) is None


def test_it_survives_files_and_needs_no_log_probs() -> None:
    rule = Loop(least=64, every=8)
    assert rule.top_logprobs == 0
    assert loads(Loop, dumps(rule)) == pickle.loads(pickle.dumps(rule)) == rule


@pytest.mark.parametrize("wrong", [{"least": 3}, {"every": 0}])
def test_bad_settings_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(SettingsError, match=next(iter(wrong))):
        Loop(**wrong)


def test_pieces_without_text_are_no_loop() -> None:
    assert ended_after(Loop(every=1), [""] * 2000) is None
