"""Answers that are there as a whole: their fields, bodies, and the statuses that stand for errors."""

from __future__ import annotations

import json

import pytest

from trio_cogment.base.errors import (
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    ResourceExhaustedError,
    RpcError,
    StatusCode,
    UnauthenticatedError,
    UnavailableError,
)
from trio_cogment.web.replies import (
    SECURITY_HEADERS,
    Reply,
    common_headers,
    failure,
    html_page,
    json_data,
    json_reply,
    of_handler,
    preflight,
    redirect,
    refusal,
)
from trio_cogment.web.requests import Request


def request(method: str = "GET", path: str = "/a/b", foreign: str = "", **headers: str) -> Request:
    fields = tuple((name.replace("_", "-").encode(), value.encode()) for name, value in headers.items())
    return Request(method, path, "", fields, foreign=foreign)


def test_every_answer_says_what_browsers_may_do_with_it() -> None:
    assert common_headers("") == list(SECURITY_HEADERS)
    own = [name for name, _ in SECURITY_HEADERS][:1]
    assert common_headers("", own) == list(SECURITY_HEADERS)[1:]
    foreign = common_headers("https://other")
    assert foreign[: len(SECURITY_HEADERS)] == list(SECURITY_HEADERS)
    assert foreign[len(SECURITY_HEADERS) :] == [
        (b"access-control-allow-origin", b"https://other"),
        (b"access-control-expose-headers", b"grpc-status,grpc-message,grpc-status-details-bin"),
    ]


def test_a_handler_says_nothing_that_browsers_obey() -> None:
    mine = [(b"x-own", b"1"), (b"contents", b"2")]
    theirs = [
        *((name, b"x") for name in (b"vary", b"cache-control", b"location", b"server", b"date", b"trailer")),
        *((name, b"x") for name in (b"access-control-allow-origin", b"content-type", b"sec-x", b"set-cookie")),
        *((name, b"x") for name in (b"x-frame-options", b"cross-origin-opener-policy", b"referrer-policy")),
    ]
    assert of_handler([mine[0], *theirs, mine[1]]) == mine


def test_answers_for_programs() -> None:
    reply = json_reply(404, "nothing", hint="look")
    assert (reply.status, reply.content_type, reply.headers) == (404, b"application/json", ())
    assert json.loads(reply.body) == {"message": "nothing", "hint": "look"}
    assert reply.body.endswith(b"\n")
    assert json_data([1.5, "é"]) == Reply(200, json_data([1.5, "é"]).body, b"application/json")
    assert json.loads(json_data({"a": None}, 202).body) == {"a": None}
    assert json_data({}, 202).status == 202
    assert json.loads(refusal(404).body) == {"message": "not found"}
    assert json.loads(refusal(403, "no").body) == {"message": "no"}


def test_a_small_page() -> None:
    asked = request(path="/play/x/")
    reply = html_page(asked, 403, "<No>", "a & b", "c", content="<form></form>", head="<meta>")
    assert (reply.status, reply.content_type) == (403, b"text/html; charset=utf-8")
    text = reply.body.decode()
    assert "<title>&lt;No&gt;</title>" in text
    assert "<h1>&lt;No&gt;</h1>" in text
    assert "<p>a &amp; b</p>\n<p>c</p>\n<form></form>" in text
    assert "<meta><title>" in text
    assert 'href="../../assets/style.css"' in text
    assert html_page(asked, 200, "\ud800").body.count(b"?") >= 1


def test_another_page_of_this_server() -> None:
    assert redirect(request(path="/a/b"), "/play/") == Reply(303, headers=((b"location", b"../play/"),))


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InvalidArgumentError("x"), 400),
        (RpcError(StatusCode.OUT_OF_RANGE, "x"), 400),
        (PermissionDeniedError("x"), 403),
        (NotFoundError("x"), 404),
        (RpcError(StatusCode.ALREADY_EXISTS, "x"), 409),
        (RpcError(StatusCode.ABORTED, "x"), 409),
        (RpcError(StatusCode.FAILED_PRECONDITION, "x"), 409),
        (ResourceExhaustedError("x"), 429),
        (RpcError(StatusCode.UNIMPLEMENTED, "x"), 501),
        (UnavailableError("x"), 503),
        (RpcError(StatusCode.CANCELLED, "x"), 503),
        (RpcError(StatusCode.DEADLINE_EXCEEDED, "x"), 504),
        (RpcError(StatusCode.DATA_LOSS, "x"), 500),
    ],
)
def test_what_has_gone_wrong(error: Exception, status: int) -> None:
    reply = failure(error)
    assert (reply.status, reply.headers) == (status, ())
    assert json.loads(reply.body) == {"message": "x"}


def test_who_is_not_known_is_told_how_to_say_who_it_is() -> None:
    reply = failure(UnauthenticatedError("who?"))
    assert (reply.status, reply.headers) == (401, ((b"www-authenticate", b"Bearer"),))
    assert (json.loads(reply.body), reply.content_type) == ({"message": "who?"}, b"application/json")


def asked(method: str = "POST", **fields: str) -> Request:
    return request("OPTIONS", foreign="https://other", access_control_request_method=method, **fields)


def test_a_page_asks_whether_it_may() -> None:
    assert preflight(asked(), 600) == Reply(
        204, headers=((b"access-control-allow-methods", b"POST"), (b"access-control-max-age", b"600"))
    )
    found = preflight(asked("PUT", access_control_request_headers="x-own, content-type"), 1.5, ["PUT", "GET"])
    assert found is not None
    assert found.headers == (
        (b"access-control-allow-methods", b"PUT, GET"),
        (b"access-control-max-age", b"1"),
        (b"access-control-allow-headers", b"x-own, content-type"),
    )


def test_what_is_no_question_of_a_page() -> None:
    for other in (
        request("POST", foreign="https://other", access_control_request_method="POST"),
        request("OPTIONS", access_control_request_method="POST"),
        request("OPTIONS", foreign="https://other"),
    ):
        assert preflight(other, 600) is None


@pytest.mark.parametrize(
    ("given", "methods", "status", "message"),
    [
        (asked("GET"), ["POST"], 403, "pages of other origins may use POST here"),
        (asked("POST"), [], 403, "pages of other origins may use nothing here"),
        (
            asked(access_control_request_headers="a:b"),
            ["POST"],
            400,
            "access-control-request-headers: expected names of fields",
        ),
        (
            asked(access_control_request_headers="x" * 4097),
            ["POST"],
            400,
            "access-control-request-headers: expected names of fields",
        ),
    ],
)
def test_what_a_page_may_not(given: Request, methods: list[str], status: int, message: str) -> None:
    reply = preflight(given, 600, methods)
    assert reply is not None
    assert (reply.status, json.loads(reply.body)) == (status, {"message": message})
