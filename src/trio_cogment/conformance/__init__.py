"""A conformance kit for servers that speak Cogment's API: cases, and a verdict for each.

A case plays a short scene with a server: with real participants over real sockets, which the kit serves itself, or as
a client. It returns what it saw as a short text, its outcome. Nothing is asserted within a case, so one case fits
every server: outcomes are compared with what the API's documentation says and with what Cogment 2.22 does, each of
which the case names, and with what this project does where it differs from both on purpose (docs/wire.md).

Messages are never waited for by sleeping. Where a case shows that nothing comes, it lets something else come that the
server can only send afterwards (`Stage.fence`), so that a slow server is not taken for a silent one.
"""

from trio_cogment.conformance._case import Case, Result, Verdict, judged
from trio_cogment.conformance._play import SERVICES, cases_of, play_cases
from trio_cogment.conformance._server import Server, open_server

__all__ = ["SERVICES", "Case", "Result", "Server", "Verdict", "cases_of", "judged", "open_server", "play_cases"]
