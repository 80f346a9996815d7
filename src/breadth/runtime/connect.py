"""A sampler for a server by its address: who it is, how it is spoken to, which model it has."""

from __future__ import annotations

from collections.abc import Sequence

from breadth.base.errors import ServerError
from breadth.runtime.dialect import DIALECTS, Dialect, Identity
from breadth.runtime.identity import identify, recognised, root
from breadth.runtime.samplers.openai import OpenAISampler

ANY = "auto"


async def connect(urls: Sequence[str], *, dialect: str = ANY, key: str | None = None, model: str = "", attempts: int = 3) -> OpenAISampler:
    """Return a sampler for servers that must answer now; several must be of one kind.

    A model that no server lists is refused here: some servers answer with whatever model they have.
    """
    identities = {root(url): await identify(url, key) for url in urls}
    for address, identity in identities.items():
        check_model(identity, model, address)
    kinds = {recognised(identity) for identity in identities.values()}
    if dialect == ANY and len(kinds) > 1:
        names = ", ".join(sorted(type(kind).__name__ for kind in kinds))
        raise ServerError(
            f"The servers are of different kinds: {names}.", "Name one dialect for all with --dialect, or use servers of one kind."
        )
    spoken: Dialect = kinds.pop() if dialect == ANY else DIALECTS.load(dialect)().fitted(next(iter(identities.values())))
    return OpenAISampler(list(identities), dialect=spoken, key=key, attempts=attempts)


def check_model(identity: Identity, model: str, address: str) -> None:
    """Refuse a model that the server does not list."""
    names = model_names(identity)
    if model and names and model not in names:
        shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
        raise ServerError(f"{address} has no model '{model[:200]}'.", f"It has: {shown}.", status=404, fatal=True)


def model_names(identity: Identity) -> list[str]:
    """Return the names of the models a server lists."""
    listed = identity.models.get("data")
    rows = listed if isinstance(listed, list) else []
    return [str(row["id"]) for row in rows if isinstance(row, dict) and "id" in row]
