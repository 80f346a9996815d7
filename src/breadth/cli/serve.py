"""``breadth serve``: an OpenAI-compatible proxy in front of any server, which spends breadth by a policy."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from breadth.base.errors import SettingsError
from breadth.cli.output import Json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from breadth.runtime.proxy.access import Keys, Limits
    from breadth.runtime.proxy.proxy import Proxy
    from breadth.runtime.proxy.routing import Policies

CLIENT_KEY = "BREADTH_KEY"
UPSTREAM_KEYS = ("BREADTH_UPSTREAM_KEY", "OPENAI_API_KEY")
OPEN_FILES = 65536

Upstream = Annotated[
    list[str],
    typer.Option(
        "--upstream", help="Address of the model server; several of the same models share the work.", show_default=False
    ),
]
PolicyText = Annotated[
    str,
    typer.Option(
        "--policy",
        help="For requests that name none: a policy.toml, or a strategy with settings: adaptive-vote,most=16.",
    ),
]
Named = Annotated[
    list[str] | None,
    typer.Option(
        "--add-policy",
        help="A further policy under a name, as name=policy.toml; clients ask for model@name. Repeatable.",
    ),
]
Host = Annotated[str, typer.Option("--host", help="Address to listen on; 0.0.0.0 for all, which needs a key.")]
Port = Annotated[int, typer.Option("--port", help="Port to listen on; 0 takes a free one.", min=0, max=65535)]
KeysFile = Annotated[
    Path | None,
    typer.Option(
        "--keys-file",
        help=f"Keys that clients may use, one a line. A single one can stand in {CLIENT_KEY}.",
        dir_okay=False,
    ),
]
WithoutKey = Annotated[
    bool, typer.Option("--allow-unauthenticated", help="Allow requests from the network without a key.")
]
Dialect = Annotated[
    str, typer.Option("--dialect", help="How the upstream speaks: auto, openai, llama-cpp, vllm, sglang.")
]
Clients = Annotated[int, typer.Option("--max-requests", help="Maximum concurrent requests; more get status 429.")]
Draws = Annotated[int, typer.Option("--max-samples", help="Maximum samples per request, whatever the policy says.")]
Deadline = Annotated[
    float, typer.Option("--deadline", help="Seconds for one request; what has arrived by then is answered with.")
]
MaxBody = Annotated[float, typer.Option("--max-body", help="Megabytes of a request at most.")]
Drain = Annotated[float, typer.Option("--drain", help="Seconds that requests in flight are given when told to end.")]
Attempts = Annotated[int, typer.Option("--attempts", help="Requests to the upstream at most for one draw.", min=1)]
Quiet = Annotated[bool, typer.Option("--quiet", help="No line in the log for each request.")]


def serve(
    upstream: Upstream,
    policy: PolicyText = "adaptive-vote",
    named: Named = None,
    host: Host = "127.0.0.1",
    port: Port = 8400,
    keys_file: KeysFile = None,
    without_key: WithoutKey = False,
    dialect: Dialect = "auto",
    most_clients: Clients = 256,
    most_draws: Draws = 256,
    deadline: Deadline = 600.0,
    max_body: MaxBody = 8.0,
    drain: Drain = 25.0,
    attempts: Attempts = 3,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Serve /v1/chat/completions, /v1/completions and /v1/models with a policy behind them, and /health, /ready and /metrics.

    The key for the upstream is read from BREADTH_UPSTREAM_KEY or OPENAI_API_KEY. SIGTERM and Ctrl-C let requests in
    flight finish.
    """
    import asyncio

    from breadth.runtime.proxy.access import Limits, require_key
    from breadth.runtime.proxy.routing import Policies

    limits = Limits(
        body=int(max_body * 1e6) if 0 < max_body < 1e6 else 0,
        clients=most_clients,
        draws=most_draws,
        seconds=deadline,
        drain=drain,
    )
    keys = _keys(keys_file)
    if not without_key:
        require_key(host, keys)
    policies = Policies.of(policy, named or (), most=limits.draws)
    for chosen in (policies.default, *policies.named.values()):
        chosen.policy.strategy.prepare()
    _log(quiet=quiet)
    _raise_open_files()
    asyncio.run(_serve(upstream, policies, keys, limits, (host, port), dialect, attempts, as_json=as_json))


async def _serve(
    upstream: Sequence[str],
    policies: Policies,
    keys: Keys,
    limits: Limits,
    address: tuple[str, int],
    dialect: str,
    attempts: int,
    *,
    as_json: bool,
) -> None:
    from breadth.runtime.connect import connect
    from breadth.runtime.proxy.proxy import Proxy
    from breadth.runtime.proxy.server import Server, told_to_end

    key = next((value for name in UPSTREAM_KEYS if (value := os.environ.get(name))), None)
    sampler = await connect(upstream, dialect=dialect, key=key, model=policies.default.policy.model, attempts=attempts)
    proxy = Proxy(sampler, policies, key=key, keys=keys, limits=limits, attempts=attempts)
    try:
        async with Server(proxy, host=address[0], port=address[1]) as server:
            _announce(server.url, proxy, as_json=as_json)
            await told_to_end()
            typer.echo(f"breadth: ending; {proxy.in_flight} requests are being answered", err=True)
    finally:
        await proxy.close()


def _announce(url: str, proxy: Proxy, *, as_json: bool) -> None:
    """Print the address: the first line on standard output, for whoever started us."""
    import orjson

    label = proxy.policies.default.label
    told = orjson.dumps({"url": url, "policy": label, "named": list(proxy.policies.named)}).decode()
    try:
        typer.echo(told if as_json else f"breadth serves {url}/v1 with {label}, upstream {', '.join(proxy.upstreams)}")
        sys.stdout.flush()
    except OSError as error:
        problem = f"The address {url} cannot be written to standard output: {error.strerror}."
        raise SettingsError(problem, "Send standard output where there is room, or to /dev/null.") from error


def _keys(path: Path | None) -> Keys:
    from breadth.runtime.proxy.access import Keys, read_keys

    single = os.environ.get(CLIENT_KEY)
    return Keys.of([*([single] if single else []), *(read_keys(path) if path is not None else [])])


def _log(*, quiet: bool) -> None:
    """Write the log to standard error: one line a request, or only what went wrong on our side."""
    logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(message)s", level=logging.WARNING)
    logging.getLogger("breadth.serve").setLevel(logging.WARNING if quiet else logging.INFO)
    # It writes a traceback for every line that is no HTTP, without a key too; what breaks on our side is in our own
    # log.
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)


def _raise_open_files() -> None:
    """Allow as many open files as the system lets us: every draw in flight is one, and the usual 1024 are soon used up."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES)
    if soft < wanted:
        with suppress(ValueError, OSError):  # macOS allows less than it says
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
