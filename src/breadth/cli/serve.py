"""``breadth serve``: an OpenAI-compatible proxy in front of any server, which spends breadth by a policy."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated

import orjson
import typer

from breadth.base.errors import SettingsError
from breadth.cli.output import Json
from breadth.runtime.connect import connect
from breadth.runtime.proxy.access import Keys, ProxyLimits, read_keys, require_key
from breadth.runtime.proxy.proxy import Proxy
from breadth.runtime.proxy.routing import Policies
from breadth.runtime.proxy.server import Server, wait_for_signal

CLIENT_KEY = "BREADTH_KEY"
UPSTREAM_KEYS = ("BREADTH_UPSTREAM_KEY", "OPENAI_API_KEY")
MAX_OPEN_FILES = 65536
GC_THRESHOLDS = (2_000, 5, 2)
"""With the 50,000 of the command line, what clients leave behind would wait for hours; so it goes after seconds."""

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
AddedPolicies = Annotated[
    list[str] | None,
    typer.Option(
        "--add-policy",
        help="A further policy under a name, as name=policy.toml; clients ask for model@name. Repeatable.",
    ),
]
AllowClientPolicies = Annotated[
    bool,
    typer.Option(
        "--allow-client-policies",
        help="Let requests write strategies with settings, such as model@vote,n=5, within the budget of --policy.",
    ),
]
Host = Annotated[str, typer.Option("--host", help="Address to listen on; 0.0.0.0 for all, which needs a key.")]
Port = Annotated[int, typer.Option("--port", help="Port to listen on; 0 takes a free one.", min=0, max=65535)]
KeysFile = Annotated[
    Path | None,
    typer.Option(
        "--keys-file",
        help=f"Keys that clients may use, one a line. {CLIENT_KEY} may hold a single one.",
        dir_okay=False,
    ),
]
AllowUnauthenticated = Annotated[
    bool, typer.Option("--allow-unauthenticated", help="Allow requests from the network without a key.")
]
AllowHosts = Annotated[
    list[str] | None,
    typer.Option("--allow-host", help="A further name under which requests without a key may come. Repeatable."),
]
AllowFields = Annotated[
    list[str] | None,
    typer.Option("--allow-field", help="A further field of requests that is handed on, as chat_template. Repeatable."),
]
Dialect = Annotated[
    str, typer.Option("--dialect", help="How the upstream speaks: auto, openai, llama-cpp, vllm, sglang.")
]
MaxRequests = Annotated[int, typer.Option("--max-requests", help="Maximum concurrent requests; more get status 429.")]
MaxSamples = Annotated[
    int, typer.Option("--max-samples", help="Maximum samples per request, whatever the policy says.")
]
MaxTokens = Annotated[
    int, typer.Option("--max-tokens", help="Maximum tokens per reply; requests for more get this many.")
]
Deadline = Annotated[
    float, typer.Option("--deadline", help="Seconds for one request; what has arrived by then is answered with.")
]
ReadTimeout = Annotated[
    float, typer.Option("--read-timeout", help="Seconds for a request to arrive, and for a connection to be idle.")
]
MaxBody = Annotated[float, typer.Option("--max-body", help="Megabytes of a request at most.")]
Drain = Annotated[float, typer.Option("--drain", help="Seconds that requests in flight get to finish on shutdown.")]
Attempts = Annotated[int, typer.Option("--attempts", help="Maximum requests to the upstream per sample.", min=1)]
Quiet = Annotated[bool, typer.Option("--quiet", help="No line in the log for each request.")]


def serve(
    upstream: Upstream,
    policy: PolicyText = "adaptive-vote",
    add_policy: AddedPolicies = None,
    allow_client_policies: AllowClientPolicies = False,
    host: Host = "127.0.0.1",
    port: Port = 8400,
    keys_file: KeysFile = None,
    allow_unauthenticated: AllowUnauthenticated = False,
    allow_host: AllowHosts = None,
    allow_field: AllowFields = None,
    dialect: Dialect = "auto",
    max_requests: MaxRequests = 256,
    max_samples: MaxSamples = 256,
    max_tokens: MaxTokens = 131_072,
    deadline: Deadline = 600.0,
    read_timeout: ReadTimeout = 75.0,
    max_body: MaxBody = 8.0,
    drain: Drain = 25.0,
    attempts: Attempts = 3,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Serve /v1/chat/completions, /v1/completions and /v1/models under a policy; also /health, /ready and /metrics.

    The key for the upstream is read from BREADTH_UPSTREAM_KEY or OPENAI_API_KEY. SIGTERM and Ctrl-C let requests in
    flight finish.
    """
    limits = ProxyLimits(
        max_body_bytes=int(max_body * 1e6) if 0 < max_body < 1e6 else 0,
        max_requests=max_requests,
        max_samples=max_samples,
        max_tokens=max_tokens,
        seconds=deadline,
        read_seconds=read_timeout,
        drain_seconds=drain,
        allow_fields=frozenset(allow_field or ()),
    )
    keys = read_client_keys(keys_file)
    if not allow_unauthenticated:
        require_key(host, keys)
    policies = Policies.parse(
        policy, add_policy or (), max_samples=limits.max_samples, client_policies=allow_client_policies
    )
    for chosen in (policies.default, *policies.named.values()):
        chosen.policy.strategy.prepare()
    configure_log(quiet=quiet)
    raise_file_limit()
    start = partial(start_proxy, upstream, policies, dialect=dialect, keys=keys, limits=limits, attempts=attempts)
    listen = partial(Server, host=host, port=port, allow_hosts=allow_host or ())
    asyncio.run(serve_until_signal(start, listen, as_json=as_json))


async def start_proxy(
    upstream: Sequence[str], policies: Policies, *, dialect: str, keys: Keys, limits: ProxyLimits, attempts: int
) -> Proxy:
    """Return a proxy in front of the upstreams, which must be up."""
    key = next((value for name in UPSTREAM_KEYS if (value := os.environ.get(name))), None)
    model = policies.default.policy.model
    sampler = await connect(upstream, dialect=dialect, key=key, model=model, attempts=attempts)
    return Proxy(sampler, policies, key=key, keys=keys, limits=limits, attempts=attempts)


async def serve_until_signal(
    start: Callable[[], Awaitable[Proxy]], listen: Callable[[Proxy], Server], *, as_json: bool
) -> None:
    """Serve until a signal ends it, then let requests in flight finish."""
    proxy = await start()
    server = listen(proxy)
    try:
        async with server:
            announce_proxy(server.url, proxy, as_json=as_json)
            collect_garbage_often()
            await wait_for_signal()
            typer.echo(f"breadth: shutting down; {proxy.in_flight} requests are being answered", err=True)
    finally:
        await proxy.close()


def announce_proxy(url: str, proxy: Proxy, *, as_json: bool) -> None:
    """Print the address: the first line on standard output, for the program that started us."""
    label = proxy.policies.default.label
    document = orjson.dumps({"url": url, "policy": label, "named": list(proxy.policies.named)}).decode()
    try:
        typer.echo(
            document if as_json else f"breadth serves {url}/v1 with {label}, upstream {', '.join(proxy.upstreams)}"
        )
        sys.stdout.flush()
    except OSError as error:
        problem = f"The address {url} cannot be written to standard output: {error.strerror}."
        raise SettingsError(problem, "Send standard output where there is room, or to /dev/null.") from error


def read_client_keys(path: Path | None) -> Keys:
    """Return the keys that clients may use, from the file and the environment."""
    single = os.environ.get(CLIENT_KEY)
    return Keys.from_keys([*([single] if single else []), *(read_keys(path) if path is not None else [])])


def configure_log(*, quiet: bool) -> None:
    """Write the log to standard error: one line a request, or only what went wrong on our side."""
    logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(message)s", level=logging.WARNING)
    logging.getLogger("breadth.serve").setLevel(logging.WARNING if quiet else logging.INFO)
    # It writes a traceback for every line that is no HTTP, without a key too; what breaks on our side is in our own
    # log.
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)


def collect_garbage_often() -> None:
    """Look for garbage often, and among what requests leave only: what start-up made stays and is not looked through.

    Python looks through the oldest objects only when those that may be garbage are a quarter of them.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def raise_file_limit() -> None:
    """Raise the limit of open files: every sample in flight is one, and the usual 1024 are soon used up."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_OPEN_FILES)
    if soft < wanted:
        with suppress(ValueError, OSError):  # macOS allows less than it says
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
