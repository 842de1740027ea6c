"""Tests of the actor: in virtual time, with a seed that decides in which order things happen."""

from functools import partial

import pytest
from patient import LIMIT, bidder

from trio_cogment import EnvironmentSession, actor_params, trial_params


class Auction:
    """An environment that offers these prices, one after the other, and keeps the bids."""

    def __init__(self, *offers: int) -> None:
        self.offers = list(offers)
        self.bids: list[int | None] = []

    async def run(self, session: EnvironmentSession) -> None:
        await session.start([("*", bytes([self.offers[0]]))])
        async for event in session.all_events():
            if event.actions is None:
                continue
            action = event.actions[0]
            self.bids.append(action.payload[0] if action.available else None)
            tick = event.tick_id + 1
            if tick < len(self.offers):
                await session.produce_observations([("*", bytes([self.offers[tick]]))])
            else:
                await session.end([("*", bytes([0]))])


async def played(world, *offers: int, answer_seconds: float = 60) -> list[int | None]:
    """Run a trial; return the bids. It makes all that it changes: a seed may be run twice, and compared."""
    auction = Auction(*offers)
    async with world.open_platform() as platform:
        platform.participants.register_environment(auction.run)
        platform.participants.register_actor(bidder, "bidder")
        ann = actor_params("ann", "bidder", response_timeout_seconds=answer_seconds, optional=True)
        trial_id = await platform.controller.start_trial(trial_params([ann]))
        await platform.controller.wait_trial(trial_id)
    return auction.bids


def test_it_bids_up_to_its_limit(sim):
    assert sim(played, 10, 30, LIMIT, LIMIT + 20).value == [11, 31, 0, 0]


def test_it_thinks_when_it_is_close(sim):
    outcome = sim(played, 45, 45, 45)
    assert outcome.value == [46, 46, 46]
    assert 60 <= outcome.seconds < 61  # of virtual time: the test takes none


@pytest.mark.sim(seeds=25)
def test_who_gives_it_less_time_gets_no_bid(sim):
    outcome = sim(partial(played, answer_seconds=5), 45, 10)
    assert outcome.value[0] is None
