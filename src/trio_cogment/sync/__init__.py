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

from trio_cogment.sync._participants import ActorFunction as ActorFunction
from trio_cogment.sync._participants import DatalogFunction as DatalogFunction
from trio_cogment.sync._participants import EnvironmentFunction as EnvironmentFunction
from trio_cogment.sync._participants import Participants as Participants
from trio_cogment.sync._participants import PreTrialFunction as PreTrialFunction
from trio_cogment.sync._participants import actor as actor
from trio_cogment.sync._participants import datalog as datalog
from trio_cogment.sync._participants import environment as environment
from trio_cogment.sync._participants import pre_trial_hook as pre_trial_hook
from trio_cogment.sync._platform import Controller as Controller
from trio_cogment.sync._platform import DatastoreClient as DatastoreClient
from trio_cogment.sync._platform import ModelRegistryClient as ModelRegistryClient
from trio_cogment.sync._platform import Platform as Platform
from trio_cogment.sync._platform import open_platform as open_platform
from trio_cogment.sync._portal import Items as Items
from trio_cogment.sync._portal import TrioThread as TrioThread
from trio_cogment.sync._sessions import ActorSession as ActorSession
from trio_cogment.sync._sessions import DatalogSession as DatalogSession
from trio_cogment.sync._sessions import EnvironmentSession as EnvironmentSession
