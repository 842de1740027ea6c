"""HTTP/1.1 as browsers send it: any bytes in any split are requests, or are refused at the same place.

What a request says is read, too: who may send it, the call or the WebSocket that it asks for.
"""

from __future__ import annotations

from typing import Any

from tests.fuzz import _run

with _run.instrumented_imports():
    from tests.fuzz._script import chunks
    from trio_cogment.base.errors import RpcError
    from trio_cogment.web.http1 import BadRequestError, Http1, Sign
    from trio_cogment.web.origins import OriginPolicy
    from trio_cogment.web.replies import Reply, preflight
    from trio_cogment.web.requests import Request, call_head, is_text, wants_text
    from trio_cogment.web.websockets import BadHandshakeError, WebSocket

_POLICY = OriginPolicy(["lab.example.org"], ["https://app.example.org"])
#: More than any input has: what is too long is refused when it has come, which a split does change.
_MAX_BYTES = 8192


def check(data: bytes) -> None:
    splits = ([data], chunks(data), [data[at : at + 1] for at in range(len(data))])
    results = [_seen(pieces) for pieces in splits]
    assert results[0] == results[1] == results[2], "the split made a difference"


def _seen(pieces: list[bytes]) -> list[Any]:
    """Return what a server has of it: requests, their bodies, and the bytes of its answers."""
    http = Http1(_MAX_BYTES, secure=False)
    seen: list[Any] = []
    for piece in [*filter(None, pieces), b""]:  # nothing is the end
        http.receive(piece)
        if not _take(http, seen):
            break
    return seen


def _take(http: Http1, seen: list[Any]) -> bool:
    """Read what is there; return whether more may come."""
    try:
        while True:
            event = http.next_event()
            if event is None or event is Sign.GONE:
                return event is None
            if isinstance(event, bytes):
                if seen and isinstance(seen[-1], bytes):
                    seen[-1] += event
                else:
                    seen.append(event)
                continue
            if isinstance(event, Request):
                _read(event)
                seen.append(event)
                continue
            answer = http.reply(Reply(200, b"x", b"text/plain"))
            assert answer.startswith(b"HTTP/1.1 200 ")
            seen.append(("answer", answer))
            if not http.next_request():
                return False
    except BadRequestError as error:
        refusal = error.reply
    assert 400 <= refusal.status < 600
    seen.append(("refused", refusal.status))
    http.reply(refusal, close=True)
    return False


def _read(request: Request) -> None:
    _POLICY.admit(hosts=request.texts(b"host"), origins=request.texts(b"origin"), secure=request.secure)
    preflight(request, 5)
    text = is_text(request.first(b"content-type"))
    wants_text(request.all(b"accept"), bool(text))
    try:
        call_head(request.headers, 1000)
    except RpcError:
        pass
    try:
        WebSocket(request, 1000)
    except BadHandshakeError:
        pass


if __name__ == "__main__":
    _run.run(check)
