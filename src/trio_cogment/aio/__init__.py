"""The platform for asyncio programs: coroutines, and Trio in the thread of the loop.

```python
import trio_cogment.aio

async with trio_cogment.aio.open_platform() as platform:
    platform.participants.register_environment(world)
    trial_id = await platform.controller.start_trial(params)
    await platform.controller.wait_trial(trial_id)
```

Trio runs in the thread of the asyncio loop, as its guest: the two loops take turns, so an implementation that is a
coroutine needs no lock against the rest of the program, and no other thread is woken for a call. A call in either
direction is a task on the other side whose end is awaited; cancelling the one cancels the other, and waits until it has
cleaned up (`_guest`).

What programs see is made from the methods of the Trio classes (`_awaited`): it has the same arguments, results and
errors, and no logic of its own.

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
