"""Waits grow, differ between draws and are the same again; what a server asks for is read in all its forms."""

from __future__ import annotations

import time

import pytest

from breadth.base.errors import SettingsError
from breadth.runtime.samplers.retries import Backoff, retry_after


def test_waits_double_up_to_the_most() -> None:
    backoff = Backoff(first=1, most=4)
    for attempt, whole in ((1, 1.0), (2, 2.0), (3, 4.0), (4, 4.0), (5000, 4.0)):
        waits = [backoff.seconds(attempt, seed) for seed in range(200)]
        assert whole / 2 <= min(waits) < 0.55 * whole
        assert 0.95 * whole < max(waits) <= whole


def test_the_same_draw_waits_the_same_and_others_do_not() -> None:
    assert Backoff().seconds(1, 7) == Backoff().seconds(1, 7)
    assert len({Backoff().seconds(1, seed) for seed in range(50)}) == 50
    assert Backoff(seed=1).seconds(1, 7) != Backoff().seconds(1, 7)


def test_impossible_waits_are_refused() -> None:
    with pytest.raises(SettingsError, match="first"):
        Backoff(first=-1)
    with pytest.raises(SettingsError, match="most"):
        Backoff(first=2, most=1)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"Retry-After": "7"}, 7.0),
        ({"Retry-After": "0.5"}, 0.5),
        ({"Retry-After": "-3"}, 0.0),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": ""}, None),
        ({"Retry-After": "nan"}, None),
        ({"Retry-After": "inf"}, None),
        ({"retry-after-ms": "250", "Retry-After": "9"}, 0.25),
        # 1 January 2027, 00:00:10 UTC is 1798761610 seconds after 1970.
        ({"Retry-After": "Fri, 01 Jan 2027 00:00:10 GMT"}, 10.0),
        ({"Retry-After": "Thu, 31 Dec 2026 00:00:00 GMT"}, 0.0),
        # More than a day is not believed.
        ({"Retry-After": "1e300"}, 86400.0),
        ({"Retry-After": "Fri, 01 Jan 2038 00:00:10 GMT"}, 86400.0),
    ],
)
def test_what_a_server_asks_for(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, now=1798761600.0) == seconds


def test_a_date_without_a_zone_is_utc_wherever_we_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        assert retry_after({"Retry-After": "Fri Jan  1 00:00:10 2027"}, now=1798761600.0) == 10.0
    finally:
        monkeypatch.undo()
        time.tzset()
