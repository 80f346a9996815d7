"""The contract of halt rules: a frozen rule that starts a fresh watcher for each completion."""

from __future__ import annotations

import math
import pickle
import random
from dataclasses import FrozenInstanceError, dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from breadth.base.errors import SettingsError
from breadth.base.settings import dumps, loads
from breadth.inference.confidence import Gauge, group_confidences
from breadth.inference.halting import ClosedBrace, Halt, Loop, LowConfidence, Phrase, Watcher
from breadth.inference.records import Ask, Candidate


class _Tokens:
    def __init__(self, left: int) -> None:
        self.left = left

    def push(self, text: str, logprob: float, confidence: float) -> bool:
        self.left -= 1
        return self.left <= 0


@dataclass(frozen=True)
class After(Halt):
    """End after a number of tokens."""

    tokens: int = 2
    """How many."""

    def watch(self) -> Watcher:
        """Return a watcher."""
        return _Tokens(self.tokens)


def test_a_rule_of_ones_own_fits_into_a_request() -> None:
    ask = Ask(3, halt=After(2))
    assert ask.halt is not None
    assert ask.halt.top_logprobs == 0
    first, second = ask.halt.watch(), ask.halt.watch()
    assert [first.push("a", -1, 1), first.push("b", -1, 1), second.push("a", -1, 1)] == [False, True, False]
    assert ask == Ask(3, halt=After(2))


def test_what_it_must_see_is_no_setting_unless_it_says_so() -> None:
    with pytest.raises(TypeError):
        After(top_logprobs=3)  # type: ignore[call-arg]  # wrong on purpose
    with pytest.raises(FrozenInstanceError):
        After().tokens = 3  # type: ignore[misc]  # wrong on purpose


def test_a_rule_without_a_watcher_is_no_rule() -> None:
    with pytest.raises(TypeError, match="watch"):
        Halt()  # type: ignore[abstract]  # wrong on purpose


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


def ended_at(rule: LowConfidence, confidences: list[float]) -> int | None:
    watcher = rule.watch()
    return next((place for place, value in enumerate(confidences) if watcher.push("a", -0.1, value)), None)


def test_it_ends_at_the_first_full_window_below_the_threshold() -> None:
    # Windows of 4 end at tokens 3, 4, ...: 5, 5, 5, 6.5, 8.
    dip = [8.0, 8, 2, 2, 8, 8, 8, 8]
    assert ended_at(LowConfidence(5.5, window=4), dip) == 3
    assert ended_at(LowConfidence(5.0, window=4), dip) is None
    # 9 8 8 2 is 6.75 still, 8 8 2 2 is 5.
    assert ended_at(LowConfidence(6.0, window=4), [9, 9, *dip]) == 5


def test_nothing_shorter_than_the_window_is_ended() -> None:
    assert ended_at(LowConfidence(5, window=4), [1.0, 1, 1]) is None
    assert ended_at(LowConfidence(5, window=4), [1.0, 1, 1, 1]) == 3


@settings(max_examples=60)
@given(st.lists(st.floats(0, 20, width=32), min_size=1, max_size=60), st.integers(1, 12), st.floats(1, 19))
def test_it_ends_exactly_where_a_naive_window_would(values: list[float], window: int, threshold: float) -> None:
    means = [] if len(values) < window else group_confidences(values, window).tolist()
    clear = all(abs(mean - threshold) > 1e-4 for mean in means)
    first = next((place + window - 1 for place, mean in enumerate(means) if mean < threshold), None)
    assert not clear or ended_at(LowConfidence(threshold, window), values) == first


def test_a_completion_just_as_sure_as_the_bar_is_not_ended_by_rounding() -> None:
    # The bar comes from single precision, the stream has double: neither 0.1 nor 8.1 is exact in both.
    for value in (0.1, 8.1, 17.3):
        stored = Candidate("", confidences=np.full(500, value, dtype=np.float32))
        assert ended_at(LowConfidence(Gauge(window=64).confidence_of(stored), 64), [value] * 5000) is None


def test_missing_tokens_are_passed_over() -> None:
    gaps = [9.0, math.nan, 1, math.nan, 1, 1, math.inf, 1]
    assert ended_at(LowConfidence(2, window=4), gaps) == 7  # 1, 1, 1, 1


def test_it_rests_for_good_after_sixteen_missing_in_a_row() -> None:
    silent = [1.0] * 3 + [math.nan] * 16 + [1.0] * 50
    assert ended_at(LowConfidence(5, window=4), silent) is None
    assert ended_at(LowConfidence(5, window=4), [1.0] * 3 + [math.nan] * 15 + [1.0]) == 18
    assert ended_at(LowConfidence(5, window=4), [math.nan] * 100) is None


def test_each_completion_has_its_own_watcher() -> None:
    rule = LowConfidence(5, window=2)
    first, second = rule.watch(), rule.watch()
    assert not first.push("a", -1, 1)
    assert not second.push("a", -1, 1)
    assert first.push("a", -1, 1)


def test_it_says_what_it_must_see_and_survives_files() -> None:
    rule = LowConfidence(5.5, 64, 5)
    assert LowConfidence(1).top_logprobs == 20
    assert rule.top_logprobs == 5
    assert loads(LowConfidence, dumps(rule)) == pickle.loads(pickle.dumps(rule)) == rule


@pytest.mark.parametrize(
    "wrong", [{"threshold": math.nan}, {"threshold": 1.0, "window": 0}, {"threshold": 1.0, "top_logprobs": 0}]
)
def test_bad_settings_are_refused_low_confidence(wrong: dict[str, float]) -> None:
    with pytest.raises(SettingsError):
        LowConfidence(**wrong)  # type: ignore[arg-type]  # wrong on purpose


NONE = float("nan")


def halted_at(rule: Phrase, tokens: list[str]) -> int | None:
    watcher = rule.watch()
    return next((place for place, token in enumerate(tokens) if watcher.push(token, NONE, NONE)), None)


def test_a_phrase_is_found_within_and_across_tokens() -> None:
    assert halted_at(Phrase(("Wait",)), ["So ", "it is 4.", " Wait,", " no"]) == 2
    assert halted_at(Phrase(("Wait",)), ["So ", "Wa", "it", " no"]) == 2
    assert halted_at(Phrase(("Alternatively", "Wait")), ["W", "ai", "s Altern", "ative", "ly"]) == 4


def test_a_phrase_is_not_made_up_of_parts_with_something_between() -> None:
    assert halted_at(Phrase(("Wait",)), ["Wa", "-", "it"]) is None


def test_single_characters_do() -> None:
    assert halted_at(Phrase(("\n",)), ["a", "b\nc"]) == 1


def test_it_sleeps_behind_the_mark() -> None:
    rule = Phrase(("Wait",), until="</think>")
    assert halted_at(rule, ["x</thi", "nk>", " Wait"]) is None
    assert halted_at(rule, ["</think> Wait"]) is None
    assert halted_at(rule, ["Wait</think>"]) == 0
    assert halted_at(rule, ["</think", "Wait"]) == 1


@pytest.mark.parametrize("texts", [(), ("",), ("a", "")])
def test_bad_settings_are_refused_phrase(texts: tuple[str, ...]) -> None:
    with pytest.raises(SettingsError, match="texts"):
        Phrase(texts)


@pytest.mark.parametrize(
    ("tokens", "place"),
    [
        (["{", "42", "}", "."], 2),
        (["{\\frac", "{1}{2", "}", "}", " so"], 3),
        (["{4}."], 0),
        (["}", " {", "4"], None),
        (["}", " {", "4", "}"], 3),
        (["no", " brace"], None),
    ],
)
def test_it_ends_with_the_first_brace(tokens: list[str], place: int | None) -> None:
    watcher = ClosedBrace().watch()
    assert next((number for number, token in enumerate(tokens) if watcher.push(token, -0.1, 3.0)), None) == place
