"""Who may use the proxy: bearer tokens, compared without telling by the time it takes how much of one was right."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from breadth.base.errors import BrokenFileError, SettingsError
from breadth.runtime.proxy.faults import Refusal

SHORTEST = 8
"""Characters of a key at least: shorter ones are guessed."""


@dataclass(frozen=True)
class Keys:
    """The keys that are accepted, kept as digests only; none at all accepts everybody."""

    digests: frozenset[bytes] = frozenset()
    """SHA-256 of each key."""

    @classmethod
    def of(cls, keys: Iterable[str]) -> Keys:
        """Take keys in."""
        for key in (given := list(keys)):
            if len(key) < SHORTEST or not key.isascii() or not key.isprintable() or " " in key:
                raise SettingsError(
                    f"A key is too short or has other characters than letters, digits and signs (it has {len(key)} characters).",
                    f"Give each key at least {SHORTEST} plain characters, such as those of: openssl rand -hex 24",
                )
        return cls(frozenset(_digest(key) for key in given))

    def check(self, header: str | None) -> None:
        """Refuse a request whose ``Authorization`` header does not carry one of the keys."""
        if not self.digests:
            return
        scheme, _, key = (header or "").partition(" ")
        if scheme.lower() != "bearer" or not key.strip():
            raise Refusal(401, "No key was given: send the header 'Authorization: Bearer <key>'.", code="missing_api_key")
        given = _digest(key.strip())
        if not any([hmac.compare_digest(given, digest) for digest in self.digests]):  # noqa: C419 - a list, so that each is compared
            raise Refusal(401, "The key is not accepted here.", code="invalid_api_key")


def read_keys(path: Path) -> list[str]:
    """Return the keys in a file: one a line; empty lines and those that begin with # are left out."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BrokenFileError(path, f"the keys cannot be read: {error}.", "Give a text file with one key a line.") from error
    keys = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
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
    """Refuse to listen to the network without a key: whoever finds the port would spend the upstream's money."""
    if not keys.digests and not is_loopback(host):
        raise SettingsError(
            f"Without a key, {host} would let everybody on the network use the upstream at your cost.",
            "Give a key (--keys-file, or BREADTH_KEY in the environment), or listen on 127.0.0.1, or say --without-key.",
        )


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
