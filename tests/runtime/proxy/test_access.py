"""The operator's ceilings."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from breadth.base.errors import BrokenFileError, SettingsError
from breadth.inference.records import Budget
from breadth.runtime.proxy.access import (
    ClientSlots,
    Keys,
    OwnHosts,
    ProxyLimits,
    is_loopback,
    read_keys,
    require_key,
    tightest_budget,
)
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
        {"read_seconds": 604_801.0},
        {"max_bodies": 0},
    ],
)
def test_limits_that_make_no_sense_are_refused_by_name(wrong: dict[str, float]) -> None:
    with pytest.raises(SettingsError, match=next(iter(wrong))):
        ProxyLimits(**wrong)  # type: ignore[arg-type] # wrong on purpose


def test_the_shortest_key_has_eight_characters() -> None:
    with pytest.raises(SettingsError, match="at least 8 plain characters"):
        Keys.from_keys(["1234567"])
    Keys.from_keys(["12345678"]).check("Bearer 12345678")


def test_a_refusal_says_whether_a_key_was_missing_or_wrong() -> None:
    keys = Keys.from_keys([KEY])
    with pytest.raises(ApiError) as missing:
        keys.check(None)
    with pytest.raises(ApiError) as wrong:
        keys.check(f"Bearer {OTHER}")
    assert (missing.value.status, missing.value.code) == (401, "missing_api_key")
    assert (wrong.value.status, wrong.value.code) == (401, "invalid_api_key")


@pytest.mark.parametrize(
    "least",
    [
        {"max_body_bytes": 1},
        {"max_requests": 1},
        {"max_samples": 1},
        {"seconds": 0.001},
        {"max_tokens": 1, "max_bodies": 1},
        {"heartbeat_seconds": 0.001, "read_seconds": 0.001},
        {"read_seconds": 604_800.0},
        {"drain_seconds": 0.0},
        {"seconds": 604_800.0, "heartbeat_seconds": 604_800.0, "drain_seconds": 604_800.0},
    ],
)
def test_the_smallest_and_the_longest_limits_are_accepted(least: dict[str, float]) -> None:
    limits = ProxyLimits(**least)  # type: ignore[arg-type] # ints and floats
    assert {name: getattr(limits, name) for name in least} == least


@pytest.mark.parametrize("name", ["seconds", "heartbeat_seconds", "drain_seconds"])
def test_no_limit_is_longer_than_a_week(name: str) -> None:
    with pytest.raises(SettingsError, match=name):
        ProxyLimits(**{name: 604_801.0})  # type: ignore[arg-type] # a float


def test_the_limits_an_operator_gets_without_asking() -> None:
    limits = ProxyLimits()
    assert (limits.max_body_bytes, limits.max_requests, limits.max_samples) == (8_000_000, 256, 256)
    assert (limits.seconds, limits.heartbeat_seconds, limits.drain_seconds) == (600.0, 5.0, 25.0)
    assert (limits.max_tokens, limits.max_bodies, limits.read_seconds) == (131_072, 64, 75.0)
    assert limits.budget == Budget(calls=256, seconds=600.0)


def test_a_file_of_keys_that_never_ends_is_refused(tmp_path: Path) -> None:
    link = tmp_path / "keys"
    link.symlink_to("/dev/zero")
    with pytest.raises(BrokenFileError, match="1,048,576 characters"):
        read_keys(link)


@pytest.mark.parametrize(
    "header",
    [
        None,
        "localhost",
        "LocalHost:8000",
        "localhost.",
        "127.0.0.1",
        "127.9.9.9:80",
        "[::1]:8000",
        "app.localhost",
        "box",
    ],
)
def test_a_host_of_this_machine_or_on_the_list_is_ours(header: str | None) -> None:
    assert OwnHosts.from_options("127.0.0.1", ["box"]).accept(header)
    assert OwnHosts.from_options("0.0.0.0", ["box"]).accept(header)  # noqa: S104 - nothing listens


@pytest.mark.parametrize(
    "header",
    [
        "",
        "evil.example",
        "localhost.evil.example",
        "evillocalhost",
        "10.0.0.1:8000",
        "box.example",
        "[::1",
        "[x]:80",
        "localhost@evil.example",
        "evil.example@localhost",
        "localhost/evil.example",
        "evil.example\\@localhost",
        "localhost#.evil.example",
        "localhost, evil.example",
        "127.1",
        "2130706433",
        "[::1]evil.example",
        "localhost:80:80",
        ":80",
        "loca\u2113host",
    ],
)
def test_any_other_host_is_not_ours(header: str) -> None:
    assert not OwnHosts.from_options("127.0.0.1", ["box"]).accept(header)


@pytest.mark.parametrize(
    ("header", "is_ours"),
    [
        ("10.0.0.1:8000", True),
        ("[fe80::1]:8000", True),
        ("gpu-box", True),
        ("gpu-box.local:8000", True),
        ("breadth.default.svc.cluster.local", True),
        ("evil.example", False),
        ("10.0.0.1.evil.example", False),
        ("local.evil.example", False),
        (".local", False),
        ("user@gpu-box", False),
        ("", False),
    ],
)
def test_a_server_of_a_network_answers_to_addresses_and_names_that_nobody_can_register(
    header: str, is_ours: bool
) -> None:
    assert OwnHosts.from_options("0.0.0.0", []).accept(header) is is_ours  # noqa: S104 - nothing listens


@pytest.mark.parametrize(
    ("given", "header"),
    [
        ("Box.example.", "box.example"),
        ("box.example:8400", "BOX.example.:80"),
        ("[fe80:0::1]", "[fe80::1]:8400"),
        ("fe80:0::1", "[fe80::1]"),
        ("10.0.0.1", "10.0.0.1"),
    ],
)
def test_an_allowed_name_is_known_in_every_spelling(given: str, header: str) -> None:
    assert OwnHosts.from_options("127.0.0.1", [given]).accept(header)


@pytest.mark.parametrize("given", ["", "http://box", "a b", "box/v1", "fe80::1:x"])
def test_an_allowed_name_that_is_none_is_refused(given: str) -> None:
    with pytest.raises(SettingsError, match="--allow-host"):
        OwnHosts.from_options("127.0.0.1", [given])


def test_a_client_waits_for_its_own_slot_only_and_is_forgotten_when_it_leaves() -> None:
    async def main() -> tuple[list[str], list[str], int]:
        slots, entered, leave = ClientSlots(1), list[str](), asyncio.Event()

        async def visit(client: str, name: str) -> None:
            async with slots.hold(client):
                entered.append(name)
                await leave.wait()

        visits = [asyncio.create_task(visit("a", "first")), asyncio.create_task(visit("a", "second"))]
        visits.append(asyncio.create_task(visit("b", "other")))
        for _ in range(5):
            await asyncio.sleep(0)
        before = list(entered)
        leave.set()
        await asyncio.gather(*visits)
        return before, entered, len(slots._users) + len(slots._slots)

    assert asyncio.run(main()) == (["first", "other"], ["first", "other", "second"], 0)
