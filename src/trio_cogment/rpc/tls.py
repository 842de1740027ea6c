"""TLS for servers and channels: contexts as gRPC wants them, and the handshake with its checks.

`server_tls` and `client_tls` make contexts from files. Any `ssl.SSLContext` of your own does as well: ALPN is set on it
where it is handed over, and what was negotiated is checked on every connection.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import trio

from trio_cogment.base.errors import RemoteProtocolError

FilePath: TypeAlias = str | os.PathLike[str]

ALPN = "h2"
#: For servers with a side for browsers. The server's order counts: browsers offer both, gRPC's clients h2 alone.
ALPN_WITH_HTTP1 = ("http/1.1", ALPN)
#: Of TLS 1.2 only what RFC 9113 (9.2.2) allows with HTTP/2; the suites of TLS 1.3 are all fine.
_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
#: A browser came with http:// (GET, HEAD, POST, PUT): it can be answered, as other servers do.
_HTTP = "HTTP_REQUEST"
_PLAIN_TEXT = b"This port speaks TLS: the address begins with https://\n"
_PLAIN_ANSWER = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\n"
    b"Connection: close\r\n\r\n%s" % (len(_PLAIN_TEXT), _PLAIN_TEXT)
)
#: What OpenSSL says of bytes that are not TLS, and of an end in the middle.
_NOT_TLS = frozenset(["WRONG_VERSION_NUMBER", _HTTP, "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE"])
_CUT = "UNEXPECTED_EOF_WHILE_READING"
#: What OpenSSL calls alerts with which a peer refuses a certificate, or misses one, without the version before them.
_REFUSED = frozenset(
    f"ALERT_{what}"
    for what in (
        "BAD_CERTIFICATE",
        "CERTIFICATE_EXPIRED",
        "CERTIFICATE_REVOKED",
        "CERTIFICATE_UNKNOWN",
        "UNKNOWN_CA",
        "UNSUPPORTED_CERTIFICATE",
    )
)
_REQUIRED = "ALERT_CERTIFICATE_REQUIRED"
#: How long, and for how many bytes, a server waits for a client to read why its handshake failed.
_ALERT_SECONDS = 1
_ALERT_BYTES = 65_536
_UNKNOWN_AUTHORITY = frozenset([18, 19, 20, 21])  # of OpenSSL: no issuer is found, or it is not trusted
_VERSIONS = frozenset(["TLSv1.2", "TLSv1.3"])


def server_tls(
    certificate: FilePath,
    key: FilePath | None = None,
    *,
    password: str | None = None,
    client_roots: FilePath | None = None,
) -> ssl.SSLContext:
    """Return a context for `open_listeners` or `open_unix_listener`.

    Args:
        certificate: a PEM file with the server's certificate and the intermediate ones behind it.
        key: a PEM file with its private key; None if `certificate` holds it too.
        password: of the key, if it is encrypted.
        client_roots: a PEM file with the authorities that sign clients' certificates. With it every client must show
            one (mutual TLS); without it none is asked.

    Raises:
        OSError: a file cannot be read, or does not hold what it should (`ssl.SSLError`).
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key, password or _no_password)
    if client_roots is not None:
        context.load_verify_locations(client_roots)
        context.verify_mode = ssl.CERT_REQUIRED
    return _hardened(context)


def client_tls(
    roots: FilePath | None = None,
    *,
    certificate: FilePath | None = None,
    key: FilePath | None = None,
    password: str | None = None,
) -> ssl.SSLContext:
    """Return a context for a `Channel`.

    Args:
        roots: a PEM file with the authorities that sign servers' certificates; None for the system's.
        certificate: a PEM file with this client's certificate, for servers that ask for one.
        key: a PEM file with its private key; None if `certificate` holds it too.
        password: of the key, if it is encrypted.

    Raises:
        OSError: a file cannot be read, or does not hold what it should (`ssl.SSLError`).
    """
    context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=roots)
    if certificate is not None:
        context.load_cert_chain(certificate, key, password or _no_password)
    return _hardened(context)


def _no_password() -> str:
    raise ssl.SSLError("the private key is encrypted and no password was given")  # else OpenSSL asks the terminal


def _hardened(context: ssl.SSLContext) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_CIPHERS)
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION  # RFC 9113, 9.2.1
    context.set_alpn_protocols([ALPN])
    return context


def secured(listener: trio.abc.Listener[Any], context: ssl.SSLContext, *, http1: bool = False) -> trio.SSLListener[Any]:
    """Return a listener whose connections are encrypted; ALPN is set on the context.

    Args:
        listener: of the connections below.
        context: of the server.
        http1: browsers are served, too.
    """
    context.set_alpn_protocols(ALPN_WITH_HTTP1 if http1 else [ALPN])
    # "https compatible": gRPC peers close without close_notify, and HTTP/2 says itself where a message ends.
    return trio.SSLListener(listener, context, https_compatible=True)


class RenewableListener(trio.abc.Listener[Any]):
    """Encrypts connections with whatever context there is when they come: a certificate can be renewed while it serves.

    Args:
        listener: of the connections below.
        context: returns the present context; ALPN is set on it.
        http1: browsers are served, too.

    Attributes:
        transport_listener: see above.
    """

    def __init__(
        self, listener: trio.abc.Listener[Any], context: Callable[[], ssl.SSLContext], *, http1: bool = False
    ) -> None:
        self.transport_listener = listener
        self._protocols = ALPN_WITH_HTTP1 if http1 else (ALPN,)
        self._context = context

    async def accept(self) -> trio.SSLStream[Any]:
        """Accept a connection; the handshake is the stream's business."""
        stream = await self.transport_listener.accept()
        context = self._context()
        context.set_alpn_protocols(self._protocols)
        return trio.SSLStream(stream, context, server_side=True, https_compatible=True)

    async def aclose(self) -> None:
        """Close the listener below."""
        await self.transport_listener.aclose()


def client_stream(stream: trio.abc.Stream, context: ssl.SSLContext, server_name: str) -> trio.SSLStream[Any]:
    """Return an encrypted stream to a server of this name; ALPN is set on the context."""
    context.set_alpn_protocols([ALPN])
    return trio.SSLStream(stream, context, server_hostname=server_name, https_compatible=True)


async def shake_hands(
    stream: trio.abc.Stream,
    timeout: float,
    *,
    http1: bool = False,
    turn: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Finish the TLS handshake of a stream, and check that both sides speak HTTP/2; nothing to do without TLS.

    Args:
        stream: of either side.
        timeout: in seconds.
        http1: a server that serves browsers, too: who has not agreed on HTTP/2 speaks HTTP/1.1.
        turn: awaited when the peer has begun, before that is answered, which takes a while of the processor's time.

    Raises:
        RemoteProtocolError: it failed, took too long, or led to something else; the stream is of no use any more.
    """
    if not isinstance(stream, trio.SSLStream):
        return
    failure: Exception | None = None
    with trio.move_on_after(timeout) as scope:
        if turn is not None:
            if isinstance(stream.transport_stream, trio.SocketStream):
                await trio.lowlevel.wait_readable(stream.transport_stream.socket)
            await turn()
        try:
            await stream.do_handshake()
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            failure = error
    if failure is not None:
        cause = failure.__cause__
        if not (isinstance(cause, ssl.SSLError) and cause.reason == _CUT):  # else nobody is left to tell
            is_http = stream.server_side and isinstance(cause, ssl.SSLError) and cause.reason == _HTTP
            await _send_alert(stream, _PLAIN_ANSWER if is_http else b"")
        hint = _hint(cause, server_side=stream.server_side)
        raise RemoteProtocolError(f"TLS handshake failed: {_reason(cause)}{hint}") from failure
    if scope.cancelled_caught:
        raise RemoteProtocolError(f"no TLS handshake within {timeout:g} s")
    if http1 and stream.selected_alpn_protocol() != ALPN:
        return
    if stream.selected_alpn_protocol() != ALPN:
        raise RemoteProtocolError("the peer did not agree on HTTP/2 (no ALPN 'h2')")
    if stream.version() not in _VERSIONS:
        raise RemoteProtocolError(f"HTTP/2 needs TLS 1.2 or later, not {stream.version()}")


def refusal_in(error: BaseException) -> str:
    """Return what a stream's error says of a server that has refused this client's certificate; empty: it has not.

    With TLS 1.3 a client's handshake ends before the server looks at its certificate, so the refusal is read later.
    """
    cause = error.__cause__
    if not (isinstance(cause, ssl.SSLError) and cause.reason and "_ALERT_" in cause.reason):
        return ""
    return _reason(cause) + _hint(cause, server_side=False)


async def _send_alert(stream: trio.SSLStream[Any], instead: bytes) -> None:
    """Send what TLS has to say of a failed handshake; a server waits a moment, for to close earlier would take it back.

    Trio leaves it unsent: the peer would learn that the connection was lost, and not why.

    Args:
        stream: whose handshake failed.
        instead: sent in its place, to a peer that does not speak TLS; empty: nothing is.
    """
    alert = instead or stream._outgoing.read()  # there is no public way to it
    transport = stream.transport_stream
    with trio.move_on_after(_ALERT_SECONDS):
        try:
            if alert:
                await transport.send_all(alert)
            if alert and stream.server_side and isinstance(transport, trio.abc.HalfCloseableStream):
                await transport.send_eof()
                limit = _ALERT_BYTES
                while limit > 0 and (data := await transport.receive_some()):
                    limit -= len(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the peer is gone


def certificate_names(stream: trio.abc.Stream) -> tuple[str, ...]:
    """Return the names in the certificate of a stream's peer: its common names, then DNS names and URIs.

    They mean something only after `shake_hands`, with a context that checks certificates; else there are none.
    """
    if not isinstance(stream, trio.SSLStream):
        return ()
    certificate = stream.getpeercert() or {}
    common = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    others = [value for key, value in certificate.get("subjectAltName", ()) if key in ("DNS", "URI")]
    return tuple(dict.fromkeys([*common, *others]))


def left_without_a_word(error: RemoteProtocolError) -> bool:
    """Tell whether a handshake failed because the peer closed the connection and gave no reason.

    That is how a look whether anybody listens ends: a directory's, a load balancer's.
    """
    cause = error.__cause__.__cause__ if error.__cause__ is not None else None
    return isinstance(cause, ssl.SSLError) and cause.reason == _CUT


def _hint(error: BaseException | None, *, server_side: bool) -> str:
    """Return what a failed handshake suggests, as part of a sentence: no TLS at the peer, or a certificate refused."""
    if isinstance(error, ssl.SSLCertVerificationError):
        unknown = getattr(error, "verify_code", None) in _UNKNOWN_AUTHORITY
        return "; its authority is not among the trusted roots" if unknown else ""
    reason = error.reason if isinstance(error, ssl.SSLError) else None
    alert = (reason or "").partition("_")[2]
    if alert in _REFUSED:
        whose = "client does not accept this server's" if server_side else "server does not accept this client's"
        return f"; the {whose} certificate"
    if alert == _REQUIRED:
        return "; the server asks for a client certificate"
    if server_side:
        return "; the client may not speak TLS" if reason in _NOT_TLS else ""
    return "; the server may not speak TLS" if reason in _NOT_TLS | {_CUT} else ""


def _reason(error: BaseException | None) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return str(error.verify_message)
    if isinstance(error, ssl.SSLError) and error.reason:
        return str(error.reason).replace("_", " ").lower()
    return "connection lost"
