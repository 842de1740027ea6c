"""A server of S3 for tests, moto's, and a gate in front of it that can be closed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.ports import free_port

#: The interpreter of an environment that has moto[server]; `nox -s stores` says which.
PYTHON = os.environ.get("TRIO_COGMENT_S3_SERVER_PYTHON", "")
BUCKET = "models"
_START_SECONDS = 60.0
#: moto 5.2.5 looks whether an object is there, and writes it afterwards: of several `If-None-Match: *` at the same time
#: more than one succeeds, where of S3's own one does.
_SERVER = """
import sys, threading
from moto.s3.responses import S3Response
from moto.server import main

put_object, one_at_a_time = S3Response.put_object, threading.Lock()

def put_object_alone(response):
    with one_at_a_time:
        return put_object(response)

S3Response.put_object = put_object_alone
main(sys.argv[1:])
"""


def environment(endpoint: str) -> dict[str, str]:
    """Return the variables by which a program reaches a server."""
    return {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": endpoint,
    }


@contextmanager
def s3_server(folder: Path) -> Iterator[int]:
    """Run a server that has the bucket `BUCKET`; yield its port on this machine."""
    with s3_process(folder) as (port, _):
        yield port


@contextmanager
def s3_process(folder: Path) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """Run a server that has the bucket `BUCKET`; yield its port on this machine, and its process."""
    assert PYTHON, "nox -s stores installs a server of S3, and says where it is"
    port = free_port()
    command = [PYTHON, "-c", _SERVER, "-H", "127.0.0.1", "-p", str(port)]
    with (folder / "s3-server.log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            make_bucket(port, process)
            yield port, process
        finally:
            process.send_signal(signal.SIGCONT)  # if a test has stopped it
            process.terminate()


def make_bucket(port: int, process: subprocess.Popen[bytes]) -> None:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/{BUCKET}", data=b"", method="PUT")
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            with urllib.request.urlopen(request):
                return
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise
            time.sleep(0.1)


class Gate:
    """Passes connections on to a port, unless it is closed; then they are refused, and those that are open end.

    Attributes:
        endpoint: where it listens, also when it is closed.
        address: the same as host and port.
        silent: connections are accepted, and nothing is passed on.
        passed: how many bytes were passed on to the server.
        answered: how many bytes were passed on from it.
        cut: after so many more bytes a connection ends, once; None: none does.
        cuts_answers: they are counted from the server, not to it.
    """

    def __init__(self, port: int) -> None:
        self.silent = False
        self.passed = 0
        self.answered = 0
        self.cut: int | None = None
        self.cuts_answers = False
        self._port = port
        self._own_port = free_port()
        self._listener: socket.socket | None = None
        self._open: set[socket.socket] = set()
        self.endpoint = f"http://127.0.0.1:{self._own_port}"
        self.address = f"127.0.0.1:{self._own_port}"

    def open(self) -> None:
        """Listen."""
        listener = self._listener = socket.create_server(("127.0.0.1", self._own_port))
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def close(self) -> None:
        """Refuse connections, and end those that are open."""
        listener, self._listener = self._listener, None
        if listener is not None:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # wakes who waits for connections, and closes it
            listener.close()
        for one in list(self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._port))
            self._open |= {client, server}
            threading.Thread(target=self._pass, args=(client, server, True), daemon=True).start()
            threading.Thread(target=self._pass, args=(server, client, False), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, counted: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if self.silent:
                    continue
                if self.cut is not None and counted != self.cuts_answers:
                    left = self.cut - len(data)
                    self.cut = left if left > 0 else None
                    if left <= 0:
                        target.sendall(data[: len(data) + left])
                        break
                if counted:
                    self.passed += len(data)
                else:
                    self.answered += len(data)
                target.sendall(data)
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self._open.discard(source)
        source.close()  # its other direction has its own end
