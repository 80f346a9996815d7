"""Several servers of the same model: which one gets the next draw, and which are left alone for a while."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from urllib.parse import urlsplit

from breadth.base.errors import ServerError, SettingsError

FIRST_REST = 1.0
"""Seconds that a server rests after a failure."""
LONGEST_REST = 30.0
"""Seconds that it rests at most."""
LONGEST_QUIET = 600.0
"""Seconds that it is left alone at most, whatever it asks for: then one more request tells whether it still wants that."""


class Endpoint:
    """One server."""

    def __init__(self, url: str) -> None:
        self.url = url
        """Its address, without ``/v1``."""
        self.in_flight = 0
        """Draws it works on."""
        self.failures = 0
        """Failures in a row."""
        self.rests_until = 0.0
        """Moment until which others are preferred, because it failed."""
        self.quiet_until = 0.0
        """Moment until which it asked to be left alone."""
        self.model: str | None = None
        """Its only model, once it was asked."""


class Endpoints:
    """The servers of one sampler. The least loaded one that is awake gets the next draw."""

    def __init__(self, urls: str | Sequence[str], *, clock: Callable[[], float] = time.monotonic) -> None:
        given = [urls] if isinstance(urls, str) else list(urls)
        if not given:
            raise SettingsError("No server was named.", "Give the address of a server, such as http://localhost:8000.")
        self.all = [Endpoint(base_url(url)) for url in given]
        """Every one, in the order given."""
        self._clock = clock

    def choose(self) -> Endpoint:
        """Return the server for the next draw: awake before resting, then the fewest draws in flight, then the order given.

        When all rest, the one that wakes first is chosen, for a draw waits before it tries again anyway.
        """
        now = self._clock()
        return min(self.all, key=lambda one: (max(one.rests_until, one.quiet_until, now), one.in_flight))

    def quiet_for(self, endpoint: Endpoint) -> float:
        """Return the seconds for which a server still asked to be left alone."""
        return max(endpoint.quiet_until - self._clock(), 0.0)

    def resting(self, endpoint: Endpoint) -> bool:
        """Say whether a server rests, or asked to be left alone."""
        return max(endpoint.rests_until, endpoint.quiet_until) > self._clock()

    @contextmanager
    def work(self, endpoint: Endpoint) -> Iterator[None]:
        """Count a draw in flight, and note how it went: a refusal of this one request is no failure of the server."""
        endpoint.in_flight += 1
        try:
            yield
        except ServerError as error:
            if not error.fatal:
                self.failed(endpoint, error.retry_after)
            raise
        else:
            endpoint.failures = 0
            endpoint.rests_until = 0.0
        finally:
            endpoint.in_flight -= 1

    def failed(self, endpoint: Endpoint, retry_after: float | None = None) -> None:
        """Let a server that failed rest: as long as it asks for, else 1 s, doubling with every failure in a row up to 30 s."""
        now = self._clock()
        endpoint.failures += 1
        endpoint.rests_until = now + min(FIRST_REST * 2.0 ** min(endpoint.failures - 1, 16), LONGEST_REST)
        if retry_after is not None:
            endpoint.quiet_until = max(endpoint.quiet_until, now + min(retry_after, LONGEST_QUIET))
            endpoint.rests_until = endpoint.quiet_until


def base_url(url: str) -> str:
    """Return an address as it is used: with a scheme, without a closing slash, without ``/v1``."""
    address = url.strip() if "://" in url else f"http://{url.strip()}"
    if not _usable(address):
        raise SettingsError(f"{url!r} is not the address of a server.", "Write it like http://localhost:8000 or https://host/v1.")
    return address.rstrip("/").removesuffix("/v1").rstrip("/")


def _usable(address: str) -> bool:
    try:
        parts = urlsplit(address)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
