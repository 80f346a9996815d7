"""Which policy and which model answer a request: those it names, or the server's own."""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

from breadth.base.errors import BreadthError, BrokenFileError, SettingsError, suggestion
from breadth.inference.catalogue import STRATEGIES
from breadth.inference.policy import Policy
from breadth.inference.records import Budget
from breadth.inference.strategies.single import Single
from breadth.runtime.driver import strategy_name
from breadth.runtime.proxy.errors import ApiError
from breadth.runtime.wire import model_list_body

MAX_POLICY_CHARACTERS = 300
"""Characters of a policy in a request at most."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_UNCOUNTED = re.compile(r"token|seed|window|minimum|maximum|exact|words|characters|top_|_k$")
"""Whole numbers among a strategy's settings that do not count samples or rounds."""


@dataclass(frozen=True)
class ChosenPolicy:
    """The policy of one request."""

    policy: Policy
    """The policy itself."""
    label: str
    """Its name in metrics and logs: one the server was given, or the strategy's; never a client's own text."""
    sets_sampling: bool = False
    """Whether it comes from a file and so sets the sampling; otherwise a request that is passed on sets its own."""

    @property
    def is_single(self) -> bool:
        """Whether it samples once and answers with that."""
        return isinstance(self.policy.strategy, Single)


@dataclass(frozen=True)
class Policies:
    """The server's own policy and those it was given names for."""

    default: ChosenPolicy
    """For requests that name none."""
    named: Mapping[str, ChosenPolicy] = field(default_factory=dict)
    """Name -> policy."""
    max_samples: int = 256
    """Most samples for one request, whatever its policy says."""
    client_policies: bool = False
    """Whether a request may write a policy of its own: a strategy with settings. Named ones are always allowed."""

    @classmethod
    def parse(
        cls, default: str, named: Sequence[str] = (), *, max_samples: int = 256, client_policies: bool = False
    ) -> Policies:
        """Read the operator's policies: the default (a file, or a strategy with settings), then ``name=policy``."""
        own = parse_policy(default)
        table: dict[str, ChosenPolicy] = {}
        for text in named:
            name, equals, policy = text.partition("=")
            if not equals or not _NAME.fullmatch(name) or name in STRATEGIES.names():
                raise SettingsError(
                    f"--add-policy got {text!r}; it needs <name>=<policy>, and the name of no strategy.",
                    "Write for example --add-policy careful=careful.toml or --add-policy fast=vote,n=3",
                )
            table[name] = parse_policy(policy, name, own)
        return cls(own, table, max_samples, client_policies)

    def choose(self, wanted: str) -> ChosenPolicy:
        """Return the policy a request names; empty for the server's own. No file is ever read for a request."""
        text = wanted.strip()
        if not text:
            return self.default
        if text in self.named:
            return self.named[text]
        name = text.partition(",")[0].strip()
        if len(text) > MAX_POLICY_CHARACTERS or text.lower().endswith(".toml"):
            advice = suggestion("", self.names, "policies")
            raise policy_error(f"A request cannot name a file as its policy. {advice}")
        if name not in STRATEGIES.names():
            raise policy_error(f"There is no policy '{name[:80]}'. {suggestion(name, self.names, 'policies')}")
        if not self.client_policies:
            there_are = f"or name one of: {', '.join(self.named)}" if self.named else "this server has its own"
            message = f"This server lets no request write its own policy: leave the policy out; {there_are}."
            raise ApiError(403, message, param="breadth.policy", code="policy_not_allowed")
        try:
            chosen = parse_policy(text, own=self.default)
        except BreadthError as error:
            raise policy_error(f"{error.problem} {error.remedy}") from error
        except (TypeError, AttributeError) as error:  # settings nested where none can be
            raise policy_error(f"The policy {text!r} cannot be read.") from error
        self.check_counts(chosen)
        return chosen

    @property
    def names(self) -> list[str]:
        """Every name a request may use."""
        return [*self.named, *(STRATEGIES.names() if self.client_policies else ())]

    @property
    def sample_ceiling(self) -> int:
        """Most samples that the settings of a request's own policy may ask for: the server's own budget counts too."""
        calls = self.default.policy.budget.calls
        return self.max_samples if calls is None else min(calls, self.max_samples)

    def split(self, model: str, known: Collection[str]) -> tuple[str, str]:
        """Return a model's name and the policy after its last ``@``; a name the upstream knows is not split."""
        name, at, policy = model.rpartition("@")
        return (model, "") if not at or not name or model in known else (name, policy)

    def check_counts(self, chosen: ChosenPolicy) -> None:
        """Refuse a policy whose settings ask for more samples than the server allows."""
        for name, value in count_settings(chosen.policy.strategy):
            if value > self.sample_ceiling:
                message = (
                    f"The policy asks for {name} = {value}, but this server samples at most {self.sample_ceiling} times"
                    " for a request."
                )
                raise ApiError(400, message, param="breadth.policy", code="too_many_samples")


def parse_policy(text: str, name: str = "", own: ChosenPolicy | None = None) -> ChosenPolicy:
    """Return the policy in a file, or that of a strategy with settings.

    No further policy drops what the server's ``own`` sets: a strategy replaces the strategy alone, and a file takes
    the ceilings and the system message it leaves out from there.
    """
    try:
        policy = Policy.parse(text)
    except OSError as error:
        raise BrokenFileError(
            text, f"the policy cannot be read: {error.strerror}.", "Check the name of the file."
        ) from error
    label, from_file = name or strategy_name(policy.strategy), text.endswith(".toml")
    if own is None:
        return ChosenPolicy(policy, label, sets_sampling=from_file)
    if not from_file:
        return replace(own, policy=replace(own.policy, strategy=policy.strategy), label=label)
    base = own.policy
    if policy.budget.money is not None and policy.prices != base.prices:
        raise SettingsError(
            f"The policy '{label}' limits money at other prices than the server's own policy.",
            "Give both files the same prices: a token has one price, whatever policy a request names.",
        )
    ceilings = {
        spec.name: getattr(base.budget if getattr(policy.budget, spec.name) is None else policy.budget, spec.name)
        for spec in fields(Budget)
    }
    filled = replace(
        policy, budget=Budget(**ceilings), system=policy.system or base.system, model=policy.model or base.model
    )
    return ChosenPolicy(filled, label, sets_sampling=True)


def policy_error(message: str) -> ApiError:
    """Return the error for a policy in a request that cannot be used."""
    return ApiError(400, message, param="breadth.policy", code="bad_policy")


def count_settings(settings: Any) -> Iterator[tuple[str, int]]:
    """Yield the settings that are numbers of samples, rounds and the like, at any depth."""
    for spec in fields(settings):
        value = getattr(settings, spec.name)
        for part in value if isinstance(value, tuple) else (value,):
            if is_dataclass(part):
                yield from count_settings(part)
        if isinstance(value, int) and not isinstance(value, bool) and not _UNCOUNTED.search(spec.name):
            yield spec.name, value


ROUTING_MAX_AGE = 30.0
"""Seconds for which a list of models is trusted when a request is read: models come and go with restarts."""
LISTING_MAX_AGE = 1.0
"""The same for the pages that list models or check the upstream: fresh enough, and clients cannot flood it."""


@dataclass
class ModelCache:
    """The upstream's models, fetched now and then."""

    fetch: Callable[[], Awaitable[list[str]]]
    """Asks the upstream."""
    names: list[str] = field(default_factory=list)
    """Its last answer."""
    fetched_at: float = -math.inf
    """When that was, on the monotonic clock."""
    fetching: asyncio.Task[None] | None = None
    """The request under way; everyone who asks meanwhile waits for it."""

    async def get(self, age: float = ROUTING_MAX_AGE) -> list[str]:
        """Return the names; fetch them again when they are older than so many seconds."""
        if time.monotonic() - self.fetched_at > age:
            if self.fetching is None or self.fetching.done():
                self.fetching = asyncio.create_task(self.refresh())
            await asyncio.shield(self.fetching)
        return self.names

    async def refresh(self) -> None:
        """Fetch the names."""
        self.names = await self.fetch()
        self.fetched_at = time.monotonic()

    async def close(self) -> None:
        """Cancel the request under way."""
        if self.fetching is not None:
            self.fetching.cancel()
            await asyncio.gather(self.fetching, return_exceptions=True)


def models_body(models: Iterable[str], policies: Iterable[str]) -> dict[str, Any]:
    """Return the body of ``/v1/models``: every model, then every model with every named policy as ``model@policy``."""
    names = list(models)
    entries = [(name, "upstream") for name in names]
    entries += [(f"{name}@{policy}", "breadth") for policy in policies for name in names]
    return model_list_body(entries)
