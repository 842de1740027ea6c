"""Settings of pages in which people take part in trials."""

from __future__ import annotations

from trio_cogment._records import record
from trio_cogment.config._checks import SECONDS, SIZE, Range, check_ranges


@record(kw_only=True)
class PlayConfig:
    """What pages may do, and how much is kept for them.

    Attributes:
        max_page_message_bytes: the longest message of a page.
        page_messages_per_second: how many messages a page may send, on average; it is closed when it sends more.
        page_burst: how many it may send at once.
        max_notices: how many messages and rewards are kept for pages that are loaded again, and wait for a slow one.
        max_blob_bytes: a larger picture is not shown.
        max_finished_seats: how many seats in ended trials are remembered, for those who look again.
        max_finished_bytes: the size of what was seen last in all of them; the oldest are forgotten.
        page_silence_seconds: a page that has not been heard of for so long counts as gone. Pages send something every
            few seconds; browsers let those that are hidden do so once a minute.
        empty_seconds: how long a trial of a lobby goes on when all of its people have gone; it ends at once when all of
            them have left, or have never come.
        link_seconds: how long the link of a seat counts.
    """

    max_page_message_bytes: int = 64 * 1024
    page_messages_per_second: float = 60.0
    page_burst: int = 240
    max_notices: int = 100
    max_blob_bytes: int = 8 * 1024 * 1024
    max_finished_seats: int = 1000
    max_finished_bytes: int = 32 * 1024 * 1024
    page_silence_seconds: float = 90.0
    empty_seconds: float = 60.0
    link_seconds: float = 7 * 86400.0

    def __post_init__(self) -> None:
        check_ranges(self, _RANGES)


_RANGES: dict[str, Range] = {
    "max_page_message_bytes": SIZE,
    "page_messages_per_second": (0.1, 1e6),
    "page_burst": SIZE,
    "max_notices": SIZE,
    "max_blob_bytes": SIZE,
    "max_finished_seats": SIZE,
    "max_finished_bytes": SIZE,
    "page_silence_seconds": SECONDS,
    "empty_seconds": SECONDS,
    "link_seconds": SECONDS,
}
