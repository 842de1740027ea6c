"""A small trial to look at: a speaker and a listener invent a code for colours.

It is David Lewis's signalling game. The speaker sees a colour and sends a symbol, the listener sees the symbol and
names a colour; both are rewarded when it is the right one. Nobody tells them what the symbols mean: they agree on it.

`run_demo` runs it, within the process or over sockets; `show` makes it readable.
"""

from trio_cogment.demo.run import DemoResult as DemoResult
from trio_cogment.demo.run import run_demo as run_demo
