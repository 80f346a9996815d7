"""Errors as clients are told about them."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest

from breadth.base.errors import ServerError, StrategyError
from breadth.inference.records import Answer, Spend, Task
from breadth.runtime.driver import SolveResult
from breadth.runtime.proxy.errors import ApiError, deadline_error, hide_upstreams, no_answer_error, to_api_error

URL = "http://10.0.0.3:8000"
NOTHING = SolveResult(Task("?"), Answer(), Spend(), (), 3, 3, 0, {}, None, 0.5, False, "trace")


def upstream(status: int | None, **more: float) -> ServerError:
    return ServerError(f"{URL} answered with status {status}: no", "Do something.", status=status, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        *[
            (500, 502),
            (502, 502),
            (503, 503),
            (504, 502),
            (529, 503),
            (None, 502),
            (200, 502),
            (401, 502),
            (402, 502),
            (403, 502),
        ],
        *[(429, 429), (400, 400), (404, 404), (413, 413), (422, 422), (408, 502), (409, 502), (301, 502)],
    ],
)
def test_an_upstreams_status_is_kept_where_it_helps_the_client(said: int | None, told: int) -> None:
    refusal = to_api_error(upstream(said), [URL])
    assert refusal.status == told
    assert URL not in refusal.message


def test_a_rate_limit_says_when_to_come_back_in_whole_seconds() -> None:
    response = to_api_error(upstream(429, retry_after=1.2), [URL]).response
    assert (response.status, response.headers["Retry-After"]) == (429, "2")
    assert isinstance(response.body, bytes)
    assert orjson.loads(response.body)["error"]["type"] == "rate_limit_error"


def test_a_bad_policy_is_the_clients_fault_and_says_what_to_do() -> None:
    refusal = to_api_error(StrategyError("It needs logprobs.", "Choose another."))
    assert (refusal.status, refusal.message) == (400, "It needs logprobs. Choose another.")


def test_the_shape_is_openais_also_inside_a_stream() -> None:
    refusal = ApiError(400, "no", param="n", code="x")
    assert refusal.body == {"error": {"message": "no", "type": "invalid_request_error", "param": "n", "code": "x"}}
    assert orjson.loads(refusal.event.removeprefix(b"data: ")) == refusal.body
    assert refusal.event.endswith(b"\n\n")
    assert ApiError(401, "no").response.headers["WWW-Authenticate"] == "Bearer"
    assert ApiError(502, "no").body["error"]["type"] == "server_error"


def test_nothing_arrived_is_told_by_its_cause() -> None:
    assert no_answer_error(replace(NOTHING, seconds=2.0), 2.0).status == deadline_error(2.0).status == 504
    failed = no_answer_error(replace(NOTHING, last_error=upstream(500)), 2.0, [URL])
    assert failed.status == 502
    assert "All 3 samples failed" in failed.message
    empty = no_answer_error(replace(NOTHING, budget_exhausted=True), 2.0)
    assert (empty.status, empty.param) == (400, "breadth.budget")


def test_addresses_of_upstreams_stay_inside() -> None:
    assert hide_upstreams(f"{URL} cannot be reached: {URL}", [URL]) == "The upstream cannot be reached: the upstream"
    assert hide_upstreams(f"{URL}0 and {URL}", [URL, f"{URL}0"]) == "The upstream and the upstream"
    assert (
        hide_upstreams("Cannot connect to host 10.0.0.3:8000 ssl:default", [URL])
        == "Cannot connect to host the upstream ssl:default"
    )


def test_what_an_upstream_says_about_our_key_stays_inside_too() -> None:
    said = hide_upstreams(f"{URL} answered with status 401: Incorrect API key provided: sk-secret.", [URL])
    assert "sk-secret" not in said
    assert "own key" in said


def test_a_draw_that_ends_a_moment_before_the_deadline_ended_with_it() -> None:
    assert no_answer_error(replace(NOTHING, seconds=0.29, last_error=upstream(500)), 0.3).status == 504
    assert no_answer_error(replace(NOTHING, seconds=1.9, last_error=upstream(500)), 2.0).status == 502
