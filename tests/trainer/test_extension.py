"""A trainer with a platform."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from tests.trainer.bench import Client
from tests.trainer.dispatch.programs import WRITES, program, until
from trio_cogment.base.errors import FailedPreconditionError
from trio_cogment.platform import open_platform
from trio_cogment.trainer import PlatformTrainer


async def test_it_is_served_with_the_platform(tmp_path: Path) -> None:
    async with open_platform(extensions=[PlatformTrainer(tmp_path / "new", full=False)]) as platform:
        assert "gymgui.trainer.TrainerService" in [service.name for service in platform.services]
        client = Client(platform.channel)
        with trio.fail_after(30):
            await client.submit("a", **program(WRITES))
            await until(client, "a", "TERM")
            assert await client.all_of("a") == [1, 2]


async def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FailedPreconditionError, match="Not a directory"):
        async with open_platform(extensions=[PlatformTrainer(tmp_path / "file" / "folder")]):
            pass
