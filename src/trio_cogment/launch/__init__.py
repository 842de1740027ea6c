"""Launch files: the processes of a project, started and stopped together.

`load_plan` reads a file and fills it in; a `Launcher` runs what came of it. The template language is in
`trio_cogment.launch.template`. Source: the reference's documentation of `cogment launch`.
"""

from trio_cogment.launch._format import Format as Format
from trio_cogment.launch._format import Level as Level
from trio_cogment.launch._format import Source as Source
from trio_cogment.launch._format import State as State
from trio_cogment.launch._format import Stream as Stream
from trio_cogment.launch._launcher import DEFAULT_GRACE_SECONDS as DEFAULT_GRACE_SECONDS
from trio_cogment.launch._launcher import Display as Display
from trio_cogment.launch._launcher import Launcher as Launcher
from trio_cogment.launch._plan import Plan as Plan
from trio_cogment.launch._plan import Script as Script
from trio_cogment.launch._plan import load_plan as load_plan
from trio_cogment.launch._programs import Programs as Programs
from trio_cogment.launch.strays import Strays as Strays
