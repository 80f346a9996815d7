"""The proxy's address and its end."""

from __future__ import annotations

import asyncio
import base64
import gzip
import logging
import os
import re
import resource
import signal
import socket
import threading
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import orjson
import pytest

from breadth.base.errors import SettingsError
from breadth.base.settings import dump
from breadth.inference.policy import Policy
from breadth.inference.records import Budget, Sampling
from breadth.inference.strategies.vote import Vote
from breadth.runtime.proxy.access import ProxyLimits
from breadth.runtime.proxy.client_request import CAP_FIELDS
from breadth.runtime.proxy.errors import ApiError
from breadth.runtime.proxy.proxy import Proxy
from breadth.runtime.proxy.routing import Policies
from breadth.runtime.proxy.server import Server, inflate, wait_for_signal
from breadth.runtime.samplers.connection import Endpoint
from breadth.runtime.samplers.openai import OpenAISampler
from breadth.testing.fake_replies import Reply, ReplyToken
from breadth.testing.fake_server import FakeServer, wait_until
from breadth.testing.faults import Fault, FaultResponse, Status

FOUR = Reply.from_text("So the answer is 4.")
KEY = "correct-horse-battery"
SECRET = "the-prompt-nobody-may-log"
ASKED = {"messages": [{"role": "user", "content": "?"}]}


def test_models_are_the_upstreams_and_those_under_named_policies(serving: Any) -> None:
    async def main() -> None:
        async with serving(FOUR, models=("a", "b"), named=["careful=vote,n=5"]) as served:
            listed = (await served.get("/v1/models")).json
            assert [entry["id"] for entry in listed["data"]] == ["a", "b", "a@careful", "b@careful"]

    asyncio.run(main())


def test_the_policy_is_the_fields_then_the_suffixs_then_the_servers(serving: Any) -> None:
    async def main() -> None:
        async with serving(FOUR, "single", named=["careful=vote,n=5"], client_policies=True) as served:
            asked: list[tuple[dict[str, Any], int]] = [
                ({"model": "fake"}, 1),
                ({"model": "fake@careful"}, 5),
                ({"model": "fake@vote,n=2"}, 2),
                ({"model": "fake", "breadth": {"policy": "vote,n=3"}}, 3),
                ({"model": "fake@careful", "breadth": {"policy": "vote,n=4"}}, 4),
            ]
            for fields, draws in asked:
                got = await served.ask(**fields)
                assert (got.status, got.json["breadth"]["drawn"]) == (200, draws)
                assert got.json["model"] == "fake"
            assert {arrival.body["model"] for arrival in served.fake.requests} == {"fake"}
            wrong = await served.ask(model="fake@carful")
            assert (wrong.status, wrong.error["param"]) == (400, "breadth.policy")
            assert "'careful'" in wrong.error["message"]

    asyncio.run(main())


STRICT = Policy(
    strategy=Vote(n=2), sampling=Sampling(max_tokens=3), budget=Budget(calls=2, output_tokens=6), system="Be brief."
)


@pytest.mark.parametrize("fields", [{"model": "fake@single"}, {"breadth": {"policy": "vote,n=256"}}])
def test_no_request_gets_out_of_the_operators_policy(serving: Any, tmp_path: Path, fields: dict[str, Any]) -> None:
    dump(STRICT, tmp_path / "strict.toml")

    async def main() -> None:
        async with serving(FOUR, str(tmp_path / "strict.toml")) as served:
            got = await served.ask(**fields)
            assert (got.status, got.error["type"], got.error["code"]) == (
                403,
                "permission_error",
                "policy_not_allowed",
            )
            assert served.fake.requests == []

    asyncio.run(main())


@pytest.mark.parametrize(
    ("fields", "samples"),
    [
        ({"model": "fake@single"}, 1),
        ({"breadth": {"policy": "single"}, "stream": True}, 1),
        ({"breadth": {"policy": "vote,n=2"}}, 2),
        ({"breadth": {"policy": "vote,n=2", "budget": {"calls": 99, "output_tokens": 10**9}}}, 2),
        ({"max_tokens": 10**9}, 2),
        ({"model": "fake@cheap", "max_completion_tokens": 2, "n_predict": -1}, 1),
        ({"logprobs": True, "max_tokens": 10**9}, 1),
    ],
)
def test_a_policy_a_request_may_name_keeps_the_operators_budget_and_system_message(
    serving: Any, tmp_path: Path, fields: dict[str, Any], samples: int
) -> None:
    dump(STRICT, tmp_path / "strict.toml")

    async def main() -> None:
        async with serving(FOUR, str(tmp_path / "strict.toml"), named=["cheap=single"], client_policies=True) as served:
            assert (await served.ask(**{"max_tokens": 10**9} | fields)).status == 200
            bodies = [arrival.body for arrival in served.fake.requests]
            assert len(bodies) == samples
            for body in bodies:
                assert body["messages"][0] == {"role": "system", "content": "Be brief."}
                assert body["max_tokens"] <= 3
                assert not body.keys() & {"n_predict", "max_completion_tokens"}
            assert served.proxy.ledger.spent.output_tokens <= 6

    asyncio.run(main())


@pytest.mark.parametrize("fields", [{"max_completion_tokens": 2}, {"n_predict": 2}, {"n_predict": 2, "max_tokens": 3}])
def test_the_policys_cap_reaches_the_upstream_under_the_name_that_every_server_knows(
    serving: Any, tmp_path: Path, fields: dict[str, Any]
) -> None:
    dump(replace(STRICT, budget=Budget()), tmp_path / "strict.toml")

    async def main() -> None:
        async with serving(FOUR, str(tmp_path / "strict.toml"), named=["cheap=single"]) as served:
            assert (await served.ask(model="fake@cheap", **fields)).status == 200
            body = served.fake.requests[-1].body
            assert {name: body.get(name) for name in CAP_FIELDS} == {
                "max_tokens": 2,
                "max_completion_tokens": None,
                "n_predict": None,
            }

    asyncio.run(main())


@pytest.mark.parametrize("policy", ["single", "vote,n=2"])
def test_a_field_that_may_get_past_the_policy_is_handed_on_where_the_operator_allows_it(
    serving: Any, policy: str
) -> None:
    fields = {"chat_template": "{{ messages[-1].content }}", "chat_template_kwargs": {"odd": 1}}
    names = frozenset({"chat_template", "chat_template_kwargs.odd"})

    async def main() -> None:
        async with serving(FOUR, policy) as served:
            got = await served.ask(**fields)
            assert (got.status, got.error["code"], got.error["param"]) == (400, "field_not_allowed", "chat_template")
            assert "--allow-field chat_template" in got.error["message"]
            assert served.fake.requests == []
        async with serving(FOUR, policy, limits=ProxyLimits(allow_fields=names)) as served:
            assert (await served.ask(**fields)).status == 200
            assert served.fake.requests[-1].body.items() >= fields.items()

    asyncio.run(main())


@pytest.mark.parametrize(
    "fields", [{"breadth": {"policy": "vote,n=256"}}, {"n": 3, "model": "fake@single"}, {"best_of": 3}]
)
def test_more_samples_than_the_operators_budget_has_calls_are_refused_in_words(
    serving: Any, tmp_path: Path, fields: dict[str, Any]
) -> None:
    dump(STRICT, tmp_path / "strict.toml")

    async def main() -> None:
        async with serving(FOUR, str(tmp_path / "strict.toml"), client_policies=True) as served:
            got = await served.ask(**fields)
            assert (got.status, got.error["code"]) == (400, "too_many_samples")
            assert "at most 2 times" in got.error["message"]
            assert served.fake.requests == []

    asyncio.run(main())


def test_a_plain_completion_keeps_the_operators_system_message_too(serving: Any, tmp_path: Path) -> None:
    dump(STRICT, tmp_path / "strict.toml")

    async def main() -> None:
        async with serving(FOUR, str(tmp_path / "strict.toml"), named=["cheap=single"]) as served:
            for model in ("fake", "fake@cheap"):
                assert (await served.post("/v1/completions", model=model, prompt="2 + 2 =")).status == 200
                assert served.fake.requests[-1].body["prompt"] == "Be brief.\n\n2 + 2 ="
            await served.post("/v1/completions", model="fake@cheap", prompt=["a", "b"])
            assert served.fake.requests[-1].body["prompt"] == ["Be brief.\n\na", "Be brief.\n\nb"]
            got = await served.post("/v1/completions", model="fake@cheap", prompt=[1, 2])
            assert (got.status, got.error["param"]) == (400, "prompt")

    asyncio.run(main())


@pytest.mark.parametrize("policy", ["single", "vote,n=2"])
def test_the_smaller_of_max_tokens_and_the_operators_limit_wins(serving: Any, policy: str) -> None:
    async def main() -> None:
        async with serving(FOUR, policy, limits=ProxyLimits(max_tokens=4)) as served:
            for asked, sent in ((10**9, 4), (5, 4), (3, 3)):
                got = await served.ask(max_tokens=asked)
                assert (got.status, served.fake.requests[-1].body["max_tokens"]) == (200, sent)

    asyncio.run(main())


UPSTREAM_KEY = "sk-proj-4f9a8b7c6d5e4f3a2b1c0d"
ECHOES = {
    "plain": UPSTREAM_KEY,
    "in a header": f"Authorization: Bearer {UPSTREAM_KEY}",
    "upper case": UPSTREAM_KEY.upper(),
    "in an address": f"https://up/?key={quote(UPSTREAM_KEY, safe='')}",
    "base64": base64.b64encode(UPSTREAM_KEY.encode()).decode(),
    "basic": base64.b64encode(f"user:{UPSTREAM_KEY}".encode()).decode(),
    "bearer in base64": base64.urlsafe_b64encode(f"Bearer {UPSTREAM_KEY}".encode()).decode(),
    "cut off": "x" * 240 + f" {UPSTREAM_KEY}" * 3,
}
DISGUISES = {
    "HTML": "".join(f"&#{ord(letter)};" for letter in UPSTREAM_KEY),
    "line ends": "\n".join(re.findall(".{1,5}", UPSTREAM_KEY)),
    "percent": "".join(f"%{ord(letter):02x}" for letter in UPSTREAM_KEY),
    "JSON": "".join(f"\\u{ord(letter):04x}" for letter in UPSTREAM_KEY),
    "blanks": " ".join(UPSTREAM_KEY),
    "base64 in lines": "\r\n".join(re.findall(".{1,8}", base64.b64encode(UPSTREAM_KEY.encode()).decode())),
    "hexadecimal": UPSTREAM_KEY.encode().hex(":"),
}
ECHOES |= DISGUISES


@dataclass(frozen=True)
class Echo(Fault):
    """The upstream's error repeats what it was sent."""

    text: str
    status: int

    def response(self) -> FaultResponse:
        """Answer with the error."""
        if self.status == 200:
            return FaultResponse(200, self.text.encode(), "text/html")
        return FaultResponse(self.status, orjson.dumps({"error": {"message": self.text}}))


def holds_key(raw: bytes) -> bool:
    """Say whether a reply holds half of the key or more, in any of the forms above."""
    half = len(UPSTREAM_KEY) // 2 + 1
    forms = [UPSTREAM_KEY[:half].lower(), UPSTREAM_KEY[-half:].lower()]
    forms += [text[4:24].lower() for name, text in ECHOES.items() if "base" in name or name == "basic"]
    forms += [" ".join(text.split())[4:20].lower() for text in DISGUISES.values()]
    return any(form.encode() in raw.lower().replace(b"\\\\", b"\\") for form in forms)


@pytest.mark.parametrize("status", [200, 400, 500])
@pytest.mark.parametrize("name", ECHOES)
def test_the_upstreams_key_reaches_no_client_and_no_log(
    serving: Any, name: str, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        for policy in ("single", "vote,n=2"):
            faults = [Echo(ECHOES[name], status)]
            async with serving(FOUR, policy, faults=faults, key=UPSTREAM_KEY, attempts=1) as served:
                for stream in (False, True):
                    got = await served.ask(stream=stream)
                    assert got.status in (400, 502)
                    assert not holds_key(got.raw)

    with caplog.at_level(logging.DEBUG, logger="breadth"):
        asyncio.run(main())
    assert not holds_key(caplog.text.encode())


@pytest.mark.parametrize("policy", ["single", "vote,n=2"])
@pytest.mark.parametrize("stream", [False, True])
def test_the_upstreams_key_is_taken_out_of_replies_too(serving: Any, policy: str, stream: bool) -> None:
    async def main() -> None:
        reply = Reply((ReplyToken(f"key={UPSTREAM_KEY}. The answer is 4."),))
        async with serving(reply, policy, key=UPSTREAM_KEY, models=("fake", UPSTREAM_KEY)) as served:
            got = await served.ask(model="fake", stream=stream)
            assert got.status == 200
            assert b"The answer is 4." in got.raw
            assert b"[key]" in got.raw
            assert not holds_key(got.raw)
            assert not holds_key((await served.get("/v1/models")).raw)

    asyncio.run(main())


def test_what_breaks_on_our_side_is_logged_without_the_upstreams_key(
    serving: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with serving(FOUR, "vote,n=3", key=UPSTREAM_KEY) as served:

            async def broken(*_: object, **__: object) -> None:
                raise ZeroDivisionError(UPSTREAM_KEY)

            monkeypatch.setattr(served.proxy.driver, "solve", broken)
            assert (await served.ask()).status == 500

    asyncio.run(main())
    assert "ZeroDivisionError" in caplog.text
    assert not holds_key(caplog.text.encode())


async def begin_request(served: Any, text: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a connection and send the beginning of a request."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(served.url.rpartition(":")[2]))
    writer.write(text.replace("\n", "\r\n").encode())
    await writer.drain()
    return reader, writer


UNFINISHED = (
    "POST /v1/chat/completions HTTP/1.1\nHost: 127.0.0.1\nContent-Type: application/json\n"
    "Authorization: Bearer {key}\nContent-Length: 100\n\n{{"
)
OTHER_KEY = "another-key-entirely"


def test_bodies_that_do_not_come_to_their_end_lock_nobody_out(serving: Any) -> None:
    async def main() -> None:
        limits = ProxyLimits(max_requests=4, max_bodies=4)
        async with serving(FOUR, keys=[KEY, OTHER_KEY], limits=limits) as served:
            slow = [await begin_request(served, UNFINISHED.format(key=KEY)) for _ in range(8)]
            await wait_until(lambda: served.proxy.in_flight == 8)
            for key in (KEY, OTHER_KEY):
                got = await served.post(headers={"Authorization": f"Bearer {key}"}, **ASKED)
                assert got.status == 200
            for _, writer in slow:
                writer.close()
            await served.at_rest()
            got = await served.post(headers={"Authorization": f"Bearer {KEY}"}, **ASKED)
            assert got.status == 200

    asyncio.run(main())


def test_large_bodies_of_one_client_wait_for_one_another_and_nobody_else_does(serving: Any) -> None:
    body = " " * 70_000
    begun = UNFINISHED.format(key=KEY).replace("100", "100000") + body

    async def main() -> None:
        async with serving(FOUR, keys=[KEY, OTHER_KEY], limits=ProxyLimits(max_bodies=2)) as served:
            slow = [await begin_request(served, begun) for _ in range(2)]
            await wait_until(lambda: served.proxy.bodies.users == 2)
            large = orjson.dumps(ASKED) + body.encode()
            waiting = asyncio.create_task(served.post(raw=large, headers={"Authorization": f"Bearer {KEY}"}))
            await wait_until(lambda: served.proxy.bodies.users == 3)
            zipped = {"Authorization": f"Bearer {KEY}", "Content-Encoding": "gzip"}
            unfolding = asyncio.create_task(served.post(raw=gzip.compress(large), headers=zipped))
            await wait_until(lambda: served.proxy.bodies.users == 4)
            for raw, key in ((large, OTHER_KEY), (orjson.dumps(ASKED), KEY)):
                assert (await served.post(raw=raw, headers={"Authorization": f"Bearer {key}"})).status == 200
            assert not waiting.done()
            assert not unfolding.done()
            for _, writer in slow:
                writer.close()
            assert ((await waiting).status, (await unfolding).status) == (200, 200)

    asyncio.run(main())


def test_large_bodies_are_made_sense_of_one_after_the_other(serving: Any) -> None:
    large = orjson.dumps(ASKED) + b" " * 70_000

    async def main() -> None:
        async with serving(FOUR) as served:
            async with served.proxy.reading:
                waiting = asyncio.create_task(served.post(raw=large))
                await wait_until(lambda: served.proxy.in_flight == 1)
                assert (await served.post(**ASKED)).status == 200, "a small one does not wait"
                assert not waiting.done()
            assert (await waiting).status == 200

    asyncio.run(main())


def ask_without_reading(served: Any, **fields: Any) -> socket.socket:
    """Send a request and leave its reply where it is."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", int(served.url.rpartition(":")[2])))
    body = orjson.dumps(ASKED | fields)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n"
    client.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + body)
    return client


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("policy", ["single", "vote,n=2"])
def test_a_client_that_does_not_read_its_reply_is_cut_off(serving: Any, policy: str, stream: bool) -> None:
    long = Reply((ReplyToken("x" * 20_000_000),))

    async def main() -> None:
        limits = ProxyLimits(max_requests=1, read_seconds=0.5, seconds=5, max_tokens=10**6)
        async with serving(long, policy, limits=limits) as served:
            client = ask_without_reading(served, stream=stream)
            await wait_until(lambda: served.fake.requests)
            await wait_until(lambda: not served.proxy.answering)
            await wait_until(lambda: not served.server.connections)
            client.close()

    asyncio.run(main())


def test_more_connections_than_there_are_files_for_are_closed_at_once(
    serving: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (6, 6))

    async def main() -> None:
        async with serving(FOUR) as served:
            held = [await begin_request(served, "GET") for _ in range(3)]
            await wait_until(lambda: served.server.connections == 3)
            reader, writer = await begin_request(served, "GET")
            async with asyncio.timeout(120):
                with suppress(ConnectionError):
                    assert await reader.read() == b""
            for _, other in (*held, (reader, writer)):
                other.close()
            await wait_until(lambda: not served.server.connections)
            assert (await served.ask()).status == 200

    asyncio.run(main())


def test_a_body_that_does_not_come_in_time_is_408(serving: Any) -> None:
    async def main() -> None:
        async with serving(FOUR, limits=ProxyLimits(read_seconds=0.3)) as served:
            reader, writer = await begin_request(served, UNFINISHED.format(key=KEY))
            async with asyncio.timeout(120):
                assert b" 408 " in await reader.readline()
            writer.close()
            await served.at_rest()

    asyncio.run(main())


@pytest.mark.parametrize("begun", ["", "POST /v1/chat/completions HTTP/1.1\nHost: 127.0.0.1\nX-Slow: "])
def test_a_connection_whose_head_does_not_come_to_its_end_is_closed(serving: Any, begun: str) -> None:
    async def main() -> None:
        async with serving(FOUR, limits=ProxyLimits(read_seconds=0.3)) as served:
            reader, writer = await begin_request(served, begun)
            async with asyncio.timeout(120):
                assert await reader.read() == b""
            writer.close()

    asyncio.run(main())


def test_without_a_key_only_names_of_this_machine_are_answered(serving: Any) -> None:
    async def main() -> None:
        async with serving(FOUR, allow_hosts=["Box.example"]) as served:
            for host in ("127.0.0.1:8400", "localhost", "a.localhost:1", "[::1]:8400", "127.8.8.8", "box.example:80"):
                assert (await served.post(headers={"Host": host}, **ASKED)).status == 200
            for host in (
                "evil.example",
                "127.0.0.1.evil.example",
                "192.168.1.7",
                "localhost.evil.example:8400",
                "[",
                "",
            ):
                for got in (
                    await served.post(headers={"Host": host}, **ASKED),
                    await served.get("/metrics", Host=host),
                ):
                    assert (got.status, got.error["code"]) == (403, "host_not_allowed")
        async with serving(FOUR, keys=[KEY]) as served:  # a key is what a page in a browser does not have
            headers = {"Host": "proxy.example", "Authorization": f"Bearer {KEY}"}
            assert (await served.post(headers=headers, **ASKED)).status == 200

    asyncio.run(main())


def test_a_server_of_a_network_without_a_key_answers_to_no_name_of_a_web_page(serving: Any) -> None:
    async def main() -> None:
        async with serving(FOUR, host="0.0.0.0", allow_hosts=["box.example"]) as served:  # noqa: S104 - for the test
            for host, status in (("box.example:1", 200), ("10.9.8.7", 200), ("gpu-box", 200), ("evil.example", 403)):
                assert (await served.get("/metrics", Host=host)).status == status

    asyncio.run(main())


@pytest.mark.parametrize("policy", ["single", "vote,n=3"])
def test_a_model_that_is_not_there_is_404_in_words(serving: Any, policy: str) -> None:
    async def main() -> None:
        async with serving(FOUR, policy) as served:
            got = await served.ask(model="nonsense")
            assert (got.status, got.error["type"]) == (404, "not_found_error")
            assert "nonsense" in got.error["message"]

    asyncio.run(main())


def test_every_page_but_health_and_readiness_needs_the_key(serving: Any) -> None:
    async def main() -> None:
        async with serving(FOUR, keys=[KEY]) as served:
            for path in ("/v1/models", "/metrics", "/nowhere"):
                assert (await served.get(path)).status == 401
            for path in ("/health", "/ready"):
                assert (await served.get(path)).json == {"status": "ok"}
            refused = await served.ask()
            assert (refused.status, refused.error["code"], refused.headers["WWW-Authenticate"]) == (
                401,
                "missing_api_key",
                "Bearer",
            )
            assert served.fake.requests == []
            assert (await served.get("/v1/models", Authorization=f"Bearer {KEY}")).status == 200
            said = {"messages": [{"role": "user", "content": "?"}]}
            assert (await served.post(headers={"Authorization": f"Bearer {KEY}"}, **said)).status == 200
            assert "authorization" not in served.fake.requests[0].headers

    asyncio.run(main())


def test_unknown_pages_and_wrong_methods_have_the_shape_too(serving: Any) -> None:
    async def main() -> None:
        async with serving(FOUR) as served:
            got = await served.get("/v1/embeddings")
            assert (got.status, got.error["code"]) == (404, "unknown_path")
            got = await served.get("/v1/chat/completions")
            assert (got.status, got.error["message"]) == (405, "Use POST here, not GET.")

    asyncio.run(main())


def test_readiness_is_the_upstreams_and_health_is_ours(serving: Any) -> None:
    async def main() -> None:
        async with serving(FOUR, client_policies=True) as served:
            await served.fake.__aexit__(None, None, None)
            assert (await served.get("/health")).status == 200
            assert ((await served.get("/ready")).status, (await served.get("/v1/models")).status) == (503, 502)
            for policy in ("single", "vote,n=2"):
                got = await served.ask(breadth={"policy": policy})
                assert (got.status, got.error["code"]) == (502, "upstream_failed")

    asyncio.run(main())


@pytest.mark.parametrize("announced", [True, False])
def test_a_body_of_10_mb_is_refused_before_it_is_read_whole(serving: Any, announced: bool) -> None:
    sent = 0

    async def main() -> None:
        async def body() -> Any:
            nonlocal sent
            yield b'{"messages": "'
            for _ in range(160):
                sent += 65536
                yield b"x" * 65536

        async with serving(FOUR) as served:
            headers = {"Content-Type": "application/json"} | (
                {"Content-Length": str(160 * 65536 + 14)} if announced else {}
            )
            async with served.http.post(served.url + "/v1/chat/completions", data=body(), headers=headers) as response:
                assert response.status == 413
                assert (await response.json())["error"]["code"] == "body_too_large"
            assert served.fake.requests == []

    asyncio.run(main())
    assert sent > 0


@pytest.mark.parametrize(
    ("raw", "headers", "status"),
    [
        (b"{", {}, 400),
        (b"", {}, 400),
        (b"x=1", {"Content-Type": "application/x-www-form-urlencoded"}, 415),
        (b"\x00\xff", {}, 400),
    ],
)
def test_a_bad_body_is_refused_in_words(serving: Any, raw: bytes, headers: dict[str, str], status: int) -> None:
    async def main() -> None:
        async with serving(FOUR) as served:
            got = await served.post(raw=raw, headers=headers)
            assert got.status == status
            assert got.error["message"]

    asyncio.run(main())


def test_one_too_many_is_told_to_come_back(serving: Any) -> None:
    async def main() -> None:
        async with serving(Reply.from_text("4", wait=0.2), limits=ProxyLimits(max_requests=2)) as served:
            got = await asyncio.gather(*(served.ask() for _ in range(5)))
            assert Counter(one.status for one in got) == {200: 2, 429: 3}
            assert {one.headers.get("Retry-After") for one in got if one.status == 429} == {"1"}
            assert (await served.ask()).status == 200

    asyncio.run(main())


@pytest.fixture
def many_files() -> Iterator[None]:
    """Allow more open files while a test lasts: clients, proxy and upstream share this process."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    hard = before[1]
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (16384 if hard == resource.RLIM_INFINITY else min(hard, max(before[0], 16384)), hard)
    )
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("many_files")
@pytest.mark.parametrize(("policy", "clients"), [("single", 2000), ("vote,n=2", 256)])
def test_a_thousand_clients_leave_nothing_behind(serving: Any, policy: str, clients: int) -> None:
    async def main() -> None:
        async with serving(
            Reply.from_text("So the answer is 4.", wait=0.05), policy, limits=ProxyLimits(max_requests=clients)
        ) as served:
            await served.ask()
            await asyncio.sleep(0.2)
            before = len(asyncio.all_tasks())
            async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
                served.http, small = http, served.http
                async with asyncio.timeout(60):
                    got = await asyncio.gather(*(served.ask() for _ in range(1000)))
                served.http = small
            told = Counter(one.status for one in got)
            assert set(told) <= {200, 429}
            assert told[200] >= min(clients, 1000)
            assert all(one.text == "So the answer is 4." for one in got if one.status == 200)
            await served.at_rest()
            assert served.proxy.ledger.reservations == []
            assert served.proxy.ledger.spent.calls == len(served.fake.requests)
            assert served.proxy.sampler.endpoints.all[0].in_flight == 0
            page = (await served.get("/metrics")).raw.decode()
            assert "breadth_requests_in_flight 0.0" in page
            await served.proxy.close()  # connections to the upstream that were kept for the next request
            async with asyncio.timeout(120):
                while len(asyncio.all_tasks()) > before:
                    await asyncio.sleep(0.02)

    asyncio.run(main())


def test_the_log_has_one_line_a_request_and_no_prompt(serving: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with serving(Reply.from_text(SECRET), "vote,n=3") as served:
            trace = (await served.ask(SECRET)).json["breadth"]["trace"]
            await served.ask(SECRET, model=SECRET)
            await served.ask(SECRET, n="x")
            await served.get(f"/{SECRET}")
            lines = [record.getMessage() for record in caplog.records if record.name == "breadth.serve"]
            assert len(lines) == 4
            assert lines[0].startswith(f"{trace} /v1/chat/completions policy=vote status=200 ")
            assert lines[0].endswith("samples=3 arrived=3 failed=0 discarded=0 tokens=30+3")
            assert "status=404" in lines[1]
            assert "upstream=404" in lines[1]
            assert "policy=none status=400" in lines[2]
            assert "other" in lines[3]
            page = (await served.get("/metrics")).raw.decode()
            assert not any(SECRET in text for text in (*lines, page))

    with caplog.at_level(logging.INFO, logger="breadth.serve"):
        asyncio.run(main())


def test_what_breaks_on_our_side_in_a_stream_cuts_it_off(serving: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with serving(FOUR, "vote,n=3", limits=ProxyLimits(heartbeat_seconds=0.05)) as served:

            async def broken(*_: object, **__: object) -> None:
                await asyncio.sleep(0.2)
                raise ZeroDivisionError

            monkeypatch.setattr(served.proxy.driver, "solve", broken)
            with pytest.raises(aiohttp.ClientPayloadError):
                await served.ask(stream=True)
            assert 'status="500"} 1.0' in (await served.get("/metrics")).raw.decode()

    asyncio.run(main())


def test_one_upstream_of_two_is_enough_to_be_ready(serving: Any) -> None:
    async def main() -> None:
        async with serving(FOUR, "vote,n=3") as served:
            gone = Endpoint("http://127.0.0.1:9")
            served.proxy.sampler.endpoints.all.append(gone)
            assert (await served.get("/ready")).status == 200
            got = await served.ask(model="fake")
            assert (got.status, got.json["breadth"]["arrived"]) == (200, 3)

    asyncio.run(main())


def test_what_breaks_on_our_side_is_500_with_the_trace_and_in_the_log(
    serving: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with serving(FOUR, "vote,n=3") as served:

            async def broken(*_: object, **__: object) -> None:
                raise ZeroDivisionError("secret")

            monkeypatch.setattr(served.proxy.driver, "solve", broken)
            got = await served.ask()
            assert (got.status, got.error["code"]) == (500, "internal")
            assert got.headers["x-request-id"] in got.error["message"]
            assert "secret" not in got.raw.decode()
            assert "ZeroDivisionError" in caplog.text
            assert served.proxy.in_flight == 0

    asyncio.run(main())


def test_a_prompt_that_is_too_long_is_the_upstreams_400_in_words(serving: Any) -> None:
    async def main() -> None:
        for policy in ("single", "vote,n=3"):
            async with serving(FOUR, policy, faults=[Status(400)]) as served:
                got = await served.ask()
                assert (got.status, got.error["code"]) == (400, "upstream_refused")
                assert "fault: status 400" in got.error["message"]
                assert len(served.fake.requests) <= 3  # not tried again

    asyncio.run(main())


def test_a_body_that_is_not_encoded_as_it_says_is_refused_in_words(
    serving: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with serving(FOUR) as served:
            got = await served.post(raw=b"no gzip at all", headers={"Content-Encoding": "gzip"})
            assert (got.status, got.error["code"]) == (400, "bad_body")

    asyncio.run(main())
    assert "broke on our side" not in caplog.text


BOMB = gzip.compress(b" " * 40_000_000)
ENCODED = {
    "gzip": gzip.compress(orjson.dumps({"messages": [{"role": "user", "content": "?"}]})),
    "deflate": zlib.compress(orjson.dumps({"messages": [{"role": "user", "content": "?"}]})),
}


@pytest.fixture
def inflating_threads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the threads in which anything is inflated, by whatever library."""
    threads: list[int] = []
    inflater = zlib.decompressobj

    def record(*arguments: Any, **keywords: Any) -> Any:
        threads.append(threading.get_ident())
        return inflater(*arguments, **keywords)

    monkeypatch.setattr(zlib, "decompressobj", record)
    return threads


def test_no_body_is_inflated_for_a_request_without_a_key(serving: Any, inflating_threads: list[int]) -> None:
    async def main() -> None:
        async with serving(FOUR, keys=[KEY]) as served:
            got = await served.post(raw=BOMB, headers={"Content-Encoding": "gzip"})
            assert (got.status, inflating_threads) == (401, [])

    asyncio.run(main())


def test_a_body_is_inflated_outside_the_loop_and_up_to_the_limit(serving: Any, inflating_threads: list[int]) -> None:
    async def main() -> None:
        async with serving(FOUR) as served:
            got = await served.post(raw=BOMB, headers={"Content-Encoding": "gzip"})
            assert (got.status, got.error["code"]) == (413, "body_too_large")
            for encoding, raw in ENCODED.items():
                assert (await served.post(raw=raw, headers={"Content-Encoding": encoding})).status == 200
        assert len(inflating_threads) == 3
        assert threading.get_ident() not in inflating_threads

    asyncio.run(main())


def test_the_inflated_size_is_bounded_byte_by_byte() -> None:
    raw = gzip.compress(b"x" * 1000)
    assert inflate(raw, "gzip", 1000) == b"x" * 1000
    with pytest.raises(ApiError, match="larger"):
        inflate(raw, "gzip", 999)
    assert inflate(zlib.compress(b"abc")[2:-4], "deflate", 9) == b"abc"


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip", "x"])
def test_an_encoding_we_do_not_read_is_refused_in_words(serving: Any, encoding: str) -> None:
    async def main() -> None:
        async with serving(FOUR) as served:
            got = await served.post(raw=b"x", headers={"Content-Encoding": encoding})
            assert (got.status, got.error["code"]) == (415, "bad_content_encoding")

    asyncio.run(main())


@pytest.mark.parametrize(
    "raw",
    [b"", BOMB[:500], ENCODED["gzip"] + b"x", ENCODED["gzip"] * 2],
    ids=["empty", "cut", "goes on", "twice"],
)
def test_a_body_that_is_not_whole_or_goes_on_is_refused_in_words(raw: bytes) -> None:
    with pytest.raises(ApiError, match="not encoded as its headers say"):
        inflate(raw, "gzip", 10**9)


@pytest.mark.parametrize(
    "fields", [{"n": 9}, {"n_cmpl": 9}, {"best_of": 9}, {"path": "/v1/completions", "prompt": ["x"] * 9}]
)
def test_no_request_gets_more_replies_than_the_operator_allows(serving: Any, fields: dict[str, Any]) -> None:
    async def main() -> None:
        async with serving(FOUR, limits=ProxyLimits(max_samples=8)) as served:
            got = await served.post(**({} if "path" in fields else ASKED) | fields)
            assert (got.status, got.error["code"]) == (400, "too_many_samples")
            assert served.fake.requests == []

    asyncio.run(main())


def test_where_the_upstream_is_stays_inside_when_it_is_gone(serving: Any) -> None:
    async def main() -> None:
        for policy in ("single", "vote,n=2"):
            async with serving(FOUR, policy, attempts=1) as served:
                served.proxy.sampler.endpoints.all[0].url = "http://127.0.0.1:9"
                got = await served.ask()
                assert got.status == 502
                assert b"127.0.0.1" not in got.raw

    asyncio.run(main())


async def drained(reply: Reply, policy: str, limits: ProxyLimits) -> tuple[Any, float, FakeServer, Proxy]:
    """Ask, tell the server to end while it answers, and return what came of both."""
    async with FakeServer(reply) as fake, aiohttp.ClientSession() as http:
        proxy = Proxy(OpenAISampler([fake.url]), Policies.parse(policy), limits=limits)
        server = Server(proxy)
        async with server:
            asking = asyncio.create_task(http.post(f"{server.url}/v1/chat/completions", json=ASKED))
            await wait_until(lambda: fake.open_requests)
            begun = time.monotonic()
        took = time.monotonic() - begun
        (got,) = await asyncio.gather(asking, return_exceptions=True)
        answered = got if isinstance(got, BaseException) else (got.status, await got.json())
        with pytest.raises(aiohttp.ClientConnectionError):
            await http.get(f"{server.url}/health")
        return answered, took, fake, proxy


@pytest.mark.parametrize("policy", ["single", "vote,n=3"])
def test_the_end_waits_for_those_being_answered(policy: str) -> None:
    async def main() -> None:
        answered, took, fake, _ = await drained(
            Reply.from_text("So the answer is 4.", wait=0.5), policy, ProxyLimits(drain_seconds=5.0)
        )
        assert answered[0] == 200
        assert answered[1]["choices"][0]["message"]["content"] == "So the answer is 4."
        assert 0.2 < took < 10
        assert all(arrival.left is None for arrival in fake.requests)

    asyncio.run(main())


@pytest.mark.parametrize("policy", ["single", "vote,n=3"])
def test_the_end_does_not_wait_for_ever_and_ends_the_draws(policy: str) -> None:
    async def main() -> None:
        answered, took, fake, proxy = await drained(
            Reply.from_text("4", wait=30.0), policy, ProxyLimits(drain_seconds=0.2)
        )
        assert isinstance(answered, aiohttp.ClientError)
        assert took < 20
        assert all(arrival.left is not None for arrival in fake.requests)
        assert proxy.ledger.reservations == []
        assert proxy.in_flight == 0

    asyncio.run(main())


def test_while_it_drains_nothing_new_is_taken_on_open_connections() -> None:
    async def main() -> None:
        async with FakeServer(Reply.from_text("So the answer is 4.")) as fake, aiohttp.ClientSession() as http:
            proxy = Proxy(OpenAISampler([fake.url]), Policies.parse("single"))
            async with Server(proxy) as server:
                proxy.draining = True
                got = await http.post(f"{server.url}/v1/chat/completions", json=ASKED)
                assert (got.status, got.headers["Retry-After"], (await got.json())["error"]["code"]) == (
                    503,
                    "1",
                    "draining",
                )
                assert (await http.get(f"{server.url}/ready")).status == 503
                assert (await http.get(f"{server.url}/health")).status == 200

    asyncio.run(main())


def test_a_taken_port_is_an_error_in_words() -> None:
    async def main() -> None:
        proxy = Proxy(OpenAISampler(["http://127.0.0.1:9"]), Policies.parse("single"))
        async with Server(proxy) as server:
            port = int(server.url.rsplit(":", 1)[1])
            with pytest.raises(SettingsError, match=f"Port {port}"):
                await Server(
                    Proxy(OpenAISampler(["http://127.0.0.1:9"]), Policies.parse("single")), port=port
                ).__aenter__()
        with pytest.raises(SettingsError, match=r"Cannot listen on 203\.0\.113\.1"):
            await Server(proxy, host="203.0.113.1").__aenter__()

    asyncio.run(main())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_heard(number: signal.Signals) -> None:
    async def main() -> None:
        asyncio.get_running_loop().call_later(0.05, os.kill, os.getpid(), number)
        async with asyncio.timeout(120):
            await wait_for_signal()

    asyncio.run(main())
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
