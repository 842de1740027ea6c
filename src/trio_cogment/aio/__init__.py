"""The platform for asyncio programs: coroutines, and Trio in the thread of the loop.

```python
import trio_cogment.aio

async with trio_cogment.aio.open_platform() as platform:
    platform.participants.register_environment(world)
    trial_id = await platform.controller.start_trial(params)
    await platform.controller.wait_trial(trial_id)
```

`docs/embedding.md` is the guide.
"""

from trio_cogment.aio._awaited import Items
from trio_cogment.aio._platform import (
    Controller,
    DatastoreClient,
    ModelRegistryClient,
    Participants,
    Platform,
    open_platform,
)
from trio_cogment.aio._sessions import (
    ActorCoroutine,
    ActorSession,
    DatalogCoroutine,
    DatalogSession,
    EnvironmentCoroutine,
    EnvironmentSession,
    PreTrialCoroutine,
)

__all__ = [
    "ActorCoroutine",
    "ActorSession",
    "Controller",
    "DatalogCoroutine",
    "DatalogSession",
    "DatastoreClient",
    "EnvironmentCoroutine",
    "EnvironmentSession",
    "Items",
    "ModelRegistryClient",
    "Participants",
    "Platform",
    "PreTrialCoroutine",
    "open_platform",
]
