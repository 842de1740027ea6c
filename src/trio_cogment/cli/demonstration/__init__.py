"""A demonstration: a small trial in which a speaker and a listener invent a code for colours.

It is David Lewis's signalling game. The speaker sees a colour and sends a symbol, the listener sees the symbol and
names a colour; both are rewarded when it is the right one. The symbols have no meaning until the actors agree on one.

`run_demo` runs it, in process or over sockets; `show` formats the result.
"""

from trio_cogment.cli.demonstration.run import DemoResult as DemoResult
from trio_cogment.cli.demonstration.run import run_demo as run_demo
