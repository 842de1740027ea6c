"""The platform for scripts and notebooks: ordinary functions, and Trio in a thread of its own.

```python
import trio_cogment.sync

with trio_cogment.sync.open_platform() as platform:
    platform.participants.register_environment(world)
    trial_id = platform.controller.start_trial(params)
    platform.controller.wait_trial(trial_id)
```

`docs/embedding.md` is the guide.
"""

from trio_cogment.sdk.bridges.thread import TrioThread
from trio_cogment.sync._blocking import Items
from trio_cogment.sync._participants import (
    ActorFunction,
    DatalogFunction,
    EnvironmentFunction,
    Participants,
    PreTrialFunction,
    actor,
    datalog,
    environment,
    pre_trial_hook,
)
from trio_cogment.sync._platform import Controller, DatastoreClient, ModelRegistryClient, Platform, open_platform
from trio_cogment.sync._sessions import ActorSession, DatalogSession, EnvironmentSession

__all__ = [
    "ActorFunction",
    "ActorSession",
    "Controller",
    "DatalogFunction",
    "DatalogSession",
    "DatastoreClient",
    "EnvironmentFunction",
    "EnvironmentSession",
    "Items",
    "ModelRegistryClient",
    "Participants",
    "Platform",
    "PreTrialFunction",
    "TrioThread",
    "actor",
    "datalog",
    "environment",
    "open_platform",
    "pre_trial_hook",
]
