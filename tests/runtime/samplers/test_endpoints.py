"""The least loaded server that is awake gets the next draw; one that fails rests, one that asks for quiet gets it."""

from __future__ import annotations

import pytest

from breadth.base.errors import ServerError, SettingsError
from breadth.runtime.samplers.endpoints import Endpoint, Endpoints, base_url


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def fail(endpoints: Endpoints, endpoint: Endpoint, error: ServerError) -> None:
    with pytest.raises(ServerError), endpoints.work(endpoint):
        raise error


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("http://localhost:8000", "http://localhost:8000"),
        ("http://localhost:8000/", "http://localhost:8000"),
        ("http://localhost:8000/v1", "http://localhost:8000"),
        ("https://host/some/path/v1/", "https://host/some/path"),
        ("localhost:8000", "http://localhost:8000"),
        (" 127.0.0.1:1 ", "http://127.0.0.1:1"),
    ],
)
def test_addresses_as_people_write_them(given: str, used: str) -> None:
    assert base_url(given) == used


@pytest.mark.parametrize("given", ["", "ftp://host", "http://", "http://host:port", "http://[::1", "http://h:99999"])
def test_what_is_no_address(given: str) -> None:
    with pytest.raises(SettingsError, match="not the address"):
        base_url(given)


def test_no_address_at_all() -> None:
    with pytest.raises(SettingsError, match="No server"):
        Endpoints([])


def test_the_least_loaded_is_chosen() -> None:
    endpoints = Endpoints(["a", "b"])
    first, second = endpoints.all
    assert endpoints.choose() is first
    with endpoints.work(first):
        assert endpoints.choose() is second
        with endpoints.work(second):
            assert endpoints.choose() is first
    assert (first.in_flight, second.in_flight) == (0, 0)


def test_one_that_failed_rests_twice_as_long_each_time() -> None:
    clock = Clock()
    endpoints = Endpoints(["a", "b"], clock=clock)
    first, second = endpoints.all
    error = ServerError("down", "wait")
    for seconds in (1, 2, 4, 8, 16, 30, 30):
        fail(endpoints, first, error)
        assert first.rests_until == clock.now + seconds
    with endpoints.work(second):
        assert endpoints.choose() is second, "the loaded one that is awake goes before the idle one that rests"
    clock.now += 30
    with endpoints.work(second):
        assert endpoints.choose() is first
    with endpoints.work(first):
        pass
    assert first.failures == 0


def test_one_that_asks_for_quiet_gets_it() -> None:
    clock = Clock()
    endpoints = Endpoints("a", clock=clock)
    only = endpoints.all[0]
    fail(endpoints, only, ServerError("busy", "wait", retry_after=5))
    assert endpoints.choose() is only
    assert endpoints.quiet_for(only) == 5
    assert endpoints.resting(only)
    clock.now += 6
    assert endpoints.quiet_for(only) == 0
    assert not endpoints.resting(only)


def test_a_refused_request_is_no_failure_of_the_server() -> None:
    endpoints = Endpoints("a")
    fail(endpoints, endpoints.all[0], ServerError("too long", "shorten", fatal=True))
    assert endpoints.all[0].failures == 0
    assert endpoints.all[0].in_flight == 0


def test_when_all_rest_the_first_to_wake_is_chosen() -> None:
    clock = Clock()
    endpoints = Endpoints(["a", "b"], clock=clock)
    fail(endpoints, endpoints.all[0], ServerError("busy", "wait", retry_after=9))
    fail(endpoints, endpoints.all[1], ServerError("busy", "wait", retry_after=3))
    assert endpoints.choose() is endpoints.all[1]


def test_nobody_is_left_alone_for_ever() -> None:
    clock = Clock()
    endpoints = Endpoints("a", clock=clock)
    fail(endpoints, endpoints.all[0], ServerError("busy", "wait", retry_after=86400.0))
    assert endpoints.quiet_for(endpoints.all[0]) == 600.0
