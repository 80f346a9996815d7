"""Who may use the proxy (bearer tokens, compared in constant time) and how much."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields
from pathlib import Path

from breadth.base.errors import BrokenFileError, SettingsError, require
from breadth.inference.records import Budget
from breadth.runtime.proxy.errors import ApiError

MIN_KEY_CHARACTERS = 8
"""Shorter keys can be guessed."""
MAX_KEYS_CHARACTERS = 1 << 20
"""Characters of a file of keys at most: ten thousand keys are fewer, and a device never ends."""


@dataclass(frozen=True)
class Keys:
    """The keys that are accepted, kept as digests only; without any, everybody is accepted."""

    digests: frozenset[bytes] = frozenset()
    """SHA-256 of each key."""

    @classmethod
    def from_keys(cls, keys: Iterable[str]) -> Keys:
        """Hash keys; refuse weak ones."""
        for key in (given := list(keys)):
            if len(key) < MIN_KEY_CHARACTERS or not key.isascii() or not key.isprintable() or " " in key:
                raise SettingsError(
                    f"A key is too short or has other characters than letters, digits and signs (it has {len(key)}"
                    " characters).",
                    f"Give each key at least {MIN_KEY_CHARACTERS} plain characters, such as those of: openssl rand"
                    " -hex 24",
                )
        return cls(frozenset(hash_key(key) for key in given))

    def check(self, header: str | None) -> None:
        """Refuse a request whose ``Authorization`` header does not carry one of the keys."""
        if not self.digests:
            return
        scheme, _, key = (header or "").partition(" ")
        if scheme.lower() != "bearer" or not key.strip():
            raise ApiError(
                401, "No key was given: send the header 'Authorization: Bearer <key>'.", code="missing_api_key"
            )
        given = hash_key(key.strip())
        if not any([hmac.compare_digest(given, digest) for digest in self.digests]):  # noqa: C419 - a list, so that each is compared
            raise ApiError(401, "The key is not accepted here.", code="invalid_api_key")


def read_keys(path: Path) -> list[str]:
    """Return the keys in a file, one per line; empty lines and lines that begin with # are skipped."""
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(MAX_KEYS_CHARACTERS + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise BrokenFileError(
            path, f"the keys cannot be read: {error}.", "Give a text file with one key a line."
        ) from error
    if len(text) > MAX_KEYS_CHARACTERS:
        raise BrokenFileError(
            path, f"has more than {MAX_KEYS_CHARACTERS:,} characters.", "Give a text file with one key a line."
        )
    keys = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    if not keys:
        raise BrokenFileError(path, "there is no key in it.", "Write one key a line.")
    return keys


def is_loopback(host: str) -> bool:
    """Say whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def require_key(host: str, keys: Keys) -> None:
    """Refuse to listen to the network without a key: anyone who finds the port would spend the upstream's money."""
    if not keys.digests and not is_loopback(host):
        raise SettingsError(
            f"Without a key, {host} would let everybody on the network use the upstream at your cost.",
            "Give a key (--keys-file, or BREADTH_KEY in the environment), or listen on 127.0.0.1, or say"
            " --allow-unauthenticated.",
        )


def hash_key(key: str) -> bytes:
    """Return the SHA-256 of a key."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


MAX_LIMIT_SECONDS = 7 * 24 * 3600.0
"""No limit may be longer than a week."""


@dataclass(frozen=True)
class ProxyLimits:
    """Ceilings the operator sets; no request gets past them."""

    max_body_bytes: int = 8_000_000
    """Bytes of a request's body at most: a long chat with a picture or two; more is refused unread."""
    max_requests: int = 256
    """Requests answered at once at most; further ones get status 429, which protects those being answered."""
    max_samples: int = 256
    """Samples for one request at most, whatever its policy says. Papers vote over 40 to 512 samples (arXiv
    2203.11171, 2508.15260).
    """
    max_tokens: int = 131_072
    """Tokens of one reply at most, whatever a request asks for: what the longest-thinking models write (128 k)."""
    seconds: float = 600.0
    """Deadline of a request; what has arrived by then is used. The openai SDK gives up after the same time."""
    read_seconds: float = 75.0
    """Seconds for a request to arrive: for its head, then for its body. An idle connection is closed after as long;
    load balancers keep one for 60 s and expect the server to keep it longer.
    """
    max_bodies: int = 64
    """Bodies of one client (key and address) read at once; its others wait, those of other clients do not."""
    allow_fields: frozenset[str] = frozenset()
    """Further fields of a request that are handed on, next to those that are known to keep to the policy."""
    heartbeat_seconds: float = 5.0
    """Seconds of silence after which a streamed vote sends a comment, or a proxy on the way may drop it: most wait
    30 s or more. Until the first comment an error still has its own HTTP status.
    """
    drain_seconds: float = 25.0
    """Seconds that requests in flight get when the server ends; Kubernetes kills after 30."""

    def __post_init__(self) -> None:
        require(self, "max_body_bytes", self.max_body_bytes >= 1, "at least one byte")
        require(self, "max_requests", self.max_requests >= 1, "at least one request at once")
        require(self, "max_samples", self.max_samples >= 1, "at least one sample")
        require(self, "max_tokens", self.max_tokens >= 1, "at least one token")
        require(self, "seconds", 0 < self.seconds <= MAX_LIMIT_SECONDS, "more than 0 seconds and at most a week")
        require(self, "read_seconds", 0 < self.read_seconds <= MAX_LIMIT_SECONDS, "more than 0 s and at most a week")
        require(self, "max_bodies", self.max_bodies >= 1, "at least one body at once")
        require(
            self,
            "heartbeat_seconds",
            0 < self.heartbeat_seconds <= MAX_LIMIT_SECONDS,
            "more than 0 seconds and at most a week",
        )
        require(
            self, "drain_seconds", 0 <= self.drain_seconds <= MAX_LIMIT_SECONDS, "0 or more seconds and at most a week"
        )

    @property
    def budget(self) -> Budget:
        """The ceilings as a budget."""
        return Budget(calls=self.max_samples, seconds=self.seconds)


class ClientSlots:
    """Lets so many of each client go on at once; further ones wait, and no client waits for another."""

    def __init__(self, per_client: int) -> None:
        self._per_client = per_client
        self._slots: dict[str, asyncio.Semaphore] = {}
        self._users: Counter[str] = Counter()

    @property
    def users(self) -> int:
        """How many hold a slot or wait for one."""
        return self._users.total()

    @asynccontextmanager
    async def hold(self, client: str) -> AsyncIterator[None]:
        """Wait for a slot of this client and hold it."""
        slot = self._slots.setdefault(client, asyncio.Semaphore(self._per_client))
        self._users[client] += 1
        try:
            async with slot:
                yield
        finally:
            self._users[client] -= 1
            if not self._users[client]:
                del self._users[client], self._slots[client]


HOST_HEADER = re.compile(r"(?:\[(?P<address>[^\[\]]+)\]|(?P<name>[^\s/@#?\\\[\]:,]+))(?::\d*)?")
"""A name or an address with or without a port, and nothing else: where two readers could see two names, it is none."""


def host_name(header: str) -> str | None:
    """Return the name or address in a Host header in its usual spelling, without the port; None where it is neither."""
    found = HOST_HEADER.fullmatch(header.strip())
    if found is None:
        return None
    name: str = (found["address"] or found["name"]).lower().rstrip(".")
    return ipaddress.ip_address(name).compressed if is_address(name) else name


def is_address(name: str) -> bool:
    """Say whether a name is an IP address."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


PRIVATE_NAMES = re.compile(r"[^.]+|.+\.(?:local|internal|svc)")
"""Names that nobody can register: without a dot, or under one of the endings that networks keep for themselves."""


@dataclass(frozen=True)
class OwnHosts:
    """The names under which a server answers requests without a key.

    A page in a browser can have its own name resolve to our address and then talk to us; it cannot change the header
    Host. So a server of this machine answers to its names, and one of a network to any address and private name.
    """

    names: frozenset[str]
    """Names and addresses that the operator gave."""
    on_network: bool = False
    """Whether other machines reach it."""

    @classmethod
    def from_options(cls, host: str, allowed: Iterable[str]) -> OwnHosts:
        """Read the address to listen on and the names that the operator allows, with a port or without."""
        names = {host.lower()}
        for text in allowed:
            name = host_name(f"[{text}]" if is_address(text) else text)
            if name is None:
                raise SettingsError(
                    f"--allow-host got {text!r}; it needs the name or the address of a machine.",
                    "Write it as in a client's address: --allow-host box.example.org",
                )
            names.add(name)
        return cls(frozenset(names), not is_loopback(host))

    def accept(self, header: str | None) -> bool:
        """Say whether a Host header names this server."""
        if header is None:
            return True
        name = host_name(header)
        if name is None:
            return False
        if is_loopback(name) or name.endswith(".localhost") or name in self.names:
            return True
        return self.on_network and (is_address(name) or PRIVATE_NAMES.fullmatch(name) is not None)


def tightest_budget(*budgets: Budget) -> Budget:
    """Return the budget that satisfies all of several."""
    ceilings = {}
    for spec in fields(Budget):
        given = [value for budget in budgets if (value := getattr(budget, spec.name)) is not None]
        ceilings[spec.name] = min(given, default=None)
    return Budget(**ceilings)
