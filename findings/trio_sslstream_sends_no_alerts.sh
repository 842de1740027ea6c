#!/usr/bin/env bash
# Trio's SSLStream keeps the alert of a failed TLS handshake to itself: the peer sees an end of file, not a reason.
#
# Versions:  trio==0.35.0, trustme==1.2.1, CPython's ssl
# Guessed:   a server that wants a certificate tells a client without one "certificate required", as TLS has it and as
#            the same context does over a plain socket.
# Behaviour: over a socket wrapped by `ssl` the client reads "alert certificate required". Over `trio.SSLStream` with the
#            same context OpenSSL has written the alert, but it is never sent: the handshake raises on the server, the
#            stream counts as broken, and the client reads an orderly end of the stream: b"".
# Matters:   who runs servers on Trio with client certificates has users who see "connection lost". What OpenSSL has left
#            in the outgoing buffer has to be sent before the transport is closed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet install trio==0.35.0 trustme==1.2.1
"$folder/venv/bin/python" - <<'PYTHON'
import socket
import ssl
import threading

import trio
import trustme

authority = trustme.CA()
wanting = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
authority.issue_cert("localhost").configure_cert(wanting)
authority.configure_trust(wanting)
wanting.verify_mode = ssl.CERT_REQUIRED
trusting = ssl.create_default_context()
authority.configure_trust(trusting)


def read_as_client(port: int) -> str:
    """Connect without a certificate; return what is read."""
    with socket.create_connection(("localhost", port), timeout=10) as plain:
        try:
            with trusting.wrap_socket(plain, server_hostname="localhost") as stream:
                return repr(stream.recv(1))  # in TLS 1.3 the client is done first, and learns here
        except ssl.SSLError as error:
            return str(error.reason)


def by_sockets() -> str:
    with socket.create_server(("localhost", 0)) as listener:
        found: list[str] = []
        client = threading.Thread(target=lambda: found.append(read_as_client(listener.getsockname()[1])))
        client.start()
        plain, _ = listener.accept()
        try:
            wanting.wrap_socket(plain, server_side=True)
        except ssl.SSLError:
            plain.close()
        client.join()
        return found[0]


async def by_trio() -> str:
    [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
    found: list[str] = []

    async def serve_one() -> None:
        stream = trio.SSLStream(await listener.accept(), wanting, server_side=True)
        try:
            await stream.do_handshake()
        except trio.BrokenResourceError:
            await stream.aclose()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_one)
        port = listener.socket.getsockname()[1]
        found.append(await trio.to_thread.run_sync(read_as_client, port))
    await listener.aclose()
    return found[0]


told = {"sockets": by_sockets(), "trio": trio.run(by_trio)}
print(told)
assert "CERTIFICATE_REQUIRED" in told["sockets"], "it behaves otherwise now"
assert told["trio"] == repr(b""), "it behaves otherwise now"
PYTHON
