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

from trio_cogment.aio._awaited import Items as Items
from trio_cogment.aio._platform import Controller as Controller
from trio_cogment.aio._platform import DatastoreClient as DatastoreClient
from trio_cogment.aio._platform import ModelRegistryClient as ModelRegistryClient
from trio_cogment.aio._platform import Participants as Participants
from trio_cogment.aio._platform import Platform as Platform
from trio_cogment.aio._platform import open_platform as open_platform
from trio_cogment.aio._sessions import ActorCoroutine as ActorCoroutine
from trio_cogment.aio._sessions import ActorSession as ActorSession
from trio_cogment.aio._sessions import DatalogCoroutine as DatalogCoroutine
from trio_cogment.aio._sessions import DatalogSession as DatalogSession
from trio_cogment.aio._sessions import EnvironmentCoroutine as EnvironmentCoroutine
from trio_cogment.aio._sessions import EnvironmentSession as EnvironmentSession
from trio_cogment.aio._sessions import PreTrialCoroutine as PreTrialCoroutine
