"""What a program takes from outside itself: the clock, ids, randomness, connections, files and worker threads.

`Host()` is the system. A simulation gives its programs hosts of its own (`trio_cogment.testing.World.host`), in which
all of this comes from the seed. `files` and `blocking` have the interfaces of files and of blocking work.
"""

from trio_cogment.host._host import Connect as Connect
from trio_cogment.host._host import Host as Host
from trio_cogment.host.blocking import Runner as Runner
from trio_cogment.host.blocking import ThreadRunner as ThreadRunner
from trio_cogment.host.blocking import inline_runner as inline_runner
from trio_cogment.host.blocking import run_inline as run_inline
from trio_cogment.host.files import Files as Files
from trio_cogment.host.files import SystemFiles as SystemFiles
