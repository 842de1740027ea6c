"""Servers and JavaScript programs as processes of a test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent.parent

#: Loads the SDK and `scenario.js` in Node.js, whose WebSocket is an option in version 20.
NODE = """\
import { createRequire } from "node:module";
globalThis.window = globalThis.self = globalThis;
const require = createRequire(import.meta.url);
const cogment = require("./cogment.cjs");
require(process.argv[2]);
const seen = await scenario[process.argv[3]](cogment, `http://127.0.0.1:${process.argv[4]}`, Number(process.argv[5]));
console.log(JSON.stringify(seen));
process.exit(0);
"""


def installed() -> Path:
    """Return the folder with the SDK and the official client, that the nox sessions make."""
    folder = os.environ.get("TRIO_COGMENT_JAVASCRIPT")
    if folder is None:
        pytest.fail("TRIO_COGMENT_JAVASCRIPT is not set; `nox -s javascript browser` makes that folder and sets it")
    return Path(folder)


class Server:
    """A server of this folder that runs.

    Attributes:
        port: its port.
        output: what it has printed at its end.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self._process = process
        self.port = process.stdout.readline().strip()
        self.output = ""

    def line(self) -> str:
        """Return the next line that it prints."""
        assert self._process.stdout is not None
        return self._process.stdout.readline()


@contextmanager
def running(module: str, *arguments: str) -> Iterator[Server]:
    """Run a server of this folder, and end it in order."""
    command = [sys.executable, "-m", f"tests.interop.browser.{module}", *arguments]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        server = Server(process)
        yield server
        server.output, _ = process.communicate("", timeout=20)
        assert process.returncode == 0
    finally:
        process.kill()
        process.wait()


def lines(*command: str, seconds: float) -> list[dict[str, Any]]:
    """Run a program that prints lines of JSON."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=seconds, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def foreign(url: str) -> list[str]:
    """Return a complaint about what a page loads, unless it is from this machine or made by the page itself."""
    host = urlsplit(url).hostname
    return [] if host in (None, "localhost", "127.0.0.1") else [f"loads {url}"]


def check_played(seen: dict[str, Any], ticks: int) -> None:
    """Check what `play` of `scenario.js` has seen: everything, in order, and the end."""
    assert seen.get("error") is None, seen["error"]
    count = len(seen["observations"])
    assert count > ticks
    assert seen["observations"] == [[number] for number in range(count)]
    # The last observation is final: nothing is answered to it.
    assert seen["messages"] == [[7, number] for number in range(1, len(seen["messages"]) + 1)]
    assert len(seen["messages"]) >= ticks
    assert seen["rewards"] >= ticks
    assert seen["terminated"] is True
    assert seen["infos"] == 1
    assert seen["final"] == 1
    assert seen["events"][-1] == 3
