"""Errors in the form clients of the OpenAI API expect: a status, an error object, and when to retry."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import orjson
from aiohttp import web

from breadth.base.errors import BreadthError, ServerError
from breadth.runtime.driver import SolveResult
from breadth.runtime.wire import error_body, format_event

ERROR_TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
"""Status -> ``type`` of the error object; other client errors are ``invalid_request_error``, the rest ``server_error``.
"""
_OWN_KEY_STATUSES = frozenset({401, 402, 403, 407})
"""Statuses about the proxy's own key or account: not the client's fault, who would check its own key."""
DEADLINE_SLACK = 0.05
"""Seconds before the deadline that count as it: a sample's own limit ends it a little before the request's."""
_OWN_KEY_MESSAGE = re.compile(rf"answered with status ({'|'.join(map(str, sorted(_OWN_KEY_STATUSES)))})\b")
_KEY_REFUSED = "The upstream does not accept this proxy's own key or account: tell its operator."


class ApiError(Exception):
    """A request that is not answered, and why."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after: float | None = None,
    ):
        super().__init__(message)
        self.status = status
        """HTTP status."""
        self.message = message
        """What is wrong and what to do, in words."""
        self.param = param
        """Field of the request that is to blame."""
        self.code = code
        """A word for programs."""
        self.retry_after = retry_after
        """Seconds after which to retry."""

    @property
    def body(self) -> dict[str, Any]:
        """The error object."""
        kind = ERROR_TYPES.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")
        return error_body(self.message, kind, param=self.param, code=self.code)

    @property
    def response(self) -> web.Response:
        """The whole reply."""
        headers = {} if self.retry_after is None else {"Retry-After": str(max(math.ceil(self.retry_after), 0))}
        if self.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        return web.Response(
            status=self.status, body=orjson.dumps(self.body), content_type="application/json", headers=headers
        )

    @property
    def event(self) -> bytes:
        """The same inside a stream that has started."""
        return format_event(self.body)


def to_api_error(error: BreadthError, upstreams: Sequence[str] = ()) -> ApiError:
    """Return an error as a reply: bad settings are the client's; an upstream's status is kept where it helps."""
    if not isinstance(error, ServerError):
        return ApiError(400, f"{error.problem} {error.remedy}", code="bad_policy")
    status = error.status or 502
    message = hide_upstreams(error.problem, upstreams)
    if status in _OWN_KEY_STATUSES:
        return ApiError(502, _KEY_REFUSED, code="upstream_key")
    if status == 429:
        return ApiError(429, message, code="upstream_rate_limit", retry_after=error.retry_after)
    if 400 <= status < 500 and status not in (408, 409, 425):
        return ApiError(status, f"{message} {error.remedy}", code="upstream_refused")
    if status in (503, 529):
        return ApiError(503, message, code="upstream_overloaded", retry_after=error.retry_after)
    return ApiError(502, message, code="upstream_failed", retry_after=error.retry_after)


def no_answer_error(result: SolveResult, seconds: float | None, upstreams: Sequence[str] = ()) -> ApiError:
    """Return why nothing arrived: the deadline, the upstream's last error, or a budget that allows no sample."""
    if seconds is not None and result.seconds >= seconds - min(DEADLINE_SLACK, seconds / 10):
        return deadline_error(seconds)
    if result.last_error is not None:
        error = to_api_error(result.last_error, upstreams)
        error.message += f" All {result.failed} samples failed."
        return error
    return budget_error()


def budget_error() -> ApiError:
    """Return the error for a budget that allows nothing."""
    return ApiError(
        400,
        "The budget allows not a single sample: raise it, or leave it out.",
        param="breadth.budget",
        code="budget_too_small",
    )


def deadline_error(seconds: float) -> ApiError:
    """Return the error for a deadline that passed."""
    return ApiError(504, f"The upstream gave no answer within the deadline of {seconds:g} s.", code="deadline")


def hide_upstreams(text: str, upstreams: Sequence[str]) -> str:
    """Return a text without the upstreams' addresses and without their messages about our key: clients get neither."""
    if _OWN_KEY_MESSAGE.search(text):
        return _KEY_REFUSED
    for url in sorted(upstreams, key=len, reverse=True):  # an address may be the beginning of another
        text = text.replace(url, "the upstream").replace(url.partition("://")[2], "the upstream")
    return text[:1].upper() + text[1:]
