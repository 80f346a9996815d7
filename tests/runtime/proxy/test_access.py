"""The operator's ceilings."""

from __future__ import annotations

from pathlib import Path

import pytest

from breadth.base.errors import BrokenFileError, SettingsError
from breadth.inference.budget import Budget
from breadth.runtime.proxy.access import Keys, ProxyLimits, is_loopback, read_keys, require_key, tightest_budget
from breadth.runtime.proxy.errors import ApiError

KEY, OTHER = "correct-horse-battery", "another-key-entirely"


@pytest.mark.parametrize("header", [f"Bearer {KEY}", f"bearer {KEY}", f"Bearer  {KEY} ", f"Bearer {OTHER}"])
def test_a_key_on_the_list_is_let_in(header: str) -> None:
    Keys.from_keys([KEY, OTHER]).check(header)


@pytest.mark.parametrize(
    "header",
    [None, "", "Bearer", "Bearer ", f"Basic {KEY}", KEY, f"Bearer {KEY}x", f"Bearer {KEY[:-1]}", "Bearer \udcff"],
)
def test_anything_else_is_refused_with_401(header: str | None) -> None:
    with pytest.raises(ApiError) as caught:
        Keys.from_keys([KEY, OTHER]).check(header)
    assert caught.value.status == 401
    assert KEY not in caught.value.message


def test_without_keys_everybody_is_let_in_and_no_key_is_kept_in_the_clear() -> None:
    Keys().check(None)
    assert KEY not in repr(Keys.from_keys([KEY]))


@pytest.mark.parametrize("key", ["", "short", "with space in it", "ümlaut-ümlaut", "line\nbreak-line"])
def test_keys_that_cannot_be_sent_or_are_guessed_are_refused(key: str) -> None:
    with pytest.raises(SettingsError, match="key"):
        Keys.from_keys([key])


def test_a_file_of_keys_may_have_comments(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text(f"# for the app\n{KEY}\n\n  {OTHER}  \n")
    assert read_keys(path) == [KEY, OTHER]


@pytest.mark.parametrize("content", [b"", b"# nothing\n", b"\xff\xfe"])
def test_a_file_without_keys_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "keys"
    path.write_bytes(content)
    with pytest.raises(BrokenFileError):
        read_keys(path)
    with pytest.raises(BrokenFileError):
        read_keys(tmp_path / "absent")


def test_the_network_is_not_listened_to_without_a_key() -> None:
    assert [
        is_loopback(host)
        for host in ("127.0.0.1", "127.8.8.8", "::1", "localhost", "0.0.0.0", "::", "10.1.1.1", "example.org")  # noqa: S104
    ] == [
        *[True] * 4,
        *[False] * 4,
    ]
    require_key("127.0.0.1", Keys())
    require_key("10.1.1.1", Keys.from_keys([KEY]))
    with pytest.raises(SettingsError, match="everybody"):
        require_key("10.1.1.1", Keys())


def test_the_tightest_of_several_budgets_holds_ceiling_by_ceiling() -> None:
    mine, theirs = Budget(calls=8, output_tokens=100), Budget(calls=5, seconds=2.0)
    assert tightest_budget(mine, theirs) == Budget(calls=5, output_tokens=100, seconds=2.0)
    assert tightest_budget(mine, ProxyLimits(max_samples=4, seconds=1.5).budget) == Budget(
        calls=4, output_tokens=100, seconds=1.5
    )
    assert tightest_budget() == Budget()


def test_a_ceiling_of_nothing_is_still_a_ceiling() -> None:
    assert tightest_budget(Budget(calls=0), Budget(calls=3)).calls == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_body_bytes": 0},
        {"max_requests": 0},
        {"max_samples": 0},
        {"max_tokens": 0},
        {"seconds": 0.0},
        {"seconds": float("nan")},
        {"seconds": float("inf")},
        {"heartbeat_seconds": 0.0},
        {"drain_seconds": -1.0},
        {"read_seconds": 0.0},
        {"read_seconds": float("nan")},
        {"max_bodies": 0},
    ],
)
def test_limits_that_make_no_sense_are_refused_by_name(wrong: dict[str, float]) -> None:
    with pytest.raises(SettingsError, match=next(iter(wrong))):
        ProxyLimits(**wrong)  # type: ignore[arg-type] # wrong on purpose
