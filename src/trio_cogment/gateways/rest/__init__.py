"""The web proxy: trials started and played by HTTP and JSON, as with the reference's; see `docs/web-proxy.md`.

A page that can do no more than `fetch` takes the part of an actor. The orchestrator calls the actor as it calls any
other served actor, and the stream stays open for the whole trial: heartbeats are answered and the end is known,
whatever the browser does. The page's requests come and go beside it. A request for an observation waits until there is
one (a long poll), and one whose answer was lost on the way is made again and gets the same answer.

Who holds a seat is said by a token that the answer to `join` has, and that is derived from the caller's own token, if
it has one: it ends when that one does. Payloads are JSON with the field names of their protobuf types, by the
reference's conventions (`messages`), so that its pages work unchanged.
"""

from trio_cogment.gateways.rest.proxy import RestProxy
from trio_cogment.gateways.rest.routes import rest_routes

__all__ = [
    "RestProxy",
    "rest_routes",
]
