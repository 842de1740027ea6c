"""`trio-cogment health`, against servers in this process and one that asks for tokens."""

from __future__ import annotations

import json
from pathlib import Path

import trio

from tests.cli.process import PATIENCE_SECONDS, listening, run_here, server
from trio_cogment.rpc import HealthService


async def test_what_serves_and_what_does_not() -> None:
    found = HealthService()
    async with listening(found.service()) as endpoint:
        where = f"--endpoint={endpoint}"
        done = await run_here("health", where)
        assert (done.code, done.out, done.err) == (0, f"{endpoint}: SERVING\n", "")
        done = await run_here("health", where, "--json")
        assert (done.code, json.loads(done.out)) == (0, {"endpoint": endpoint, "status": "SERVING"})
        found.stop()
        done = await run_here("health", variables={"COGMENT_ENDPOINT": endpoint})
        assert (done.code, done.out, done.err) == (1, f"{endpoint}: NOT_SERVING\n", "")
    gone = await run_here("health", where, "--timeout=100ms")
    assert (gone.code, gone.out) == (1, "")
    assert gone.err.startswith(f"trio-cogment: the service at {endpoint} cannot be reached: ")
    gone = await run_here("health", where, "--timeout=100ms", "--json")
    assert (gone.code, gone.err) == (1, "")
    assert "cannot be reached" in json.loads(gone.out)["error"]


async def test_a_server_that_asks_for_tokens_answers_without_one(secret: Path) -> None:
    flags = ("--auth=token", f"--auth_secret_file={secret}")
    with trio.fail_after(PATIENCE_SECONDS):
        async with server("serve", "--host=127.0.0.1", "--port=0", *flags) as running:
            done = await run_here("health", f"--endpoint=grpc://127.0.0.1:{running.port}")
            assert (done.code, done.out) == (0, f"grpc://127.0.0.1:{running.port}: SERVING\n")
            await running.stop()
