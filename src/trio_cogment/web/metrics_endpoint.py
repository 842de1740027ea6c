"""`GET /metrics` over HTTP/1.1. The scraper is not trusted: time and memory of a connection are bounded."""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Callable, Collection
from typing import Any, TypeAlias

import h11
import trio
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from trio_cogment.access import address_of
from trio_cogment.base.config import MetricsConfig
from trio_cogment.budget.shares import Shares

_log = logging.getLogger(__name__)

PATH = "/metrics"
_RECEIVE_BYTES = 4096
#: What a client may send after the response. It is read, as closing with unread data could destroy the response.
_LEFTOVER_BYTES = 64 * 1024
#: Tells why a request with these fields `Host` and `Origin` is refused; empty: it is not.
Refuses: TypeAlias = Callable[[Collection[str], Collection[str]], str]

_METHODS = (b"GET", b"HEAD")
_TEXTS = {
    400: "bad request",
    401: "expected a token, as 'Bearer TOKEN'",
    403: "not for pages of other origins, nor by this name; the server's operator can allow them (--web_host)",
    404: "only /metrics is here",
    405: "only GET and HEAD",
    431: "the request is too long",
}


async def serve_metrics(
    registry: CollectorRegistry,
    listeners: list[trio.SocketListener],
    *,
    config: MetricsConfig | None = None,
    permits: Callable[[str], bool] | None = None,
    refuses: Refuses | None = None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve a registry's metrics until cancelled.

    A connection serves one request, within `request_timeout_seconds`. A failing connection affects no other.

    Args:
        registry: the metrics to serve.
        listeners: the listeners; this function closes them.
        config: limits.
        permits: tells whether a request with this field `authorization` (empty: without it) is answered; None: all are.
        refuses: tells why a request is refused that a page has sent, or that came to this machine's own address by some
            name; None: none is.
        task_status: `started` is called when connections are accepted.
    """
    config = config or MetricsConfig()
    shares = Shares(
        "connections",
        ("max_connections", config.max_connections),
        ("max_peer_connections", config.max_peer_connections),
    )

    async def serve(stream: trio.SocketStream) -> None:
        account = _account_of(stream)
        if shares.reached(account) is not None:
            return  # closed unread; scrapers retry
        try:
            with shares.taken(account), trio.move_on_after(config.request_timeout_seconds):
                await _answer(registry, stream, config, permits, refuses)
        except trio.BrokenResourceError:
            pass  # the scraper left
        except Exception:  # noqa: BLE001  the boundary of a connection
            _log.exception("a request for metrics failed")

    await trio.serve_listeners(serve, listeners, task_status=task_status)  # type: ignore[arg-type]  # one value less


async def _answer(
    registry: CollectorRegistry,
    stream: trio.SocketStream,
    config: MetricsConfig,
    permits: Callable[[str], bool] | None,
    refuses: Refuses | None,
) -> None:
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=config.max_request_bytes)
    request = await _request(connection, stream)
    if request is None:
        return
    headers = [("connection", "close")]
    if isinstance(request, int):
        status, body = request, _text(request)
    elif refuses is not None and _refused(request, stream, refuses):
        status, body = 403, _text(403)
    elif request.target.partition(b"?")[0] != PATH.encode():
        status, body = 404, _text(404)
    elif request.method not in _METHODS:
        status, body = 405, _text(405)
        headers.append(("allow", "GET, HEAD"))
    elif permits is not None and not permits(_authorization(request)):
        status, body = 401, _text(401)
        headers.append(("www-authenticate", "Bearer"))
    else:
        accepted = b",".join(value for name, value in request.headers if name == b"accept")
        encode, content_type = choose_encoder(accepted.decode("latin-1"))
        status, body = 200, encode(registry)
        headers.append(("content-type", content_type))
    headers.append(("content-length", str(len(body))))
    data = _sent(connection, h11.Response(status_code=status, headers=headers))
    # h11 knows that an answer to HEAD has a length and no body.
    head = not isinstance(request, int) and request.method == b"HEAD"
    data += b"" if head else _sent(connection, h11.Data(data=body))
    await stream.send_all(data + _sent(connection, h11.EndOfMessage()))
    await stream.send_eof()
    left = _LEFTOVER_BYTES
    while left > 0 and (more := await stream.receive_some(_RECEIVE_BYTES)):
        left -= len(more)


def _refused(request: h11.Request, stream: trio.SocketStream, refuses: Refuses) -> str:
    """Return why a request is refused; empty: it is not.

    Scrapers send no `Origin`, and may find a server in their network by any name. On loopback a name is that of a page
    which had it resolved to this machine (DNS rebinding).
    """
    hosts, origins = _fields(request, b"host"), _fields(request, b"origin")
    return refuses(hosts, origins) if origins or _is_loopback(stream) else ""


def _account_of(stream: trio.SocketStream) -> str:
    """Return the account of a scraper's address; empty: it is on this machine, or has gone."""
    try:
        host: str = stream.socket.getpeername()[0]
    except OSError:
        return ""
    account, local = address_of(f"ipv6:[{host}]:0" if ":" in host else f"ipv4:{host}:0")
    return "" if local else account


def _is_loopback(stream: trio.SocketStream) -> bool:
    address: str = stream.socket.getsockname()[0]
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def _fields(request: h11.Request, wanted: bytes) -> list[str]:
    return [value.decode("latin-1") for name, value in request.headers if name == wanted]


async def _request(connection: h11.Connection, stream: trio.SocketStream) -> h11.Request | int | None:
    """Return the request, the status of a refusal, or None when the client leaves without a request."""
    try:
        while True:
            event: Any = connection.next_event()
            if isinstance(event, h11.Request):
                return event
            if event is not h11.NEED_DATA:
                return None
            connection.receive_data(await stream.receive_some(_RECEIVE_BYTES))
    except h11.RemoteProtocolError as error:
        return int(error.error_status_hint)


def _authorization(request: h11.Request) -> str:
    return next((value.decode("latin-1") for name, value in request.headers if name == b"authorization"), "")


def _text(status: int) -> bytes:
    return f"{_TEXTS.get(status, 'bad request')}\n".encode()


def _sent(connection: h11.Connection, event: Any) -> bytes:
    data: bytes | None = connection.send(event)
    return data or b""
