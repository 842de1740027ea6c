"""The guide's program runs as it is printed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import trio

from trio_cogment.base.config import DirectoryConfig
from trio_cogment.rpc import open_listeners, serve
from trio_cogment.sdk import Participants
from trio_cogment.testing.fakes.directory import FakeDirectory

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "discovery.md"


async def never(_session: object) -> None:
    raise AssertionError


async def test_the_program() -> None:
    (program,) = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    fake, participants, names = FakeDirectory(), Participants(), dict[str, Any]()
    participants.register_environment(never)
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            serving = await nursery.start(serve, [fake.service()], await open_listeners("127.0.0.1"))
            program = program.replace("directory:9005", f"127.0.0.1:{serving.port}").replace("9001", "0")
            exec(compile(program, str(GUIDE), "exec"), names)
            guarded = trio.CancelScope()

            async def run() -> None:
                with guarded:
                    await names["main"](participants)

            nursery.start_soon(run)
            await fake.wait_until(lambda: bool(fake.entries))
            assert {entry.token for entry in fake.entries.values()} == {"team-a"}
            guarded.cancel()
            await fake.wait_until(lambda: not fake.entries)
            nursery.cancel_scope.cancel()


def test_times_in_the_guide_are_the_defaults() -> None:
    text, config = GUIDE.read_text(), DirectoryConfig()
    for name, value in re.findall(r"`(\w+_seconds)` \((\d+)\)", text):
        assert getattr(config, name) == float(value)
