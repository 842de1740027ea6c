"""The project of docs/web-proxy.md as it is printed: servers as processes, and a player with Python's own client."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import trio

from tests.cli.process import PATIENCE_SECONDS, run_here, server
from tests.ports import free_port

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "web-proxy.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def write_project(folder: Path) -> None:
    for _, text in BLOCKS:
        name = re.match(r"(?:#|//) (\w+\.\w+)\n", text)
        if name is not None:
            (folder / name[1]).write_text(text)


def commands() -> list[list[str]]:
    """Return the servers of the page, without the addresses that a test cannot have."""
    (text,) = (text for kind, text in BLOCKS if kind == "sh")
    lines = text.replace("\\\n", " ").splitlines()
    return [line.partition("trio-cogment ")[2].split() for line in lines]


async def test_the_project(tmp_path: Path) -> None:
    write_project(tmp_path)
    everything, participants, proxy = commands()
    own_directory = {"COGMENT_DIRECTORY_PERSISTENCE_FILE": ""}
    async with server(*everything, "--port=0", variables=own_directory) as first:

        def there(command: list[str]) -> list[str]:
            return [argument.replace("localhost:9000", f"127.0.0.1:{first.port}") for argument in command]

        async with (
            server(*there(participants), "--port=0", folder=tmp_path) as second,
            server(
                *there(proxy),
                f"--web_port={free_port()}",
                addresses=2,
                folder=tmp_path,
                variables={"COGMENT_WEB_PROXY_SECRET": "nobody-can-guess-this"},
            ) as third,
        ):
            assert second.port
            await registered(first.port)
            with trio.fail_after(PATIENCE_SECONDS):
                done = await trio.run_process(
                    [sys.executable, "play.py", f"http://127.0.0.1:{third.addresses[1][1]}"],
                    cwd=tmp_path,
                    capture_stdout=True,
                )
            (expected,) = (text for kind, text in BLOCKS if kind == "text")
            assert done.stdout.decode() == expected
            assert await third.stop() == 0
            assert "Traceback" not in third.err
        assert await first.stop() == 0


async def registered(port: int) -> None:
    """Wait until the directory has the environment, and the actors of the proxy."""
    for kind in ("environment", "actor"):
        inquire = ("client", "directory", "inquire", f"--type={kind}", f"--endpoint=grpc://127.0.0.1:{port}")
        with trio.fail_after(PATIENCE_SECONDS):
            while "[0] Services" in (await run_here(*inquire)).out:
                pass
