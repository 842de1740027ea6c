"""@grpc/grpc-js, in Node.js: the statuses of `docs/grpc-statuses.md`."""

from __future__ import annotations

import subprocess

import pytest
import trio

from tests.interop.browser.programs import HERE, installed, lines
from tests.rpc.status_rows import RESPONSES, answering, documented, statuses_of

pytestmark = pytest.mark.javascript

PATIENCE_SECONDS = 60


def column(title: str) -> dict[str, str]:
    return {row: cells["grpc-js"] for row, cells in documented(title).items()}


async def test_its_status_for_each_answer_is_that_of_the_page() -> None:
    def run(port: int) -> list[str]:
        arguments = ["call", str(port), str(len(RESPONSES))]
        [seen] = lines("node", str(HERE / "grpc_js.mjs"), str(installed()), *arguments, seconds=PATIENCE_SECONDS)
        return [str(status) for status in seen["found"]]

    async with answering(RESPONSES) as port:
        found = await trio.to_thread.run_sync(run, port)
    assert dict(zip(RESPONSES, found, strict=True)) == column("What a server answers")


async def test_its_status_for_each_request_is_that_of_the_page() -> None:
    command = ["node", str(HERE / "grpc_js.mjs"), str(installed()), "serve"]
    process = await trio.lowlevel.open_process(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        with trio.fail_after(PATIENCE_SECONDS):
            port = int((await process.stdout.receive_some()).decode())
            assert await statuses_of(port) == column("What a client asks")
            await process.stdin.aclose()
            await process.wait()
    finally:
        process.kill()
