"""The pages of the served reasoner: completions, models, properties, health; errors in the shape of the OpenAI schema."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias

import orjson
from aiohttp import web

from breadth.base.errors import ServerError
from breadth.lab.server.replies import Listening, Piece, Replies, Writing
from breadth.lab.server.requests import read_wanted
from breadth.runtime.proxy.client_request import read_request
from breadth.runtime.proxy.errors import ApiError
from breadth.runtime.wire import CHAT_PATH, COMPLETIONS_PATH

if TYPE_CHECKING:
    from breadth.lab.server.server import LabServer

Page: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]
LAB: web.AppKey[LabServer] = web.AppKey("lab")
LOG = logging.getLogger("breadth.lab")
LEFT = 499
"""Status for a client that did not wait for the reply; nobody reads it."""


def application(server: LabServer) -> web.Application:
    """Return the web application of a served reasoner."""
    app = web.Application(middlewares=[_told], client_max_size=server.settings.body)
    app[LAB] = server
    for path in (CHAT_PATH, COMPLETIONS_PATH):
        app.router.add_post(path, _complete)
    for path, page in (("/v1/models", _models), ("/props", _props), ("/health", _health)):
        app.router.add_get(path, page)
    return app


@web.middleware
async def _told(request: web.Request, handler: Page) -> web.StreamResponse:
    """Turn what goes wrong before a reply has begun into the OpenAI shape."""
    try:
        return await handler(request)
    except ApiError as refusal:
        return refusal.response
    except web.HTTPException as error:
        return _refused(error, request).response
    except ConnectionError:
        return web.Response(status=LEFT)
    except web.RequestPayloadError:
        return ApiError(400, "The body cannot be read: it is not encoded as its headers say.", code="bad_body").response
    except Exception as error:
        return _broken(error).response


def _refused(error: web.HTTPException, request: web.Request) -> ApiError:
    if isinstance(error, web.HTTPRequestEntityTooLarge):
        most = request.app[LAB].settings.body
        return ApiError(
            413,
            f"The body is larger than the {most / 1e6:g} MB this server reads: shorten the prompt.",
            code="body_too_large",
        )
    if isinstance(error, web.HTTPMethodNotAllowed):
        return ApiError(
            405,
            f"Use {' or '.join(sorted(error.allowed_methods))} here, not {error.method}.",
            code="method_not_allowed",
        )
    if isinstance(error, web.HTTPNotFound):
        pages = f"{CHAT_PATH}, {COMPLETIONS_PATH}, /v1/models, /props, /health"
        return ApiError(404, f"There is no such page. There are: {pages}.", code="unknown_path")
    return ApiError(error.status, error.reason)


def _broken(error: Exception) -> ApiError:
    """Return how a fault of ours is told: what the engine says itself, or where to look."""
    if isinstance(error, ServerError):
        return ApiError(error.status or 500, f"{error.problem} {error.remedy}", code="not_drawn")
    LOG.error("a request broke on our side", exc_info=error)
    return ApiError(500, "The server itself failed; its log has the reason.", code="internal")


async def _complete(request: web.Request) -> web.StreamResponse:
    """Answer a chat or continue a text."""
    server = request.app[LAB]
    call = read_request(request.path, await request.read())
    if call.model not in ("", server.settings.name):
        said = f"The model '{call.model[:80]}' does not exist here: ask for '{server.settings.name}'."
        raise ApiError(404, said, param="model", code="model_not_found")
    wanted = read_wanted(call, server.wording, server.context)
    writings = server.writings(wanted)
    replies = Replies(wanted, server.settings.name)
    with server.room(wanted.replies), Listening(server.engine, wanted, writings) as listening:
        if wanted.stream:
            return await _stream(request, listening, writings, replies)
        pieces: list[list[Piece]] = [[] for _ in writings]
        async for told in listening.batches():
            for writing, added in told:
                pieces[writing.index] += added
        return web.Response(body=replies.whole(writings, pieces), content_type="application/json")


async def _stream(
    request: web.Request, listening: Listening, writings: list[Writing], replies: Replies
) -> web.StreamResponse:
    """Send a reply token by token; what goes wrong now is an event, and the stream ends without its end mark."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
    await response.prepare(request)
    await response.write(b"".join(map(replies.first, writings)))
    try:
        async for told in listening.batches():
            events = [replies.piece(writing, piece) for writing, added in told for piece in added]
            events += [replies.last(writing) for writing in dict(told) if writing.finish is not None]
            if events:
                await response.write(b"".join(events))
        await response.write(replies.end(writings))
    except ConnectionError:
        return response  # the client has left
    except Exception as error:
        with suppress(ConnectionError):
            await response.write(_broken(error).event)
    return response


async def _models(request: web.Request) -> web.Response:
    server = request.app[LAB]
    weights = sum(tensor.numel() for tensor in server.reasoner.model.parameters())
    about = {"n_ctx": server.context, "n_vocab": server.wording.size, "n_params": weights}
    return _json(
        {
            "object": "list",
            "data": [
                {"id": server.settings.name, "object": "model", "created": 0, "owned_by": "breadth", "meta": about}
            ],
        }
    )


async def _props(request: web.Request) -> web.Response:
    """Say what is served and how it draws unless told otherwise, where llama.cpp says it."""
    server = request.app[LAB]
    defaults = {
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "max_tokens": -1,
        "stop": [],
        "speculative.types": "none",
    }
    return _json(
        {
            "default_generation_settings": {
                "n_ctx": server.context,
                "params": defaults | {"reasoning_format": server.settings.reasoning_format},
            },
            "total_slots": server.settings.at_once,
            "model_alias": server.settings.name,
            "chat_template": server.reasoner.tokenizer.chat_template,
            "bos_token": server.reasoner.tokenizer.bos_token,
            "eos_token": server.reasoner.tokenizer.eos_token,
        }
    )


async def _health(request: web.Request) -> web.Response:
    draining = request.app[LAB].draining
    return _json({"status": "draining" if draining else "ok"}, 503 if draining else 200)


def _json(content: object, status: int = 200) -> web.Response:
    return web.Response(status=status, body=orjson.dumps(content), content_type="application/json")
