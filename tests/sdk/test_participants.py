"""The registry of implementations."""

from __future__ import annotations

import pytest

from trio_cogment.errors import NotFoundError
from trio_cogment.sdk import EnvironmentSession, Participants


async def maze(session: EnvironmentSession) -> None:
    await session.start()


def test_an_environment_is_unregistered() -> None:
    participants = Participants()
    participants.register_environment(maze, "maze")
    assert len(participants.kinds()) == 1
    participants.unregister_environment("maze")
    assert participants.kinds() == set()
    with pytest.raises(NotFoundError, match="environment 'maze': not registered"):
        participants.unregister_environment("maze")
