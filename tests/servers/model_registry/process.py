"""A registry's process, as tests and measurements see it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

ROOT = Path(__file__).resolve().parents[3]
PATIENCE_SECONDS = 40


class Server:
    """A process that serves a registry.

    Attributes:
        process: the process.
        port: where it listens.
    """

    def __init__(self, process: trio.Process, port: int) -> None:
        self.process = process
        self.port = port

    async def kill(self) -> None:
        """End it as nothing else does: at once, and without its knowing (SIGKILL)."""
        self.process.kill()
        await self.process.wait()

    def memory_bytes(self) -> int:
        """Return the most memory it has had (RSS)."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("the system does not say")


@asynccontextmanager
async def server(root: Path) -> AsyncIterator[Server]:
    """Run a registry's process for the time of a block; it may be killed before."""
    process = await trio.lowlevel.open_process(
        [sys.executable, "-m", "tests.servers.model_registry.serve", str(root)], cwd=ROOT, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        with trio.fail_after(PATIENCE_SECONDS):
            line = await process.stdout.receive_some()
        yield Server(process, int(line))
    finally:
        if process.returncode is None:
            process.kill()
        with trio.CancelScope(shield=True, deadline=trio.current_time() + PATIENCE_SECONDS):
            await process.wait()
            assert process.stdout is not None
            await process.stdout.aclose()
