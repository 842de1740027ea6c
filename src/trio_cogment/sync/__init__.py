"""The platform for scripts and notebooks: ordinary functions, and Trio in a thread of its own.

```python
import trio_cogment.sync

with trio_cogment.sync.open_platform() as platform:
    platform.participants.register_environment(world)
    trial_id = platform.controller.start_trial(params)
    platform.controller.wait_trial(trial_id)
```

A script calls and expects the result, and between two calls the platform must go on: trials run, heartbeats are
answered. So Trio runs in a thread of its own (`trio_cogment.sdk.bridges.thread`), and a call is a function that is run
there while the caller waits. Control-C in a waiting call cancels that call and nothing else.

An implementation that is an ordinary function gets a worker thread for each session, because it may block as long as it
likes. What it sees is made from the Trio classes (`_blocking`): it has the same arguments, results and errors, and no
logic of its own.

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
