"""The dashboard: pages that show what an orchestrator and its stores do, and that can start and stop trials.

It is part of a server: its routes are served by the web side of the server's ports (`trio_cogment.web.routing`). What a
page asks of the platform's services is asked in the name of who looks at it, so that the table of rights holds. What
it is told about trials comes from looking at them several times a second (`_board`), never from within a tick.

What pages are told is worked out without I/O: `_rows`, `_views`, `_board`, `_payloads`. `_live` is the WebSocket of a
tab, `_views` what a tab can look at.
"""

from trio_cogment.dashboard._opening import open_dashboard

__all__ = [
    "open_dashboard",
]
