"""The dashboard: pages that show what an orchestrator and its stores do, and that can start and stop trials.

It is part of a server: its routes are served by the web side of the server's ports (`trio_cogment.web.routing`). What a
page asks of the platform's services is asked in the name of who looks at it, so that the table of rights holds.

A trial must not become slower because somebody looks at it. So what a page is told about trials comes from looking at
them several times a second, one look for everybody (`_board`), and never from within a tick. A tab is then told what
has changed since it was told last (`_rows`). One that does not read is told nothing and has no queue; when it reads
again it gets the difference, so its cost does not grow.

What pages are told is worked out without I/O: `_rows`, `_views`, `_board`, `_payloads`. `_live` is the WebSocket of a
tab, `_views` what a tab can look at. Most of it is imported when the first browser comes (`_opening`).
"""

from trio_cogment.dashboard._opening import open_dashboard

__all__ = [
    "open_dashboard",
]
