"""Settings of pages in which people take part in trials."""

from __future__ import annotations

from trio_cogment.base.config.declarations import Settings, Shared, setting
from trio_cogment.base.records import record


@record(kw_only=True)
class PlayConfig(Settings):
    """What pages may do, and how much is kept for them."""

    max_page_message_bytes: int = setting(64 * 1024, "the longest message of a page", of="message")
    page_messages_per_second: float = setting(
        60.0, "how many messages a page may send, on average; it is closed when it sends more", within=(0.1, 1e6)
    )
    page_burst: int = setting(240, "how many it may send at once", of="connection")
    max_notices: int = setting(
        100,
        "how many messages and rewards are kept for a page that is loaded again, and wait for a slow one",
        of="connection",
    )
    max_blob_bytes: int = setting(8 * 1024 * 1024, "a larger picture is not shown", of="message")
    max_finished_seats: int = setting(
        1000,
        "how many seats in ended trials are remembered, for those who look again",
        shared=Shared(
            "finished seats of people",
            "the oldest are forgotten: nothing but a last look is lost",
            "this process",
            "the next ones",
        ),
    )
    max_finished_bytes: int = setting(
        32 * 1024 * 1024,
        "the size of what was seen last in all of them; the oldest are forgotten",
        shared=Shared(
            "bytes of finished seats",
            "the oldest are forgotten; nothing is kept of a seat that nobody has taken",
            "this process",
            "the next ones",
        ),
    )
    page_silence_seconds: float = setting(
        90.0,
        "a page that has not been heard of for so long counts as gone. Pages send something every few seconds; "
        "browsers let those that are hidden do so once a minute",
    )
    empty_seconds: float = setting(
        60.0,
        "how long a trial of a lobby goes on when all of its people have gone; it ends at once when all of them "
        "have left, or have never come",
    )
    link_seconds: float = setting(7 * 86400.0, "how long the link of a seat counts")
    max_participants: int = setting(
        10_000,
        "how many participants an experiment has, all that ever came; further ones are told that it is full",
        shared=Shared(
            "participants of an experiment",
            "who comes takes the place of who has gone without doing a page; connections have shares",
            "the page",
            "who has done no page: the next ones. The others are data: `trio-cogment experiment forget` deletes one",
        ),
    )
