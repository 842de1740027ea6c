"""An actor that bids for things, and is patient: it answers late, but never after its time."""

import trio

from trio_cogment import ActorSession

#: How long it thinks about an offer that is close to its limit.
THINKING_SECONDS = 20.0
LIMIT = 50


async def bidder(session: ActorSession) -> None:
    """Bid one more than the offer as long as that is within the limit; then pass, with 0."""
    async for event in session.all_events():
        if event.observation is None:
            continue
        offer = event.observation.payload[0]
        if LIMIT - 10 < offer < LIMIT:
            await trio.sleep(THINKING_SECONDS)
        await session.do_action(bytes([offer + 1 if offer < LIMIT else 0]))
